// Package downstream is a client as the proxy sees it, whatever it speaks and however it is
// connected.
//
// A message comes from transport as bytes: a line of a pipe (stdio, the 2024-11-05 SSE transport)
// or the body of a POST. It is parsed, its era is found (classify.go), and the rules of that era
// are held against it in the order of protocol.md 3.12. What breaks them is answered here, through
// Pipeline.Answer; all else goes to proxy.Session, whose answer is written back under the client's
// own id.
//
//   - legacy.go is a client that opened a session with initialize: one proxy.Session for it,
//     reverse requests live on the stream of the call that caused them.
//   - modern.go is a client whose requests stand alone: one proxy.Session for a pipe, or for a
//     principal over HTTP; a server's questions go inside results. When the server asks live, in
//     the midst of a call, the call is parked until the client makes it again with the answers
//     (parking.go).
//
// On a pipe both may be mixed, message by message; over HTTP both share one endpoint.
//
// # What it promises
//
// Only a pipeline.Passed is written to a client; bytes of its own are HTTP statuses and priming
// events. Messages of one call leave in the order in which they came, before its answer. What a
// client can make it hold is bounded by Limits. A client that does not read makes its own calls
// wait and nobody else's. When a pipe's client is gone, or an HTTP session ends, its calls are
// cancelled, its questions withdrawn, its proxy.Session closed, and nothing is left running.
//
// # Why the id of an HTTP session is not the one in the audit log
//
// Whoever knows an Mcp-Session-Id and may speak for its principal can use the session; without
// authentication the id is all there is. So the log has another.
//
// # Why modern requests over HTTP get ids of ours
//
// All requests of a principal share one proxy.Session, and with it what was learnt of the servers,
// but they come from any number of clients that all begin to count at 1. proxy.Session finds calls
// by their ids. The one place where an id shows in a body, the id of a subscription, is put back in
// modernReply.
//
// # Why a call that may be asked about has a goroutine of its own
//
// It outlives the request that brought it: that is answered with the question, and another brings
// the answer. The state that the client carries between the two opens for the same call of the same
// session alone (a pipe, or a principal over HTTP), once, and only in this process; anything else
// is refused, and the call is never run again in its place. A client that does not come back costs
// a bounded number of bounded waits (Limits), after which its server is told that it gave up.
//
// # Why an answer is seldom a stream
//
// A request is answered with one JSON body unless something must be sent first, which costs least.
// A request that is silent for openAfter becomes a stream, and a call of a tool, which must not be
// run twice, after resumableAfter: transport keeps it alive, and a legacy client, told an event id
// at its start, can come back for the answer when its connection breaks. A client that names
// text/event-stream first in Accept gets a stream always.
package downstream
