// Package proxy carries calls between one client and its servers. It depends on no protocol era and
// no transport: a client is a Client (core/downstream), a server is a Server (core/upstream), and
// all messages between them take the same way.
//
// # How a message goes through
//
// A request of the client enters by Session.Begin and Call.Run. Its row in the table of methods of
// core/mcp decides where it goes. It goes to the one server that its name, URI, reference or task
// id denotes (route.go), or to all servers, whose answers are merged (lists.go, merge.go,
// initialize.go), or, for a subscription, to all of them for as long as it lasts (subscription.go).
// For each server the prefixes are taken off. The message, which now has the names of that server,
// is inspected and recorded by pipeline.Pass before Server.Call gets it (call.go, approval.go). The
// answer comes back as that server's message, is inspected and recorded, and only then gets the
// prefixes back (route.go, names.go, uriowners.go).
//
// Messages that a server sends during a call, or outside of any call, come in by a Handler
// (serverhandler.go) and are inspected in the same way: notifications, requests to the client, and
// the client's answers to those. A result that carries input requests is taken apart, so that
// stages see each request and each answer as a message of its own (inputrounds.go).
//
// # The files, in reading order
//
//   - interfaces.go, observer.go: the clients, servers and observers that the proxy works with.
//   - proxy.go, session.go: the configuration in force; one client's session.
//   - call.go, deadline.go, route.go, approval.go, errors.go: one request, from Begin to its
//     answer.
//   - names.go, uriowners.go: prefixes, and the servers that own a URI.
//   - serverstate.go, sessionserver.go, serverhandler.go: one server in a session, and its
//     messages.
//   - initialize.go, clientinfo.go, lists.go, merge.go, patience.go, pagecache.go: requests to all
//     servers.
//   - subscription.go, inputrounds.go: subscriptions, input requests.
//   - tasks.go, clienttasks.go: the owners of tasks.
//   - seal.go, jsonobject.go: tokens that clients keep; JSON objects.
//
// # What it promises
//
//   - Only a pipeline.Passed is written to a client or a server.
//   - A message that no stage changed differs from the received one only in the places of the
//     catalogue (mcp.NamePlaces), in ids and tokens, and, with several servers, in the attribution
//     of servers' requests. With Naming.Prefix "never" no names differ.
//   - If a server fails or is slow, the client misses that server's items, and _meta reports this
//     under "gatekit/partial". A list and initialize do not wait for a server that takes much
//     longer than the others, and hardly for one that did so the last time. Its answer is read in
//     the background, and the client is then notified that the list has changed.
//   - A session belongs to one principal; cursors and request states are sealed for it.
//   - Every wait is bounded: calls by the time-outs of their server, lists by 20 s per server.
//     Session.Close ends all calls and waits for them.
//
// # Why cursors contain no list
//
// A cursor has the start of the next page and the digest of the list. The servers are asked again
// for each page; when the list has changed the cursor is refused, and the client begins again, as
// MCP expects of invalid cursors (2025-11-25, Pagination). So nothing is kept for clients that
// never come back, and any instance with the same key serves the next page. Lists of up to
// Limits.PageItems items, which are nearly all lists, have one page only.
//
// # Why unknown resources are -32002 for some clients
//
// Up to 2025-11-25 an unknown resource is -32002, later it is -32602. Every revision allows -32602
// for a URI that no server owns, and the proxy used it for all clients. But a client of a revision
// that knows -32002 takes -32602 for a fault of its own, and does not know that the resource is
// gone. So it gets the code that a server itself would send.
//
// # Locks
//
// Proxy.mu comes before all others: it is held while every session takes over a new configuration.
// askedServer.mu comes before sessionServer.mu and deadline.mu. The mutexes of Session, Call,
// sessionServer, subscription, uriOwners, pageCache, patience and longNameWarnings guard the fields
// of their own struct. Each is held only briefly, and no second one is locked meanwhile.
// deadline.mu is held while the deadline cancels its call.
package proxy
