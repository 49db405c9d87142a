// Package upstream is a server as the proxy sees it: how it is reached, which revisions it speaks,
// and one Server for each session that uses it. It is the only package on this side that knows the
// eras.
//
// An [Upstream] is one configured server. It finds out by a probe what the server speaks
// (probe.go), once, and again when that proved wrong. Open answers a [proxy.Server] for one
// session; the session's first request connects it.
//
//   - A legacy session has a connection of its own (legacy.go): a process, an SSE stream, or a
//     session over Streamable HTTP. The client's initialize opens it. When it is lost it is opened
//     again with back-off (restart.go), and the server is told what the client told it: initialize,
//     initialized, the logging level, the subscriptions; then the client is told that the lists may
//     have changed.
//   - Modern sessions of one principal share a connection (pool.go, modern.go): a process, kept for
//     as long as somebody uses it, or HTTP requests that stand for themselves. There is nothing to
//     restore. A process has one subscription for all of them (union.go).
//
// Where the client's revision is of the other era, the Server speaks it all the same: the client of
// Open is answered as by a server of its own (protocol.md 3).
//
//   - toModern (tomodern.go) is a modern server for a legacy client. What the client said in
//     initialize, and its logging level, goes with each request; what the server asks in a result
//     is asked of the client live, and the request put again with the answers; what the client
//     would hear of by itself comes by a standing subscription (standing.go).
//   - toLegacy (tolegacy.go) is a legacy server for a modern client. The sessions that the server
//     needs are opened here, one for each set of capabilities that the client declares (visits.go);
//     what the server asks live goes to Ask, and downstream parks the call for it; a subscription
//     hears what the session hears (hearer.go).
//
// What messages look like on the other side is in forlegacy.go and formodern.go.
//
// # How a message goes through
//
// Call takes a request that passed the pipeline, gives it an id of its own (calls.go), and its
// progress token one too if two calls have the same; writes it; and waits. Over a pipe (pipe.go)
// one goroutine reads, finds the call of an answer by its id, and puts all else into the lane of
// the session that it is for (lane.go), which hands it over in order; an answer waits for what was
// read before it. Over HTTP (legacyhttp.go, modernhttp.go) each call reads its own stream. What
// comes back has the client's id, token and subscription id again. Nothing here judges a message or
// reads more of it than where it belongs.
//
// Requests of a legacy server go to [proxy.Handler].Ask, of the call that they belong to where that
// can be told (its stream, its task, or the only call there is), else of the session's feed. A
// modern server asks inside a result, which is handed on Folded to a modern client.
//
// # What it promises
//
//   - Only what passed the pipeline, and the few messages of upstream's own in outgoing.go, are
//     written to a server.
//   - A request is written once. Only a list, a read or the like, and only when the server said
//     that it did not know the session, is put again; a modern request also when the server refused
//     its headers. In both cases nothing was run. A call of a tool is put again only when the
//     server itself asked for that: with the answers to its questions, or when the pages that it
//     wanted to be opened first have been.
//   - A call ends when its context does, at once; the server is told in its way, and an answer that
//     comes later is dropped.
//   - The reader of a pipe never waits for a client: what waits is bounded, and over the bound
//     progress and logs are lost first, then the connection.
//   - All goroutines have ended when Close returns.
//
// # Why a probe is a request of its own
//
// The specification lets a client find out with any request. But a legacy server may run a
// tools/call that it should have refused, so only server/discover is used.
//
// # Why a process that was probed is used
//
// Some servers take seconds to start. A process that answered the probe with an error, or not at
// all, has not been initialized and can be; one that answered with a result serves modern requests,
// and (go-sdk v1.8.0) refuses initialize, so that a legacy session gets another.
//
// # What does not cross the eras
//
// Tasks, as such: a tool that runs as a task only is called as one, and its call answered with what
// comes of it (legacytask.go, moderntask.go); a question outside of any call to a modern client,
// but for the roots, which wait for a call; the names that a modern client's own server would have
// given its questions; answers to questions that are errors, to a modern server; structured content
// that is no object and content types that are newer than a legacy client, which get texts in their
// place; log lines of a legacy server while a modern client has several calls in flight; the
// methods of vendors.
package upstream
