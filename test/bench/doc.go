// Command bench measures what Gatekit adds to a call, and compares it with a minimal proxy.
//
//	go run ./test/bench                 # everything: about 25 minutes on two cores
//	go run ./test/bench -parts calls -routes http-http -sizes 1KiB,64KiB
//	go run ./test/bench -parts definitions -eras legacy
//	go run ./test/bench -parts memory,sessions
//	go run ./test/bench -parts plugins -routes stdio-stdio -eras modern
//	go run ./test/bench -parts policies -workers 1 -routes stdio-stdio -eras modern
//	go run ./test/bench -parts audit -routes http-http -sizes 1KiB
//	go run ./test/bench -parts telemetry -routes http-http
//	go run ./test/bench -parts authentication -routes http-http -sizes 1KiB -rounds 10 -for 1s
//	go run ./test/bench -parts replicas -sizes 1KiB -rounds 20 -for 1s
//	go run ./test/bench -parts shared -sizes 1KiB -rounds 20 -for 1s
//	go run ./test/bench -parts scaling -sizes 1KiB -workers 32 -rounds 10 -for 500ms
//	go run ./test/bench -parts before -before /tmp/old -sizes 1KiB -rounds 10 -for 2s
//	go run ./test/bench -parts viewers -sizes 1KiB -rounds 10 -for 5s
//	go run ./test/bench -parts start -server "node server.js"
//	go run ./test/bench -parts calls -sizes 64KiB -workers 32 -profile /tmp/prof
//	go run ./test/bench -parts calls -sizes 64KiB -bodies none
//	go test ./test/bench                # checks that everything runs, not the figures
//	go test ./test/bench -run - -bench Call/http-http   # the calls as Go benchmarks
//
// The parts plugins, policies, audit, telemetry and authentication use only the first of -routes
// and of -eras. With -bodies none Gatekit does not compute the SHA-256 of each body. The difference
// to -bodies digest is the cost of these digests.
//
// # What is measured
//
// The client, the proxy and the backend are separate processes. All of them run this binary, except
// Gatekit, which is built from ./cmd/gatekit. Gatekit has no stages. Its audit log is on and has
// digests of the bodies. Each record is passed to the operating system before the message is
// forwarded. The client and the backend make their messages by hand, so that the measurement does
// not include the cost of an SDK. The backend's tool echo returns the text of the call.
//
// The client makes the same calls directly, through the relay and through Gatekit. It measures each
// of these targets for a fraction of a second, one after the other, and repeats this for a number
// of rounds. The relay does the least that a proxy of whole messages must do on net/http or pipes.
// It buffers a message (in reused memory), finds the members of the envelope without validation,
// forwards the message with a new id, and restores the client's id in the answer. It has no policy
// and no log.
//
// # How to read the report
//
//   - direct p50, rate: the median duration of a call, and calls per second. The direct connection
//     of http-stdio is stdio: the time added on this route includes the whole cost of HTTP.
//   - +p50, +p99: the time that the proxy adds to the direct p50 and p99. Each round has its own
//     difference; the report has the median of these differences.
//   - cpu/call: processor time of the proxy's process (not of its children) per call.
//   - gatekit : relay: the quotients of +p50, rate and cpu/call, with goals in brackets.
//
// Figures in microseconds are valid for one machine and one hour. The quotients differ little from
// machine to machine: by 10 to 15 % for +p50 and cpu/call, by more for +p99 and rates. No test
// checks the figures, because a test that fails on a busy machine is soon ignored.
//
// Plugins are compared with a Gatekit without plugins, in the same rounds. +p50 and +p99 are the
// time that plugins add to a call. A call has two messages. share is the rate with plugins divided
// by the rate without. Three kinds of plugins are measured:
//
//   - external plugins, which run this binary and allow everything
//   - three instances of the built-in plugin limits, which share a process and one round trip
//   - the built-in plugins that read all texts
//
// The client, the backend, Gatekit and the plugins share the machine's cores. If one of these
// processes needs more processor time, the share falls.
//
// Policies are compared in the same way: the default rules of gatekit wrap, two library rules that
// read no body, and two sets of fifty files with one rule each. In the first set each rule is for
// one tool, in the second set for all tools. No rule matches: the text of the call is no path, and
// the other arguments that rules read are absent.
//
// The durabilities of the audit log are compared with a Gatekit that records no message. That
// binary is built only for this comparison (go build -overlay); the product always records
// messages. A call has two records. The variant "write, receipts" also signs a receipt for each
// result ([audit] receipts).
//
// Telemetry is compared in the same way. Gatekit counts metrics, which nobody reads. Some variants
// also send spans of every call, or of one call in a hundred, to a collector, which discards them.
//
// Authentication is compared with a Gatekit that lets in everybody on a loopback address. The
// client sends the same token with each call: one that Gatekit checks by the key of its issuer, or
// one that it asks its issuer about. The report has the added processor time of a call, with the
// interval of its median.
//
// The part principals measures the memory that Gatekit keeps for a principal after one call, when
// the client has closed its connection.
//
// The part replicas compares calls that a replica forwards to another one with calls that it serves
// itself. cpu/call is the processor time of both replicas. The same is measured of a bare proxy and
// a bare server of net/http with mutual TLS between them, which is what a second hop costs at least
// when it is made with net/http alone.
//
// With -link, replicas reach each other through a relay that adds a round trip.
//
// The part scaling compares two and three replicas with one, on the same cores. Each request goes
// to another replica than the last. cpu/call is the processor time of all replicas.
//
// The part before compares -gatekit with an older binary (-before). Neither has a configuration of
// what is new, so the difference is what the new features cost those who do not use them.
//
// The part shared compares calls that the plugin limits counts in a store that replicas share with
// calls that it counts in its own memory.
//
// The part viewers compares a Gatekit while viewers of its console follow the traffic with the same
// process without viewers. The calls come at a fixed rate (-rate), and each has two records. Each
// round has four turns: without viewers, twice with them, and without.
//
// The part start starts a stdio server alone and behind gatekit wrap, in turns, and measures the
// time until the answer to initialize. cpu is the processor time of the started process itself
// (without the server behind it) up to this answer.
//
// The part definitions measures the merged list with the plugins that read all texts. Gatekit keeps
// their verdicts on lists that they have judged. In one case, the list of one server has a new tool
// each time.
//
// The merged list of several servers is compared with the list of one server that has all the
// tools: a client without an aggregator would use such a server. The memory measured is the memory
// of the proxy's process (VmRSS), including its code. Profiles come from a build that adds a
// profiler to cmd/gatekit (go build -overlay); the product has no profiler.
package main
