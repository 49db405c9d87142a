// Package proxy carries calls between one client and its servers. It knows no era and no transport:
// a client is a Client (core/downstream), a server is a Server (core/upstream), and between them
// there is one way for every message.
//
// # How a message goes through
//
// A request of the client enters by Session.Begin, as a Call that is run or discarded. Its method's
// row in the table of core/mcp says where it goes: to the one server that its name, URI, reference
// or task id says (route.go); to all of them, their answers made one (lists.go, merge.go,
// hello.go); or, for a subscription, to all of them for as long as it lasts (listen.go). For each
// server the names are taken apart, and the message, now that server's own, is judged and recorded
// by pipeline.Pass before Server.Call has it (call.go). The answer comes back as that server's
// message, is judged and recorded in its turn, and only then gets our names back (names.go,
// owners.go).
//
// What a server sends meanwhile, or outside of any call, comes in by a Caller (caller.go) and is
// judged in the same way: notifications on their way to the client, reverse requests on theirs, and
// the client's answers to those. A result that carries its questions inside is taken apart, so that
// stages see each question and each answer as the request and the response that it is (rounds.go).
//
// # What it promises
//
//   - Nothing reaches a client or a server but a pipeline.Passed.
//   - What no stage changed differs from what came in only in the places of the catalogue
//     (mcp.Places), in ids and tokens, and, with several servers, in the attribution of reverse
//     requests. With Names.Prefix "never" nothing differs.
//   - A server that fails or is slow costs a client that server's items, and says so in _meta under
//     "gatekit/partial".
//   - All of a session belongs to one principal; cursors and request states are sealed for it.
//   - Every wait ends: calls by their server's time-outs, lists after 20 s per server, all of it by
//     Session.Close, which waits for what it ended.
//
// # Why cursors hold no list
//
// A cursor says where the next page begins and, by a digest, in which list. The servers are asked
// again for each page; when the list has changed the cursor is refused, and the client begins again
// (protocol.md 7.5). So nothing is kept for clients that never come back, and any instance with the
// same key serves the next page. Lists of up to Limits.PageItems, which is nearly all of them, come
// whole.
//
// # Why unknown resources are -32602
//
// To 2025-11-25 a resource that is not there is -32002, later it is -32602. That code is the
// proxy's own word only for URIs that no server owns, and -32602 is what every revision allows for
// those.
//
// # Locks
//
// Proxy.mu comes before all others: it is held while every session takes a new configuration over.
// Session.mu, link.mu, listen.mu, Call.mu, owners.mu, views.mu and longNames.mu guard their own
// fields, are held for moments and never while another of them is taken. watch.mu is held while it
// cancels its call.
package proxy
