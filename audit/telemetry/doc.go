// Package telemetry exports metrics and traces through Prometheus and OpenTelemetry. The audit log
// keeps the decision about each message. Telemetry shows current numbers and durations, and holds
// no content.
//
// # Guarantees
//
// Nothing waits for telemetry, and nothing is denied because of it. If telemetry is not configured,
// [Telemetry.Recorder] and the observers are not installed, and a message has no additional cost.
//
// Telemetry exports no arguments, results, error texts or reasons, and no URI of a resource, which
// is an argument, too. Names that a peer invents (a tool, a prompt, the id of a request) are cut at
// 128 bytes, and unprintable characters are escaped.
//
// Each label has a bounded set of values. The methods are the methods of MCP. The servers, stages
// and rules are those of the configuration. Any other value is "_OTHER". Servers and clients invent
// the names of tools. So these names are labels only with [Options.ToolLabels], and only the first
// 256 that a server has listed or that a successful call has used.
//
// # Metrics
//
// These metrics have the names of OpenTelemetry's semantic conventions for MCP. The conventions are
// in development (github.com/open-telemetry/semantic-conventions-genai), so the names are copied
// and not imported:
//
//   - mcp.server.operation.duration: the time from a client's request until its response is sent;
//   - mcp.client.operation.duration: the time from a request to a server until its response;
//     gatekit.server names the server.
//
// The conventions have no names for these metrics:
//
//   - gatekit.decisions: records of the audit log. The labels are mcp.method.name, gatekit.server,
//     gatekit.direction, gatekit.kind and gatekit.action. Records that the log writes about itself
//     are not counted;
//   - gatekit.denials: denied messages. The label gatekit.stage names the stage that denied the
//     message. If the stage is the policies, gatekit.rule names the first rule that denied;
//   - gatekit.items.hidden: items that a stage removed from lists. An item counts each time that a
//     server lists it. The labels are mcp.method.name, gatekit.server and gatekit.stage;
//   - gatekit.stage.duration: the time in which one stage evaluated a message. The labels are
//     gatekit.stage and gatekit.action;
//   - gatekit.audit.duration: the time until a record was as durable as configured;
//   - gatekit.audit.failures: records that could not be written;
//   - gatekit.audit.waiting: records that were accepted and are not written yet (durability async);
//   - gatekit.audit.witness.behind: records that a witness has not cosigned. The label
//     gatekit.witness names the witness;
//   - gatekit.audit.witness.state: 1 for the current state of a witness, in the label
//     gatekit.state: cosigning, failing or refused;
//   - gatekit.audit.sink.behind: records that a sink has not sent. The label gatekit.sink names the
//     sink;
//   - gatekit.requests.active, gatekit.sessions, gatekit.calls.parked: current numbers;
//   - gatekit.http.connections, gatekit.http.streams: open connections and event streams of HTTP
//     clients;
//   - gatekit.http.refused: connections and event streams that were refused because of a limit. The
//     label gatekit.limit names the limit;
//   - gatekit.server.state, gatekit.server.processes, gatekit.server.processes.ended,
//     gatekit.server.starts.refused: the state and the processes of servers;
//   - gatekit.configuration: 1, with digests of the configuration and of the policies as the labels
//     gatekit.configuration and gatekit.policies;
//   - gatekit.replica.differs: 1 if another replica, which gatekit.replica names, has others;
//   - gatekit.plugin.up, gatekit.plugin.starts, gatekit.plugin.requests.active,
//     gatekit.plugin.late: the state of plugin processes;
//   - metrics of the Go runtime and the process.
//
// In Prometheus, the names of the metrics have underscores, units and "_total".
//
// # Traces
//
// A client's request is a span of the kind server, with a name like "tools/call github__search".
// Each request that Gatekit sends to a server in this call is a child span of the kind client
// ("tools/call search"). Each evaluation of a message of the call by a stage is a child span, too
// ("stage secrets"). For each record of the call in the audit log, the request's span has an event
// gatekit.record with the seq of the record. Records after the 64th are not traced. The attributes
// mcp.session.id and gatekit.exchange hold the session and exchange of the audit log. (The session
// id of HTTP is a credential and not exported.)
//
// The trace context comes from traceparent and tracestate in the request's _meta (SEP-414). If
// _meta has no trace context, it comes from the headers of the HTTP request. If the headers have no
// trace context either, a new trace begins. If the client has decided whether the call is traced,
// Gatekit follows that decision. Otherwise [Collector.SampleRatio] decides.
//
// In a traced call, the request to the server names Gatekit's span instead of the client's span.
// This is the only change that telemetry makes to a message. The change comes after all stages, so
// the audit log has the digest of the message that the stages evaluated. Telemetry never changes a
// call that is not traced. The pipeline removes baggage from every message.
//
// A parked call waits until its client comes back with answers. It has one span and one duration,
// from the first request to the last response.
//
// A request from a server to the client (sampling, elicitation) is part of the call's span. It
// carries the server's own trace context to the client, unchanged.
//
// # Why nothing waits
//
// Metrics are counted in memory. They are exported when Prometheus requests them, and to the
// collector at an interval. Spans wait in a queue of at most 8192 spans. When the queue is full,
// new spans are dropped. If a collector does not respond, the only costs are a log line per minute,
// and up to three seconds when Gatekit stops.
//
// # Why this package is in the folder audit
//
// This package does not import package audit. But it wraps the recorder that writes the audit log,
// and its metrics and traces are about the records: the decisions, the time to write them, and
// their seq in a call's span. Telemetry follows the same rule as the log: it does not export the
// names that the log withholds. An operator configures and reads the log and telemetry together.
// The folders at the top of the repository are fixed, and core does not depend on OpenTelemetry.
//
// # Reading order
//
// telemetry.go, record.go and observe.go are the entry points. instruments.go and labels.go hold
// the metrics, trace.go the spans, and otlp.go the connection to a collector.
package telemetry
