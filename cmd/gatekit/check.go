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
	"sync"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/shared"
	"gatekit/core/upstream"
	"gatekit/plugins"
	"gatekit/policies"
	"gatekit/transport/auth"
	"gatekit/transport/credentials"
)

// checkTimeout limits the start of each server. npx may have to download a package first.
const checkTimeout = time.Minute

func (p *program) check() *cobra.Command {
	var path string
	var asJSON bool
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration: start each server and plugin once, and test the policies",
		Long: `Check reads the configuration and reports every mistake with its line. If there are
no mistakes, check
  - starts each server, or calls its URL, and asks for its name and revision; of a server that
    users log in to, it tells who is logged in;
  - starts each plugin and runs its self-test;
  - gets the bundles from their services and runs the tests of the active policies;
  - lists the tools, prompts and resources of each server, and counts the items that the plugins
    and policies hide;
  - fetches the metadata and the keys of the issuers of [listen.auth];
  - tells if the other replicas would refuse the certificate of [cluster];
  - connects to the server of [shared], and tells if it could lose or forget shared state;
  - names the servers that no sandbox confines, and tells what the kernel can hold;
  - tells what the witnesses of the audit log have cosigned, without asking them;
  - checks that the audit log, the sinks and the telemetry collector can be used, without
    sending anything.

Check prints one line for each result, as soon as the result is known. The exit code is 0 if all
results are ok, and 1 otherwise:

  configuration /home/me/gatekit.toml
  ok    files    2026-07-28  demo-files 1
  ok    files    hides 1 of 3 tools: delete_file (guard); nothing of 2 resources
  ok    guard    the use of a hidden tool: deny (hidden)
  ok    policy   1 rule, 2 files; tests: 7 passed; digest 0f343b093112
                 policies/mine.rego: 2 deny, 1 hide
                 policies/names.rego: package names, 3 helper rules
  FAIL  far      no response from the URL: server "far": POST http://127.0.0.1:1/mcp: dial tcp
                 127.0.0.1:1: connect: connection refused
  ok    sandbox  not confined: far, files (they may do everything that you may do)
                 this kernel: Landlock ABI 9
  ok    siem     audit sink: syslog tls://siem.example:6514; records and checkpoints, jsonl
  FAIL  [audit]  open the audit log "/srv/audit.jsonl": permission denied

Check writes nothing to the audit log, unless it has to refresh a login, and sends no records,
decision logs or status. A running Gatekit may use the same configuration. So check does not test
whether the address of [listen] is free, or whether another process writes to the audit log.`,
		Example: `  gatekit check
  gatekit check --config /etc/gatekit/gatekit.toml
  gatekit check --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.loadForReport(cmd, path, asJSON)
			if err != nil {
				return err
			}
			r := &checkReport{out: cmd.OutOrStdout(), asJSON: asJSON, mask: p.masked.mask,
				color: paletteFor(cmd.OutOrStdout())}
			p.checkAll(cmd.Context(), r, cfg, nil)
			return r.result()
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&asJSON, "json", false,
		"print one JSON object for each result or mistake, on stdout")
	return c
}

// loadForReport reads the configuration at path for a command that prints a report. It reports the
// mistakes of the configuration, logs only warnings, and hides the secrets of the configuration in
// what Gatekit logs.
func (p *program) loadForReport(cmd *cobra.Command, path string,
	asJSON bool) (*config.Config, error) {
	p.logWarningsOnly(cmd)
	c, err := loadConfig(path)
	if err != nil {
		return nil, reportMistakes(cmd, err, asJSON)
	}
	p.masked.add(c)
	return c, nil
}

// reportMistakes prints the mistakes of a configuration: one on each line of stderr, with positions
// in the format that editors understand, or as JSON on stdout.
func reportMistakes(cmd *cobra.Command, err error, asJSON bool) error {
	es, ok := errors.AsType[config.Errors](err)
	if !ok {
		if !asJSON {
			return err
		}
		es = config.Errors{{Message: err.Error()}}
	}
	if !asJSON {
		fmt.Fprintln(cmd.ErrOrStderr(), es)
		return errReported
	}
	r := &checkReport{out: cmd.OutOrStdout(), asJSON: true}
	r.mistakes("configuration", "", es)
	return r.result()
}

// checkAll checks all servers and issuers at the same time. Meanwhile it checks the plugins, the
// policies, the sinks, the telemetry collector and the audit log. It prints each result as soon as
// the result is known. The function also, unless it is nil, is called with the plugins and policies
// that could be loaded.
func (p *program) checkAll(ctx context.Context, r *checkReport, cfg *config.Config,
	also func(context.Context, []pipeline.StageConfig)) {
	notWritable := checkWritable(cfg.Audit.File)
	collector, badCollector := collectorOf(cfg.Telemetry)
	if badCollector == nil {
		badCollector = collector.Validate()
	}
	for _, s := range cfg.Servers {
		r.width = max(r.width, len(s.Name))
	}
	for _, p := range cfg.Plugins {
		r.width = max(r.width, len(p.Name))
	}
	for _, s := range cfg.Audit.Sinks {
		r.width = max(r.width, len(s.Name))
	}
	for _, w := range cfg.Audit.Witnesses {
		name, _, _ := strings.Cut(w.Key, "+")
		r.width = max(r.width, len(name))
	}
	if cfg.Policy != nil {
		r.width = max(r.width, len("policy"))
	}
	if notWritable != nil {
		r.width = max(r.width, len("[audit]"))
	}
	if badCollector != nil {
		r.width = max(r.width, len("[telemetry]"))
	}
	if slices.ContainsFunc(cfg.Servers, isProgram) {
		r.width = max(r.width, len("sandbox"))
	}
	if len(cfg.Canaries) > 0 {
		r.width = max(r.width, len("[canary]"))
	}
	if !cfg.Allow.Enabled {
		r.width = max(r.width, len("[allow]"))
	}
	if cfg.Cluster != nil {
		r.width = max(r.width, len("[cluster]"))
	}
	if cfg.Shared != nil {
		r.width = max(r.width, len("[shared]"))
	}
	if a := cfg.Listen.Auth; a != nil && len(a.Issuers) > 0 {
		r.width = max(r.width, len("[listen.auth]"))
	}
	r.start(cfg.File)
	var servers sync.WaitGroup
	stages := make(chan []pipeline.StageConfig, len(cfg.Servers)) // one element for each server
	for _, s := range cfg.Servers {
		servers.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout,
				fmt.Errorf("no answer within %s", checkTimeout))
			defer cancel()
			opened, err := p.openServer(ctx, s, cfg, nil)
			if refused, ok := errors.AsType[*upstream.CredentialsError](err); ok &&
				refused.LoginNeeded && ctx.Err() == nil {
				at := s
				if names := s.EnvTokens(); len(names) > 0 {
					at, _ = serverWithLogins(cfg, names[0])
				}
				r.ok("server", s.Name, "not asked, because it wants a login; "+
					describeLogins(ctx, cfg, at))
				return
			}
			if err != nil {
				r.fail("server", s.Name, errors.New(fullReason(err)))
				return
			}
			result := opened.identity()
			if s.HasLogins() {
				result += "; " + describeLogins(ctx, cfg, s)
			}
			r.ok("server", s.Name, result)
			if judged := <-stages; len(judged) > 0 {
				r.list(ctx, s.Name, opened, judged)
			}
			if err := opened.Close(); err != nil {
				r.fail("server", s.Name, err)
			}
		})
	}
	checkIssuers(ctx, r, cfg, &servers)
	checkReplica(r, cfg)
	checkShared(ctx, r, cfg, &servers)
	if len(cfg.Canaries) > 0 {
		r.ok("canary", "[canary]", describeCanaries(cfg))
	}
	host, configured := p.checkPlugins(ctx, r, cfg)
	if host != nil {
		defer host.Close()
	}
	if cfg.Policy != nil {
		result, stage, err := p.checkPolicies(ctx, cfg)
		if err != nil {
			r.fail("policy", "policy", err)
		} else {
			r.ok("policy", "policy", result)
			if rules := unsharedRules(cfg, stage); len(rules) > 0 {
				r.note("policy", "policy", unsharedWarning+": "+strings.Join(rules, ", "))
			}
			configured = append(configured, pipeline.StageConfig{Name: policyStage, Stage: stage,
				Timeout: policyTimeout})
		}
	}
	for range cfg.Servers {
		stages <- configured
	}
	if also != nil {
		also(ctx, configured)
	}
	checkSinks(r, cfg)
	checkWitnesses(r, cfg)
	if !cfg.Allow.Enabled {
		r.ok("allow", "[allow]", "gatekit allow is switched off: no denial can be allowed")
	}
	if badCollector != nil {
		r.fail("telemetry", "[telemetry]", badCollector)
	}
	if notWritable != nil {
		r.fail("audit", "[audit]", fmt.Errorf("open the audit log %q: %w", cfg.Audit.File,
			notWritable))
	}
	checkSandboxes(r, cfg)
	servers.Wait()
}

// checkIssuers fetches the metadata and the keys of the issuers whose tokens clients have. All
// issuers are asked at the same time, as part of group.
func checkIssuers(ctx context.Context, r *checkReport, cfg *config.Config, group *sync.WaitGroup) {
	if cfg.Listen.Auth == nil {
		return
	}
	for _, i := range cfg.Listen.Auth.Issuers {
		group.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout,
				fmt.Errorf("no answer within %s", checkTimeout))
			defer cancel()
			issuer, err := authIssuer(i)
			var keys int
			if err == nil {
				keys, err = auth.Probe(ctx, issuer)
			}
			switch {
			case err != nil:
				r.fail("issuer", "[listen.auth]", fmt.Errorf("issuer %s: %w", i.Issuer, err))
			case i.Tokens == "introspection":
				r.ok("issuer", "[listen.auth]", "issuer "+i.Issuer+": asked about each token")
			default:
				r.ok("issuer", "[listen.auth]", "issuer "+i.Issuer+": "+plural(keys, "key"))
			}
		})
	}
}

// checkPlugins starts each plugin and runs its self-test. It returns the stages of the plugins and
// the host that runs them. The host is nil if there are no plugins.
func (p *program) checkPlugins(ctx context.Context, r *checkReport,
	cfg *config.Config) (*plugins.Host, []pipeline.StageConfig) {
	if len(cfg.Plugins) == 0 {
		return nil, nil
	}
	host, err := newHost(cfg.Limits, nil, p.log, nil)
	if err != nil {
		r.fail("plugin", "[[plugin]]", err)
		return nil, nil
	}
	var all []pipeline.StageConfig
	for _, c := range cfg.Plugins {
		// Each plugin is loaded alone: a plugin that cannot start must not hide other results.
		alone := *cfg
		alone.Plugins = []config.Plugin{c}
		set, stages, err := loadPlugins(ctx, host, &alone)
		if err != nil {
			r.fail("plugin", c.Name, err)
			continue
		}
		result, err := selfTest(ctx, set, 0, stages[0], c)
		if err != nil {
			r.fail("plugin", c.Name, err)
			continue
		}
		r.ok("plugin", c.Name, result)
		all = append(all, stages[0])
	}
	return host, all
}

// checkPolicies gets the bundles from their services, runs the tests of the policies, and returns a
// summary and the policies. If tests failed, the error lists them with their lines.
func (p *program) checkPolicies(ctx context.Context, cfg *config.Config) (string,
	*policies.Stage, error) {
	policy := *cfg.Policy
	policy.Bundles = slices.Clone(policy.Bundles)
	for i := range policy.Bundles {
		policy.Bundles[i].Persist = "" // the persist file must not hide a missing bundle
	}
	o := policyOptions(cfg)
	var err error
	if o.Bundles, err = bundlesOnce(ctx, &config.Config{Policy: &policy}, p.log); err != nil {
		return "", nil, err
	}
	stage, err := policies.Load(o)
	if err != nil {
		return "", nil, err
	}
	tests, _, err := policies.RunTests(ctx, o)
	if err != nil {
		return "", nil, fmt.Errorf("run the tests: %s", displayText(err.Error()))
	}
	summary, good := summarize(tests)
	result := fmt.Sprintf("%s, %s; tests: %s", plural(len(o.Rules), "rule"),
		plural(len(stage.Files()), "file"), summary)
	if len(tests) == 0 {
		result = fmt.Sprintf("%s, %s; no tests", plural(len(o.Rules), "rule"),
			plural(len(stage.Files()), "file"))
	}
	if !good {
		var lines strings.Builder
		printTests(&lines, tests)
		return "", nil, fmt.Errorf("%s\n%s", result, strings.TrimSuffix(lines.String(),
			"\n"+summary+"\n"))
	}
	result += "; digest " + stage.Digest()[:12]
	for _, b := range stage.Bundles() {
		result += fmt.Sprintf("; bundle %s revision %q", displayPath(b.Name), b.Revision)
		if i := slices.IndexFunc(cfg.Policy.Bundles, func(c config.Bundle) bool {
			return c.Name == b.Name
		}); i >= 0 {
			result += " of service " + cfg.Policy.Bundles[i].Service
		}
		if len(o.Keys) == 0 {
			result += ", not signed"
		}
	}
	if d := cfg.Policy.DecisionLogs; d != nil {
		result += "; decision logs to service " + d.Service
	}
	if s := cfg.Policy.Status; s != nil {
		result += "; status to service " + s.Service
	}
	if o.Shadow {
		result += "; mode shadow: not enforced"
	}
	for _, c := range stage.Contributions() {
		result += "\n" + displayPath(c.File) + ": " + describeContribution(c)
	}
	for _, line := range emptyState(cfg, stage) {
		result += "\n" + line
	}
	return result, stage, nil
}

// emptyState finds the members of the input that rules read although they are always empty with
// this configuration. It returns a line of text for each of these members.
func emptyState(cfg *config.Config, stage *policies.Stage) (lines []string) {
	add := func(why string, path ...string) {
		if rules := stage.RulesThatRead(path...); len(rules) > 0 {
			lines = append(lines, fmt.Sprintf("input.%s is always empty, because %s; it is read "+
				"by %s", strings.Join(path, "."), why, strings.Join(rules, ", ")))
		}
	}
	if cfg.Listen.Auth == nil {
		add("no listener authenticates clients", "principal")
	}
	if len(cfg.Plugins) == 0 {
		add("there is no plugin", "findings")
		if !stage.SetsLabels() {
			add("nothing sets labels", "session", "labels")
		}
	}
	return lines
}

// describeContribution describes the effects of a policy file. If the file has no effects, it
// describes the helper rules.
func describeContribution(c policies.Contribution) string {
	var parts []string
	for _, e := range c.Effects {
		parts = append(parts, fmt.Sprintf("%d %s", e.Rules, e.Effect))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("package %s, %s", oneLine(c.Package), plural(c.Helpers, "helper rule"))
	}
	return strings.Join(parts, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// checkWritable returns an error if an audit log could not be opened at the path file. It does not
// create the file. If the file exists, checkWritable opens it for writing. Otherwise it creates and
// removes a temporary folder in the nearest existing folder.
func checkWritable(file string) error {
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
		return fmt.Errorf("cannot create a file in %s: %w", dir, errors.Unwrap(err))
	}
	return os.Remove(probe)
}

// fullReason returns the text of an error, with the cause if a server is unavailable. Users of
// gatekit check and of /readyz get this cause, but clients do not.
func fullReason(err error) string {
	if u, ok := errors.AsType[*proxy.UnavailableError](err); ok && u.Err != nil {
		return u.Reason + ": " + u.Err.Error()
	}
	return err.Error()
}

// openedServer is a server that a check has started.
type openedServer struct {
	proxy.Server
	upstream *upstream.Upstream
	tokens   *credentials.Server // may be nil
	// of the servers whose tokens are in the server's env
	envTokens  map[string]*credentials.Server
	closeState func() // of [shared]
	client     checkClient
	revision   string       // the newest revision that the server supports
	answer     *mcp.Message // to the first request
}

// credentialsFor returns the credentials for the named servers, whose tokens another server needs.
func (p *program) credentialsFor(names []string, c *config.Config,
	state shared.Values) (map[string]*credentials.Server, error) {
	of := map[string]*credentials.Server{}
	for _, s := range c.Servers {
		if !slices.Contains(names, s.Name) {
			continue
		}
		tokens, err := newCredentials(s, c, state, loginRecorder(c, s.Name,
			"gatekit check or gatekit pin"))
		if err != nil {
			return nil, err
		}
		of[s.Name] = tokens
	}
	return of, nil
}

// openServer starts a server, or calls its URL, and asks for its name in the newest revision that
// the server supports. The caller must close the server.
func (p *program) openServer(ctx context.Context, s config.Server,
	c *config.Config, as *identity.Principal) (opened *openedServer, err error) {
	var event func(principal, action, reason string, err error) error
	if s.HasLogins() { // a login may have to be refreshed
		event = loginRecorder(c, s.Name, "gatekit check or gatekit pin")
	}
	var state shared.Values
	closeState := func() {}
	if s.HasLogins() || len(s.EnvTokens()) > 0 {
		if state, closeState, err = dialShared(ctx, c); err != nil {
			return nil, err
		}
	}
	defer func() {
		if opened == nil {
			closeState()
		}
	}()
	tokens, err := newCredentials(s, c, state, event)
	if err != nil {
		return nil, err
	}
	o, err := upstreamOptions(s, c, p.masked.mask, p.log, tokens)
	if err != nil {
		return nil, err
	}
	if s.Sandbox != nil {
		o.Dial.Pipe = logEgress(o.Dial.Pipe, p.log)
	}
	var of map[string]*credentials.Server
	if names := s.EnvTokens(); len(names) > 0 {
		if of, err = p.credentialsFor(names, c, state); err != nil {
			return nil, err
		}
		t := newTokenProcesses(s, c, p.log, func(name string) *credentials.Server {
			return of[name]
		})
		if s.Sandbox != nil {
			t.wrapSpawn(func(dial dialFunc) dialFunc { return logEgress(dial, p.log) })
		}
		o.Dial.PipeFor = t.pipeFor
	}
	opened = &openedServer{upstream: upstream.New(o), tokens: tokens, envTokens: of,
		closeState: closeState}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.Close())
		}
	}()
	revisions, err := opened.upstream.RevisionsFor(ctx, as)
	if err != nil {
		return opened, err
	}
	opened.revision = revisions[0]
	// No stage inspects Gatekit's own request, and a check writes no record.
	opened.client = checkClient{pipeline.New(discardRecorder{}, pipeline.Options{})}
	opened.Server, err = opened.upstream.Open(ctx, proxy.OpenOptions{Session: "check",
		Principal: as, Revision: opened.revision}, opened.client)
	if err != nil {
		return opened, err
	}
	request := firstRequest(opened.revision)
	m, err := opened.Call(ctx, opened.client.p.PassOwn(ctx, request), opened.client)
	if err != nil {
		return opened, err
	}
	if m.Kind != mcp.Response {
		text, _ := m.Text("/message")
		return opened, fmt.Errorf("the server answered %s with error %d, %q", request.Method,
			m.ErrorCode(), text)
	}
	opened.answer = m
	return opened, nil
}

// Close stops the server.
func (o *openedServer) Close() error {
	var err error
	if o.Server != nil {
		err = o.Server.Close()
	}
	err = errors.Join(err, o.upstream.Close())
	for _, tokens := range o.envTokens {
		tokens.Close()
	}
	if o.tokens != nil {
		o.tokens.Close()
	}
	o.closeState()
	return err
}

// identity returns the revision, the name and the version of the server.
func (o *openedServer) identity() string {
	revision := o.revision
	if v, ok := o.answer.Text("/protocolVersion"); ok {
		revision = v
	}
	return revision + "  " + serverIdentity(o.answer)
}

// checkCapabilities are the capabilities of a client that can do everything. Some servers declare
// tools only for such clients.
const checkCapabilities = `{"roots":{"listChanged":true},"sampling":{},` +
	`"elicitation":{"form":{},"url":{}}}`

// firstRequest returns the first request of a client in the given revision.
func firstRequest(revision string) *mcp.Message {
	if speaksModern(revision) {
		return checkRequest("server/discover", modernMeta(revision))
	}
	return checkRequest("initialize", fmt.Sprintf(
		`"protocolVersion":%q,"capabilities":%s,"clientInfo":%s`, revision, checkCapabilities,
		clientInfo()))
}

// listRequest returns a request for one page of a list.
func listRequest(revision, method, cursor string) *mcp.Message {
	var params []string
	if cursor != "" {
		params = append(params, `"cursor":`+string(mcp.Quote(cursor)))
	}
	if speaksModern(revision) {
		params = append(params, modernMeta(revision))
	}
	return checkRequest(method, strings.Join(params, ","))
}

// checkRequest returns a request of the check. params are the members of its params.
func checkRequest(method, params string) *mcp.Message {
	m := mcp.NewRequest("1", method, []byte("{"+params+"}"))
	m.Direction, m.Session = mcp.ToServer, "check"
	return m
}

// speaksModern reports whether a revision has no sessions.
func speaksModern(revision string) bool {
	m, ok := mcp.LookupMethod("server/discover")
	return ok && m.ExistsIn(revision)
}

// modernMeta returns the member _meta of each request in a modern revision.
func modernMeta(revision string) string {
	return fmt.Sprintf(`"_meta":{%q:%q,%q:%s,%q:%s}`, mcp.MetaProtocolVersion, revision,
		mcp.MetaClientInfo, clientInfo(), mcp.MetaCapabilities, checkCapabilities)
}

func clientInfo() string {
	return fmt.Sprintf(`{"name":"gatekit","version":%s}`, mcp.Quote(version()))
}

// serverIdentity returns the name and version of a server.
func serverIdentity(m *mcp.Message) string {
	for _, at := range []string{"/serverInfo", mcp.PointerServerInfo} {
		if name, ok := m.Text(at + "/name"); ok {
			version, _ := m.Text(at + "/version")
			// Escaped: the text comes from the server, and is printed to a terminal.
			return strings.Trim(strconv.QuoteToGraphic(strings.TrimSpace(name+" "+version)), `"`)
		}
	}
	return "(no name)"
}

