// Package trace is the built-in plugin that says, at the end of a tool's result, what was called,
// how long it took and where it is recorded: so that the user of a client sees which calls went
// through Gatekit, and can find them in the audit log.
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
// Place it last, so that it tells of the result as the other plugins left it.
//
// # Options
//
//	fields            server, tool, size, duration, record, time   what is said, in this order; arguments is off
//	max_param_length  200                                          characters of the arguments that are shown, 1 to 10000; longer ones are cut
//
// arguments is off because they may hold secrets, and what stands in a result is read by the model,
// kept by clients and written to their logs. When it is on, the arguments are shown as they went to
// the server, so without what plugins took out of them. tool and server are the names that the
// audit log has: a renamed tool's own. size is that of the whole result before the trace. duration
// is the time from the plugin's seeing the call to its seeing the result, left out when the call
// was not seen.
//
// # What it promises
//
//   - One text block is added after the others, for the audience "user". All other bytes of the
//     result are kept, structuredContent among them.
//   - What is no finished result of a tool is left alone: errors, results with isError, tasks,
//     questions, results without a list as content.
//   - It denies nothing, and remembers no more than when the last 10000 calls began.
//
// # What it does not see
//
// Results of tools that run as tasks (tasks/result), and clients that show structuredContent only:
// their users see no trace. Many clients hand a block to the model whatever its audience says. The
// number of the record is not known before the result is recorded; session and exchange find it.
//
// # Why the state is here
//
// A stage is shown messages, not how long things take. When a call began is remembered by session
// and exchange, in the plugin's process: after a restart of it, durations are missing until the
// calls of before are answered.
//
// # Figures
//
// On a machine of 2 cores (AMD EPYC), by go test -bench Inspect: 1.4 µs for a result of 1 KiB, 3 µs
// for 64 KiB, 15 µs for 1 MiB (780 MB/s and more): the block is added where the content ends, and
// the content is not copied.
package trace
