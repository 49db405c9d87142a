// Package transport moves bytes between Gatekit and its peers: stdio, child processes, Streamable
// HTTP on both sides, the 2024-11-05 SSE transport on both sides. It knows no era, no method and no
// id: a message is a line, a body or an event.
//
// Towards clients, [NewStdioPipe] answers a conn.Pipe and [ListenHTTP] a [Endpoint] that hands
// requests to a *downstream.Front. Towards servers, [Spawn] answers an conn.PipeCloser over a child
// process, and [NewHTTPClient] a [HTTPClient] that is an upstream.HTTP.
//
// What it promises:
//
//   - Bytes are kept. The only bytes that change are line breaks between JSON tokens where the
//     framing forbids them (a line of stdio, the data of an event).
//   - Everything is bounded: messages, events, header blocks, connections, streams, bodies in
//     flight, what a child writes to stderr or as noise to stdout, and how long a peer may take to
//     read or write.
//   - Nothing is left behind. Every goroutine ends with its connection; a child's whole process
//     group ends with the child.
//   - A request that is refused here (Host, Origin, method, types, size) is told to
//     FrontOptions.Refused, which records it; nothing of it goes further.
//
// # Why there is no compaction of JSON
//
// A line of stdio and a line of an event must not hold a line break. In valid JSON a line break can
// only stand between tokens, where nothing depends on it, so taking every CR and LF out is all that
// is needed, and no other byte moves. What arrives here to be written was parsed by core/mcp.
//
// # Why the writer is a goroutine that comes and goes
//
// Several calls are answered at once on one pipe. A message that finds nobody writing and room in
// the pipe is written by its caller, from where it is. Else the first that has something to write
// starts a goroutine that writes what is there, and whatever was added meanwhile in one write,
// until nothing is left; so an idle pipe costs none, whole lines cannot be torn by a caller that
// gives up, and a burst costs few system calls.
//
// # Why a body is read whole before anything is answered
//
// net/http closes a request's body at the first byte of the answer; a proxy that still forwards it
// then breaks its own upstream connection (performance.md 5.1). A message has to be whole anyway to
// be judged.
//
// # Why the pipes are non-blocking
//
// A goroutine in a blocking read or write of a pipe keeps its P until the runtime's monitor takes
// it away, up to 10 ms later: with messages larger than the pipe's buffer every call pays it
// (performance.md 5.2). The ends of pipes are therefore handed to the runtime's poller, and the
// buffers enlarged where the system lets us.
package transport