// checkClient is the client for a check. It drops notifications, has no roots, and declines all
// other requests of the server.
type checkClient struct{ p *pipeline.Pipeline }

func (checkClient) HandleNotification(context.Context, *mcp.Message) {}

// Consume implements proxy.Handler.
func (checkClient) Consume(context.Context, *mcp.Message, string, string) error { return nil }

func (s checkClient) HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	out := make([]pipeline.Passed, len(ms))
	for i, m := range ms {
		out[i] = s.p.PassOwn(ctx, checkAnswer(m))
	}
	return out
}

// checkAnswer returns the answer to a request of a server.
func checkAnswer(m *mcp.Message) *mcp.Message {
	switch m.Method {
	case "roots/list":
		return mcp.NewResponse(m.ID(), []byte(`{"roots":[]}`))
	case "elicitation/create":
		return mcp.NewResponse(m.ID(), []byte(`{"action":"decline"}`))
	}
	return mcp.NewError(m.ID(), mcp.CodeMethodNotFound, "declined: no user is asked", nil)
}

// IsWaiting implements proxy.Caller.
func (checkClient) IsWaiting() bool { return false }

// ReportActivity implements proxy.Caller.
func (checkClient) ReportActivity() {}

// discardRecorder is a recorder that drops all records: a check sends no message of a client.
type discardRecorder struct{}

func (discardRecorder) Record(context.Context, pipeline.Outcome) (uint64, error) { return 0, nil }
