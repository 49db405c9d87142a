// Package downstream serves clients: it connects each client, of any revision and on any transport,
// to a session of core/proxy.
//
// transport hands a message over as bytes: a line of a pipe (stdio, or the SSE transport of MCP
// 2024-11-05), or the body of a POST. The message is parsed, and its era is found (era.go). A
// request that breaks the rules of its era is refused here. The error is recorded like every
// answer. Any other request becomes a [Call] of a proxy.Session. Its answer is written back under
// the client's id.
//
//   - pipe.go serves a client on a pipe, on which messages of both eras may come. http.go serves
//     HTTP requests, which come to one endpoint in both eras.
//   - legacy.go, initialize.go and legacyclient.go serve a client that opens a session with
//     initialize. It has one proxy.Session, and gets reverse requests live, on the stream of the
//     call that caused them. Over HTTP (legacyhttp.go, legacypost.go) its streams can be resumed
//     (sessionstreams.go, resumablestream.go).
//   - modern.go serves a client without a session. All modern requests of a pipe share one
//     proxy.Session; over HTTP (modernhttp.go) all those of a principal do. The client is asked in
//     results. A server that asks during a call needs a [CallParker], which core/bridge implements.
//
// # What it promises
//
// Every message that is written to a client is a pipeline.Passed. All other bytes are HTTP status
// lines and headers, and the events of a stream that hold only an id. The messages of one call
// leave in the order in which they came, and before its answer. [Limits] bounds the memory that a
// client can use. A client that does not read delays its own calls and no others. When the client
// of a pipe is gone, or an HTTP session ends, its calls are cancelled, its open reverse requests
// are withdrawn, its proxy.Session is closed, and no goroutine of it is left.
//
// # Why the audit log does not hold the id of an HTTP session
//
// A client that knows an Mcp-Session-Id and acts for the session's principal can use the session.
// Without authentication only the secrecy of the id protects the session. So the log identifies the
// session by another name.
//
// # Why modern requests over HTTP get new ids
//
// All requests of a principal share one proxy.Session, with its connections and its lists of the
// servers. But they come from any number of clients, which all count their ids from 1, and
// proxy.Session finds calls by their ids. Such an id shows in messages only as the id of a
// subscription; modernReply puts the client's id back there.
//
// # Why an answer is seldom a stream
//
// A request is answered with one JSON body, which costs least, unless a message has to be sent
// before the answer. When the answer takes longer than streamDelay, it becomes a stream, which
// transport keeps alive. For a tools/call of a legacy client, resumableStreamDelay applies instead:
// the stream's first event gives the client an id, with which it can ask for the answer when its
// connection breaks. Otherwise the client might call the tool a second time. A client that names
// text/event-stream first in Accept always gets a stream.
package downstream
