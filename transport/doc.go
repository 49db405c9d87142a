// Package transport moves bytes between Gatekit and its peers. It implements stdio, child
// processes, Streamable HTTP and the HTTP+SSE transport of MCP 2024-11-05. Both HTTP transports are
// implemented for clients and for servers. To this package, a message is the bytes of a line, a
// body or an event. The package does not read eras, methods or ids.
//
// For clients, [NewStdioPipe] returns a conn.Pipe, and [ListenHTTP] returns an [HTTPServer], which
// passes requests to a *downstream.Endpoint. For servers, [Spawn] returns a conn.PipeCloser to a
// child process, and [NewHTTPClient] returns an upstream.HTTP. For operators, [ListenAdmin] returns
// an [AdminServer].
//
// A request of an HTTP client is checked in this order: Host, repeated headers, Origin, path and
// method (ServeHTTP), authentication (authenticate.go, package auth), Accept (serveEndpoint), and
// the content type and size of the body (readRequestBody). Then the Endpoint serves the request.
//
// # What it promises
//
//   - Messages are forwarded byte for byte, with one exception: line breaks between JSON tokens are
//     removed from lines of stdio, and become line feeds in events.
//   - Everything is bounded: messages, events, header blocks, connections, streams, bodies in
//     flight, a child's stderr, the invalid lines on a child's stdout, and the time that a peer may
//     take to read or write.
//   - No goroutine outlives its connection, except one that waits for a read of a terminal or a
//     regular file, which nothing can interrupt (filesource.go).
//   - No process in the process group of a child outlives the child or Gatekit, even if Gatekit is
//     killed by SIGKILL.
//   - If one of the checks above fails, this package calls HTTPServerOptions.RecordRefusal and
//     forwards no part of the request.
//
// # Why there is no compaction of JSON
//
// A message on stdio must be one line. In valid JSON, a line break can only be between tokens,
// where it has no meaning. So it is enough to remove every CR and LF and to keep all other bytes.
// All messages have been parsed by core/mcp, so they are valid JSON.
//
// # Why the writer has no permanent goroutine
//
// Several calls are answered on one pipe at the same time. If no write is in progress and the pipe
// has room, the caller writes its message itself, without a copy. Otherwise the message is copied
// to a pending batch, and the first such caller starts a goroutine that writes the batch. Messages
// that arrive during that write form the next batch. The goroutine ends when no batch is pending.
// So an idle pipe needs no goroutine, a caller that returns early leaves no incomplete line, and
// many messages at once need few system calls.
//
// # Why a body is read whole before anything is answered
//
// net/http closes the body of a request when the handler writes the first byte of the answer. A
// proxy that still forwards the body then breaks its own connection to the server. Besides, only a
// complete message can be checked.
//
// # Why the pipes are non-blocking
//
// A goroutine in a blocking read or write of a pipe keeps its P (a processor of Go's scheduler)
// until the runtime takes it away, up to 10 ms later. Each call with a message larger than the
// pipe's buffer would take that much longer. So Gatekit's ends of pipes are non-blocking and wait
// in the runtime's poller. Their buffers are enlarged if the system allows it.
package transport
