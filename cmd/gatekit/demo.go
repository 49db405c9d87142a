package main

//lint:file-ignore SA1019 sampling is deprecated, but servers use it, and the demo denies it

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"gatekit/audit"
	"gatekit/core/config"
	"gatekit/policies/library"
	"gatekit/transport"
)

func (p *program) demo() *cobra.Command {
	return &cobra.Command{
		Use: "demo",
		Short: "Show a session: calls, a hidden tool, a redacted secret, denied attacks, a " +
			"server that changes, the audit log",
		Long: `Demo runs a real session between built-in parts: a client, Gatekit, two servers, and
the plugins "tools" and "secrets", each in its own process, with the default rules of gatekit wrap.
It hides a tool, redacts a key in a file, and denies a disguised path and a sampling request for too
much context.

  client ── gatekit ─┬─ files: read_file, delete_file
                     └─ notes: add_note, summarize

In a second session, the program of the server weather is replaced overnight. The changed tool is
held back, and the sandbox keeps the program from a file with a key, which the demo has made. Where
the system cannot confine programs (see gatekit help wrap), the demo says so.

Then the demo shows and verifies the audit log. It needs no network and keeps no files.`,
		Example: `  gatekit demo`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), time.Minute,
				errors.New("the demo did not end within a minute"))
			defer cancel()
			p.logWarningsOnly(cmd)
			if err := demo(ctx, cmd.OutOrStdout(), p.log); err != nil {
				return fmt.Errorf("run the demo: %w", err)
			}
			return nil
		},
	}
}

func demo(ctx context.Context, out io.Writer, log *slog.Logger) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gatekit-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// What waits for an approval is kept in the state folder.
	if err := os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state")); err != nil {
		return err
	}
	c := config.Wrap("files", self, "demo-server", "files")
	c.Servers = append(c.Servers, config.Wrap("notes", self, "demo-server", "notes").Servers...)
	for i := range c.Servers {
		c.Servers[i].Era = "modern" // so that the log has no records of a probe
	}
	c.Names.Prefix = "always"
	c.Audit.File = filepath.Join(dir, "audit.jsonl")

	c.Plugins = []config.Plugin{
		config.BuiltIn("tools", map[string]any{
			"tools": map[string]any{"hide": []string{"delete_*"}}}),
		config.BuiltIn("secrets", map[string]any{"action": "redact",
			"key": "the same in every run of the demo"}),
	}

	c.Policy = &config.Policy{Mode: "enforce",
		Rules:  slices.Sorted(maps.Keys(library.DefaultRules())),
		Config: library.DefaultRules()}

	g, err := openGateway(ctx, c, log, nil)
	if err != nil {
		return err
	}
	fmt.Fprint(out, "A client, Gatekit, two servers (files, notes) and two plugins (tools, "+
		"secrets), each in its own\nprocess, with the default rules of gatekit wrap.\n")
	color := paletteFor(out)
	if err := demoSession(ctx, out, color, g); err != nil {
		return err
	}
	if err := demoNextDay(ctx, out, color, self, dir, c.Audit.File); err != nil {
		return err
	}
	return showAuditLog(ctx, out, color, c.Audit.File)
}

// withDemoClient calls use with a client of the gateway. Then it closes the gateway.
func withDemoClient(ctx context.Context, g *gateway,
	use func(*sdk.ClientSession) error) (err error) {
	defer func() { err = errors.Join(err, g.close()) }()
	toGatekit, fromClient, err := os.Pipe()
	if err != nil {
		return err
	}
	toClient, fromGatekit, err := os.Pipe()
	if err != nil {
		return err
	}
	pipe := transport.NewStdioPipe(toGatekit, fromGatekit, 0)
	served := make(chan error, 1)
	go func() { served <- g.endpoint.ServePipe(ctx, pipe, nil) }()
	defer func() {
		fromClient.Close() // disconnects the client
		err = errors.Join(err, <-served, pipe.Close())
		for _, f := range []*os.File{toGatekit, toClient, fromGatekit} {
			f.Close()
		}
	}()

	model := func(context.Context, *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
		return nil, errors.New("the model was asked")
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "demo-client", Version: "1"},
		&sdk.ClientOptions{CreateMessageHandler: model})
	session, err := client.Connect(ctx, &sdk.IOTransport{Reader: toClient, Writer: fromClient}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	return use(session)
}

// demoSession connects a client to the gateway and makes the calls of the demo.
func demoSession(ctx context.Context, out io.Writer, color palette, g *gateway) error {
	return withDemoClient(ctx, g, func(session *sdk.ClientSession) error {
		return demoCalls(ctx, out, color, session)
	})
}

