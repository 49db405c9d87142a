// Package proxy carries calls between one client and its servers. It depends on no protocol era and
// no transport: a client is a Client (core/downstream), a server is a Server (core/upstream), and
// all messages between them take the same way.
//
// # How a message goes through
//
// A request of the client enters by Session.Begin and Call.Run. The table of methods of core/mcp
// decides where the request goes:
//
//   - to the one server that its name, URI, reference or task id denotes (route.go);
//   - to all servers, whose answers are merged (lists.go, merge.go, initialize.go);
//   - to all servers until the request ends, if the request is a subscription (subscription.go).
//
// For each server, Gatekit removes its prefixes from the names in the request. pipeline.Pass then
// inspects and records the request with the server's own names, and only after that Server.Call
// gets the request (call.go, approval.go). The answer has the server's own names, too. It is
// inspected and recorded, and only then gets the prefixes (route.go, names.go, uriowners.go).
//
// A server can send notifications and requests during a call, or outside of any call. A Handler
// takes these messages, and the client's answers to the requests, and inspects them in the same way
// (serverhandler.go). A result that carries input requests is taken apart, so that stages see each
// request and each answer as a message of its own (inputrounds.go).
//
// # The files, in reading order
//
//   - interfaces.go, observer.go: the clients, servers and observers that the proxy works with.
//   - proxy.go, session.go: the configuration in force; one client's session.
//   - call.go, deadline.go, route.go, approval.go, approvalvalues.go, errors.go: one request, from
//     Begin to its answer.
//   - names.go, uriowners.go: prefixes, and the servers that own a URI.
//   - serverstate.go, sessionserver.go, serverhandler.go: one server in a session, and its
//     messages.
//   - initialize.go, clientinfo.go, lists.go, merge.go, patience.go, pagecache.go: requests to all
//     servers.
//   - subscription.go, inputrounds.go: subscriptions, input requests.
//   - extensions.go, skills.go, skilltable.go: extensions; hidden skills and the files of skills.
//   - tasks.go, clienttasks.go: the owners of tasks.
//   - seal.go, jsonobject.go: tokens that clients keep; JSON objects.
//   - shutdown.go: the end of all calls when Gatekit stops.
//
// # What it promises
//
//   - Only a pipeline.Passed is written to a client or a server.
//   - A message that no stage changed differs from the received message only in names (at the
//     places of mcp.NamePlaces), ids and tokens. If there is more than one server, a server's
//     request also gets the name of the server. With Naming.Prefix "never", all names stay the
//     same.
//   - If a server fails or is slow, the client gets no items of that server, and _meta reports this
//     under "gatekit/partial". Lists and initialize do not wait for a server that takes much longer
//     than the others. They wait only briefly for a server that was too slow the last time. A late
//     answer is read in the background; then the client is notified that the list has changed.
//   - A session belongs to one principal; cursors and request states are sealed for this principal.
//   - Every wait is bounded: calls by the time-outs of their server, lists by 20 s per server.
//     Session.Close ends all calls and waits for them.
//
// # Why cursors contain no list
//
// A cursor has the start of the next page and the digest of the list. The servers are asked again
// for each page. When the list has changed, the cursor is refused. The client then begins again, as
// MCP expects after an invalid cursor (2025-11-25, Pagination). So nothing is kept for clients that
// never come back, and any instance with the same key serves the next page. Lists of up to
// Limits.PageItems items, which are nearly all lists, have one page only.
//
// # Why unknown resources are -32002 for some clients
//
// The error code for an unknown resource is -32002 up to 2025-11-25, and -32602 in later revisions.
// Every revision also allows -32602 for a URI that no server owns. But a client of an older
// revision would take -32602 for a fault of its own request, and would not learn that the resource
// is gone. So each client gets the code that a server of the client's revision would send.
//
// # Locks
//
// Proxy.mu is locked before all other mutexes: it is held while every session takes over a new
// configuration. askedServer.mu is locked before sessionServer.mu and deadline.mu. The mutexes of
// Session, Call, sessionServer, subscription, uriOwners, pageCache, patience and longNameWarnings
// guard the fields of their own struct. Each of these mutexes is held only briefly, and no second
// mutex is locked meanwhile. deadline.mu is held while the deadline cancels its call.
package proxy
