package proxy

import (
	"context"
	"errors"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Client is a client as the proxy sees it: the receiver of a call's (or a session's) messages.
// core/downstream has one implementation per era. Many goroutines may call its methods.
type Client interface {
	// Notify writes a notification on the stream of the call that this Client stands for (or of the
	// session). Notifications are written in the order in which Notify is called, and before the
	// answer to the client's request.
	Notify(ctx context.Context, m pipeline.Passed) error
	// SendRequests sends requests of a server to the client and waits for the answers. The answers
	// are Response or Error messages, in the order of ms. The ids in ms are the server's; the
	// Client sends the requests under its own ids. SendRequests returns an error if the client
	// cannot be asked: the client is gone, or has no channel for requests (ErrOutsideCall).
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

// Handler takes the messages that a server sends during a call, or outside of any call. The proxy's
// Handler inspects the messages, adds the prefixes and hands the messages to a Client.
type Handler interface {
	// HandleNotification takes a notification from the server. The ids and tokens in m are the
	// client's. HandleNotification returns after the notification was written to the client or
	// denied.
	HandleNotification(ctx context.Context, m *mcp.Message)
	// HandleRequests takes requests of the server. It returns one answer for each request, with the
	// request's id. Denied and failed requests get an answer, too.
	HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed
	// Consume inspects and records m, a message of the server that does not reach the client.
	// The record has the given action and reason. m may be the answer to the call. The error is
	// a *pipeline.DeniedError if a stage denies m.
	Consume(ctx context.Context, m *mcp.Message, action, reason string) error
	// IsWaiting reports whether the client is waiting for the answer of the call. The client stops
	// waiting when it gets input requests as the answer to its request. It waits again when it
	// sends its next request, which has the answers.
	IsWaiting() bool
	// ReportActivity restarts the idle time-out of the call. A Server calls it while the server
	// works but sends no messages.
	ReportActivity()
}

// Server is one server as one session sees it. Many goroutines may call its methods; calls run
// concurrently.
type Server interface {
	// Call writes the request m under a new id and waits for the answer. The answer has the
	// request's id, and all messages for c have the client's progress token and subscription id.
	// When ctx ends, Call cancels the request at the server, as the server's revision defines it,
	// and returns ctx's cause. The cause is a *CancelledError if there is a notification to
	// forward. Other errors are *UnavailableError (there was no answer; the request may have run or
	// not) and *pipeline.DeniedError (a request of the server was denied, and the server's revision
	// has no answer that reports a denial).
	Call(ctx context.Context, m pipeline.Passed, c Handler) (*mcp.Message, error)
	// Notify writes a notification. It returns nil, too, when the server's revision has no such
	// notification.
	Notify(ctx context.Context, m pipeline.Passed) error
	Close() error
}

// Upstream is a configured server, running or not.
type Upstream interface {
	// Open returns the server for one session. The server need not be connected yet. feed gets the
	// messages that the server sends outside of any call, until Close. The returned Server behaves
	// like a server of o.Revision, whatever revision the configured server speaks.
	Open(ctx context.Context, o OpenOptions, feed Handler) (Server, error)
}

// LoginUpstream is an Upstream at which users log in. An Upstream may implement it.
type LoginUpstream interface {
	Upstream
	// NeedsLogin reports whether an error of Open or Call means that the principal must log in
	// first. The server has not run the request.
	NeedsLogin(err error) bool
	// BeginLogin begins a login of the principal and returns it. If a login of the principal is
	// under way, or has succeeded since the given time, BeginLogin returns this login: the same
	// value. A server may need several logins; BeginLogin returns that of one that is missing. It
	// returns ErrCannotAsk if Gatekit has no page for the principal.
	BeginLogin(ctx context.Context, who *identity.Principal, since time.Time) (Login, error)
	// HasConnectTool reports whether the list of tools has Gatekit's own tool to log in, while the
	// server cannot be listed without a login.
	HasConnectTool() bool
	// Patience returns how long a call waits for a login.
	Patience() time.Duration
}

// Login is a login that has begun.
type Login interface {
	// Page returns the page that the user must open, and a text about it for the user. The page has
	// no credential.
	Page() (url, text string)
	// Done returns a channel that is closed when the login is over.
	Done() <-chan struct{}
	// Err returns nil if the user has logged in. It must not be called before the login is over.
	Err() error
}

// ErrCannotAsk reports that there is no page at which a principal can log in.
var ErrCannotAsk = errors.New("there is no page at which the principal can log in")

// AnsweredRounds remembers which questions of modern servers the clients of several instances have
// answered.
type AnsweredRounds interface {
	// Use remembers that a principal has answered the questions with this id. It returns false if
	// they may have been answered before. made is when the server asked, and until is when the
	// answers expire. An error means that it is not known, and may have been remembered.
	Use(ctx context.Context, principal, id string, made, until time.Time) (ok bool, err error)
}

// OpenOptions describe the session that a server is opened for.
type OpenOptions struct {
	Session   string
	Principal *identity.Principal
	Revision  string // protocol revision of the client
	Shared    bool   // several clients of one principal may use the session
	// HasStream reports whether the client has a stream open on which servers' messages reach it
	// outside of calls. HasStream must not block. It is nil for a client on a pipe, which can be
	// notified as long as its session is open.
	HasStream func() bool
}

// CancelledError is the cause of a call's context when the call was cancelled. Notification, if not
// empty, is the inspected notifications/cancelled, with the requestId of its sender.
type CancelledError struct{ Notification pipeline.Passed }

func (e *CancelledError) Error() string { return "cancelled" }

// WithdrawnError is the cause with which the context of HandleRequests is cancelled when the server
// has cancelled its request by a notifications/cancelled. That notification is not inspected yet.
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
