// Package telemetry tells an operator how Gatekit is doing, in numbers. It stands beside the audit log: that says what was decided about each message, for good; this
// says how much and how long, for now, and holds no content.
//
// # What it promises
//
// Nothing waits for it, and nothing is denied because of it. Where it is not configured it is not there: [Telemetry.Recorder] and the observers are then not put in, and a message
// costs what it cost before.
//
// Every value that ends in a label is one of a bounded set: methods are those of the protocol, servers, stages and rules those of the configuration, all else is "_OTHER".
// The names of tools, which servers and clients make up, are in no label unless [Options.Tools] wants them, and then the first 256.
//
// # What is measured
//
// As the semantic conventions for MCP name it (github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md; in development, so copied here and not imported):
//
//   - mcp.server.operation.duration: a client's request, from when it came until its answer goes;
//   - mcp.client.operation.duration: a request to a server, from when it is written until its answer is there, gatekit.server says which one's.
//
// And, where they have no words, under names of Gatekit's own:
//
//   - gatekit.decisions: records of the audit log, by mcp.method.name, gatekit.server, gatekit.direction, gatekit.kind and gatekit.action: each number is that of the log's lines, but for those that the log writes about itself;
//   - gatekit.denials: by gatekit.stage and gatekit.rule, which is the policy's package or, for a plugin, its name;
//   - gatekit.stage.duration: one stage's judgement of one message, by gatekit.stage and gatekit.action;
//   - gatekit.audit.duration: until a record was as durable as configured; gatekit.audit.failures: records that could not be written; gatekit.audit.waiting: records that were answered for and
//     are not written yet (durability async); gatekit.audit.sink.behind: records that a sink was not sent, by gatekit.sink;
//   - gatekit.requests.active, gatekit.sessions, gatekit.calls.parked: what is there now;
//   - gatekit.server.state and gatekit.plugin.up, gatekit.plugin.starts, gatekit.plugin.requests.active, gatekit.plugin.late: how servers and plugins are;
//   - the Go runtime's and the process's own.
//
// For Prometheus the names are written with underscores, units and "_total".
package telemetry
