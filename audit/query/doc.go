// Package query searches the audit log for records and calls, and counts them.
//
// A record is about one message or about an event (a start, a reload, a lost plugin). A [Call] is a
// request with all records that belong to it: the request, the response, and the messages in
// between, joined by session and exchange. A request of a server to a client (sampling,
// elicitation, roots) is a call of its own, and so is each event. A notification with the action
// pass or answer belongs to the call during which it was sent. (Gatekit's own notifications have
// the action answer.) A notification with another action, such as deny, is a call of its own. If
// the filter asks for notifications, every notification is a call of its own. There is one
// exception: the notifications/cancelled of an open call always belongs to that call.
//
// # How a call ends
//
// A call ends with its response, its denial, or Gatekit's own error. A call that goes to several
// servers, is cancelled or needs an approval may get further records. Such a call ends a quarter of
// a second after its last record. A "start" event ends all open calls, because the Gatekit process
// that served them has ended. Records whose request is not in the log form a call, too.
//
// # Costs
//
// Most lines are parsed with audit.ParseSummary only. At most 10,000 open calls are tracked. When
// there are more, the oldest call is returned as it is, and its later records form a call of their
// own. [Stats] counts up to 500 servers, tools, principals and rules each, and computes durations
// that are exact to 1 %.
//
// # Reading order
//
// filter.go and records.go; call.go and calls.go; stats.go.
package query
