// Package socket carries requests from Gatekit to a plugin process, and the responses, without
// gRPC. Only the plugins of Gatekit's own SDK use it. Requests are byte strings here; package
// plugins/proto encodes them.
//
// # How a process gets its connections
//
// Before Gatekit starts the process, it makes a pair of connected unix sockets. The process
// inherits one of them as a file descriptor. This is the control socket. For each connection,
// Gatekit makes another pair of sockets, and passes one of them over the control socket
// (SCM_RIGHTS). No socket has a path, so no other process can connect to one.
//
// Gatekit writes a hello to the control socket: the version of this protocol, and a random token.
// The plugin returns the token over gRPC, whose two ends have authenticated each other with TLS. So
// Gatekit knows that this very process has the other end of the control socket. A process that does
// not return the token gets its requests over gRPC.
//
// # What goes over a connection
//
// A connection carries one request at a time, and then its response. Each is a frame: its size in
// four bytes, big-endian, and its content. When Gatekit closes a connection, it also sends the
// number of the connection over the control socket. The plugin then cancels the inspection. The
// plugin could not notice the end of the connection itself, because it does not read from the
// connection while it inspects the message.
//
// # Why a connection carries one request at a time
//
// The goroutine that needs the verdict writes the request and reads the response. In the plugin,
// the goroutine that reads the request also inspects it. So a request wakes one goroutine of each
// process. On a connection that many requests share, one goroutine reads for all others and wakes
// them, which took twice as long. A large message delays no other message, and a connection that
// fails costs one request.
package socket
