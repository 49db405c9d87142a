// Package transport moves bytes between Gatekit and its peers: stdio, child processes, and
// Streamable HTTP and the HTTP+SSE transport of MCP 2024-11-05 on both sides. It knows no era, no
// method and no id. It handles each message as the bytes of a line, a body or an event.
//
// Towards clients, [NewStdioPipe] returns a conn.Pipe, and [ListenHTTP] an [HTTPServer] that hands
// requests to a *downstream.Endpoint. Towards servers, [Spawn] returns a conn.PipeCloser to a child
// process, and [NewHTTPClient] an upstream.HTTP. [ListenAdmin] serves operators.
//
// A request of an HTTP client passes these steps, in this order: Host, repeated headers, Origin,
// path and method (ServeHTTP), authentication (authenticate.go), Accept, content type and size of
// the body (readRequestBody), and then the Endpoint.
//
// # What it promises
//
//   - Messages are forwarded byte for byte, with one exception: line breaks between JSON tokens are
//     removed in lines of stdio and in events, which cannot contain them.
//   - Everything is bounded: messages, events, header blocks, connections, streams, bodies in
//     flight, a child's stderr, the invalid lines on a child's stdout, and the time that a peer may
//     take to read or write.
//   - No goroutine outlives its connection, and no process of a child's process group outlives the
//     child or Gatekit, also if Gatekit is killed by SIGKILL.
//   - A request that is refused here (Host, Origin, method, content type, size) is recorded by
//     HTTPServerOptions.RecordRefusal. No part of the request is forwarded.
//
// # Why there is no compaction of JSON
//
// A line of stdio and a line of an event must not hold a line break. In valid JSON a line break can
// stand between tokens only, where it means nothing. So it is enough to remove every CR and LF, and
// all other bytes are kept. Messages that are written here have been parsed by core/mcp.
//
// # Why the writer has no permanent goroutine
//
// Several calls are answered on one pipe at the same time. When no write is under way and the pipe
// has room, the caller writes its message itself, without a copy. Otherwise messages are copied to
// a pending batch, and the first caller starts a goroutine that writes the batch. Messages that are
// added meanwhile become the next batch. The goroutine ends when no batch is pending. So an idle
// pipe costs no goroutine, a caller that returns early leaves no incomplete line, and a burst costs
// few system calls.
//
// # Why a body is read whole before anything is answered
//
// net/http closes the body of a request at the first byte of the answer. A proxy that is still
// forwarding the body then breaks its own connection to the server. Besides, only a complete
// message can be checked.
//
// # Why the pipes are non-blocking
//
// A goroutine in a blocking read or write of a pipe keeps its P (a processor of Go's scheduler)
// until the runtime takes it away, up to 10 ms later. With messages larger than the pipe's buffer,
// every call would take longer by that time. So the ends of pipes are handed to the runtime's
// poller, and their buffers are enlarged if the system allows it.
package transport
