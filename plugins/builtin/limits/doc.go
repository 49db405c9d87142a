// Package limits is the built-in plugin that bounds how often a model and a server may do
// something, how much at once, how often the same, and how large what comes back may be: consent
// fatigue, loops and cost (security.md B18), exhaustion (A12), and results that push everything
// else out of a model's context.
//
// # Options
//
//	calls              rules; all that fit a message hold. Default below; [] is none
//	  per              "tool", "server" or "principal": what has a count of its own
//	  methods          what counts; default ["tools/call"]. Also what servers ask: "sampling/createMessage", "elicitation/create"
//	  tools, except    tools by their clean names, "*" at the end is a prefix; for tools/call
//	  rate, burst      messages a minute in the long run, and at once; burst is a sixth of rate by default
//	  concurrent       requests that wait for their answer at the same time
//	timeout            "60s": after this long without a sign of life a request no longer counts for concurrent
//	loop.action        "deny" (default) or "off"
//	loop.same          10: how often the same call may be made, with nothing new in between
//	loop.within        "2m": for how long a call is remembered
//	loop.except        tools that may: those that ask how far something is
//	result.action      "cut" (default), "deny" or "off"
//	result.bytes       1000000: of all texts of a result; of its structured content; of what is beside both; of an error's message, and data
//	result.media       10000000: of all images, sounds and blobs of a result, in base64
//
// The default rules stop what went wrong, not what is busy: 240 calls a minute (60 at once) of each
// tool, 600 (200 at once) of a principal, and 30 (10 at once) questions that one server asks. An
// example of stricter ones:
//
//	[[plugin]]
//	use = "limits"
//	config.calls = [
//	  { per = "tool", rate = 60, burst = 10, concurrent = 4 },
//	  { per = "tool", tools = ["send_*", "delete_*"], rate = 5, burst = 2 },
//	  { per = "principal", rate = 600 },
//	]
//	config.loop = { same = 5, within = "2m", except = ["job_status"] }
//	config.result = { bytes = 100000 }
//
// # Promises
//
//   - Nothing counted for one principal changes what another may do. Of a tool, a server or a
//     session each principal has counts of its own.
//   - A message that is refused counts nowhere; the reason says by which rule, and when the next
//     may come.
//   - What is remembered is bounded: 1024 counts, 4096 open calls and 256 sessions of a principal,
//     262,144 counts and 8192 sessions in all. What has come to rest, and so would be counted the
//     same from the start, makes room; where there is none, messages are refused ("full"). Of
//     sessions, the principal's quietest is forgotten.
//   - A call is the same however its JSON is spelt, and another one if it answers other questions
//     (2026-07-28: rounds of one call).
//   - A result that was cut says so to the model in its last block: "[cut by gatekit: 1,234,567 of
//     2,000,000 bytes left out]". Texts are cut between two characters; items that are kept whole
//     keep every byte. Findings say which items; reasons hold no content.
//
// # Why a loop is the same call with nothing new in between
//
// A count of equal calls in a time would stop an agent that edits and tests, edits and tests. One
// that only compares a call with the last one misses two calls in turns. So a call that was not
// made within the time is news, and clears everybody: A, A, A is a loop and A, B, A, B is one, but
// test, edit 1, test, edit 2 is none. Who changes an argument each time (a counter, the time) makes
// no loop; the rates are for that.
//
// # Why structured content is taken out whole, and the result then says isError
//
// Half a JSON value is none. Clients hold structured content against the tool's output schema and
// fail when it is missing, unless the result is an error; and a result without what it promises is
// one. Servers say the same as text most of the time, so each of the two has the limit for itself.
// What can neither be cut nor be taken out (_meta, members that nobody knows, questions of a
// server) beyond the limit makes the whole result be refused.
//
// # Why a call is waited for no longer than its timeout
//
// A call ends with its answer, an error, or the client's notifications/cancelled. A stage hears of
// no other end: a later stage or policy that refuses the request, an earlier one that refuses the
// answer, a server that dies, a client that leaves. Such a call counts as open until timeout after
// its last sign of life (ten minutes while its client is being asked something). So concurrent may
// be held too strictly for that long, and never longer; it is for servers that must not be asked
// much at once, and in no default. Rates have no such question: what passed this stage was counted.
//
// # What it does not see
//
// Other processes: each replica counts for itself, and a reload of the configuration begins anew.
// What a task does after its call was answered. Lists and completions, which the proxy bounds
// itself.
//
// # Figures
//
// Two cores of an AMD EPYC that others used too, go test -run '^$' -bench .
// ./plugins/builtin/limits: a call with its digest, counted, and its answer: 5.8 µs (1 KiB), 156 µs
// (64 KiB), 3.0 ms (1 MiB), 350 to 420 MB/s; a result that fits: 40 ns whatever its size; one that
// is cut: 135 µs (64 KiB), 2.8 ms (1 MiB), 380 to 490 MB/s.
package limits
