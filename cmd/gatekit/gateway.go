package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/allowances"
	"gatekit/core/bridge"
	"gatekit/core/config"
	"gatekit/core/downstream"
	"gatekit/core/pins"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/shared"
	"gatekit/core/stop"
	"gatekit/core/tasks"
	"gatekit/core/upstream"
	"gatekit/core/workers"
	"gatekit/plugins"
	"gatekit/policies"
	"gatekit/transport"
	"gatekit/transport/auth"
	"gatekit/transport/cluster"
	"gatekit/transport/connect"
	"gatekit/transport/valkey"
)

// gateway runs a configuration: the audit log, the servers, the plugins and policies, the proxy
// between clients and servers, and the sessions of clients. It does not listen for clients: serve
// does.
type gateway struct {
	log         *slog.Logger
	firstStages []pipeline.StageConfig // tests set these stages, which come before the plugins

	// dialServer connects to all servers, instead of their commands and URLs; nil but for gatekit
	// attack.
	dialServer dialFunc

	masked   *masked
	onReload func(*config.Config) // is called before a changed configuration is used; may be nil

	// Each of these is set by the component that starts it, and does not change after that.
	recording   *recording
	host        *plugins.Host
	proxy       *proxy.Proxy
	replica     *cluster.Replica // nil when there is no [cluster]
	shared      *valkey.Store    // nil when there is no [shared]
	sharedLost  atomic.Int64     // when the last recorded loss of shared state was
	epoch       *epochKeeper     // nil when there is no [shared]
	sharedStops *sharedStops     // nil when there is no [shared]
	// what operators have allowed at any replica; nil when there is no [shared]
	sharedAllowances *allowances.Shared
	sharedPins       *pins.Shared // nil when there is no [shared]
	// nil until it is opened, and without [shared] or logins
	sharedLogins atomic.Pointer[sharedLogins]
	// the replicas of [cluster] that share state; nil when there are none
	roster      atomic.Pointer[sharedRoster]
	parkedCalls *bridge.ParkedCalls
	endpoint    *downstream.Endpoint

	memory   policies.SessionStore    // the state of sessions for policies; a reload keeps it
	names    pipeline.RecordableNames // names that may be written to the audit log
	hidden   pipeline.HiddenItems     // items that plugins hid from lists
	redacted pipeline.RedactedValues  // values that plugins redacted, to be restored
	tasks    tasks.Owners             // the owners of servers' tasks
	allowed  *allowanceWatch          // announces the lists that allowances change
	workers  *workers.Pool            // runs the stages of the pipeline

	stops    *stop.Keeper // what an operator has stopped
	stopping sync.Mutex   // held while a stop begins or ends
	stopFile string       // stops everything when it exists; may be ""

	processes *upstream.Processes // bounds the processes of all servers
	confined  confinements        // of the processes that were started last
	listed    *listedTools        // what servers listed; nil without a console

	// clients is the listener for HTTP clients; nil until it is bound.
	clients atomic.Pointer[transport.HTTPServer]
	// auth authenticates HTTP clients; nil until then, and without [listen.auth].
	auth atomic.Pointer[auth.Authenticator]
	// pages are the web pages at which principals log in to servers; nil until the listener is
	// bound, and if no issuer has a login client.
	pages atomic.Pointer[connect.Pages]
	// exchanges is set when the tokens of clients are exchanged for at least one server.
	exchanges atomic.Bool

	// servers holds the servers of the active configuration. Readers that must not wait for mu use
	// it.
	servers atomic.Pointer[[]*server]
	// state describes the active configuration to other replicas and to /metrics.
	state atomic.Pointer[replicaState]
	// pins is the active comparison with the lock file; nil if there is no [pins].
	pins atomic.Pointer[pins.Guard]

	mu     sync.Mutex // held while the active configuration is replaced
	active *activeConfig
}

// openGateway starts a configuration. A server is started when the first client needs it.
//
// The parameter early is the process that the only server already has; it may be nil. The caller
// closes it after the gateway.
func openGateway(ctx context.Context, c *config.Config, log *slog.Logger, early *earlyServer,
	firstStages ...pipeline.StageConfig) (*gateway, error) {
	return openGatewayWith(ctx, c, log, early, nil, firstStages...)
}

