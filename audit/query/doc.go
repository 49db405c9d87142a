// Package query finds things in the audit log: records, calls, and how many there were of what.
//
// A record is of one message, or of something that is none (a start, a reload, a plugin that was
// lost). A [Call] is a request and what came of it: the request, the answer, and what moved for
// their sake, joined by session and exchange. What a server asks a client (sampling, elicitation,
// roots) is a call of its own, and so is every event; a notification is one when something was done
// with it or the filter asks for notifications, and otherwise belongs to its call.
//
// # How a call ends
//
// With its answer, its refusal, or Gatekit's own error. What is asked of several servers, what is
// cancelled and what a human has to approve ends when nothing more was recorded of it for a quarter
// of a second. A start ends all that was open before: the process that knew of it is gone. Of a
// call whose beginning is not in the log the rest is a call.
//
// # What it costs
//
// Lines are looked at as far as is needed, which is most of them to what stands before the steps
// (audit.Glance). Of calls under way at most 10,000 are known; those beyond it are answered as they
// are, the oldest first, and what comes of them later is a call of its own. [Stats] tells 500
// servers, tools, principals and rules apart, and knows how long calls took to 1 %.
package query
