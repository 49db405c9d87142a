// Package limits is the built-in plugin that limits how often a model and a server may do
// something, how many calls are open at once, how often the same call is repeated, and how large a
// result is. It protects against consent fatigue, loops, cost, resource exhaustion, and results
// that push everything else out of a model's context (docs/threats.md).
//
// # Options
//
//	calls           rules; every rule that applies to a message must admit it. Default below;
//	                [] is no rule
//	  per           "tool", "server" or "principal": what has a counter of its own
//	  methods       methods that count; default ["tools/call"]. Requests of servers can be
//	                limited, too: "sampling/createMessage", "elicitation/create"
//	  tools         tools that count, by the servers' own names; "*" at the end is a prefix
//	  except        tools that do not count although they are in tools
//	  rate          messages per minute in the long run
//	  burst         messages at once; default: a sixth of rate
//	  concurrent    open requests, which wait for their response
//	timeout         "60s": after this time without activity, a request no longer counts as
//	                open
//	loop.action     "deny" (default) or "off"
//	loop.same       10: how often the same call may be made with no new call in between
//	loop.within     "2m": how long a call is remembered
//	loop.except     tools that may be called repeatedly, such as those that poll for progress
//	result.action   "cut" (default), "deny" or "off"
//	result.bytes    1000000: limit for all text of a result; for its structured content; for
//	                everything else in it; for an error's message, and for its data
//	result.media    10000000: limit for all images, audio and blobs of a result, in base64
//
// The default rules stop a client that went wrong, not a busy one. A tool may be called 240 times
// per minute (60 at once), a principal may make 600 calls (200 at once), and a server may ask 30
// questions (10 at once). An example of stricter rules:
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
// # What it promises
//
//   - Messages of one principal do not count for another. Each principal has its own counters for
//     tools, servers and sessions.
//   - A denied message does not count. The reason names the rule, and when to retry.
//   - Memory is limited: 1024 counters, 4096 open requests and 256 sessions of a principal, 262,144
//     counters and 8192 sessions in all. An entry that no longer makes a difference is removed when
//     its place is needed. If there is no place, messages are denied ("full"). Of a principal's
//     sessions, the least active one is forgotten.
//   - The same call is recognised however its JSON is spelt. A retry with other answers is another
//     call (MCP 2026-07-28 makes a call again with answers to the server's questions).
//   - A result that was cut tells the model so in its last block: "[cut by gatekit: 1,234,567 of
//     2,000,000 bytes left out]". A text is cut between two characters; an item that is kept whole
//     keeps every byte. Findings name the items; reasons hold no content.
//
// # Why a loop is the same call with no new call in between
//
// A limit of equal calls per time would stop an agent that edits and tests repeatedly. A comparison
// with the last call only would miss two alternating calls. So a call is new if no equal call was
// made within the time, and a new call resets the count of all calls. A, A, A is a loop, and so is
// A, B, A, B. The sequence test, edit 1, test, edit 2 is none, because each edit is new. A client
// that changes an argument each time, such as a counter, makes no loop; only the rates limit it.
//
// # Why structured content is removed as a whole, and the result then has isError
//
// Half a JSON value is not JSON. Clients check structured content against the tool's output schema,
// and fail if it is missing, unless the result is an error. A result without its structured content
// is therefore marked as an error. Most servers repeat structured content as text, so each of the
// two has the limit for itself. The other parts of a result can neither be cut nor removed: _meta,
// unknown members, a server's questions. If they are too large, the result is denied.
//
// # Why a call does not stay open longer than its timeout
//
// A call ends with its response, an error, or the client's notifications/cancelled. A stage does
// not see that a later stage or policy denies the request, that an earlier stage denies the
// response, that the server dies, or that the client disconnects. Such a call counts as open until
// timeout has passed without activity (ten minutes while the client is being asked something). For
// that time, concurrent may be too strict. The option is meant for servers that cannot do much at
// once, and is not in the default rules. Rates do not have this problem, because they count the
// messages that passed this stage.
//
// # What it does not limit
//
// The plugin does not limit several processes together: each replica counts for itself. A reload of
// the configuration starts again at zero. The plugin does not limit the work of a task after its
// call was answered. The proxy itself limits lists and completions.
//
// # Figures
//
// Measured with go test -run '^$' -bench . ./plugins/builtin/limits on two shared cores of an AMD
// EPYC. A call with its digest and its response: 5.8 µs (1 KiB), 156 µs (64 KiB), 3.0 ms (1 MiB),
// 350 to 420 MB/s. A result within the limit: 40 ns whatever its size. A result that is cut: 135 µs
// (64 KiB), 2.8 ms (1 MiB), 380 to 490 MB/s.
//
// # Where to read
//
// config.go parses the configuration, limits.go has the plugin, limiter.go the counters, loop.go
// the loops, result.go the size of results, and cutter.go cuts their items.
package limits
