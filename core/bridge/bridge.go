package bridge

import (
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
)

// Bridge opens sessions between clients of one era and servers of the other era. It is safe for
// many goroutines, and serves any number of servers.
type Bridge struct{ opts Options }

var _ upstream.Bridge = (*Bridge)(nil)

// New returns a bridge.
func New(o Options) *Bridge {
	return &Bridge{o.withDefaults()}
}

// Open implements upstream.Bridge.
func (b *Bridge) Open(native upstream.NativeSessions, o proxy.OpenOptions,
	feed proxy.Handler) proxy.Server {
	if mcp.EraOf(o.Revision) == mcp.Legacy {
		return newLegacyToModern(b.opts, native, o, feed)
	}
	return newModernToLegacy(b.opts, native, o, feed)
}
