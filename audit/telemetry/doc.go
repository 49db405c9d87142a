// Package telemetry exports metrics and traces through Prometheus and OpenTelemetry. The audit log
// keeps the decision about each message. Telemetry shows current numbers and durations, and holds
// no content.
//
// # Guarantees
//
// Nothing waits for telemetry, and nothing is denied because of it. If it is not configured,
// [Telemetry.Recorder] and the observers are not installed, and a message has no additional cost.
//
// Telemetry exports no arguments, results, error texts or reasons, and no URI of a resource, which
// is an argument, too. Names that a peer invents (a tool, a prompt, the id of a request) are cut at
// 128 bytes, and unprintable characters are escaped.
//
// Each label has a bounded set of values. Methods are those of MCP. Servers, stages and rules are
// those of the configuration. Any other value is "_OTHER". Names of tools, which servers and
// clients invent, are labels only with [Options.ToolLabels], and then only the first 256 that a
// server has listed or that a successful call has used.
//
// # Metrics
//
// These metrics have the names of OpenTelemetry's semantic conventions for MCP. The conventions are
// in development (github.com/open-telemetry/semantic-conventions-genai), so the names are copied
// and not imported:
//
//   - mcp.server.operation.duration: a client's request, until its response is sent;
//   - mcp.client.operation.duration: a request to a server, from writing it until its response; the
//     server is in gatekit.server.
//
// For these metrics the conventions have no names:
//
//   - gatekit.decisions: records of the audit log, by mcp.method.name, gatekit.server,
//     gatekit.direction, gatekit.kind and gatekit.action. Records that the log writes about itself
//     are not counted;
//   - gatekit.denials: denied messages, by gatekit.stage and, for policies, by gatekit.rule, the
//     first rule that denied;
//   - gatekit.stage.duration: the evaluation of a message by one stage, by gatekit.stage and
//     gatekit.action;
//   - gatekit.audit.duration: the time until a record was as durable as configured;
//   - gatekit.audit.failures: records that could not be written;
//   - gatekit.audit.waiting: records that were accepted and are not written yet (durability async);
//   - gatekit.audit.sink.behind: records that a sink has not sent, by gatekit.sink;
//   - gatekit.requests.active, gatekit.sessions, gatekit.calls.parked: current numbers;
//   - gatekit.http.connections, gatekit.http.streams: current numbers of HTTP clients, and
//     gatekit.http.refused: those that were refused because of a limit, by gatekit.limit;
//   - gatekit.server.state and gatekit.plugin.up, gatekit.plugin.starts,
//     gatekit.plugin.requests.active, gatekit.plugin.late: current state of servers and plugins;
//   - metrics of the Go runtime and the process.
//
// For Prometheus the names have underscores, units and "_total".
//
// # Traces
//
// A client's request is a span of the kind server, "tools/call github__search". Each request to a
// server for it is a child span of the kind client, "tools/call search". Each stage that evaluated
// a message of the call is a child span, "stage secrets". Each record of the audit log, up to 64
// per call, is an event of the first span, gatekit.record, with its seq; mcp.session.id and
// gatekit.exchange are the session and exchange of the audit log. (The session id of HTTP is a
// credential and not exported.)
//
// The trace context comes from traceparent and tracestate in the request's _meta (SEP-414). If
// there is none, it comes from the headers of the HTTP request. Otherwise a new trace begins. The
// client's decision whether a call is traced is followed; without one, [Collector.SampleRatio]
// decides.
//
// In a traced call, the request to the server names Gatekit's span instead of the client's. This is
// the only change that telemetry makes to a message. It happens after all stages: the audit log has
// the digest of the message that the stages evaluated. Calls that are not traced stay unchanged,
// and so does baggage.
//
// A parked call, which waits until its client comes back with answers, is one span and one
// duration, from the first request to the last response.
//
// A request from a server to the client (sampling, elicitation) is part of the call's span. It
// carries the server's own trace context to the client, unchanged.
//
// # Why nothing waits
//
// Metrics are counted in memory, and exported when they are requested or due. Spans wait in a queue
// of 8192, and are dropped when it is full. A collector that does not respond costs a log line per
// minute, and three seconds at the end.
//
// # Why this package is in the folder audit
//
// It does not import package audit. But it wraps the recorder that writes the audit log, and its
// metrics and traces are about the records: the decisions, the time to write them, and their seq in
// a call's span. Both follow the same rule: telemetry does not export the names that the log
// withholds. An operator configures and reads both together. The folders at the top of the
// repository are fixed, and core does not depend on OpenTelemetry.
//
// # Reading order
//
// telemetry.go, record.go and observe.go are the entry points. instruments.go and labels.go hold
// the metrics, trace.go the spans, and otlp.go the connection to a collector.
package telemetry
