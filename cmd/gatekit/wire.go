package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/audit"
	"gatekit/audit/telemetry"
	"gatekit/core/bridge"
	"gatekit/core/config"
	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/core/workers"
	"gatekit/plugins"
	"gatekit/policies"
	"gatekit/policies/service"
	"gatekit/transport"
)

// gate is a configuration at work: the record, the servers, the proxy between them and the clients'
// front.
type gate struct {
	log     *slog.Logger
	audit   *audit.Log
	sinks   *sinks
	record  pipeline.Recorder      // the audit log, or what counts its records
	events  *pipeline.Pipeline     // that records what is no message
	stages  []pipeline.StageConfig // beside those of the plugins
	host    *plugins.Host
	memory  policies.Memory          // of what policies know of sessions: it outlives them
	names   pipeline.RecordableNames // that may be told in records
	workers *workers.Pool            // where the stages are asked
	proxy   *proxy.Proxy
	front   *downstream.Front

	telemetry *telemetry.Telemetry // nil where nobody is told
	// the servers in force, by name: for who must not wait for mu
	asked atomic.Pointer[[]*server]

	mu      sync.Mutex // held while the configuration changes
	config  *config.Config
	servers map[string]*server
	judges  *judges
	bundles *service.Client // what speaks with services; nil when nothing does
	polled  []*policies.Bundle
}

// server is one that is in force.
type server struct {
	config config.Server
	*upstream.Upstream
}

// openGate puts a configuration to work. Nothing is started before a client asks.
func openGate(ctx context.Context, c *config.Config, log *slog.Logger,
	stages ...pipeline.StageConfig) (*gate, error) {
	if err := reachable(c); err != nil {
		return nil, err
	}
	sending, err := newSinks(c.Audit, log)
	if err != nil {
		return nil, err
	}
	record, err := audit.Open(audit.Options{
		File:         c.Audit.File,
		Bodies:       audit.Bodies(c.Audit.Bodies),
		Durability:   audit.Durability(c.Audit.Durability),
		Log:          log,
		SegmentBytes: int64(c.Audit.SegmentBytes),
		Keep: audit.Retention{Files: c.Audit.KeepFiles, Bytes: int64(c.Audit.KeepBytes),
			For: c.Audit.KeepFor},
		Key:        c.Audit.Key,
		AnchorFile: c.Audit.Anchor,
		Anchor:     sending.anchor,
	})
	if err != nil {
		sending.abandon()
		return nil, err
	}
	g := &gate{workers: workers.New(), log: log, audit: record, record: record, sinks: sending,
		stages: stages, config: c, servers: map[string]*server{}}
	fail := func(err error) (*gate, error) {
		if g.bundles != nil {
			g.bundles.Close()
		}
		if g.host != nil {
			g.host.Close()
		}
		err = errors.Join(err, record.Close(), g.closeTelemetry())
		sending.close()
		return nil, err
	}
	if g.telemetry, err = openTelemetry(c, log); err != nil {
		return fail(err)
	}
	if g.telemetry != nil {
		g.record = g.telemetry.Recorder(record)
	}
	g.events = pipeline.New(g.record, pipeline.Options{})
	if g.host, err = newHost(c.Limits, log, g.pluginEvent); err != nil {
		return fail(err)
	}
	if g.bundles, g.polled, err = openBundles(ctx, c, log, g.bundleRefused); err != nil {
		return fail(err)
	}
	j, err := g.load(ctx, c, g.bundles, g.polled)
	if err != nil {
		return fail(err)
	}
	o, servers, err := g.options(c, j)
	if err != nil {
		return fail(err)
	}
	g.servers, g.judges = servers, j
	g.show()
	if g.proxy, err = proxy.New(o); err != nil {
		return fail(err)
	}
	g.front = downstream.New(downstream.Options{
		Proxy: g.proxy,
		Limits: downstream.Limits{
			Message:        messageLimits(c.Limits),
			InFlight:       c.Limits.InFlight,
			Sessions:       c.Limits.Sessions,
			SessionIdle:    c.Limits.SessionIdle,
			ReverseTimeout: c.Limits.ReverseTimeout,
			ResumeEvents:   c.Limits.ResumeEvents,
			ResumeBytes:    c.Limits.ResumeBytes,
			Rounds:         c.Limits.Rounds,
			Parked:         c.Limits.Parked,
			ParkedOfOne:    c.Limits.ParkedOfOne,
			ParkedFor:      c.Limits.ParkedFor,
		},
		Log: log,
	})
	sending.start(c.Audit.File, record, g.sinkEvent)
	if g.telemetry != nil {
		g.telemetry.Watch(g.watched())
	}
	if err := g.event(ctx, "start", listed("version "+version(), c.String(), inForce(j.policies)),
		nil); err != nil {
		return nil, errors.Join(fmt.Errorf("record the start: %w", err), g.close())
	}
	g.sayPolicies(c, j.policies)
	g.startBundles(g.bundles)
	return g, nil
}

