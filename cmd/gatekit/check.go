package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/policies"
)

// checkTimeout bounds the start of each server: npx may have to download one first.
const checkTimeout = time.Minute

func (p *program) check() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use: "check",
		Short: "Load the configuration, start every server and plugin once, test the policies, " +
			"and report all that is wrong",
		Long: `Check reads the configuration and prints every mistake in it, each with its line. When there is none, it starts each
server once, or calls its URL, and asks it who it is, and nothing more. It starts each plugin, and shows it a message that it should do something about, as it is
configured. It asks the services for their bundles, and runs the tests beside the policies and those of the library's rules in force. It prints a line for each, and one more when the audit log cannot be written:

  ok    files    2026-07-28  demo-files 1
  ok    guard    the use of a hidden tool: deny (hidden)
  ok    policy   1 rule, 2 files; tests: 7 passed; digest 0f343b093112
  FAIL  far      no response from the URL: server "far": POST http://127.0.0.1:1/mcp: dial tcp 127.0.0.1:1: connect: connection refused
  ok    siem     audit sink: syslog tls://siem.example:6514; records and checkpoints, jsonl
  FAIL  [audit]  open the audit log "/srv/audit.jsonl": permission denied

Of an audit sink it says what it is; its certificates are read, its file is looked at, and nothing is sent; nor is a decision log or a status. It exits with 0 when all is good and
with 1 when anything is not. Nothing is written to the audit log, and nothing is said of the address of [listen] or of who writes to the audit log: a Gatekit that runs may hold
both.`,
		Example: "  gatekit check\n  gatekit check --config /etc/gatekit/gatekit.toml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.quietly(cmd)
			cfg, err := load(path)
			if err != nil {
				return report(cmd, err)
			}
			if !p.checkAll(cmd, cfg) {
				return errReported
			}
			return nil
		},
	}
	configFlag(c, &path)
	return c
}

// report prints the mistakes of a configuration as they are, one a line, so that an editor can jump
// to them.
func report(cmd *cobra.Command, err error) error {
	if es, ok := errors.AsType[config.Errors](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), es)
		return errReported
	}
	return err
}

// checkAll asks all servers at once, prints a line for each in the order of the configuration, one
// for an audit log or a collector that cannot be, and says whether all are good.
func (p *program) checkAll(cmd *cobra.Command, cfg *config.Config) bool {
	type answer struct {
		revision, name string
		err            error
	}
	unrecordable, width := recordable(cfg.Audit.File), 0
	collector, untold := collectorOf(cfg.Telemetry)
	if untold == nil {
		untold = collector.Validate()
	}
	for _, p := range cfg.Plugins {
		width = max(width, len(p.Name))
	}
	if cfg.Policy != nil {
		width = max(width, len("policy"))
	}
	if unrecordable != nil {
		width = max(width, len("[audit]"))
	}
	if untold != nil {
		width = max(width, len("[telemetry]"))
	}
	for _, s := range cfg.Audit.Sinks {
		width = max(width, len(s.Name))
	}
	answers := make([]chan answer, len(cfg.Servers))
	for i, s := range cfg.Servers {
		width = max(width, len(s.Name))
		answers[i] = make(chan answer, 1)
		go func() {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), checkTimeout,
				fmt.Errorf("no answer within %s", checkTimeout))
			defer cancel()
			revision, name, err := p.meet(ctx, s, cfg.Limits)
			answers[i] <- answer{revision, name, err}
		}()
	}
	good := true
	fail := func(name, why string) {
		good = false
		fmt.Fprintf(cmd.OutOrStdout(), "FAIL  %-*s  %s\n", width, name, strings.ReplaceAll(why,
			"\n", "\n      "))
	}
	for i, s := range cfg.Servers {
		if a := <-answers[i]; a.err != nil {
			fail(s.Name, why(a.err))
		} else {
			fmt.Fprintf(cmd.OutOrStdout(), "ok    %-*s  %s  %s\n", width, s.Name, a.revision,
				a.name)
		}
	}
	ok := func(name, said string) {
		fmt.Fprintf(cmd.OutOrStdout(), "ok    %-*s  %s\n", width, name,
			said)
	}
	good = p.checkPlugins(cmd.Context(), cfg, ok, fail) && good
	if cfg.Policy != nil {
		said, err := p.checkPolicies(cmd.Context(), cfg)
		if err != nil {
			fail("policy", err.Error())
		} else {
			ok("policy", said)
		}
	}
	checkSinks(cfg, ok, fail)
	if untold != nil {
		fail("[telemetry]", untold.Error())
	}
	if unrecordable != nil {
		fail("[audit]", fmt.Sprintf("open the audit log %q: %v", cfg.Audit.File, unrecordable))
	}
	return good
}

