// Package bridge connects clients and servers of different eras of MCP. The native paths of
// core/downstream and core/upstream do not import it; cmd wires it to both.
//
// # The two eras
//
// A legacy peer (2024-11-05 to 2025-11-25) begins a session with initialize. Client and server tell
// each other once who they are and what they can do; the server may send requests and notifications
// to the client at any time. A modern peer (2026-07-28) has no sessions: each request of a client
// describes the client in its _meta, a server asks for input inside a result and gets the answers
// with the repeated request, and notifications come on subscriptions/listen.
//
// # Who opens what
//
// [Bridge] implements upstream.Bridge. When a client's revision is not of the server's era,
// upstream.Upstream.Open calls Bridge.Open, which opens native sessions with the server by way of
// upstream.NativeSessions and returns a proxy.Server that speaks the client's era:
//
//   - legacyToModern is a modern server for a legacy client. It has one modern session. The
//     client's initialize becomes a server/discover; what the client declared in it, and its log
//     level, are sent with each request.
//   - modernToLegacy is a legacy server for a modern client. It has a pool of legacy sessions, one
//     or more for each set of capabilities that the client declares (session_pool.go). They are
//     opened when a request needs them, and closed when no request has used them for a while.
//
// [ParkedCalls] implements downstream.CallParker: the calls of modern clients that are waiting for
// the client's answers.
//
// Every native session, pool and parked call belongs to one client session of one principal
// (proxy.OpenOptions). None is shared with another principal.
//
// # The way of a message
//
// A legacy client's request: legacyToModern.Call adds the client's description (outgoing.go);
// modernCall sends it. When the result asks for input, the questions are translated
// (client_input.go, for_legacy_client.go) and put to the client live, and the request is sent again
// with the answers. The final result is translated (for_legacy_client.go) and returned.
//
// A modern client's request: modernToLegacy.Call acquires a session from the pool, removes the
// client's description (outgoing.go), and an inFlightCall sends it. A question that the server asks
// meanwhile is translated (for_modern_client.go) and handed to the call's proxy.Handler. On the
// client's side a parked call turns the question into a result that asks for input, and goes on
// when the client comes back. The server's answer is translated (for_modern_client.go) and
// returned.
//
// Every message that is written to a server passed the pipeline before it was translated, or is
// made in outgoing.go.
//
// # Why calls share a session with a legacy server, and which do not
//
// On stdio a server's question never shows which call it belongs to, and over HTTP not always. With
// a session for each call, the call of a question would always be known. But the calls would not
// see each other's effects: on stdio each session is a process with its own memory. So the calls of
// one client that declare the same capabilities share one session. A question that names no call is
// put to the client in the youngest call that the client waits for. The server gets the answer even
// if another call caused the question.
//
// Over HTTP all clients of one principal use the same pool, and the wrong client could see a
// question. So while a call in which the client may be asked is running, no other such call uses
// its session. It waits for a short time, since most calls are short, and then gets a further
// session. The number of these is bounded. A server that has asked before gets no more calls than
// there are sessions: the others wait. A call of a server that has never asked shares a session
// after a while; if the server asks then, the question is refused. With a server over Streamable
// HTTP, all of this begins when it has asked outside of the stream of a call.
//
// # Subscriptions
//
// A legacy client expects notifications without asking for them. longLivedSubscription keeps a
// subscriptions/listen at the modern server, for the changes that the server declares and the
// resources that the client subscribed to. When the subscription ends, it is opened again, and the
// client is notified of everything that may have changed meanwhile.
//
// A modern client's subscriptions/listen gets notifications that the legacy session receives
// (listen.go). The session subscribes to the resources that the client names, once for all
// subscribers.
//
// # Tasks
//
// The two eras have different designs of tasks. Neither is translated into the other. A tool that
// runs only as a task is called as a task, and the call is answered with the task's result
// (legacy_task.go, modern_task.go).
//
// # What does not cross the eras
//
//   - Requests about tasks, and methods of vendors: method not found.
//   - A question to a modern client outside of any call: it is refused. A question for the roots
//     waits for a call first.
//   - The keys under which a modern client gets questions: a legacy server gives none, so the
//     bridge makes them.
//   - An error as the answer to a modern server's question: the call ends with an error. For an
//     elicitation, the server gets the action "cancel" instead.
//   - Structured content that is not an object, and content types that the legacy client's revision
//     does not have: a text takes their place.
//   - Log messages of a legacy server on stdio while a modern client has several calls in flight.
//
// # Locks
//
// parkedCall.mu is locked before ParkedCalls.mu. parkedCall.park holds parkedCall.mu while it
// records the result that asks, so that no answer is handled before the call is parked.
//
// # Reading order
//
// Each file uses only files that come after it, apart from those about parked calls, which are
// read together:
//
//   - bridge.go: Bridge and Open.
//   - legacy_to_modern.go, long_lived_subscription.go, modern_call.go, modern_task.go,
//     client_input.go, modern_client.go: legacy clients at modern servers.
//   - modern_to_legacy.go, in_flight_call.go, listen.go, legacy_task.go, session_pool.go,
//     pooled_session.go, subscriber.go, task_tools.go: modern clients at legacy servers.
//   - parked.go, parked_call.go, parked_question.go: parked calls.
//   - for_legacy_client.go, for_modern_client.go: messages for the client, translated.
//   - outgoing.go, task_polling.go, options.go, errors.go: what all of them use.
package bridge
