package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"gatekit/core/clientfiles"
)

func (p *program) importClients() *cobra.Command {
	var o importOptions
	c := &cobra.Command{
		Use:   "import [CLIENT…]",
		Short: "Put Gatekit in front of the servers of the clients on this machine",
		Long: `Import finds the configuration files of MCP clients, and writes "gatekit wrap" in
front of the command of each server. Only the values of the command and its arguments change:

  before   "command": "npx",
           "args": ["-y", "@modelcontextprotocol/server-memory"],
           "env": { "MEMORY_FILE_PATH": "/srv/memory" }

  after    "command": "/usr/local/bin/gatekit",
           "args": ["wrap", "--env", "MEMORY_FILE_PATH", "npx", "-y",
                    "@modelcontextprotocol/server-memory"],
           "env": { "MEMORY_FILE_PATH": "/srv/memory" }

Every other byte of the file stays: comments, order, indentation, secrets. Import first shows the
changes as a diff, with the values of variables and headers replaced by "…". It asks before it
writes them, unless you set --yes. You can import again at any time, for example after you have
added a server. A server is never wrapped twice.

CLIENT is the name of a client, such as cursor or claude-code; the default is all clients. gatekit
clients lists what is found, and what import cannot reach. Files of a project, which you share with
others, are left alone without --project. In them, import writes the name "gatekit" and no path.

The server gets the variables that the entry names, and the variables that gatekit wrap always
passes on (gatekit help wrap). If a server needs another variable of the client's environment, add
"--env", "NAME" after "wrap".

With --to FILE, import writes a configuration for gatekit run with all servers, and the values of
variables and headers into files of their own, which only you can read. Then it shows how one server
"gatekit" replaces these servers in the clients' files, and asks. It leaves servers in YAML files,
in lists and in files of a project to you, and servers that are switched off.

With --from, the servers are those of another gateway: TBXark mcp-proxy, mcpproxy-go, agentgateway,
docker's catalogs, ToolHive (thv export), the Python Gatekit, or any file with mcpServers. No file
of a client is changed. Settings that are not carried over become comments.

Import keeps a copy of each file in gatekit/imports in your state folder. "gatekit import undo"
restores the files. A file that does not parse, that is read-only, or that belongs to another user
is named and not touched. If a file is a symbolic link, import changes its target. Extended
attributes of a file are not kept.`,
		Example: `  gatekit import                    # show the changes of all clients, and ask
  gatekit import cursor --yes       # only Cursor, without a question
  gatekit import --project .        # also .mcp.json, .vscode/mcp.json, … of this folder
  gatekit import --to gatekit.toml  # one configuration for gatekit run
  gatekit import --from config.yaml --to gatekit.toml
  gatekit import undo               # restore the files of the last import`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.from != "" && o.to == "":
				return errors.New("--from needs --to: name the file to write, such as " +
					"--to gatekit.toml")
			case o.from != "" && len(args) > 0:
				return errors.New("--from takes no clients: it reads the file of a gateway")
			case o.to != "" && o.asJSON:
				return errors.New("--json does not go with --to: the result is the file that it " +
					"writes")
			case o.from != "" && o.yes:
				return errors.New("--from changes no client's file: there is nothing for --yes")
			}
			return knownClients(cmd, args)
		},
		ValidArgsFunction: cobra.FixedCompletions(clientIDs(),
			cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, args)
		},
	}
	c.Flags().BoolVar(&o.yes, "yes", false, "write the changes without a question")
	c.Flags().BoolVar(&o.asJSON, "json", false,
		"print one JSON object; without --yes, only show what would change")
	c.Flags().StringVar(&o.project, "project", "",
		"also change the clients' files in the `folder` of a project")
	c.Flags().StringVar(&o.to, "to", "",
		"write one configuration for all servers to a new `file`, and put one server into the "+
			"clients' files")
	c.Flags().StringVar(&o.from, "from", "",
		"with --to: read the servers of another gateway from its configuration `file`")
	c.AddCommand(p.importUndo())
	return c
}

// knownClients checks that the arguments are names of clients.
func knownClients(cmd *cobra.Command, args []string) error {
	for _, a := range args {
		if slices.Contains(clientIDs(), a) {
			continue
		}
		hint := "the clients are " + strings.Join(clientIDs(), ", ")
		if near := nearest(a, append(clientIDs(), "undo")); near != "" {
			hint = fmt.Sprintf("did you mean %q?", cmd.CommandPath()+" "+near)
		}
		return fmt.Errorf("unknown client %q\nhint: %s", a, hint)
	}
	return nil
}

