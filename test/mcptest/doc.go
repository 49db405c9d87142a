// Package mcptest has a scripted MCP client and server for tests. They share no code with Gatekit
// or an SDK, so that they do not share the faults of that code. They send exactly the bytes that a
// test writes, and keep exactly the bytes that they receive.
//
// A Server is a table of Go functions. Toolbox makes a Server with a tool for each behaviour that
// tests need: ask the client, log, report progress, wait to be cancelled, change and page lists,
// exit, and send noise or given bytes. A Server serves HTTP, and any Conn, such as a Pipe or the
// stdin and stdout of a child. It serves legacy sessions and modern requests; the field Revisions
// lists the revisions that it supports.
//
// A Client writes requests and keeps every message in both directions. A Conn connects the Client
// to a server. The Conn is one end of a Pipe, a Process, or an HTTP connection.
package mcptest