// checkPlugins starts the plugins, tries each, and says whether all do what they are there for.
func (p *program) checkPlugins(ctx context.Context, cfg *config.Config, ok,
	fail func(name, said string)) bool {
	if len(cfg.Plugins) == 0 {
		return true
	}
	host, err := newHost(cfg.Limits, p.log, nil)
	if err != nil {
		fail("[[plugin]]", err.Error())
		return false
	}
	defer host.Close()
	set, stages, err := loadPlugins(ctx, host, cfg)
	if err != nil {
		fail("[[plugin]]", err.Error())
		return false
	}
	good := true
	for i, c := range cfg.Plugins {
		said, err := tried(ctx, set, i, stages[i], c)
		if err != nil {
			good = false
			fail(c.Name, err.Error())
			continue
		}
		ok(c.Name, said)
	}
	return good
}

// checkPolicies asks the services for their bundles, runs the tests of the policies, and says what
// there is of both. The error has the tests that fail, with their lines.
func (p *program) checkPolicies(ctx context.Context, cfg *config.Config) (string, error) {
	asked := *cfg.Policy
	asked.Bundles = slices.Clone(asked.Bundles)
	for i := range asked.Bundles {
		asked.Bundles[i].Persist = "" // the question is whether the service has it
	}
	o := policyOptions(cfg)
	var err error
	if o.Bundles, err = bundlesOnce(ctx, &config.Config{Policy: &asked}, p.log); err != nil {
		return "", err
	}
	stage, err := policies.Load(o)
	if err != nil {
		return "", err
	}
	tests, _, err := policies.RunTests(ctx, o)
	if err != nil {
		return "", fmt.Errorf("the tests: %s", shortened(err.Error()))
	}
	summary, good := summed(tests)
	said := fmt.Sprintf("%s, %s; tests: %s", counted(len(o.Rules), "rule"),
		counted(len(stage.Files()), "file"), summary)
	if len(tests) == 0 {
		said = fmt.Sprintf("%s, %s; no tests", counted(len(o.Rules), "rule"),
			counted(len(stage.Files()), "file"))
	}
	if !good {
		var lines strings.Builder
		printTests(&lines, tests)
		return "", fmt.Errorf("%s\n%s", said, strings.TrimSuffix(lines.String(), "\n"+summary+"\n"))
	}
	said += "; digest " + stage.Digest()[:12]
	for _, b := range stage.Bundles() {
		said += fmt.Sprintf("; bundle %s revision %q", shown(b.Name), b.Revision)
		if i := slices.IndexFunc(cfg.Policy.Bundles, func(c config.Bundle) bool {
			return c.Name == b.Name
		}); i >= 0 {
			said += " of service " + cfg.Policy.Bundles[i].Service
		}
		if len(o.Keys) == 0 {
			said += ", not signed"
		}
	}
	if d := cfg.Policy.DecisionLogs; d != nil {
		said += "; decision logs to service " + d.Service
	}
	if s := cfg.Policy.Status; s != nil {
		said += "; status to service " + s.Service
	}
	if o.Shadow {
		said += "; mode is shadow: nothing is refused or changed"
	}
	return said, nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// recordable says why an audit log could not be opened, without making it: it can be written, or
// something can be made in the nearest folder that there is.
func recordable(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return errors.Unwrap(err)
	}
	dir := filepath.Dir(file)
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	probe, err := os.MkdirTemp(dir, ".gatekit-check-")
	if err != nil {
		return fmt.Errorf("nothing can be made in %s: %w", dir, errors.Unwrap(err))
	}
	return os.Remove(probe)
}

