package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxSeries bounds each metric, whatever its labels: beyond it the SDK counts into one series,
// otel_metric_overflow.
const maxSeries = 4000

// Sources look up what is there now. Those that are nil are not told.
type Sources struct {
	Sessions       func() int
	ParkedCalls    func() int           // calls that wait for their clients' answers
	PendingRecords func() int           // records that are answered for and not written yet
	Servers        func() []ServerState // that are configured
	Plugins        func() []PluginState
	Sinks          func() []SinkState
}

// ServerState is how a server is.
type ServerState struct {
	Name  string
	State string // idle, up, down
}

// PluginState is how the process of a plugin, or of several, is.
type PluginState struct {
	Name     string
	Up       bool
	Starts   int // since Gatekit's
	InFlight int // questions that it has not answered
	// questions in a row without a verdict in time; when there are too many it is killed
	ConsecutiveTimeouts int
}

// SinkState is how a sink of the audit log is.
type SinkState struct {
	Name    string
	Backlog uint64 // records that it was not sent
}

// durations are those that the semantic conventions want, in seconds, and below them those of a
// stage.
var (
	durations = metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10,
		30, 60, 120, 300)
	moments = metric.WithExplicitBucketBoundaries(0.00001, 0.000025, 0.00005, 0.0001, 0.00025,
		0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
)

// instruments are what is counted as it happens.
type instruments struct {
	// mcp.server.operation.duration, mcp.client.operation.duration
	received, sent  metric.Float64Histogram
	active          metric.Int64UpDownCounter
	decisions       metric.Int64Counter
	denials         metric.Int64Counter
	stages          metric.Float64Histogram
	recorded        metric.Float64Histogram
	failures        metric.Int64Counter
	tools           names
	rules           names
	codes           names // of errors
	operationLabels labels[operation]
	decisionLabels  labels[decision]
	denialLabels    labels[denial]
	stageLabels     labels[judgement]
}

func (t *Telemetry) instruments() (*instruments, error) {
	m := t.provider.Meter("gatekit")
	i := &instruments{}
	var errs []error
	histogram := func(to *metric.Float64Histogram, name, what string,
		buckets metric.HistogramOption) {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
			buckets)
		*to, errs = h, append(errs, err)
	}
	counter := func(to *metric.Int64Counter, name, unit, what string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		*to, errs = c, append(errs, err)
	}
	histogram(&i.received, "mcp.server.operation.duration",
		"Of clients' requests, from when they came until they were answered.", durations)
	histogram(&i.sent, "mcp.client.operation.duration",
		"Of requests to servers, from when they were sent until they were answered.", durations)
	counter(&i.decisions, "gatekit.decisions", "{record}", "Records of the audit log.")
	counter(&i.denials, "gatekit.denials", "{message}", "Messages that were refused.")
	histogram(&i.stages, "gatekit.stage.duration",
		"Of one stage's judgement of one message; of those that were asked together the first "+
			"has it all.", moments)
	histogram(&i.recorded, "gatekit.audit.duration",
		"Until a record was as durable as is configured.", moments)
	counter(&i.failures, "gatekit.audit.failures", "{record}",
		"Records that could not be written, and whose messages did not move.")
	var err error
	i.active, err = m.Int64UpDownCounter("gatekit.requests.active", metric.WithUnit("{request}"),
		metric.WithDescription("Clients' requests that are not answered yet."))
	return i, errors.Join(append(errs, err, t.gauges(m))...)
}

// gauges are what is looked up.
func (t *Telemetry) gauges(m metric.Meter) error {
	var errs []error
	gauge := func(name, unit, what string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return g
	}
	sessions := gauge("gatekit.sessions", "{session}",
		"Sessions of clients; all requests of a client without sessions are one.")
	parked := gauge("gatekit.calls.parked", "{call}", "Calls that wait for their clients' answers.")
	waiting := gauge("gatekit.audit.waiting", "{record}",
		"Records that were answered for and are not written yet.")
	behind := gauge("gatekit.audit.sink.behind", "{record}",
		"Records of the audit log that a sink was not sent.")
	server := gauge("gatekit.server.state",
		"", "1 for the state that a server is in: idle, up, down.")
	up := gauge("gatekit.plugin.up", "", "1 when a plugin's process runs.")
	active := gauge("gatekit.plugin.requests.active", "{request}",
		"Questions that a plugin's process has not answered.")
	late := gauge("gatekit.plugin.late", "{request}",
		"Questions in a row without a verdict in time; three, and the process is killed.")
	starts, err := m.Int64ObservableCounter("gatekit.plugin.starts", metric.WithUnit("{start}"),
		metric.WithDescription("How often a plugin's process was started."))
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := t.sources.Load()
		if s == nil {
			return nil
		}
		for _, g := range []struct {
			to   metric.Int64Observable
			from func() int
		}{{sessions, s.Sessions}, {parked, s.ParkedCalls}, {waiting, s.PendingRecords}} {
			if g.from != nil {
				o.ObserveInt64(g.to, int64(g.from()))
			}
		}
		if s.Servers != nil {
			for _, now := range s.Servers() {
				for _, state := range []string{"idle", "up", "down"} {
					o.ObserveInt64(server, one(state == now.State),
						metric.WithAttributes(attribute.String(keyServer, now.Name),
							attribute.String(keyState, state)))
				}
			}
		}
		if s.Plugins != nil {
			for _, p := range s.Plugins() {
				of := metric.WithAttributes(attribute.String(keyPlugin, p.Name))
				o.ObserveInt64(up, one(p.Up), of)
				o.ObserveInt64(starts, int64(p.Starts), of)
				o.ObserveInt64(active, int64(p.InFlight), of)
				o.ObserveInt64(late, int64(p.ConsecutiveTimeouts), of)
			}
		}
		if s.Sinks != nil {
			for _, k := range s.Sinks() {
				o.ObserveInt64(behind, int64(k.Backlog),
					metric.WithAttributes(attribute.String(keySink, k.Name)))
			}
		}
		return nil
	}, sessions, parked, waiting, behind, server, up, active, late, starts)
	return err
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
