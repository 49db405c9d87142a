// Package mcptest has a scripted MCP client and server for tests. They share no code with Gatekit
// or an SDK, so that they do not share their faults. They send exactly the bytes that a test
// writes, and keep exactly the bytes that they receive.
//
// A Server is a table of Go functions. Toolbox makes a Server with a tool for each behaviour that
// tests need: ask the client, log, report progress, wait to be cancelled, change and page lists,
// exit, send noise or given bytes. A Server serves a Conn (in process, or the stdin and stdout of a
// child) and HTTP. It serves legacy sessions and modern requests; its Revisions list the supported
// revisions.
//
// A Client writes requests and keeps every message in both directions. It is connected to a server
// by a Conn: one end of a Pipe, a Command, or an HTTP address.
package mcptest
