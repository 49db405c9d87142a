package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"gatekit/audit/telemetry"
	"gatekit/core/config"
	"gatekit/core/downstream"
	"gatekit/core/tlsconfig"
	"gatekit/transport"
	"gatekit/transport/console"
)

const (
	readyTimeout   = 3 * time.Second // for all servers, which are asked concurrently
	healthInterval = 3 * time.Second // shortest time between two health checks
)

// openTelemetry starts the telemetry of a configuration. It returns nil when the configuration sets
// neither [admin] http nor [telemetry] url.
func openTelemetry(c *config.Config, log *slog.Logger) (*telemetry.Telemetry, error) {
	if c.Admin.HTTP == "" && c.Telemetry.URL == "" {
		return nil, nil
	}
	collector, err := collectorOf(c.Telemetry)
	if err != nil {
		return nil, err
	}
	return telemetry.Open(telemetry.Options{Version: version(), Prometheus: c.Admin.HTTP != "",
		ToolLabels: c.Telemetry.Tools, PolicyStage: policyStage, Logger: log,
		Collector: collector})
}

func collectorOf(c config.Telemetry) (telemetry.Collector, error) {
	secure, err := tlsconfig.Files{CA: c.CA}.Load()
	if err != nil {
		return telemetry.Collector{}, fmt.Errorf("telemetry.ca: %w", err)
	}
	return telemetry.Collector{
		URL: c.URL, Protocol: c.Protocol, Headers: revealed(c.Headers), TLS: secure,
		Metrics:  c.Metrics,
		Interval: c.Interval, Traces: c.Traces, SampleRatio: c.Sample,
	}, nil
}

// tracedEndpoint is the endpoint for HTTP clients when telemetry is on. If a call has no trace in
// _meta, it continues the trace in the headers of its HTTP request.
type tracedEndpoint struct {
	*downstream.Endpoint
	telemetry *telemetry.Telemetry
}

// Post implements transport.Endpoint.
func (t tracedEndpoint) Post(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply) {
	t.Endpoint.Post(t.telemetry.ContextFromHeader(ctx, r.Header), r, w)
}

// listenAdmin binds the listener for operators. The console may be nil.
func (g *gateway) listenAdmin(c *config.Config,
	pages *console.Console) (*transport.AdminServer, error) {
	o := transport.AdminServerOptions{Addr: c.Admin.HTTP, Log: g.log,
		Pages: map[string]http.Handler{
			"/metrics": g.recording.telemetry.Handler(),
			"/healthz": newHealthHandler(g.healthy),
			"/readyz":  newHealthHandler(g.ready),
		},
		Commands: g.adminCommands(string(c.Admin.Token))}
	if pages != nil { // an interface that holds a nil pointer is not nil
		o.Console = pages
	}
	return transport.ListenAdmin(o)
}

// telemetrySources returns functions that measure the gateway.
func (g *gateway) telemetrySources() telemetry.Sources {
	return telemetry.Sources{
		Sessions:       g.proxy.SessionCount,
		ParkedCalls:    g.parkedCalls.Count,
		PendingRecords: g.recording.audit.Pending,
		Servers: func() []telemetry.ServerState {
			var states []telemetry.ServerState
			for _, s := range *g.servers.Load() {
				counts := s.Processes()
				states = append(states, telemetry.ServerState{Name: s.config.Name,
					State: s.State(), Processes: counts.Running, ProcessesEnded: counts.Ended,
					StartsRefused: counts.Refused})
			}
			return states
		},
		Plugins: func() []telemetry.PluginState {
			var states []telemetry.PluginState
			for _, p := range g.host.Status() {
				states = append(states, telemetry.PluginState{Name: p.Name, Up: p.Running,
					Starts: p.Starts, InFlight: p.InFlight,
					ConsecutiveTimeouts: p.ConsecutiveTimeouts})
			}
			return states
		},
		Sinks: func() []telemetry.SinkState {
			var states []telemetry.SinkState
			for _, s := range g.recording.sinks.running() {
				states = append(states, telemetry.SinkState{Name: s.Name, Backlog: s.Backlog()})
			}
			return states
		},
		Witnesses: func() []telemetry.WitnessState {
			var states []telemetry.WitnessState
			for _, w := range g.recording.witnesses.states() {
				behind := max(0, int64(g.recording.audit.Committed())-w.Size)
				states = append(states, telemetry.WitnessState{Name: w.Name,
					Backlog: uint64(behind), Failing: w.Error != "", Refused: w.Refused})
			}
			return states
		},
		Configuration: func() telemetry.ConfigurationState {
			s := g.currentState()
			return telemetry.ConfigurationState{Configuration: s.configuration,
				Policies: s.policies}
		},
		Replicas: func() []telemetry.ReplicaState {
			if roster := g.roster.Load(); roster != nil {
				return roster.states()
			}
			if g.replica == nil {
				return nil
			}
			var states []telemetry.ReplicaState
			for _, p := range g.replica.Peers() {
				states = append(states, telemetry.ReplicaState(p))
			}
			return states
		},
		Pins:  g.pinStates,
		Stops: func() int { return len(g.stops.List()) },
		HTTP: func() telemetry.HTTPState {
			if l := g.clients.Load(); l != nil {
				return telemetry.HTTPState(l.Stats())
			}
			return telemetry.HTTPState{}
		},
	}
}

