package proxy

import (
	"context"
	"errors"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Client is a client as the proxy sees it: where a call's (or a session's) messages go. One per
// era, in core/downstream. Its methods may be called from many goroutines.
type Client interface {
	// Notify writes a notification on the stream of the call that this Client stands for (or of the
	// session). Messages handed over one after another leave in that order and before the call's
	// answer.
	Notify(ctx context.Context, m pipeline.Passed) error
	// SendRequests puts reverse requests to the client and waits for their answers, in the same
	// order: Response or Error messages. The ids in ms are those of the server; the client mints
	// its own. err is for a client that cannot be asked: gone, or without a channel
	// (ErrOutsideCall).
	SendRequests(ctx context.Context, ms []pipeline.Passed) ([]*mcp.Message, error)
}

// ErrOutsideCall says that a client can be asked inside a call only, and there is none.
var ErrOutsideCall = errors.New(
	"the client cannot be asked outside of a call, and has to say that " +
		"it can be asked at all")

// InputRequestClient is a Client that takes a server's questions inside a result (inputRequests)
// and answers with another request. A server that asks that way then hands its result on as it is,
// marked Folded, and stores nothing.
type InputRequestClient interface{ TakesInputRequests() bool }

// WaitReporter is a Client that does not always wait for what comes of its call.
type WaitReporter interface{ IsWaiting() bool }

// Handler is where a server's own messages go while it works for a call, or outside of any: the
// proxy, which judges, renames and hands them to a Client.
type Handler interface {
	// HandleNotification takes a notification from the server, its ids and tokens already those of
	// the client. It returns when the client has it or it is refused.
	HandleNotification(ctx context.Context, m *mcp.Message)
	// HandleRequests takes reverse requests from the server and answers, for each and under its id,
	// what may be written back: always as many as were asked, whatever was refused or failed.
	HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed
	// IsWaiting says whether the client waits for what comes of the call just now: not when its
	// last request was answered with a question.
	IsWaiting() bool
	// ReportActivity says that the server is at work, when there is nothing to hand over that would
	// show it.
	ReportActivity()
}

// Server is one server as one session sees it. Its methods may be called from many goroutines;
// calls run concurrently.
type Server interface {
	// Call writes the request under an id of its own and waits for the answer, which comes back
	// under the request's id, with the client's progress token and subscription id restored in all
	// that c gets. When ctx ends the server is told in its revision's way (the cause is a
	// *CancelledError when there is a notification to pass on) and ctx's cause is returned. Other
	// errors are *UnavailableError: nothing was answered, and the request may or may not have been
	// run; or a *pipeline.DeniedError: what the server asked for was refused, and its revision has
	// no words to tell it.
	Call(ctx context.Context, m pipeline.Passed, c Handler) (*mcp.Message, error)
	// Notify writes a notification; nil also when the server's revision has no such thing.
	Notify(ctx context.Context, m pipeline.Passed) error
	Close() error
}

// Upstream is a configured server, running or not.
type Upstream interface {
	// Open answers the server for one session. It need not be connected yet. feed gets what the
	// server sends outside of any call until Close. Whatever the server itself speaks, it is asked,
	// and answers, as one of o's revision.
	Open(ctx context.Context, o OpenOptions, feed Handler) (Server, error)
}

// OpenOptions says for whom a server is opened.
type OpenOptions struct {
	Session   string
	Principal string
	Revision  string // that the client's side speaks
	Shared    bool   // several clients may be behind the session: those of one principal
}

// CancelledError is the cause of a call's context when it was cancelled. Notice, if it holds a
// message, is the judged notification that says so; its requestId is the client's.
type CancelledError struct{ Notification pipeline.Passed }

func (e *CancelledError) Error() string { return "cancelled" }

// UnavailableError says that a server gave no answer: it is down, its session ended, it sent what
// is no answer.
type UnavailableError struct {
	Server string
	Reason string // what was tried and what went wrong; for the log and the client
	Err    error
}