// openGatewayWith is openGateway, with the function that connects to all servers unless it is nil.
func openGatewayWith(ctx context.Context, c *config.Config, log *slog.Logger, early *earlyServer,
	dialServer dialFunc, firstStages ...pipeline.StageConfig) (*gateway, error) {
	if err := checkCommands(c.Servers); err != nil {
		return nil, err
	}
	masks := &masked{}
	masks.add(c)
	g := &gateway{log: log, firstStages: firstStages, dialServer: dialServer, masked: masks,
		recording: &recording{log: log, masked: masks},
		workers:   workers.New(), processes: upstream.NewProcesses(c.Limits.Processes),
		allowed: newAllowanceWatch(), stops: openStops(c, log),
		stopFile: c.Stop.File}
	g.active = g.plan(c, nil)
	g.active.policies.load()
	if early != nil {
		g.active.servers[0].early = early
	}
	if err := startAll(ctx, g.components()); err != nil {
		g.active.policies.wait()
		return nil, err
	}
	return g, nil
}

// activeConfig returns the active configuration.
func (g *gateway) activeConfig() *config.Config {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.active.config
}

// components returns the components in the order in which they start. A reload replaces only the
// components of the active configuration, which are in the middle of the list.
func (g *gateway) components() []component {
	r := g.recording
	return slices.Concat(
		[]component{
			&funcComponent{g.openTelemetry, r.closeTelemetry},
			&funcComponent{g.makeSinks, r.closeSinks},
			&funcComponent{g.openAuditLog, r.closeAuditLog},
			&funcComponent{g.openShared, g.closeShared},
			&funcComponent{g.openEpochKeeper, g.closeEpochKeeper},
			&funcComponent{g.openHost, g.closeHost},
			&funcComponent{nil, g.closeWorkers},
		},
		g.active.components(),
		[]component{
			&funcComponent{g.openProxy, g.closeProxy},
			&funcComponent{g.openReplica, g.closeReplica},
			&funcComponent{g.openSessions, g.endSessions},
			&funcComponent{g.announce, nil},
			&funcComponent{g.openSharedStops, g.closeSharedStops},
			&funcComponent{g.openSharedLogins, g.closeSharedLogins},
			&funcComponent{g.openSharedRoster, g.closeSharedRoster},
		})
}

// close ends all sessions, stops all servers and plugins, records the stop and closes the audit
// log.
func (g *gateway) close() error {
	g.mu.Lock()
	list := g.components()
	// mu must be free during stopAll: the bundle source stops only after applyBundles returned, and
	// applyBundles locks mu.
	g.mu.Unlock()
	return stopAll(list)
}

func (g *gateway) openTelemetry(context.Context) error {
	return g.recording.openTelemetry(g.active.config)
}

func (g *gateway) makeSinks(context.Context) error {
	return g.recording.makeSinks(g.active.config.Audit)
}

func (g *gateway) openAuditLog(context.Context) error {
	c := g.active.config
	if err := g.recording.openAuditLog(c.Audit, c.Cluster); err != nil {
		return err
	}
	if isConsoleOn(c) {
		g.listed = &listedTools{Recorder: g.recording.recorder}
		g.recording.recorder = g.listed
	}
	return nil
}

func (g *gateway) openHost(context.Context) (err error) {
	g.host, err = newHost(g.active.config.Limits, g.sharedCounts(), g.log,
		g.recording.pluginEvent)
	return err
}

func (g *gateway) closeHost() error { return g.host.Close() }

func (g *gateway) closeWorkers() error {
	g.workers.Close()
	return nil
}

func (g *gateway) openProxy(context.Context) (err error) {
	g.publishServers()
	g.publishState()
	g.proxy, err = proxy.New(g.proxyOptions(g.active))
	return err
}

func (g *gateway) closeProxy() error { return g.proxy.Close() }

