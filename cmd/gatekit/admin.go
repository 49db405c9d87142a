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
)

const (
	readyTimeout   = 3 * time.Second // for all servers, which are asked at the same time
	healthInterval = 3 * time.Second // shortest time between two health checks
)

// openTelemetry returns nil when neither [admin] nor [telemetry] asks for telemetry.
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

// traced is the front for HTTP clients when telemetry is on. Calls that name no trace join the
// trace that the headers of their HTTP request name.
type traced struct {
	*downstream.Endpoint
	by *telemetry.Telemetry
}

// Post implements transport.Endpoint.
func (t traced) Post(ctx context.Context, r downstream.HTTPRequest, w downstream.Reply) {
	t.Endpoint.Post(t.by.ContextFromHeader(ctx, r.Header), r, w)
}

// listenAdmin binds the listener for operators.
func (g *gateway) listenAdmin(c *config.Config) (*transport.AdminServer, error) {
	return transport.ListenAdmin(transport.AdminServerOptions{Addr: c.Admin.HTTP, Log: g.log,
		Pages: map[string]http.Handler{
			"/metrics": g.recording.telemetry.Handler(),
			"/healthz": newHealth(g.healthy),
			"/readyz":  newHealth(g.ready),
		}})
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
				states = append(states, telemetry.ServerState{Name: s.config.Name,
					State: s.State()})
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
			for _, one := range g.recording.sinks.running() {
				states = append(states, telemetry.SinkState{Name: one.Name, Backlog: one.Backlog()})
			}
			return states
		},
	}
}

// finding is the state of one part of the gateway: of a server, a plugin or the audit log.
type finding struct {
	name, state string
	err         error
}

// healthy checks the audit log, without which no message moves. After a failure it tries to write a
// record. A log whose checkpoints or anchor cannot be written is unhealthy too, though messages
// move.
func (g *gateway) healthy(ctx context.Context) []finding {
	err := g.recording.telemetry.LastRecordError()
	if err != nil {
		err = g.recording.event(ctx, "retry", "the audit log could not be written", nil)
	}
	if err == nil {
		err = g.recording.audit.Health()
	}
	return []finding{{"audit", "written", err}}
}

// ready asks all servers, and checks the plugins and the audit log.
func (g *gateway) ready(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	servers := *g.servers.Load()
	found := make([]finding, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			state, err := s.Ready(ctx)
			if err != nil {
				err = errors.New(fullReason(err))
			}
			found[i] = finding{"server " + s.config.Name, state, err}
		})
	}
	wg.Wait()
	for _, p := range g.host.Status() {
		f := finding{"plugin " + p.Name, "up", nil}
		if !p.Running {
			f.err = cmp.Or(p.Err, errors.New("not running"))
		}
		found = append(found, f)
	}
	return append(found, g.healthy(ctx)...)
}

// health is a page with one line for each part. Its status is 200 when all parts are well, and
// otherwise 503. It runs one check at a time, and returns the last result when that is recent.
type health struct {
	check func(context.Context) []finding

	mu       sync.Mutex // held during a check
	last     time.Time
	findings []finding
}

func newHealth(check func(context.Context) []finding) *health { return &health{check: check} }

// ServeHTTP implements http.Handler.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// current returns the findings of a check that is at most healthInterval old.
func (h *health) current(ctx context.Context) []finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.IsZero() || time.Since(h.last) >= healthInterval {
		// Others wait for the result, too, when this client goes away.
		h.findings, h.last = h.check(context.WithoutCancel(ctx)), time.Now()
	}
	return h.findings
}
