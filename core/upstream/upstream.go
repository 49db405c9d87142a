package upstream

import (
	"context"
	"log/slog"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// Dial says how the server is reached: by Pipe, or by HTTP with or without SSE as its fallback.
type Dial struct {
	Pipe func(ctx context.Context) (Pipe, error) // starts a process; ctx bounds the start, not the process
	HTTP HTTP                                    // Streamable HTTP
	SSE  func(ctx context.Context) (Pipe, error) // the 2024-11-05 transport of the same URL; nil when there is none
}

// Options are one configured server.
type Options struct {
	Name    string
	Version string // Gatekit's own, for the clientInfo of the probe
	Dial    Dial
	Era     string // "auto" (default), "legacy" or "modern"; the latter two skip the probe
	Restart bool   // start a process again that ended, with back-off, at most 5 times in 5 minutes

	ProbeTimeout time.Duration // how long a process may stay silent before it is taken for legacy; default 5 s
	StartTimeout time.Duration // of starting and initializing again after a loss; default 60 s
	Limits       mcp.Limits    // of the messages that the server sends

	Log *slog.Logger // nil: nothing is logged
	// Event, if not nil, is told what is no message: "lost", "restarted", "reinitialized". It must not block.
	Event func(action, reason string, err error)
}

// Upstream is a configured server, running or not. It is safe for many goroutines.
type Upstream struct{}

var _ proxy.Upstream = (*Upstream)(nil)

// New answers the server that o describes. Nothing is started until it is asked for something.
func New(o Options) *Upstream { panic("seam") }

// Revisions are those that the server was found to speak, newest first. The first call probes the server; what was found is kept until it proves wrong.
// A probe that failed (which is not the same as one that was refused) is repeated by a later call, with back-off.
func (u *Upstream) Revisions(ctx context.Context) ([]string, error) { panic("seam") }

// Open answers the server as one session sees it.
func (u *Upstream) Open(ctx context.Context, o proxy.Opening, feed proxy.Caller) (proxy.Server, error) {
	panic("seam")
}

// Close ends all that was opened, processes included, and waits for it.
func (u *Upstream) Close() error { panic("seam") }