// proxyOptions returns the options with which the proxy runs a configuration.
func (g *gateway) proxyOptions(a *activeConfig) proxy.Options {
	c := a.config
	o := proxy.Options{
		Pipeline: g.newPipeline(a),
		Naming:   proxy.Naming{Prefix: c.Names.Prefix, Resources: c.Names.Resources},
		Limits: proxy.Limits{
			InFlight:      c.Limits.InFlight,
			ListPages:     c.Limits.ListPages,
			ListItems:     c.Limits.ListItems,
			PageItems:     c.Limits.PageItems,
			Subscriptions: c.Limits.Listens,
			InputRounds:   c.Limits.Rounds,
			InputRequests: c.Limits.ReverseRequests,
			AllLogs:       !c.Limits.FilterLogs,
		},
		Version:  version(),
		StateKey: []byte(c.Listen.StateKey),
		Tasks:    &g.tasks,
		Log:      g.log,
		// after a reload, too: these tables need a restart
		ListFirst: c.Cluster != nil || c.Shared != nil,
	}
	if g.recording.telemetry != nil {
		o.Observer = g.recording.telemetry
	}
	if store := g.sharedStore(); store != nil {
		o.Answered = sharedRounds{store}
	}
	if c.File == "" && len(c.Servers) == 1 {
		// In gatekit wrap, the user of the client runs the server, and may read its output.
		o.DescribeCause = describeExit
	}
	if c.Policy != nil {
		pending, err := g.approvals(c)
		if err != nil {
			g.log.Warn("approval folder unavailable: only the client's user can approve "+
				"requests", "error", err)
		} else {
			o.Approvals = pending
		}
	}
	for i, s := range c.Servers {
		o.Servers = append(o.Servers, proxy.ServerConfig{Name: s.Name,
			Upstream: a.servers[i].forProxy(), Timeout: s.Timeout, MaxTimeout: s.MaxTimeout,
			Methods: s.Methods})
	}
	return o
}

func (g *gateway) openSessions(context.Context) error {
	limits := g.active.config.Limits
	g.parkedCalls = bridge.NewParkedCalls(bridge.ParkedCallsOptions{
		Proxy: g.proxy,
		Limits: bridge.ParkedCallLimits{
			Calls:             limits.Parked,
			CallsPerPrincipal: limits.ParkedPerPrincipal,
			Wait:              limits.ParkedFor,
			Rounds:            limits.Rounds,
		},
		Workers: g.workers,
		NewID:   g.newParkedID(),
	})
	o := downstream.Options{
		Proxy: g.proxy,
		Limits: downstream.Limits{
			Message:         messageLimits(limits),
			InFlight:        limits.InFlight,
			Sessions:        limits.Sessions,
			SessionIdle:     limits.SessionIdle,
			ReverseTimeout:  limits.ReverseTimeout,
			ReverseRequests: limits.ReverseRequests,
			ResumeEvents:    limits.ResumeEvents,
			ResumeBytes:     limits.ResumeBytes,
		},
		Log:    g.log,
		Parker: g.parkedCalls,
	}
	if g.replica != nil { // an interface that holds a nil pointer is not nil
		o.Replica = g.replica
	}
	if g.replica != nil || g.shared != nil {
		ring, err := shared.NewRing([]byte(g.active.config.Listen.StateKey))
		if err != nil {
			return fmt.Errorf("[listen] state_key: %w", err)
		}
		o.SessionName = ring.SessionName
	}
	g.endpoint = downstream.New(o)
	return nil
}

// closeTimeout limits how long it may take to end all sessions. A server has 2 s to exit by itself,
// and 2 s more after SIGTERM.
const closeTimeout = 15 * time.Second

// endSessions ends the sessions of HTTP clients. listeners.serve calls it, and close calls it
// again.
func (g *gateway) endSessions() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return g.endpoint.Close(ctx)
}

// announce is the last step of a start: the sinks begin to send, telemetry begins to measure, the
// start is recorded, and changed bundles may become active.
func (g *gateway) announce(ctx context.Context) error {
	r, a := g.recording, g.active
	if err := r.startSinks(a.config.Audit.File); err != nil {
		return err
	}
	if r.telemetry != nil {
		r.telemetry.SetSources(g.telemetrySources())
	}
	if err := r.recordStart(ctx, joinNonEmpty("version "+version(), a.config.String(),
		describePolicies(a.policies.stage), describePins(a.pins), describeCanaries(a.config),
		describeStops(g.stops.List()))); err != nil {
		return fmt.Errorf("record the start: %w", err)
	}
	if err := g.announceStops(); err != nil {
		return err
	}
	g.logPolicies(a)
	g.logPins(a)
	a.bundles.poll(g.applyBundles)
	return nil
}

// joinNonEmpty joins the parts that are not empty.
func joinNonEmpty(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}
