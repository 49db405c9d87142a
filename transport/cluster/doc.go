// Package cluster connects the replicas of Gatekit that clients reach at one address, behind a load
// balancer.
//
// A session of a legacy client, its streams, and a call that waits for the answers of a modern
// client live in the process that began them. Their ids name this process, their owner:
// [Replica.NewID] seals the owner's address into the id. A replica that gets a request with the id
// of another replica sends the request there, and copies the answer to the client. Any replica can
// read any id, because all have the same state key.
//
// # Why a replica can trust what another one forwards
//
// The owner does not see the client's credentials, so it cannot authenticate the client again. Both
// ends of the connection have a certificate of the cluster's own CA (TLS 1.3). The header
// Gatekit-Forwarded has the principal, as the first replica authenticated it, sealed with the state
// key and together with what is asked: the method, the target, the session, the digest of the body,
// the owner and the time. The owner accepts it within 30 seconds, and once. So whoever reads or
// changes traffic between replicas, or has a certificate and not the key, can neither act for a
// principal nor have a request run twice.
//
// # Why nothing is sent again
//
// A call may have effects. If the connection to the owner breaks after the request was sent, nobody
// knows whether the call ran. The client gets an error, and decides. Only a request that the owner
// has not begun, as it reports when it closes the connection, is sent again.
//
// # Why HTTP/1.1
//
// Each request has a connection of its own, which is kept for later requests. A request then takes
// one write and one read at each end, and no hand-over between goroutines. Over HTTP/2, a request
// needs several frames and goroutines at each end, which took longer than the request itself. The
// price is a file descriptor at both ends for each stream that is open.
//
// HTTP/1.1 has no message for a server that closes an unused connection. So the owner sends an
// answer with the header Gatekit-Not-Begun: see serverConn. Nor has it a ping: the system breaks a
// connection whose other end acknowledges nothing for 20 seconds.
package cluster
