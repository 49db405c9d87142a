package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxSeries is the maximal number of label combinations of each metric. The SDK counts all further
// combinations together, under the label otel_metric_overflow.
const maxSeries = 4000

// Sources are functions that return the current values of gauges. If a function is nil, its gauge
// has no value.
type Sources struct {
	Sessions       func() int
	ParkedCalls    func() int           // calls that wait for answers of their clients
	PendingRecords func() int           // records that were accepted and are not written yet
	Servers        func() []ServerState // configured servers
	Plugins        func() []PluginState
	Sinks          func() []SinkState
	Witnesses      func() []WitnessState
	Pins           func() []PinState
	Stops          func() int       // stops in force; see gatekit stop
	HTTP           func() HTTPState // of the listener for HTTP clients
	Configuration  func() ConfigurationState
	Replicas       func() []ReplicaState // the others behind the same address
}

// ConfigurationState names what Gatekit runs with. Equal values mean equal configurations, and
// equal policies.
type ConfigurationState struct {
	Configuration string
	Policies      string // "" without policies
}

// ReplicaState describes another replica.
type ReplicaState struct {
	Name    string
	Differs bool // it has another configuration, or other policies
}

// HTTPState is the state of the listener for HTTP clients.
type HTTPState struct {
	Connections        int   // open now
	ConnectionsRefused int64 // since Gatekit started
	Streams            int   // open event streams
	StreamsRefused     int64 // since Gatekit started
}

// ServerState is the state of a server.
type ServerState struct {
	Name  string
	State string // "idle", "up" or "down"

	Processes int // running processes
	// processes that were ended since Gatekit started, because no client used them
	ProcessesEnded int64
	// number of times since Gatekit started that a process was not started, because there were too
	// many processes
	StartsRefused int64
}

// PluginState is the state of a plugin process, which may run several plugins.
type PluginState struct {
	Name     string
	Up       bool
	Starts   int // since Gatekit started
	InFlight int // requests without a verdict yet
	// number of verdicts in a row that did not come in time; if it gets too large, the process is
	// killed
	ConsecutiveTimeouts int
}

// SinkState is the state of a sink of the audit log.
type SinkState struct {
	Name    string
	Backlog uint64 // records that the sink has not sent
}

// WitnessState is the state of a witness of the audit log.
type WitnessState struct {
	Name    string
	Backlog uint64 // records that the witness has not cosigned
	Failing bool   // the witness did not cosign the last checkpoint that it got
	Refused bool   // because it has seen another history of the log
}

func (w *WitnessState) state() string {
	switch {
	case w.Refused:
		return "refused"
	case w.Failing:
		return "failing"
	}
	return "cosigning"
}

// PinState is the state of the comparison of a server with the lock file.
type PinState struct {
	Server   string
	HeldBack int // items that were not as approved when they were seen last
}

// callBuckets are the buckets of the semantic conventions for MCP, in seconds. stageBuckets are the
// buckets for the durations of stages and of writing records.
var (
	callBuckets = metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10,
		30, 60, 120, 300)
	stageBuckets = metric.WithExplicitBucketBoundaries(0.00001, 0.000025, 0.00005, 0.0001, 0.00025,
		0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
)

// instruments are the metrics that are updated at each event, and the caches of their labels.
type instruments struct {
	// mcp.server.operation.duration, mcp.client.operation.duration
	serverDuration, clientDuration metric.Float64Histogram
	activeRequests                 metric.Int64UpDownCounter
	decisions                      metric.Int64Counter
	denials                        metric.Int64Counter
	hidden                         metric.Int64Counter
	canaries                       metric.Int64Counter
	stageDuration                  metric.Float64Histogram
	auditDuration                  metric.Float64Histogram
	auditFailures                  metric.Int64Counter
	sharedDuration                 metric.Float64Histogram
	sharedErrors                   metric.Int64Counter
	tools                          nameSet
	rules                          nameSet
	codes                          nameSet // JSON-RPC error codes
	operationLabels                attributeSets[operation]
	decisionLabels                 attributeSets[decision]
	denialLabels                   attributeSets[denial]
	hiddenLabels                   attributeSets[hidden]
	canaryLabels                   attributeSets[canaryFound]
	stageLabels                    attributeSets[stageResult]
}

