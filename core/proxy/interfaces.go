package proxy

import (
	"context"
	"errors"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Client is a client as the proxy sees it: the receiver of a call's (or a session's) messages.
// core/downstream has one implementation per era. Many goroutines may call its methods.
type Client interface {
	// Notify writes a notification on the stream of the call that this Client stands for (or of the
	// session). Messages of successive calls of Notify are written in that order, and before the
	// answer of the call.
	Notify(ctx context.Context, m pipeline.Passed) error
	// SendRequests sends requests of a server to the client and waits for their answers, in the
	// same order: Response or Error messages. The ids in ms are those of the server; the Client
	// uses its own. SendRequests returns an error if the client cannot be asked: the client is
	// gone, or has no channel for requests (ErrOutsideCall).
	SendRequests(ctx context.Context, ms []pipeline.Passed) ([]*mcp.Message, error)
}

// ErrOutsideCall reports that a client can be asked only inside a call, and that no call is in
// flight.
var ErrOutsideCall = errors.New("the client can be asked inside a call only, and only if it " +
	"declares the capability")

// InputRequestClient is a Client that may take a server's requests inside a result (inputRequests),
// and then answers with another request. For such a client, a Server returns a result with
// inputRequests unchanged, marked CarriesInput, and stores nothing.
type InputRequestClient interface{ TakesInputRequests() bool }

// WaitReporter is a Client that does not always wait for the result of its call.
type WaitReporter interface{ IsWaiting() bool }

// Handler takes the messages that a server sends during a call, or outside of any call. The proxy
// implements it: it inspects the messages, adds the prefixes and hands them to a Client.
type Handler interface {
	// HandleNotification takes a notification from the server, with ids and tokens of the client.
	// It returns once the notification was written to the client, or was denied.
	HandleNotification(ctx context.Context, m *mcp.Message)
	// HandleRequests takes requests of the server. It returns one answer for each request, under
	// its id, even for those that were denied or failed.
	HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed
	// IsWaiting reports whether the client waits for the answer of the call just now. It is false
	// after the client's last request was answered with input requests, until the client sends its
	// next request with the answers.
	IsWaiting() bool
	// ReportActivity restarts the idle time-out of the call. It is for a server that works, but
	// sends no messages that show it.
	ReportActivity()
}

// Server is one server as one session sees it. Many goroutines may call its methods; calls run
// concurrently.
type Server interface {
	// Call writes the request under an id of its own and waits for the answer. The answer has the
	// request's id, and all messages for c have the client's progress token and subscription id.
	// When ctx ends, Call cancels the request at the server, as the server's revision defines it,
	// and returns ctx's cause. The cause is a *CancelledError if there is a notification to
	// forward. Other errors are *UnavailableError (there was no answer; the request may have run or
	// not) and *pipeline.DeniedError (the server asked for something that was denied, and its
	// revision has no answer for that).
	Call(ctx context.Context, m pipeline.Passed, c Handler) (*mcp.Message, error)
	// Notify writes a notification. It returns nil, too, when the server's revision has no such
	// notification.
	Notify(ctx context.Context, m pipeline.Passed) error
	Close() error
}

// Upstream is a configured server, running or not.
type Upstream interface {
	// Open returns the server for one session. It need not be connected yet. feed gets the messages
	// that the server sends outside of any call, until Close. The returned Server behaves like a
	// server of o.Revision, whatever revision the configured server speaks.
	Open(ctx context.Context, o OpenOptions, feed Handler) (Server, error)
}

// OpenOptions describe the session that a server is opened for.
type OpenOptions struct {
	Session   string
	Principal string
	Revision  string // of the client's side
	Shared    bool   // several clients of one principal may use the session
	// HasStream reports whether the client has a stream open, besides its calls, on which messages
	// of servers reach it. It must not block. It is nil for a client on a pipe: such a client is
	// there as long as its session, and may always be notified.
	HasStream func() bool
}

// CancelledError is the cause of a call's context when the call was cancelled. Notification, if not
// empty, is the inspected notifications/cancelled, with the requestId of its sender.
type CancelledError struct{ Notification pipeline.Passed }

func (e *CancelledError) Error() string { return "cancelled" }

// WithdrawnError is the cause of the context of HandleRequests when the server gave up its request
// by a notifications/cancelled. The notification is not inspected yet.
type WithdrawnError struct{ Notification *mcp.Message }

func (e *WithdrawnError) Error() string { return "the server has cancelled its request" }

// UnavailableError reports that a server gave no valid answer, for example because it is down or
// its session ended.
type UnavailableError struct {
	Server string
	// what was tried and what went wrong; for the log and the client. The text follows the server's
	// name, so the word "it" means the server.
	Reason string
	Err    error
}