func clientIDs() (ids []string) {
	for _, c := range clientfiles.Clients() {
		ids = append(ids, c.ID)
	}
	return ids
}

// importOptions holds the flags of import.
type importOptions struct {
	yes, asJSON bool
	project     string
	to, from    string
}

func (o *importOptions) run(cmd *cobra.Command, clients []string) error {
	if o.from != "" {
		return o.fromGateway(cmd.OutOrStdout())
	}
	program, err := ownProgram()
	if err != nil {
		return err
	}
	files, err := findClientFiles(clients, o.project)
	if err != nil {
		return err
	}
	if o.to != "" {
		return o.toConfiguration(cmd, files, program)
	}
	plan := planImport(files, program)
	out := cmd.OutOrStdout()
	if !o.asJSON {
		plan.print(out)
	}
	switch {
	case len(plan.changes) == 0:
		if o.asJSON {
			return plan.printJSON(out, "")
		}
		return plan.nothing(cmd.ErrOrStderr(), clients)
	case !o.yes && o.asJSON:
		return plan.printJSON(out, "")
	case !o.yes && !confirmed(cmd, fmt.Sprintf("Write these changes of %s?",
		plural(len(plan.changes), "file"))):
		return errNothingChanged
	}
	store, err := openImports()
	if err != nil {
		return err
	}
	defer store.close()
	id, err := store.apply(plan, program)
	if err != nil {
		return err
	}
	if o.asJSON {
		return plan.printJSON(out, id)
	}
	plan.printResult(out, id)
	return plan.failure()
}

var errNothingChanged = errors.New("nothing was changed")

// confirmed asks a question on the terminal and reports whether the user agrees. If stdin has
// ended, the answer is no.
func confirmed(cmd *cobra.Command, question string) bool {
	fmt.Fprintf(cmd.OutOrStdout(), "%s [y/N] ", question)
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	fmt.Fprintln(cmd.OutOrStdout())
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// ownProgram returns the path of this program, as clients should start it: the path by which the
// user has started it, so that an upgrade that moves the target of a link does not break it.
func ownProgram() (string, error) {
	real, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the path of gatekit: %w", err)
	}
	named, err := lookPath(os.Args[0])
	if err == nil {
		a, errA := os.Stat(named)
		b, errB := os.Stat(real)
		if errA == nil && errB == nil && os.SameFile(a, b) {
			real = named
		}
	}
	if strings.Contains(real, string(filepath.Separator)+"go-build") {
		return "", fmt.Errorf("%s is a temporary file of go run, which clients cannot start "+
			"later\nhint: install Gatekit (go install ./cmd/gatekit) and run gatekit import", real)
	}
	return real, nil
}

// printJSON prints the plan, or with an id, what was written.
func (p *importPlan) printJSON(out io.Writer, id string) error {
	r := importReport{ID: id, Written: id != "", Left: p.left}
	for _, c := range p.changes {
		f := importedFile{Client: c.file.Client.ID, File: c.file.Path, Diff: c.diff()}
		for _, e := range c.originals {
			f.Servers = append(f.Servers, e.Name)
		}
		if c.err != nil {
			f.Error = c.err.Error()
		}
		r.Files = append(r.Files, f)
	}
	for _, f := range p.unusable {
		r.Files = append(r.Files, importedFile{Client: f.Client.ID, File: f.Path,
			Error: f.Err.Error()})
	}
	if err := json.MarshalWrite(out, r, jsontext.Multiline(true)); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if p.failure() != nil {
		return errReported
	}
	return nil
}

// importReport is the JSON of import.
type importReport struct {
	ID      string         `json:"id,omitempty"`
	Written bool           `json:"written"`
	Files   []importedFile `json:"files"`
	Left    []leftServer   `json:"left"`
}

// importedFile is a file in the JSON of import.
type importedFile struct {
	Client  string   `json:"client"`
	File    string   `json:"file"`
	Servers []string `json:"servers,omitempty"`
	Diff    string   `json:"diff,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// leftServer is a server that import does not change.
type leftServer struct {
	Client string `json:"client"`
	File   string `json:"file"`
	Server string `json:"server"`
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
}