func (t *Telemetry) newInstruments() (*instruments, error) {
	m := t.provider.Meter("gatekit")
	i := &instruments{}
	var errs []error
	histogram := func(to *metric.Float64Histogram, name, help string,
		buckets metric.HistogramOption) {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help),
			buckets)
		*to, errs = h, append(errs, err)
	}
	counter := func(to *metric.Int64Counter, name, unit, help string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		*to, errs = c, append(errs, err)
	}
	histogram(&i.serverDuration, "mcp.server.operation.duration",
		"Duration of clients' requests.", callBuckets)
	histogram(&i.clientDuration, "mcp.client.operation.duration",
		"Duration of requests to servers.", callBuckets)
	counter(&i.decisions, "gatekit.decisions", "{record}", "Records of the audit log.")
	counter(&i.denials, "gatekit.denials", "{message}", "Denied messages.")
	counter(&i.hidden, "gatekit.items.hidden", "{item}",
		"Items that a stage removed from lists; an item counts each time that it is listed.")
	counter(&i.canaries, "gatekit.canaries.found", "{finding}",
		"Texts of messages that had a planted value ([canary]).")
	histogram(&i.stageDuration, "gatekit.stage.duration",
		"Duration of the evaluation of one message by one stage; if several stages run in one "+
			"process, the first of them has the whole duration.", stageBuckets)
	histogram(&i.auditDuration, "gatekit.audit.duration",
		"Time until a record was as durable as configured.", stageBuckets)
	counter(&i.auditFailures, "gatekit.audit.failures", "{record}",
		"Records that could not be written; their messages were denied.")
	histogram(&i.sharedDuration, "gatekit.shared.duration",
		"Duration of the requests to the server of [shared].", stageBuckets)
	counter(&i.sharedErrors, "gatekit.shared.errors", "{request}",
		"Requests to the server of [shared] without a result: lost (the server has lost what it "+
			"knew), or unavailable.")
	var err error
	i.activeRequests, err = m.Int64UpDownCounter("gatekit.requests.active",
		metric.WithUnit("{request}"),
		metric.WithDescription("Clients' requests in flight."))
	return i, errors.Join(append(errs, err, t.registerGauges(m))...)
}