func demoCalls(ctx context.Context, out io.Writer, color palette,
	session *sdk.ClientSession) error {
	fmt.Fprint(out, "\n1. The client lists the tools of both servers. The plugin \"tools\" hides "+
		"files__delete_file.\n\n")
	if err := printTools(ctx, out, session); err != nil {
		return err
	}
	for _, step := range []struct {
		title, tool string
		arguments   json.RawMessage
	}{
		{"2. An allowed call.", "files__read_file", json.RawMessage(`{"path": "welcome.txt"}`)},
		{"3. A call to the other server, in the same session.", "notes__add_note",
			json.RawMessage(`{"note": "try gatekit wrap"}`)},
		{"4. A hidden tool cannot be called.", "files__delete_file",
			json.RawMessage(`{"path": "welcome.txt"}`)},
		{"5. A file that contains a key. The plugin \"secrets\" replaces the key by a placeholder.",
			"files__read_file", json.RawMessage(`{"path": "deploy.env"}`)},
		{"6. A path that hides where it leads. The rule roots/traversal denies the call; the " +
			"server never\n   sees it.", "files__read_file",
			json.RawMessage(`{"path": "reports/..%2f..%2fetc%2fpasswd"}`)},
		{"7. A server asks the client's model, with the context of the other servers. The rule " +
			"sampling/gate\n   denies the request; the model never sees it.", "notes__summarize",
			json.RawMessage(`{}`)},
	} {
		fmt.Fprintf(out, "\n%s\n\n", step.title)
		if err := printCall(ctx, out, color, session, step.tool, step.arguments); err != nil {
			return err
		}
	}
	return nil
}

// printTools prints the tools that the client can see.
func printTools(ctx context.Context, out io.Writer, session *sdk.ClientSession) error {
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, t := range tools.Tools {
		fmt.Fprintf(w, "   %s\t%s\n", t.Name, t.Description)
	}
	return w.Flush()
}

// printCall calls a tool and prints the call and its result or error.
func printCall(ctx context.Context, out io.Writer, color palette, session *sdk.ClientSession,
	tool string, arguments json.RawMessage) error {
	fmt.Fprintf(out, "   → tools/call %s %s\n", tool, arguments)
	result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	callErr, isError := errors.AsType[*jsonrpc.Error](err)
	switch {
	case isError:
		fmt.Fprintf(out, "   ← %s %d, %q, data %s\n", color.bad("error"), callErr.Code,
			callErr.Message, callErr.Data)
	case err != nil:
		return err
	default:
		for _, c := range result.Content {
			if t, ok := c.(*sdk.TextContent); ok {
				fmt.Fprintf(out, "   ← %s\n", strings.ReplaceAll(t.Text, "\n", "\n     "))
			}
		}
	}
	return nil
}

// differing matches the parts of reasons that differ between systems and runs of the demo.
var differing = regexp.MustCompile(`, Landlock ABI .*|; lock file sha256:[0-9a-f]+`)

// showAuditLog prints the records that name a server, and that are about a tools/call or have an
// action other than pass. Then it verifies the log.
func showAuditLog(ctx context.Context, out io.Writer, color palette, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	fmt.Fprint(out, "\n9. Gatekit recorded each decision before it forwarded the message. The "+
		"records about tools,\n   and about what is pinned and confined:\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "   %s\tDIRECTION\tKIND\tMETHOD\tSERVER\tNAME\tREASON\n", color.plain("ACTION"))
	records := 0
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); records++ {
		var r struct{ Action, Direction, Kind, Method, Server, Name, Reason string }
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("read record %d: %w", records+1, err)
		}
		if r.Server != "" && (r.Method == "tools/call" || r.Action != "pass") {
			action := color.acted(r.Action)
			switch r.Action {
			case "pass":
				action = color.good(r.Action)
			case "deny":
				action = color.bad(r.Action)
			}
			reason := differing.ReplaceAllString(r.Reason, "")
			fmt.Fprintf(w, "   %s\t%s\t%s\t%s\t%s\t%s\t%s\n", action, r.Direction, r.Kind,
				r.Method, r.Server, r.Name, reason)
		}
	}
	w.Flush()
	v := audit.Verification{File: file}
	if _, err := v.Run(ctx); err != nil {
		return fmt.Errorf("verify the audit log: %w", err)
	}
	fmt.Fprintf(out, "\n   %d records, verified: each contains the hash of the record before "+
		"it, "+
		"and a signed checkpoint\n   covers all of them.\n", records)
	return nil
}