// why is all that is known of a failure. What a client is told of a server that is not there leaves
// out the cause; our user gets it.
func why(err error) string {
	if u, ok := errors.AsType[*proxy.UnavailableError](err); ok && u.Err != nil {
		return u.Reason + ": " + u.Err.Error()
	}
	return err.Error()
}

// meet starts a server, asks it who it is in the newest revision it speaks, and ends it.
func (p *program) meet(ctx context.Context, s config.Server,
	limits config.Limits) (revision, name string, err error) {
	o, err := upstreamOptions(s, limits, p.log)
	if err != nil {
		return "", "", err
	}
	up := upstream.New(o)
	defer func() { err = errors.Join(err, up.Close()) }()
	revisions, err := up.Revisions(ctx)
	if err != nil {
		return "", "", err
	}
	// What Gatekit itself asks needs no judge, and a check leaves no record.
	us := stranger{pipeline.New(unrecorded{}, pipeline.Options{})}
	server, err := up.Open(ctx, proxy.OpenOptions{Session: "check", Revision: revisions[0]}, us)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	hello := greeting(revisions[0])
	m, err := server.Call(ctx, us.p.PassOwn(ctx, hello), us)
	if err != nil {
		return "", "", err
	}
	if m.Kind != mcp.Response {
		text, _ := m.Text("/message")
		return "", "", fmt.Errorf("it answered %s with error %d, %q", hello.Method, m.ErrorCode(),
			text)
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
	method, params := "initialize",
		fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":%s}`, revision, us)
	if m, ok := mcp.LookupMethod("server/discover"); ok && m.ExistsIn(revision) {
		method, params = m.Name, fmt.Sprintf(`{"_meta":{%q:%q,%q:%s,%q:{}}}`,
			mcp.MetaProtocolVersion,
			revision, mcp.MetaClientInfo, us, mcp.MetaCapabilities)
	}
	m := mcp.NewRequest("1", method, []byte(params))
	m.Direction, m.Session = mcp.ToServer, "check"
	return m
}

// whoIs is what a server calls itself.
func whoIs(m *mcp.Message) string {
	for _, at := range []string{"/serverInfo", mcp.PointerServerInfo} {
		if name, ok := m.Text(at + "/name"); ok {
			version, _ := m.Text(at + "/version")
			// It is the server's text and our user's terminal.
			return strings.Trim(strconv.QuoteToGraphic(strings.TrimSpace(name+" "+version)), `"`)
		}
	}
	return "(no name)"
}

// stranger is a client of a server that knows nobody: what the server says unasked is dropped, what
// it asks is refused.
type stranger struct{ p *pipeline.Pipeline }

func (stranger) HandleNotification(context.Context, *mcp.Message) {}

func (s stranger) HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	out := make([]pipeline.Passed, len(ms))
	for i, m := range ms {
		out[i] = s.p.PassOwn(ctx, mcp.NewError(m.ID(), mcp.CodeMethodNotFound,
			"gatekit check answers nothing", nil))
	}
	return out
}

func (stranger) IsWaiting() bool { return false }

// ReportActivity implements proxy.Caller.
func (stranger) ReportActivity() {}

// unrecorded is the recorder of a session that carries no message of anybody's.
type unrecorded struct{}

func (unrecorded) Record(context.Context, pipeline.Outcome) (uint64, error) { return 0, nil }
