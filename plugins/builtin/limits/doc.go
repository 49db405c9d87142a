// Package limits is the built-in plugin that limits how many messages models and servers send per
// minute, how many calls are open at once, how often the same call is repeated, and how large a
// result is. It protects against consent fatigue, loops, cost, resource exhaustion, and results
// that push everything else out of a model's context (docs/threats.md).
//
// # Options
//
//	calls           list of rules; a message must be admitted by every rule that applies to it.
//	                The default rules are listed below; [] means no rules
//	  per           "tool", "server" or "principal": the rule counts the messages of each tool,
//	                of each server, or of the principal as a whole
//	  methods       methods that the rule counts; default ["tools/call"]. Requests of servers can
//	                be limited, too: "sampling/createMessage", "elicitation/create"
//	  tools         tools that the rule counts, by the servers' own names; a name that ends in
//	                "*" is a prefix
//	  except        tools that the rule does not count, even if the option tools names them
//	  rate          messages per minute in the long run
//	  burst         messages that may come at once; default: a sixth of rate
//	  concurrent    number of requests that may wait for their response at once
//	timeout         "60s": after this time without activity, a request no longer counts as
//	                open
//	loop.action     "deny" (default) or "off"
//	loop.flag       10: after so many equal calls with nothing new in between, an equal call gets
//	                the finding "loop"
//	loop.same       50: after so many, an equal call is denied
//	loop.within     "2m": how long a call is remembered
//	loop.except     tools that may be called repeatedly, such as those that poll for progress
//	result.action   "cut" (default), "deny" or "off"
//	result.bytes    1000000: limit for all text of a result. The same limit applies separately to
//	                its structured content, to everything else in the result, to an error's
//	                message, and to an error's data
//	result.media    10000000: limit for all images, audio and blobs of a result, in base64
//
// The default rules stop a client that went wrong, not a busy one. A tool may be called 240 times
// per minute (60 at once), a principal may make 600 calls (200 at once), and a server may send 30
// requests for sampling or elicitation (10 at once). An example of stricter rules:
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
//   - A denied message does not count. The reason names the rule. For a rate, it also says when to
//     retry.
//   - Memory is limited: 1024 counters, 4096 open requests and 256 sessions of a principal, 262,144
//     counters and 8192 sessions in all. When a limit is reached, entries that no longer affect a
//     verdict are removed. If no entry can be removed, messages are denied with the finding "full".
//     If only the principal has too many sessions, its least active session is forgotten instead.
//   - Two calls with equal arguments are the same call, however their JSON is spelt. In MCP
//     2026-07-28, a client repeats a call with answers to the server's questions. A call with other
//     answers is another call.
//   - The last block of a cut result tells the model that it was cut: "[cut by gatekit: 1,234,567
//     of 2,000,000 bytes left out]". No character is split. Every byte of an item that is not cut
//     is kept. Findings point to the cut items. Reasons hold no content.
//
// # Why a loop is the same call with nothing new in between
//
// A limit on equal calls per minute would stop an agent that edits and tests repeatedly. A
// comparison with the last call only would miss two alternating calls. So a call is new if no equal
// call was made within loop.within, and a new call resets the count of all calls. A, A, A is a
// loop, and so is A, B, A, B. The sequence test, edit 1, test, edit 2 is not a loop, because each
// edit is new. A client that changes an argument in each call, such as a counter, makes no loop.
// Only the rates limit such a client.
//
// A new result resets the count, too: a page that scrolls, a job that goes on. A result is new if
// equal calls were answered before, and none of them with this result. These rules decide what an
// equal result is:
//
//   - The result counts as this plugin receives it, before it is cut. A result that the plugin
//     denies equals all others that it denies.
//   - Errors are compared like results.
//   - _meta and requestState do not count, and all results that name a new task are equal.
//   - A call without a result counts as an equal call: one in flight, one that was cancelled, and
//     one whose request or result another stage denied.
//
// A server whose results contain the time makes no loop. Only the rates limit such calls.
//
// Some honest calls have equal results: a key is pressed many times, or a job is not yet done. So
// the eleventh call is only recorded, with a finding that policies can read as input.findings. A
// job that is asked every three seconds is never denied, because at most forty such calls fit into
// two minutes. A job that is asked more often needs loop.except.
//
// # Why structured content is removed as a whole, and the result then has isError
//
// Half a JSON value is not JSON. Clients check structured content against the tool's output schema,
// and fail if it is missing, unless the result is an error. A result without its structured content
// is therefore marked as an error. Most servers repeat structured content as text, so the limit
// applies to each of the two separately. The other parts of a result (_meta, unknown members, a
// server's questions) can neither be cut nor removed. If these parts are too large, the result is
// denied.
//
// # Why a call does not stay open longer than its timeout
//
// A call ends with its response, an error, or the client's notifications/cancelled. A stage does
// not see that a later stage or policy denies the request, that an earlier stage denies the
// response, that the server dies, or that the client disconnects. In these cases the call counts as
// open until timeout has passed without activity. If the client has a question of the server to
// answer, at least ten minutes must have passed. Until then, the option concurrent may deny calls
// that it should admit. The option is meant for servers that cannot do much at once, and no default
// rule has it. Rates do not have this problem, because they count the messages that passed this
// stage.
//
// # Several replicas
//
// With [shared] in the configuration of Gatekit, the rules of the option calls hold for all
// replicas together: they admit no more than one of them would.
//
//   - A message that a rule counts takes one round trip to the shared state. The end of a call that
//     counts as open takes another one. A message that this replica alone must deny takes none.
//   - A message counts in this replica while the state is asked. If the state refuses it, that is
//     taken back.
//   - Replicas count together what is counted by equal rules of a plugin with the same name.
//     Replicas whose rules differ, for example during a change of the configuration, count apart.
//   - A call that is open holds a lease for timeout and a quarter of it. Progress renews the lease.
//     If its replica ends, the call no longer counts as open when the lease ends.
//   - Without the shared state, a message that a rule counts is denied with the finding "shared".
//     With [shared] limits = "local", each replica counts for itself instead: a rate is divided by
//     the number of replicas, and so are burst and concurrent, but these are at least 1. So n
//     replicas may admit n at once, where a smaller burst or concurrent is configured. Messages
//     that a replica has admitted shortly before count for its part. The verdicts have the finding
//     "unshared".
//   - If the state was lost, a rule may once admit its burst and its open requests again. What
//     a replica itself has admitted still counts there.
//
// Loops and sizes are a matter of one replica. A legacy session is always served by the replica
// that began it. The calls of a modern client may be spread over all replicas, so a loop may take
// as many calls at each of them.
//
// # What it does not limit
//
// Without [shared], each replica counts for itself. After a reload of the configuration, the
// counters of this process start at zero. The plugin does not limit the work of a task after its
// call was answered. The proxy itself limits lists and completions.
//
// # Figures
//
// Measured with go test -run '^$' -bench . ./plugins/builtin/limits on two shared cores of an AMD
// EPYC. A call and its response take 5.8 µs (1 KiB), 156 µs (64 KiB) or 3.0 ms (1 MiB), which is
// 350 to 420 MB/s. A result within the limit takes 0.3 µs (1 KiB), 15 µs (64 KiB) or 0.5 ms
// (1 MiB), for the hash that loops need. A result that is cut takes 135 µs (64 KiB) or 2.8 ms
// (1 MiB), which is 380 to 490 MB/s.
//
// # Where to read
//
// config.go parses the configuration, limits.go has the plugin, limiter.go the counters, shared.go
// what replicas count together, loop.go the loops, result.go the size of results, and cutter.go
// cuts their items.
package limits
