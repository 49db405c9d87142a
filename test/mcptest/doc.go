// Package mcptest has a client and a server of MCP with behaviour, for tests. They speak raw bytes
// and share no code with Gatekit and none with an SDK, so that a fault of either cannot hide
// itself: what is sent is exactly what the test wrote, and what came in is kept as it came.
//
// A Server is a table of Go functions; Toolbox makes one that does everything a test wants of a
// server: it asks, logs, reports progress, waits to be cancelled, changes and pages its lists,
// dies, sends noise or any bytes that a call hands it. It serves a Conn (in process, or the stdin
// and stdout of a child) and HTTP, legacy sessions and modern requests alike; which revisions it
// admits to is a field.
//
// A Client writes requests and keeps every message both ways. It reaches a server through a Conn:
// one end of Pipe, a Command, or an HTTP address.
package mcptest
