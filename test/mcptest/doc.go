// Package mcptest has a scripted MCP client and server for tests. They speak raw bytes and share no
// code with Gatekit or an SDK, so that a fault of either shows: the bytes that a test writes are
// sent as they are, and the bytes that come in are kept as they came.
//
// A Server is a table of Go functions. Toolbox makes one with a tool for everything that tests need
// of a server: ask the client, log, report progress, wait to be cancelled, change and page lists,
// die, send noise or given bytes. A Server serves a Conn (in process, or the stdin and stdout of a
// child) and HTTP, legacy sessions and modern requests alike. Its Revisions say what it speaks.
//
// A Client writes requests and keeps every message in both directions. It reaches a server through
// a Conn: one end of Pipe, a Command, or an HTTP address.
package mcptest
