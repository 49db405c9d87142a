package upstream

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// Bridge opens sessions for clients whose revision belongs to the era that the server does not
// speak. Package core/bridge implements Bridge.
type Bridge interface {
	// Open returns the server for one session of a client. The client speaks o.Revision; the
	// sessions that native opens speak the other era. Open does not start the server and does not
	// connect to it.
	Open(native NativeSessions, o proxy.OpenOptions, feed proxy.Handler) proxy.Server
}

// NativeSessions opens sessions in the server's own era, for a Bridge. The caller must close every
// session that it opens.
type NativeSessions interface {
	// Name returns the configured name of the server.
	Name() string
	// SpeaksModern reports whether Gatekit knows by now that the server speaks a modern revision.
	SpeaksModern() bool
	// SharesStream reports whether a legacy session receives all messages on one stream. A request
	// of the server on that stream does not show which call it belongs to. Over Streamable HTTP,
	// each call has a stream of its own; see [LegacySession.HasSessionStream].
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
	// HasSessionStream reports whether the server can send requests that do not show which call
	// they belong to. Over Streamable HTTP, a server can do this only if it offers a GET stream.
	// Servers should send the requests of a call on the call's own stream, but some send them on
	// the GET stream. As long as Gatekit does not know whether there is such a stream,
	// HasSessionStream returns true.
	HasSessionStream() bool
	// Close ends the session and waits until it has ended.
	Close() error
	// CloseLater ends the session without waiting for its end. Until the session has ended, it
	// counts towards the limit of connections that are being closed.
	CloseLater()
}

// ModernSession is one session with a modern server. Its methods may be called from many
// goroutines. As a proxy.Server it serves a client of the same era.
type ModernSession interface {
	proxy.Server
	// Send writes a request and waits for its answer, as [proxy.Server.Call] does. The handler may
	// be nil when no client waits for the request. resultType is the type of the result; for an
	// error message it is "".
	Send(ctx context.Context, request Outgoing, h proxy.Handler) (answer *mcp.Message,
		resultType string, err error)
}

// ResultInputRequired is the type of a modern result in which the server asks for input.
const ResultInputRequired = "input_required"
