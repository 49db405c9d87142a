// Package query searches the audit log for records and calls, and counts them.
//
// A record is of one message or of an event (a start, a reload, a lost plugin). A [Call] is a
// request with everything that belongs to it: the request, the response, and the messages in
// between, joined by session and exchange. A request of a server to a client (sampling,
// elicitation, roots) is a call of its own, and so is each event. A notification is one if it was
// not simply passed on, or if the filter asks for notifications; otherwise it belongs to its call.
//
// # How a call ends
//
// A call ends with its response, its denial, or Gatekit's own error. A call that goes to several
// servers, is cancelled or needs an approval ends when it has had no further record for a quarter
// of a second. A start ends all calls that were open before, as their process is gone. Records of a
// call whose beginning is not in the log form a call, too.
//
// # Costs
//
// Most lines are only parsed as far as audit.ParseSummary does. At most 10,000 open calls are
// tracked; beyond that the oldest one is returned as it is, and its later records form a call of
// their own. [Stats] distinguishes 500 servers, tools, principals and rules, and durations to 1 %.
//
// # Reading order
//
// filter.go and records.go; call.go and calls.go; stats.go.
package query
