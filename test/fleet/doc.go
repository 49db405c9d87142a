// Command fleet measures what many replicas of Gatekit ask of one Valkey or Redis server:
//
//	go run ./test/fleet -replicas 50
//
// Each replica is a shared store with its own connections (package transport/valkey). It watches as
// many kinds of values as a Gatekit does, and makes the requests that its calls would make. There
// are no clients, no servers and no policies: the subject is the server of [shared]. The model in
// docs/operations.md, "How far it goes", uses the results.
//
// A call makes these requests:
//
//   - Track counts it for its session (rules that read session.calls or session.labels);
//   - Admit and Release count it in two limits, for the tool and for the open calls of a principal
//     (plugin limits);
//   - one call in 20 adds a label to its session;
//   - one call in 200 needs an approval: it is listed, stored, approved and used.
//
// # Phases
//
// The phase "sessions" makes sessions with two labels and five counts each, and tells how much
// memory one takes. The phases "only …" have requests of one kind, as many as possible. The phase
// "idle" has watching replicas only. They keep watching in a phase for each rate of -rates, with so
// many calls a second of all replicas together, or as many as possible for 0. The
// calls of a phase with a rate start when they are due, whether or not earlier ones have ended. So
// the times of requests include no waiting of the measurement itself.
//
// # Columns
//
// "server µs" is the processor time of the server for one request. It decides how far one server
// goes, because a server runs scripts on one core. "replica µs" is that of this process, which
// includes the loop of the measurement. On a machine with few cores, the replicas and the server
// take the processor from each other: the times of the requests are then too long, and the
// processor times still hold.
package main
