package upstream

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// Bridge opens sessions for clients whose revision belongs to the era that the server does not
// speak. Package core/bridge implements it.
type Bridge interface {
	// Open returns the server as one session of a client sees it. The client speaks o.Revision; the
	// sessions that native opens speak the other era. Open starts nothing.
	Open(native NativeSessions, o proxy.OpenOptions, feed proxy.Handler) proxy.Server
}

// NativeSessions opens sessions in the server's own era, for a Bridge. Whoever opens a session
// closes it.
type NativeSessions interface {
	// Name returns the configured name of the server.
	Name() string
	// SpeaksModern reports whether the server is known to speak a modern revision by now.
	SpeaksModern() bool
	// SharesStream reports whether a legacy session has one stream for all messages, on which a
	// request of the server does not show its call. Over Streamable HTTP each call has a stream of
	// its own, and servers should send the requests of the call there.
	SharesStream() bool
	// OpenLegacy returns a session with a legacy server. feed gets the messages that the server
	// sends outside of calls. The session's first initialize opens the connection.
	OpenLegacy(o proxy.OpenOptions, feed proxy.Handler) LegacySession
	// OpenModern returns a session with a modern server.
	OpenModern(o proxy.OpenOptions) ModernSession
	// StartContext returns a context that ends when a start of the server takes too long.
	StartContext(ctx context.Context) (context.Context, context.CancelFunc)
}

// LegacySession is one session with a legacy server. Its methods may be called from many
// goroutines.
type LegacySession interface {
	// Send writes a request and waits for its answer, as [proxy.Server.Call] does. The handler may
	// be nil when no client waits for the request.
	Send(ctx context.Context, request Outgoing, h proxy.Handler) (*mcp.Message, error)
	// SendNotification writes a notification.
	SendNotification(ctx context.Context, notification Outgoing) error
	// Close ends the session and waits for it.
	Close() error
	// CloseLater ends the session without waiting for it. Until it is closed, it counts towards the
	// limit of sessions that are closed before they have served.
	CloseLater()
}

// ModernSession is one session with a modern server. Its methods may be called from many
// goroutines. As a proxy.Server it serves a client of the same era.
type ModernSession interface {
	proxy.Server
	// Send writes a request and waits for its answer, as [proxy.Server.Call] does. The handler may
	// be nil when no client waits for the request. resultType is the resultType of the answer, ""
	// for an error message.
	Send(ctx context.Context, request Outgoing, h proxy.Handler) (answer *mcp.Message,
		resultType string, err error)
}

// ResultInputRequired is the type of a modern result in which the server asks for input.
const ResultInputRequired = "input_required"