// healthResult is the result of one health check: the check of a server, of a plugin or of the
// audit log.
type healthResult struct {
	name, state string
	err         error
}

// healthy checks the audit log, because no message is forwarded while the log cannot be written. If
// the last record could not be written, healthy tries to write another record. A log whose
// checkpoints or anchor cannot be written is also unhealthy, although messages are still forwarded.
func (g *gateway) healthy(ctx context.Context) []healthResult {
	err := g.recording.telemetry.LastRecordError()
	if err != nil {
		err = g.recording.event(ctx, "retry", "the audit log could not be written", nil)
	}
	if err == nil {
		err = g.recording.audit.Health()
	}
	return []healthResult{{"audit", "written", err}}
}

// ready returns the health of all servers, the plugins and the audit log.
func (g *gateway) ready(ctx context.Context) []healthResult {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	servers := *g.servers.Load()
	results := make([]healthResult, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		if err := g.stopOfServer(s.config.Name); err != nil {
			// The check is a message, too, and would be refused.
			results[i] = healthResult{"server " + s.config.Name, "stopped", err}
			continue
		}
		wg.Go(func() {
			state, err := s.Ready(ctx)
			if err != nil {
				err = errors.New(fullReason(err))
			}
			results[i] = healthResult{"server " + s.config.Name, state, err}
		})
	}
	wg.Wait()
	for _, p := range g.host.Status() {
		f := healthResult{"plugin " + p.Name, "up", nil}
		if !p.Running {
			f.err = cmp.Or(p.Err, errors.New("not running"))
		}
		results = append(results, f)
	}
	results = append(results, g.stopHealth())
	results = append(results, g.sharedHealth(ctx)...)
	return append(results, g.healthy(ctx)...)
}

// healthHandler serves a page with one line for each result. The page has status 200 if all results
// are good, and status 503 otherwise. The handler runs one check at a time. It serves the last
// results again while they are younger than healthInterval.
type healthHandler struct {
	check func(context.Context) []healthResult

	mu      sync.Mutex // held during a check
	last    time.Time
	results []healthResult
}

func newHealthHandler(check func(context.Context) []healthResult) *healthHandler {
	return &healthHandler{check: check}
}

// ServeHTTP implements http.Handler.
func (h *healthHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	var page strings.Builder
	for _, f := range h.current(r.Context()) {
		if f.err == nil {
			fmt.Fprintf(&page, "ok    %s: %s\n", f.name, f.state)
			continue
		}
		status = http.StatusServiceUnavailable
		// The error may contain a server's text, and is read in a terminal.
		quoted := strconv.QuoteToGraphic(f.err.Error())
		fmt.Fprintf(&page, "FAIL  %s: %s\n", f.name, quoted[1:len(quoted)-1])
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprint(w, page.String())
}

// current returns the results of a check that is at most healthInterval old.
func (h *healthHandler) current(ctx context.Context) []healthResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.IsZero() || time.Since(h.last) >= healthInterval {
		// The check continues when this client disconnects: other clients may wait for the result.
		h.results, h.last = h.check(context.WithoutCancel(ctx)), time.Now()
	}
	return h.results
}
