package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// checkTimeout bounds the start of each server: npx may have to download one first.
const checkTimeout = time.Minute

func (p *program) check() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "check",
		Short: "Load the configuration, start every server once, and report all that is wrong",
		Long: `Check reads the configuration and prints every mistake in it, each with its line. When there is none, it starts each
server once, or calls its URL, and asks it who it is, and nothing more. It prints a line for each:

  ok    files    2025-11-25  secure-filesystem-server 0.2.0
  FAIL  github   start server "github": …

It exits with 0 when all is good and with 1 when anything is not. Nothing is written to the audit log.`,
		Example: "  gatekit check\n  gatekit check --config /etc/gatekit/gatekit.toml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.quietly(cmd)
			cfg, err := load(path)
			if err != nil {
				return report(cmd, err)
			}
			unable := runnable(cfg)
			if unable != nil {
				report(cmd, unable)
			}
			if !p.checkServers(cmd, cfg) || unable != nil {
				return errReported
			}
			return nil
		},
	}
	configFlag(c, &path)
	return c
}

// report prints the mistakes of a configuration as they are, one a line, so that an editor can jump to them.
func report(cmd *cobra.Command, err error) error {
	if es, ok := errors.AsType[config.Errors](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), es)
		return errReported
	}
	return err
}

// checkServers asks all servers at once, prints a line for each in the order of the configuration, and says whether all are good.
func (p *program) checkServers(cmd *cobra.Command, cfg *config.Config) bool {
	type answer struct {
		revision, name string
		err            error
	}
	answers := make([]chan answer, len(cfg.Servers))
	for i, s := range cfg.Servers {
		answers[i] = make(chan answer, 1)
		go func() {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), checkTimeout, fmt.Errorf("no answer within %s", checkTimeout))
			defer cancel()
			revision, name, err := p.meet(ctx, s, cfg.Limits)
			answers[i] <- answer{revision, name, err}
		}()
	}
	good := true
	for i, s := range cfg.Servers {
		if a := <-answers[i]; a.err != nil {
			good = false
			fmt.Fprintf(cmd.OutOrStdout(), "FAIL  %s  %s\n", s.Name, strings.ReplaceAll(why(a.err), "\n", "\n      "))
		} else {
			fmt.Fprintf(cmd.OutOrStdout(), "ok    %s  %s  %s\n", s.Name, a.revision, a.name)
		}
	}
	return good
}

// why is all that is known of a failure. What a client is told of a server that is not there leaves out the cause; our user gets it.
func why(err error) string {
	if u, ok := errors.AsType[*proxy.Unavailable](err); ok && u.Err != nil {
		return u.Reason + ": " + u.Err.Error()
	}
	return err.Error()
}

// meet starts a server, asks it who it is in the newest revision it speaks, and ends it.
func (p *program) meet(ctx context.Context, s config.Server, limits config.Limits) (revision, name string, err error) {
	up, err := newUpstream(s, limits, p.log, nil)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, up.Close()) }()
	revisions, err := up.Revisions(ctx)
	if err != nil {
		return "", "", err
	}
	// What Gatekit itself asks needs no judge, and a check leaves no record.
	us := stranger{pipeline.New(unrecorded{}, pipeline.Options{})}
	server, err := up.Open(ctx, proxy.Opening{Session: "check", Revision: revisions[0]}, us)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	hello := greeting(revisions[0])
	m, err := server.Call(ctx, us.p.Answer(ctx, hello), us)
	if err != nil {
		return "", "", err
	}
	if m.Kind != mcp.Response {
		text, _ := m.Text("/message")
		return "", "", fmt.Errorf("it answered %s with error %d, %q", hello.Method, m.ErrorCode(), text)
	}
	revision = revisions[0]
	if v, ok := m.Text("/protocolVersion"); ok {
		revision = v
	}
	return revision, whoIs(m), nil
}

// greeting is the first request of a revision, from a client that can do nothing.
func greeting(revision string) *mcp.Message {
	us := fmt.Sprintf(`{"name":"gatekit","version":%s}`, mcp.Quote(version()))
	method, params := "initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":%s}`, revision, us)
	if m, ok := mcp.Lookup("server/discover"); ok && m.In(revision) {
		method, params = m.Name, fmt.Sprintf(`{"_meta":{%q:%q,%q:%s,%q:{}}}`, mcp.MetaVersion, revision, mcp.MetaClientInfo, us, mcp.MetaCapabilities)
	}
	m := mcp.NewRequest("1", method, []byte(params))
	m.To, m.Session = mcp.ToServer, "check"
	return m
}

// whoIs is what a server calls itself.
func whoIs(m *mcp.Message) string {
	for _, at := range []string{"/serverInfo", mcp.AtServerInfo} {
		if name, ok := m.Text(at + "/name"); ok {
			version, _ := m.Text(at + "/version")
			// It is the server's text and our user's terminal.
			return strings.Trim(strconv.QuoteToGraphic(strings.TrimSpace(name+" "+version)), `"`)
		}
	}
	return "(no name)"
}

// stranger is a client of a server that knows nobody: what the server says unasked is dropped, what it asks is refused.
type stranger struct{ p *pipeline.Pipeline }

func (stranger) Notify(context.Context, *mcp.Message) {}

func (s stranger) Ask(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	out := make([]pipeline.Passed, len(ms))
	for i, m := range ms {
		out[i] = s.p.Answer(ctx, mcp.NewError(m.ID(), mcp.CodeMethodNotFound, "gatekit check answers nothing", nil))
	}
	return out
}

func (stranger) Rounds() bool { return false }

// unrecorded is the recorder of a session that carries no message of anybody's.
type unrecorded struct{}

func (unrecorded) Record(context.Context, pipeline.Outcome) (uint64, error) { return 0, nil }