// registerGauges registers the metrics whose values come from the sources.
func (t *Telemetry) registerGauges(m metric.Meter) error {
	var errs []error
	gauge := func(name, unit, help string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return g
	}
	sessions := gauge("gatekit.sessions", "{session}",
		"Sessions of clients; a client without sessions counts as one session.")
	parked := gauge("gatekit.calls.parked", "{call}",
		"Parked calls, which wait for answers of their clients.")
	waiting := gauge("gatekit.audit.waiting", "{record}",
		"Records that were accepted and are not written yet.")
	behind := gauge("gatekit.audit.sink.behind", "{record}",
		"Records of the audit log that a sink has not sent.")
	uncosigned := gauge("gatekit.audit.witness.behind", "{record}",
		"Records of the audit log that a witness has not cosigned.")
	witnessState := gauge("gatekit.audit.witness.state", "",
		"1 for the current state of a witness: cosigning, failing, or refused if it has seen "+
			"another history of the log.")
	stops := gauge("gatekit.stops", "{stop}", "Stops in force: see gatekit stop.")
	configuration := gauge("gatekit.configuration", "",
		"1, with digests of the configuration without secrets and of the policies as labels.")
	differs := gauge("gatekit.replica.differs", "",
		"1 if another replica has another configuration or other policies, else 0.")
	server := gauge("gatekit.server.state",
		"", "1 for the current state of a server: idle, up or down.")
	heldBack := gauge("gatekit.pins.held_back", "{item}",
		"Items of a server that wait for an approval: they were not as approved when they were "+
			"seen last.")
	processes := gauge("gatekit.server.processes", "{process}",
		"Running processes of a server.")
	total := func(name, unit, help string) metric.Int64ObservableCounter {
		c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit),
			metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	ended := total("gatekit.server.processes.ended", "{process}",
		"Processes of a server that were ended because no client used them.")
	startsRefused := total("gatekit.server.starts.refused", "{start}",
		"Starts of a server that were refused because its principal has too many processes.")
	up := gauge("gatekit.plugin.up", "", "1 while a plugin's process runs.")
	active := gauge("gatekit.plugin.requests.active", "{request}",
		"Requests in flight to a plugin's process.")
	late := gauge("gatekit.plugin.late", "{request}",
		"Verdicts in a row that did not come in time; after three the process is killed.")
	connections := gauge("gatekit.http.connections", "{connection}",
		"Open connections of HTTP clients.")
	streams := gauge("gatekit.http.streams", "{stream}", "Open event streams of HTTP clients.")
	refused := total("gatekit.http.refused", "{refusal}",
		"Connections and event streams that were refused because of a limit.")
	starts := total("gatekit.plugin.starts", "{start}", "Starts of a plugin's process.")
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := t.sources.Load()
		if s == nil {
			return nil
		}
		for _, g := range []struct {
			to   metric.Int64Observable
			from func() int
		}{{sessions, s.Sessions}, {parked, s.ParkedCalls}, {waiting, s.PendingRecords},
			{stops, s.Stops}} {
			if g.from != nil {
				o.ObserveInt64(g.to, int64(g.from()))
			}
		}
		if s.Configuration != nil {
			now := s.Configuration()
			o.ObserveInt64(configuration, 1, metric.WithAttributes(
				attribute.String(keyConfiguration, now.Configuration),
				attribute.String(keyPolicies, now.Policies)))
		}
		if s.Replicas != nil {
			for _, r := range s.Replicas() {
				o.ObserveInt64(differs, boolToInt(r.Differs),
					metric.WithAttributes(attribute.String(keyReplica, r.Name)))
			}
		}
		if s.Servers != nil {
			for _, now := range s.Servers() {
				for _, state := range []string{"idle", "up", "down"} {
					o.ObserveInt64(server, boolToInt(state == now.State),
						metric.WithAttributes(attribute.String(keyServer, now.Name),
							attribute.String(keyState, state)))
				}
				name := metric.WithAttributes(attribute.String(keyServer, now.Name))
				o.ObserveInt64(processes, int64(now.Processes), name)
				o.ObserveInt64(ended, now.ProcessesEnded, name)
				o.ObserveInt64(startsRefused, now.StartsRefused, name)
			}
		}
		if s.Plugins != nil {
			for _, p := range s.Plugins() {
				plugin := metric.WithAttributes(attribute.String(keyPlugin, p.Name))
				o.ObserveInt64(up, boolToInt(p.Up), plugin)
				o.ObserveInt64(starts, int64(p.Starts), plugin)
				o.ObserveInt64(active, int64(p.InFlight), plugin)
				o.ObserveInt64(late, int64(p.ConsecutiveTimeouts), plugin)
			}
		}
		if s.Sinks != nil {
			for _, sink := range s.Sinks() {
				o.ObserveInt64(behind, int64(sink.Backlog),
					metric.WithAttributes(attribute.String(keySink, sink.Name)))
			}
		}
		if s.Witnesses != nil {
			for _, w := range s.Witnesses() {
				name := attribute.String(keyWitness, w.Name)
				o.ObserveInt64(uncosigned, int64(w.Backlog), metric.WithAttributes(name))
				for _, state := range []string{"cosigning", "failing", "refused"} {
					o.ObserveInt64(witnessState, boolToInt(state == w.state()),
						metric.WithAttributes(name, attribute.String(keyState, state)))
				}
			}
		}
		if s.Pins != nil {
			for _, p := range s.Pins() {
				o.ObserveInt64(heldBack, int64(p.HeldBack),
					metric.WithAttributes(attribute.String(keyServer, p.Server)))
			}
		}
		if s.HTTP != nil {
			now := s.HTTP()
			o.ObserveInt64(connections, int64(now.Connections))
			o.ObserveInt64(streams, int64(now.Streams))
			o.ObserveInt64(refused, now.ConnectionsRefused,
				metric.WithAttributes(attribute.String(keyLimit, "connections")))
			o.ObserveInt64(refused, now.StreamsRefused,
				metric.WithAttributes(attribute.String(keyLimit, "streams")))
		}
		return nil
	}, sessions, parked, waiting, stops, behind, uncosigned, witnessState, server, heldBack,
		processes, ended, startsRefused, up, active, late, starts, connections, streams, refused,
		configuration, differs)
	return err
}

func boolToInt(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
