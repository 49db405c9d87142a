// Package bridge connects clients and servers of different eras of MCP. core/downstream and
// core/upstream do not import this package. cmd/gatekit connects the bridge to both.
//
// # The two eras
//
// In the legacy era (2024-11-05 to 2025-11-25), a session begins with initialize. The client and
// the server exchange their names and capabilities once. The server may send requests and
// notifications to the client at any time.
//
// In the modern era (2026-07-28), there are no sessions. Each request describes the client in its
// _meta. A server asks for input in a result, and gets the answers when the client repeats the
// request. Notifications come on subscriptions/listen.
//
// # How sessions are opened
//
// [Bridge] implements upstream.Bridge. upstream.Upstream.Open calls Bridge.Open when a client's
// revision is not of the server's era. Bridge.Open returns a proxy.Server that speaks the client's
// era, and that opens native sessions with the server (upstream.NativeSessions):
//
//   - legacyToModern connects a legacy client to a modern server. It has one modern session. It
//     sends server/discover in place of the client's initialize. It adds the client's capabilities
//     and log level to each request.
//   - modernToLegacy connects a modern client to a legacy server. It has a pool of legacy sessions,
//     one or more for each set of capabilities that the client declares (session_pool.go). A
//     session is opened when a request needs it, and closed when no request has used it for a
//     while.
//
// [ParkedCalls] implements downstream.CallParker. It holds the calls of modern clients whose server
// waits for an answer from the client.
//
// Every native session, pool and parked call belongs to one client session of one principal
// (proxy.OpenOptions). None of them is shared with another principal.
//
// # How a request is handled
//
// For a legacy client's request, legacyToModern.Call adds the client's description (outgoing.go),
// and modernCall sends the request. When the result asks for input, modernCall translates the
// questions (client_input.go, for_legacy_client.go), asks the client, and sends the request again
// with the answers. It translates the final result (for_legacy_client.go) and returns it.
//
// For a modern client's request, modernToLegacy.Call acquires a session from the pool and removes
// the client's description (outgoing.go). An inFlightCall then sends the request. A question that
// the server asks meanwhile is translated (for_modern_client.go) and handed to the call's
// proxy.Handler. On the client's side a parkedCall turns the question into a result that asks for
// input. The call goes on when the client sends the request again with the answers. The server's
// final answer is translated (for_modern_client.go) and returned.
//
// Every message that is written to a server passed the pipeline before it was translated, or is
// made in outgoing.go.
//
// # Which calls share a session with a legacy server, and why
//
// On stdio a server's question never shows which call it belongs to. Over HTTP, some questions do
// not show their call either. If each call had a session of its own, the call of a question would
// always be known. But the calls would not see each other's effects: on stdio each session is a
// process with its own memory. So the calls of one client that declare the same capabilities share
// one session. A question that names no call is put to the client in the youngest call that the
// client waits for. The server gets the answer even if another call caused the question.
//
// Over HTTP all clients of one principal use the same pool, and a question could reach the wrong
// client. So at most one call in which the client can be asked uses a session at a time. The next
// such call waits for a short time, since most calls are short, and then gets a further session.
// The number of further sessions is bounded. When no further session can be opened, the next call
// depends on the server:
//
//   - If the server has asked a client before, the call waits until a session is free.
//   - If the server has never asked, the call shares a session after a while. A question that the
//     server asks then is refused.
//
// These rules always apply to a server on stdio or HTTP+SSE. A server over Streamable HTTP should
// ask on the stream of the call, but some servers ask on the session's GET stream. So the rules
// apply to a server that offers this stream, until the server has asked on the stream of a call.
// The rules apply again after the server has asked on the GET stream for more than the roots.
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
// The two eras have different designs of tasks. The bridge does not translate one design into the
// other. If a tool runs only as a task, the bridge calls it as a task and answers the client's call
// with the task's result (legacy_task.go, modern_task.go).
//
// # What the bridge cannot translate
//
//   - Requests about tasks and vendors' own methods are answered with "method not found".
//   - A question to a modern client outside of any call is refused. A question for the roots first
//     waits for a call.
//   - A modern client gets each question under a key. A legacy server names no keys, so the bridge
//     generates them.
//   - A modern server's question cannot be answered with an error. So an error of the client ends
//     the call with an error. There is one exception: if the client answers an elicitation with an
//     error other than "method not found" or "invalid params", the server gets the action "cancel".
//   - A text replaces structured content that is not an object, and content of a type that the
//     legacy client's revision does not have.
//   - On stdio, a log message of a legacy server does not name its call. So it is dropped while
//     several calls of modern clients, or none, are in flight on its session.
//
// # Locks
//
// parkedCall.mu is locked before ParkedCalls.mu. parkedCall.tryPark holds parkedCall.mu while it
// records the result that asks for input, so that no answer is handled before the call is parked.
//
// # Reading order
//
// Each file uses only the files that are listed after it. Only the files about parked calls use
// each other.
//
//   - bridge.go: Bridge and Open.
//   - legacy_to_modern.go, long_lived_subscription.go, modern_call.go, modern_task.go,
//     client_input.go, modern_client.go: legacy clients at modern servers.
//   - modern_to_legacy.go, in_flight_call.go, listen.go, legacy_task.go, session_pool.go,
//     pooled_session.go, subscriber.go, task_tools.go: modern clients at legacy servers.
//   - parked.go, parked_call.go, parked_question.go, parked_queue.go: parked calls.
//   - for_legacy_client.go, for_modern_client.go: translation of messages for the client.
//   - outgoing.go, task_polling.go, options.go, errors.go: functions and bounds for all files.
package bridge