// listed joins what there is.
func listed(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// sayPolicies says which policies are in force, and that they are not enforced when that is so.
func (g *gate) sayPolicies(c *config.Config, stage *policies.Stage) {
	if stage == nil {
		return
	}
	files := make([]string, len(c.Policy.Files))
	for i, f := range c.Policy.Files {
		files[i] = shown(f)
	}
	g.log.Info("policies are in force", "rules", c.Policy.Rules, "files", files,
		"mode", c.Policy.Mode, "digest", stage.Digest())
	if c.Policy.Mode == "shadow" {
		g.log.Warn("the policies refuse and change nothing: policy.mode is shadow; what they " +
			"would do is in the audit log")
	}
}

// judges are who judges by a configuration: its plugins, then its policies, which decide on what
// the plugins made of a message.
type judges struct {
	plugins  *plugins.Set
	first    []pipeline.StageConfig // the plugins
	policies *policies.Stage        // nil when there are none
	logged   pipeline.Stage         // they, as they judge
}

// load makes the judges of a configuration, with the bundles that are polled.
func (g *gate) load(ctx context.Context, c *config.Config, client *service.Client,
	polled []*policies.Bundle) (*judges, error) {
	rules, err := loadPolicies(c, polled, &g.memory)
	if err != nil {
		return nil, err
	}
	set, stages, err := loadPlugins(ctx, g.host, c)
	if err != nil {
		return nil, err
	}
	return &judges{set, stages, rules, client.Logged(rules)}, nil
}

func (j *judges) stages() []pipeline.StageConfig {
	if j.policies == nil {
		return j.first
	}
	return append(slices.Clone(j.first), pipeline.StageConfig{Name: policyStage, Stage: j.logged,
		Timeout: policyTimeout})
}

// options are the proxy's for a configuration. Servers that are configured as before stay the ones
// they are.
func (g *gate) options(c *config.Config, j *judges) (proxy.Options, map[string]*server, error) {
	p := pipeline.New(g.record, pipeline.Options{Reasons: c.Deny.Reasons,
		ToolCallsResult: c.Deny.ToolCalls == "result", Names: &g.names, Workers: g.workers},
		append(slices.Clone(g.stages), j.stages()...)...)
	servers := map[string]*server{}
	o := proxy.Options{
		Pipeline: p,
		Names:    proxy.Names{Prefix: c.Names.Prefix, Resources: c.Names.Resources},
		Limits: proxy.Limits{
			InFlight:  c.Limits.InFlight,
			ListPages: c.Limits.ListPages,
			ListItems: c.Limits.ListItems,
			PageItems: c.Limits.PageItems,
			Listens:   c.Limits.Listens,
			Rounds:    c.Limits.Rounds,
		},
		Version:  version(),
		StateKey: []byte(c.Listen.StateKey),
		Log:      g.log,
	}
	if g.telemetry != nil {
		o.Observer = g.telemetry
	}
	if c.Policy != nil {
		waiting, err := approvals(c.Servers)
		if err != nil {
			g.log.Warn("requests that a policy asks a human about can be approved by the "+
				"client's user alone", "error", err)
		} else {
			o.Approvals = waiting
		}
	}
	for _, s := range c.Servers {
		running := g.servers[s.Name]
		if running == nil || !sameServer(running.config, s) {
			up, err := newUpstream(s, c.Limits, g.log, func(u *upstream.Options) {
				u.Event = func(action, reason string, err error) {
					if err := p.RecordEvent(context.Background(), &mcp.Message{Server: s.Name},
						action, reason, err); err != nil {
						g.log.Error("record an event", "server", s.Name, "event", action,
							"error", err)
					}
				}
				if g.telemetry != nil {
					u.Observer = g.telemetry.Server(s.Name)
				}
			})
			if err != nil {
				return o, nil, err
			}
			running = &server{s, up}
		}
		servers[s.Name] = running
		o.Servers = append(o.Servers, proxy.ServerConfig{Name: s.Name, Upstream: running.Upstream,
			Timeout: s.Timeout, MaxTimeout: s.MaxTimeout, Methods: s.Methods})
	}
	return o, servers, nil
}

// sameServer says whether two configurations reach the same server the same way. What only the
// proxy looks at may differ.
func sameServer(a, b config.Server) bool {
	for _, s := range []*config.Server{&a, &b} {
		s.At, s.Timeout, s.MaxTimeout, s.Methods = config.Place{}, 0, 0, nil
	}
	return reflect.DeepEqual(a, b)
}

// newUpstream is the server behind its transport; more, if it is not nil, fills in who is told of
// it. Nothing is started and nobody is called.
func newUpstream(s config.Server, limits config.Limits, log *slog.Logger,
	more func(*upstream.Options)) (*upstream.Upstream, error) {
	d, err := dial(s, limits, log)
	if err != nil {
		return nil, err
	}
	o := upstream.Options{
		Name:    s.Name,
		Version: version(),
		Dial:    d,
		Era:     s.Era,
		Restart: s.Restart,
		Bridge:  bridge.New(bridge.Options{Version: version(), Rounds: limits.Rounds, Log: log}),
		Limits:  messageLimits(limits),
		Log:     log,
	}
	if more != nil {
		more(&o)
	}
	return upstream.New(o), nil
}

func dial(s config.Server, limits config.Limits, log *slog.Logger) (upstream.Dial, error) {
	if s.Command != "" {
		c := transport.Command{
			Name: s.Name, Path: s.Command, Args: s.Args, Dir: s.Cwd, Env: plain(s.Env),
			MaxMessage: limits.MessageBytes, Log: log,
		}
		return upstream.Dial{Pipe: func(ctx context.Context) (upstream.Pipe, error) {
			child, err := transport.Spawn(ctx, c)
			if err != nil {
				return nil, err // not a nil *Child in an interface
			}
			return child, nil
		}}, nil
	}
	back, err := transport.Dial(transport.Remote{Name: s.Name, URL: s.URL,
		Headers: plain(s.Headers), MaxMessage: limits.MessageBytes, Log: log})
	if err != nil {
		return upstream.Dial{}, err
	}
	return upstream.Dial{HTTP: back, SSE: func(ctx context.Context) (upstream.Pipe, error) {
		pipe, err := back.SSE(ctx)
		if err != nil {
			return nil, err
		}
		return pipe, nil
	}}, nil
}

func messageLimits(l config.Limits) mcp.Limits {
	return mcp.Limits{Bytes: l.MessageBytes, Depth: l.Depth, Tokens: l.Tokens, Batch: l.Batch}
}

func plain(secrets map[string]config.Secret) map[string]string {
	out := make(map[string]string, len(secrets))
	for k, v := range secrets {
		out[k] = string(v)
	}
	return out
}

// reachable finds the mistake that new users make: none of the programs is there. A server among
// others that is missing only leaves its own tools out.
func reachable(c *config.Config) error {
	var missing []error
	for _, s := range c.Servers {
		if _, ownPath := s.Env["PATH"]; s.Command == "" || ownPath {
			return nil
		}
		if _, err := exec.LookPath(s.Command); err == nil || errors.Is(err, exec.ErrDot) {
			return nil
		} else {
			missing = append(missing, fmt.Errorf("start server %q: %w", s.Name, err))
		}
	}
	return fmt.Errorf("%w\nhint: is it installed? a program that is started by a desktop client "+
		"has a short PATH: write the command's whole path", errors.Join(missing...))
}

// apply puts a changed configuration to work without dropping sessions.
func (g *gate) apply(ctx context.Context, c *config.Config) error {
	g.mu.Lock()
	before := g.bundles
	err := g.exchange(ctx, c)
	after := g.bundles
	g.mu.Unlock() // bundles that came may wait for it, and Close for them
	if after != before {
		if before != nil {
			before.Close()
		}
		g.startBundles(after)
	}
	return err
}

// exchange is apply with mu held. A client of bundles that is no longer in force is left to be
// closed.
func (g *gate) exchange(ctx context.Context, c *config.Config) (err error) {
	what := "the changed configuration"
	for _, part := range needRestart(g.config, c) {
		g.log.Warn("this change needs a restart; what was there goes on", "part", part)
		what = "the rest of the changed configuration"
	}
	// What cannot be changed stays what it is, and the next change is held against what is in
	// force.
	next := *c
	next.Listen, next.Audit, next.Limits, next.Admin, next.Telemetry, next.Log = g.config.Listen,
		g.config.Audit, g.config.Limits, g.config.Admin, g.config.Telemetry, g.config.Log
	bundles, polled := g.bundles, g.polled
	if !sameBundles(g.config, &next) {
		if bundles, polled, err = openBundles(ctx, &next, g.log, g.bundleRefused); err != nil {
			return err
		}
		defer func() {
			if err != nil && bundles != nil {
				bundles.Close()
			}
		}()
	}
	j, err := g.load(ctx, &next, bundles, polled)
	if err != nil {
		return err
	}
	o, servers, err := g.options(&next, j)
	if err == nil {
		err = g.event(ctx, "reload", listed(next.String(), inForce(j.policies)), nil)
	}
	if err == nil {
		err = g.proxy.Apply(o)
	}
	if err != nil {
		j.plugins.Close()
		return err
	}
	old := g.servers
	g.judges.plugins.Close()
	g.config, g.servers, g.judges, g.bundles, g.polled = &next, servers, j, bundles, polled
	g.show()
	var errs []error
	for name, s := range old {
		if servers[name] != s {
			errs = append(errs, s.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		g.log.Warn("close a server that is no longer configured", "error", err)
	}
	g.log.Info(what + " is in force")
	g.sayPolicies(&next, j.policies)
	return nil
}

// needRestart names the tables whose changes a running gate cannot take.
func needRestart(old, new *config.Config) []string {
	var parts []string
	for _, p := range []struct {
		name     string
		old, new any
	}{{"[listen]", old.Listen, new.Listen}, {"[audit]", old.Audit, new.Audit},
		{"[limits]", old.Limits, new.Limits}, {"[admin]", old.Admin, new.Admin},
		{"[telemetry]", old.Telemetry, new.Telemetry}, {"[log]", old.Log, new.Log}} {
		if !reflect.DeepEqual(p.old, p.new) {
			parts = append(parts, p.name)
		}
	}
	return parts
}

// watch applies changes of the file until ctx ends. One that is no good is reported, and what runs
// goes on.
func (g *gate) watch(ctx context.Context) {
	config.Watch(ctx, g.config, func(c *config.Config, err error) {
		if err == nil {
			err = g.apply(ctx, c)
		}
		if err == nil {
			return
		}
		g.log.Error("the changed configuration cannot be used; the one before goes on",
			"error", err)
		if err := g.event(ctx, "reload", "refused", err); err != nil {
			g.log.Error("record the refused configuration", "error", err)
		}
	})
}

// pluginEvent records that a plugin was lost, or runs again.
func (g *gate) pluginEvent(plugin, action, reason string, err error) {
	if err != nil {
		g.log.Error("a plugin was lost", "plugin", plugin, "error", err)
	} else {
		g.log.Info("a plugin runs again", "plugin", plugin)
	}
	if err := g.event(context.Background(), action, reason, err); err != nil {
		g.log.Error("record an event", "plugin", plugin, "event", action, "error", err)
	}
}

// sinkEvent records that a sink was lost, or works again. When the log is closed nothing can be,
// and the sink has said it to the operator's log.
func (g *gate) sinkEvent(action, reason string, err error) {
	if err := g.event(context.Background(), action, reason, err); err != nil {
		g.log.Debug("record an event", "event", action, "error", err)
	}
}

// event records what is no message.
func (g *gate) event(ctx context.Context, action, reason string, err error) error {
	return g.events.RecordEvent(context.WithoutCancel(ctx), nil, action, reason, err)
}

// closeTimeout bounds a shutdown: a server gets 2 s to end by itself and 2 s after TERM.
const closeTimeout = 15 * time.Second

// endSessions ends what HTTP clients have open.
func (g *gate) endSessions() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return g.front.Close(ctx)
}

// close ends all sessions and servers, records that it did, and closes the record.
func (g *gate) close() error {
	errs := []error{g.endSessions(), g.proxy.Close()}
	g.mu.Lock()
	bundles := g.bundles
	g.mu.Unlock()
	if bundles != nil {
		bundles.Close() // without the lock: it waits for what they put in force
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var wg sync.WaitGroup
	closed := make(chan error, len(g.servers))
	for _, s := range g.servers {
		wg.Go(func() { closed <- s.Close() })
	}
	wg.Wait()
	close(closed)
	for err := range closed {
		errs = append(errs, err)
	}
	g.workers.Close()
	errs = append(errs, g.host.Close(), g.event(context.Background(), "stop", "", nil),
		g.audit.Close())
	g.sinks.close() // that have to send the stop, too
	return errors.Join(append(errs, g.closeTelemetry())...)
}

// ballastBytes is how much garbage is made before it is collected, at the least.
const ballastBytes = 16 << 20

// tune sets the garbage collector for a proxy, whose messages are short-lived and much larger than
// what stays, unless the environment (GOGC, GOMEMLIMIT) sets it. The caller keeps what it answers
// for as long as the proxy runs: memory that is never touched, and so never resident, but counts in
// what the collector lets the heap grow by. A larger GOGC would do the same for a small heap, and
// let a large one grow several times over.
func tune() (ballast []byte) {
	if _, ok := os.LookupEnv("GOGC"); !ok {
		ballast = make([]byte, ballastBytes)
	}
	if _, ok := os.LookupEnv("GOMEMLIMIT"); !ok {
		debug.SetMemoryLimit(1 << 30)
	}
	return ballast
}
