// Command bench measures what Gatekit adds to a call, beside what the least possible proxy adds.
//
//	go run ./test/bench                                    # everything: about 25 minutes on two cores
//	go run ./test/bench -parts calls -routes http-http -sizes 1KiB,64KiB
//	go run ./test/bench -parts memory,sessions
//	go run ./test/bench -parts plugins -routes stdio-stdio -eras modern # of -routes and -eras it takes the first
//	go run ./test/bench -parts policies -at 1 -routes stdio-stdio -eras modern # the same
//	go run ./test/bench -parts audit -routes http-http -sizes 1KiB        # of -routes and -eras it takes the first
//	go run ./test/bench -parts telemetry -routes http-http
//	go run ./test/bench -parts calls -sizes 64KiB -at 32 -profile /tmp/prof
//	go run ./test/bench -parts calls -sizes 64KiB -bodies none # without SHA-256 of each body, to see what that costs
//	go test ./test/bench                                   # that all of it runs; no figure is looked at
//	go test ./test/bench -run - -bench Call/http-http      # the same calls as Go benchmarks
//
// # What is measured
//
// Driver, proxy and backend are processes of their own, all of this binary but for Gatekit, which
// is the real one: built from ./cmd/gatekit, without stages, its audit log on, digests in it, each
// record handed to the system before the message moves. The driver and the backend are raw
// (hand-made requests and answers, no SDK), so that they are not what is measured. The backend's
// tool echo answers the text of the call.
//
// The same calls go to the backend directly, through the relay, and through Gatekit, in turns of a
// fraction of a second, for a number of rounds. The relay is the least that a proxy of whole
// messages can do on net/http or pipes: buffer (in memory that it uses again), find the members of
// the envelope without validating anything, put an id of its own in the place of the client's,
// forward, and put the client's back. It judges nothing and keeps no record.
//
// # How to read it
//
//   - direct p50, rate: the median time of a call, and calls per second. The direct way of
//     http-stdio is stdio: its added time holds the whole cost of HTTP.
//   - +p50, +p99: what the proxy adds to the direct p50 and p99: the median, over the rounds, of
//     the difference within the round.
//   - cpu/call: processor time of the proxy's process (not of its children) per call.
//   - gatekit : relay: the quotients of +p50, rate and cpu/call, and in brackets what is to be
//     reached.
//
// Figures in microseconds are of one machine and one hour. The quotients hold from machine to
// machine, within 10 to 15 % for +p50 and cpu/call, less for +p99 and rates. They are not tested,
// because a test that fails when the machine is busy is soon ignored.
//
// Plugins are compared with Gatekit without any, in the same rounds: +p50 and +p99 are what they
// add to a call, which is two messages; share is the quotient of the rates. They are programs of
// this binary that let all pass, three limits of Gatekit (which share a process, and so a round
// trip), and those of Gatekit's own that read all texts, as many of secrets, pii and injection as
// this Gatekit has. Driver, backend, Gatekit and plugins share the machine's cores, so that share
// falls with the processor time of all of them.
//
// Policies are compared in the same way: the rules of gatekit wrap, two rules of the library that
// read no body, and fifty files of a rule each, about one tool, or about all. The text of the call
// is no path, and what the rules but the default ones read of the arguments is not there.
//
// Durabilities of the audit log are compared with a Gatekit that records no message, which is built
// for that alone (go build -overlay): the product always records. A call is two records.
//
// Telemetry is compared in the same way: metrics that are counted and that nobody asks for, and
// spans of every call, or of one in a hundred, for a collector that throws them away.
//
// The list is compared with one server that has all the tools: that is what a client would see
// without an aggregator. Memory is that of the proxy's process (VmRSS), its code included. A
// profile is taken with a build that lays a profiler over cmd/gatekit (go build -overlay); the
// product holds none.
package main
