// Package upstream reaches servers: it connects to them, finds out which revisions of MCP they
// speak, and gives each session of the proxy a [proxy.Server] of its own.
//
// An [Upstream] is one configured server. A probe finds out which revisions the server speaks. It
// is repeated when its result proves wrong. Open returns a proxy.Server for one session of a
// client; the session's first request connects it.
//
//   - A session with a legacy server (initialize, up to 2025-11-25) has a connection of its own: a
//     process, an SSE stream, or a session over Streamable HTTP. The client's initialize opens it.
//     When it is lost, it is opened again with growing delays. The messages that set up the session
//     are then sent again: initialize, initialized, the log level, the subscriptions. After that,
//     the client is notified that the lists may have changed.
//   - Sessions with a modern server (2026-07-28) share one connection per principal: a process that
//     is kept as long as a session uses it, or independent HTTP requests. A restart has no state to
//     restore. A process has one subscription for all of its sessions.
//   - The connection of an HTTP client's session is ended when neither a call nor a stream of the
//     client has used it for Options.ServerIdle, or when Options.Processes needs its place. The
//     next use opens another, with the same messages as after a loss. The first use opens the
//     first: an initialize that the server has answered before is answered alike.
//   - A client of the other era gets a server from [Options.Bridge] (package core/bridge), which
//     uses the sessions above by way of [NativeSessions]. Without a bridge such a client is
//     refused.
//
// # Reading order
//
// Each file uses only files that come after it:
//
//   - upstream.go: a configured server; Open, Close, State, Ready.
//   - legacy_session.go, legacy_state.go, legacy_dial.go: a session with a legacy server, the
//     messages that it has to send again, its connections.
//   - idle.go, processes.go, initialize_answers.go: connections that are not used, or not yet.
//   - modern_session.go, modern_pool.go: a session with a modern server, and the connections that
//     sessions share.
//   - probe.go: the revisions that the server speaks.
//   - legacy_pipe.go, legacy_http_calls.go, legacy_http.go: connections to legacy servers.
//   - modern_pipe.go, subscription_mux.go, subscription_filter.go, modern_http.go,
//     argument_headers.go, headers.go: connections to modern servers.
//   - connector.go, closing.go, restarts.go: opening connections, and limits on that.
//   - pipeconn.go, event_stream.go, http_responses.go, messages.go: reading and writing, the same
//     in both eras.
//   - calls.go, server_requests.go, background_writes.go, queue.go: messages in flight on a
//     connection, and messages that wait for the client.
//   - options.go, bridge.go, observer.go, transport.go, errors.go: the configuration and the
//     interfaces.
//   - outgoing.go: the messages that may be written to a server.
//
// # The way of a message
//
// Call takes a request that passed the pipeline. The connection gives it an id of its own, and
// another progress token if two calls have the same one, writes it, and waits. Over a pipe one
// goroutine reads: it finds the call of an answer by its id and adds everything else to the ordered
// queue of its session. An answer waits for the messages that were read before it. Over HTTP each
// call reads its own stream. The returned answer has the client's id, progress token and
// subscription id again. This package does not inspect messages. It reads only the members that
// show where a message belongs.
//
// A request of a legacy server goes to [proxy.Handler].HandleRequests of its call, if its stream,
// its task, or the only call in flight shows which call that is. Otherwise the session's handler
// gets it. A modern server asks inside a result, which is returned marked CarriesInput.
//
// # Guarantees
//
//   - Only [Outgoing] messages are written to a server: those that passed the pipeline, and the few
//     that Gatekit makes itself.
//   - A request is run once. It is sent again only when the server responded that it does not know
//     the session, or rejected the headers or the revision of a modern request: then the server has
//     not run it. A request that changes nothing is also sent again when the session ended while it
//     was in flight.
//   - A call ends as soon as its context does. Gatekit cancels the request at the server, as the
//     server's revision defines it, and drops an answer that comes later.
//   - The reader of a pipe never waits for a client. The number of messages that wait is bounded.
//     Over the bound, progress and log messages are dropped first; then the connection is closed.
//   - All goroutines have ended when Close returns.
//
// # Locks
//
// A goroutine that holds one lock takes another only in these orders: Upstream.mu before
// modernPool.mu; prober.mu before connector.mu; pipeConn.routing before subscriptionMux.mu,
// orderedQueue.mu and callTable.mu; subscriptionMux.mu before orderedQueue.mu. Processes.mu is
// taken last. No lock is held when OpenOptions.HasStream is called. Options.Event and
// Options.Observer may be called with a lock held, and must not call back.
//
// # Why a probe is a request of its own
//
// The specification lets a client find out the era with any request. But a legacy server may run a
// tools/call that it should have refused, so only server/discover is used.
//
// # Why a process that was probed is used
//
// Some servers take seconds to start. A process that answered the probe with an error, or not at
// all, can still be initialized. A process that answered with a result serves modern requests and
// refuses initialize (go-sdk v1.8.0), so a legacy session gets another process.
package upstream
