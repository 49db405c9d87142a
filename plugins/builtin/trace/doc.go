// Package trace is the built-in plugin that adds a trace to the result of a tool: what was called,
// how long it took, and where it is recorded. The user of a client sees which calls went through
// Gatekit, and can find them in the audit log.
//
//	[[plugin]]
//	name = "trace"
//	use = "trace"
//
// adds to a result:
//
//	[gatekit trace]
//	server: github
//	tool: create_issue
//	size: 1.2 KiB
//	duration: 350ms
//	record: session s1, exchange 12
//	time: 2026-11-21T20:45:00Z
//
// Put the plugin last, so that the trace describes the result as the other plugins left it.
//
// # Options
//
//	fields            fields of the trace in their order: server, tool, arguments, size, duration,
//	                  record, time; default: all but arguments
//	max_param_length  200: how many characters of the arguments are shown, from 1 to 10000; longer
//	                  arguments are cut
//
// The field arguments is off by default because arguments may hold secrets. The model reads the
// result; clients store it and write it to their logs. The arguments are shown as they were sent to
// the server, without what other plugins redacted.
//
// The fields server and tool are the names that the audit log uses. For a renamed tool, this is the
// server's own name. The field size is the size of the whole result without the trace. The field
// duration is the time between the call and the result as the plugin sees them. The duration is
// left out if the plugin did not see the call.
//
// # What it promises
//
//   - One text block for the audience "user" is added after the other blocks. Every other byte of
//     the result is kept, including structuredContent.
//   - Messages that are not a complete result of a tool stay unchanged: errors, results with
//     isError, tasks, questions to the client, results without a list of content.
//   - The plugin denies nothing. It remembers only when the last 10000 calls started.
//
// # What it does not see
//
// Results of tools that run as tasks (tasks/result) get no trace. Clients that show only
// structuredContent do not show the trace. Many clients pass the block to the model whatever its
// audience. The number of the audit record is unknown until the result is recorded. So find the
// record by its session and exchange.
//
// # Why the plugin keeps state
//
// A stage sees messages, but not how long a call took. The plugin therefore remembers in its
// process when each call started. After a restart of the process, the duration is missing for calls
// that started before.
//
// # Figures
//
// Measured with go test -bench Inspect on two cores of an AMD EPYC: 1.4 µs for a result of 1 KiB,
// 3 µs for 64 KiB, 15 µs for 1 MiB (at least 780 MB/s). The content is not copied: the block is
// inserted at its end.
//
// # Where to read
//
// config.go parses the configuration, trace.go has the plugin, and starttimes.go remembers when
// calls started.
package trace
