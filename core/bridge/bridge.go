package bridge

import (
	"io"
	"log/slog"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
)

// Options configure a Bridge.
type Options struct {
	Version string // of Gatekit, for the clientInfo of sessions with legacy servers
	// Rounds is how many times a modern server may ask a legacy client for input in one call;
	// default 16.
	Rounds int
	Log    *slog.Logger // nil: nothing is logged
}

// Bridge opens sessions between clients of one era and servers of the other. It is safe for many
// goroutines, and serves any number of servers.
type Bridge struct{ opts Options }

var _ upstream.Bridge = (*Bridge)(nil)

// New returns a bridge.
func New(o Options) *Bridge {
	if o.Rounds <= 0 {
		o.Rounds = 16
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return &Bridge{o}
}

// Open implements upstream.Bridge.
func (b *Bridge) Open(native upstream.NativeSessions, o proxy.OpenOptions,
	feed proxy.Handler) proxy.Server {
	if mcp.EraOf(o.Revision) == mcp.Legacy {
		return newLegacyToModern(b.opts, native, o, feed)
	}
	return newModernToLegacy(b.opts, native, o, feed)
}
