// Package telemetry tells an operator how Gatekit is doing, in numbers and traces, through
// Prometheus and OpenTelemetry. It stands beside the audit log: that says what was decided about
// each message, for good; this says how much and how long, for now, and holds no content.
//
// # What it promises
//
// Nothing waits for it, and nothing is denied because of it. Where it is not configured it is not
// there: [Telemetry.Recorder] and the observers are then not put in, and a message costs what it
// cost before.
//
// No argument, no result, no text of an error and no reason is told, and no URI of a resource,
// which is an argument too. What a peer names itself (a tool, a prompt, a request's id) is cut at
// 128 bytes, and what does not print is escaped.
//
// Every value that ends in a label is one of a bounded set: methods are those of the protocol,
// servers, stages and rules those of the configuration, all else is "_OTHER". The names of tools,
// which servers and clients make up, are in no label unless [Options.Tools] wants them, and then
// the first 256 that a server has listed, or that a call was about that went well: what else
// clients make up is _OTHER.
//
// # What is measured
//
// As the semantic conventions for MCP name it
// (github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md; in development, so
// copied here and not imported):
//
//   - mcp.server.operation.duration: a client's request, from when it came until its answer goes;
//   - mcp.client.operation.duration: a request to a server, from when it is written until its
//     answer is there, gatekit.server says which one's.
//
// And, where they have no words, under names of Gatekit's own:
//
//   - gatekit.decisions: records of the audit log, by mcp.method.name, gatekit.server,
//     gatekit.direction, gatekit.kind and gatekit.action: each number is that of the log's lines,
//     but for those that the log writes about itself;
//   - gatekit.denials: by gatekit.stage and, where policies did it, by gatekit.rule, the package of
//     the first that did;
//   - gatekit.stage.duration: one stage's judgement of one message, by gatekit.stage and
//     gatekit.action;
//   - gatekit.audit.duration: until a record was as durable as configured; gatekit.audit.failures:
//     records that could not be written; gatekit.audit.waiting: records that were answered for and
//     are not written yet (durability async); gatekit.audit.sink.behind: records that a sink was
//     not sent, by gatekit.sink;
//   - gatekit.requests.active, gatekit.sessions, gatekit.calls.parked: what is there now;
//   - gatekit.server.state and gatekit.plugin.up, gatekit.plugin.starts,
//     gatekit.plugin.requests.active, gatekit.plugin.late: how servers and plugins are;
//   - the Go runtime's and the process's own.
//
// For Prometheus the names are written with underscores, units and "_total".
//
// # What is traced
//
// A client's request is a span of the kind server, "tools/call github__search"; each request that
// is put to a server for it is one of the kind client below it, "tools/call search"; each stage
// that was asked about any message of the call is one below the first, "stage secrets". Each record
// of the audit log, the first 64 of a call, is an event of the first, gatekit.record, with its
// number; mcp.session.id and gatekit.exchange are session and exchange of the audit log. (The
// session id of HTTP is a credential, and is not told.)
//
// The trace is the one that the request's _meta names in traceparent and tracestate (SEP-414); else
// the one in the headers of the HTTP request that it came by; else a new one. A client that says
// whether a call is traced decides, else [Collector.Sample] does. In a call that is traced, the
// server is told our span in the place of the client's. That is the one thing in which telemetry
// changes a message, after all stages: the audit log has the digest of what was judged. A call that
// is not traced is left as it is, and so is every baggage.
//
// A call that is parked until its client comes back with answers is one span, and one duration,
// from the first request to the last answer.
//
// What a server asks of a client (sampling, elicitation) is part of the call's span, and names the
// server's own trace to the client, untouched.
//
// # Why nothing waits
//
// Metrics are counted in memory, and read when somebody asks or their time has come. Spans wait in
// a queue of 8192; when it is full they are dropped. A collector that does not answer costs a line
// in the log each minute, and the end three seconds.
package telemetry
