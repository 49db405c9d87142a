// Package upstream reaches servers: it connects to them, finds out which revisions of MCP they
// speak, and gives each session of the proxy a [proxy.Server] of its own.
//
// An [Upstream] is one configured server. A probe finds out which revisions the server speaks. The
// probe is repeated when its result proves wrong. Open returns a proxy.Server for one session of a
// client. The connection to the server is opened only when the session needs it.
//
//   - A session with a legacy server (initialize, up to 2025-11-25) has a connection of its own: a
//     process, an SSE stream, or a session over Streamable HTTP. The client's initialize opens the
//     connection. A lost connection is opened again, with growing delays. The messages that set up
//     the session are then sent again: initialize, initialized, the log level, the subscriptions.
//     After that, the client is notified that the server's lists may have changed.
//   - Sessions with a modern server (2026-07-28) share one connection per principal: a process that
//     is kept as long as a session uses it, or independent HTTP requests. After a restart, no state
//     has to be restored. All sessions of a process share one subscription.
//   - The connection of an HTTP client's session is ended when no call and no stream of the client
//     has used it for Options.ServerIdle. It is also ended when the limit of Options.Processes is
//     reached and another session needs a process. The next message of the client opens another
//     connection, and the session is set up again as after a loss.
//   - When an HTTP client sends initialize to a legacy server over a pipe, the server may recently
//     have answered an equal initialize of the same principal. Gatekit then repeats that answer.
//     It starts no process until the client's next request.
//   - A client and a server may be of different eras. The client then gets a proxy.Server from
//     [Options.Bridge] (package core/bridge). The bridge opens sessions of the server's era with
//     [NativeSessions]. Without a bridge, Gatekit refuses the client.
//
// # Reading order
//
// Each file uses only files that come after it:
//
//   - upstream.go: a configured server; Open, Close, State, Ready.
//   - legacy_session.go, legacy_state.go, legacy_dial.go: a session with a legacy server, the
//     messages that it has to send again, its connections.
//   - idle.go, processes.go, initialize_answers.go: ending unused connections, limiting processes,
//     starting a server only when it is used.
//   - modern_session.go, modern_pool.go: a session with a modern server, and the connections that
//     sessions share.
//   - probe.go: the revisions that the server speaks.
//   - legacy_pipe.go, legacy_http_calls.go, legacy_http.go: connections to legacy servers.
//   - modern_pipe.go, subscription_mux.go, subscription_filter.go, modern_http.go,
//     argument_headers.go, headers.go: connections to modern servers.
//   - connector.go, closing.go, restarts.go: opening connections, and limits on their number and on
//     how often servers are started.
//   - pipeconn.go, event_stream.go, http_responses.go, messages.go: reading and writing in both
//     eras.
//   - calls.go, server_requests.go, background_writes.go, queue.go: messages in flight on a
//     connection, and messages that wait for the client.
//   - recorder.go: recording the messages that no handler of a session records.
//   - options.go, bridge.go, observer.go, transport.go, errors.go: the configuration and the
//     interfaces.
//   - outgoing.go: the messages that may be written to a server.
//
// # The path of a message
//
// Call takes a request that passed the pipeline. The connection gives the request a new id. If
// another call has the same progress token, or if a server might spell the token differently, the
// request gets a new token, too. Then the connection writes the request and waits for the answer.
// Over a pipe, one goroutine reads all messages. It finds the call of an answer by the answer's id,
// and adds all other messages to the ordered queue of the session. An answer is delivered after the
// messages that were read before it. Over HTTP, each call reads its own stream. In the answers and
// notifications that the client gets, the id, the progress token and the subscription id are those
// that the client gave. This package does not inspect messages. It reads only the members that show
// where a message belongs.
//
// A request of a legacy server goes to the [proxy.Handler] of the call that it belongs to. That is
// the call that waits for the request's task, the call on whose stream the request came, or the
// only call in flight. If there is no such call, the session's handler gets the request. A modern
// server puts its requests into a result. That result is returned with CarriesInput set.
//
// # Guarantees
//
//   - Only [Outgoing] messages are written to a server: messages that passed the pipeline, and the
//     few messages that Gatekit makes itself.
//   - A request whose second run could have a further effect is run at most once. Gatekit sends the
//     request again only when the server has not run it: the server responded that it does not know
//     the session, or it rejected the headers or the revision of a modern request. Other requests,
//     such as lists, are also sent again when the session ended while they were in flight.
//   - A call ends as soon as its context ends. Gatekit then cancels the request at the server, in
//     the way that the server's revision defines, and drops a late answer.
//   - The reader of a pipe never waits for a client. The number of messages that wait for the
//     client is limited. When the limit is reached, progress and log messages are dropped. If no
//     such message waits, the call or the connection ends.
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
// The specification lets a client find out a server's era with any request. But a legacy server may
// run a tools/call that it should have refused, so the probe is always a server/discover.
//
// # Why the probed process is used
//
// Some servers take seconds to start. A process that answered the probe with an error, or not at
// all, can still be initialized. A process that answered with a result serves modern requests and
// refuses initialize (go-sdk v1.8.0), so a legacy session gets another process.
package upstream
