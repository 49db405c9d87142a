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
	askTimeout = 3 * time.Second // for all servers, which are asked at once
	askEvery   = 3 * time.Second // so often at most
)

// openTelemetry is nil where the configuration has nobody who is told.
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

// traced is the front for HTTP clients where telemetry is told: the trace that a request's headers
// name is that of its calls that name none.
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

// finding is what is known of one part.
type finding struct {
	name, state string
	err         error
}

// healthy says whether the process does its work: nothing moves when the audit log cannot be
// written. While it could not, it is tried with a record. A log whose checkpoints or their anchor
// cannot be written is no good either, though messages move.
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

// ready asks all servers, and looks at the plugins.
func (g *gateway) ready(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	servers := *g.servers.Load()
	found := make([]finding, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			state, err := s.Ready(ctx)
			if err != nil {
				err = errors.New(why(err))
			}
			found[i] = finding{"server " + s.config.Name, state, err}
		})
	}
	wg.Wait()
	for _, p := range g.host.Status() {
		f := finding{"plugin " + p.Name, "up", nil}
		if !p.Running {
			f.err = cmp.Or(p.Err, errors.New("it is not running"))
		}
		found = append(found, f)
	}
	return append(found, g.healthy(ctx)...)
}

// health is a page that says how things are: 200 when all is good, 503 when something is not; a
// line for each part. It asks for no more than one of those who want to know at a time, and not so
// often.
type health struct {
	ask func(context.Context) []finding

	mu    sync.Mutex // held while asking
	at    time.Time
	found []finding
}

func newHealth(ask func(context.Context) []finding) *health { return &health{ask: ask} }

// ServeHTTP implements http.Handler.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	var page strings.Builder
	for _, f := range h.now(r.Context()) {
		if f.err == nil {
			fmt.Fprintf(&page, "ok    %s: %s\n", f.name, f.state)
			continue
		}
		status = http.StatusServiceUnavailable
		// It may be a server's text, and is read in a terminal.
		said := strconv.QuoteToGraphic(f.err.Error())
		fmt.Fprintf(&page, "FAIL  %s: %s\n", f.name, said[1:len(said)-1])
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprint(w, page.String())
}

func (h *health) now(ctx context.Context) []finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at.IsZero() || time.Since(h.at) >= askEvery {
		h.found, h.at = h.ask(context.WithoutCancel(ctx)), time.Now() // others want to know, too
	}
	return h.found
}
