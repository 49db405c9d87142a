package upstream

import (
	"context"
	"io"
	"log/slog"
	"time"

	"gatekit/core/conn"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Dial holds the ways to reach a server. Either Pipe or HTTP is set. With HTTP, SSE may be set as
// its fallback.
type Dial struct {
	// Pipe starts a process. The context limits the start, not the time that the process runs.
	Pipe func(ctx context.Context) (conn.PipeCloser, error)
	// PipeFor, if not nil, starts the processes instead of Pipe. Each process belongs to one
	// principal, and is ended when its lease ends.
	PipeFor func(ctx context.Context, who *identity.Principal) (conn.PipeCloser, Lease, error)
	HTTP    HTTP // Streamable HTTP
	// SSE opens the 2024-11-05 transport at the same URL; nil when there is none.
	SSE func(ctx context.Context) (conn.PipeCloser, error)
}

// Lease tells how long a process may be used. The zero Lease does not end.
type Lease struct {
	Due   <-chan struct{} // closed when the process should be ended, as soon as it is not used
	Ended <-chan struct{} // closed when the process must not be used any more
}

// hasEnded reports whether the process must not be used any more.
func (l Lease) hasEnded() bool {
	select {
	case <-l.Ended:
		return true
	default:
		return false
	}
}

// Options configure one server.
type Options struct {
	Name    string // as configured
	Version string // of Gatekit, for the clientInfo of the probe
	Dial    Dial
	Era     string // "auto" (default), "legacy" or "modern"; only "auto" probes the server
	// Restart means that a process that has ended is started again, with growing delays and at most
	// 5 times in 5 minutes.
	Restart bool
	// Keep means that a process or connection is never ended for lack of use. It is for servers
	// with state that a session needs and that Gatekit cannot restore.
	Keep bool
	// ServerIdle is how long the process or connection of an HTTP client's session is kept when no
	// call and no stream of the client uses it. The client's session stays: its next request opens
	// another connection. With 0, the process or connection is kept as long as the session.
	ServerIdle time.Duration
	// Processes limits the number of processes of all servers; nil means no limit.
	Processes *Processes
	// Bridge serves clients of the era that the server does not speak. Without a Bridge, such
	// clients are refused.
	Bridge Bridge

	// ProbeTimeout is how long a process may take to answer the probe before it counts as a legacy
	// server; default 5 s.
	ProbeTimeout time.Duration
	StartTimeout time.Duration // for a start, including initialize; default 60 s
	Limits       mcp.Limits    // of the messages that the server sends
	// ReverseRequests is how many requests of a legacy server are passed to a client at a time;
	// default 256. Further requests wait for their turn.
	ReverseRequests int

	// Pipeline, if not nil, returns the pipeline in force. It inspects and records the server's
	// messages that reach no session, and records Gatekit's own messages to the server.
	Pipeline func() *pipeline.Pipeline

	Log *slog.Logger // nil: nothing is logged
	// Event, if not nil, is called with one of these actions: "lost" and "restarted"; "ended", when
	// Gatekit ended the server for lack of use; "resumed", when the server was started again after
	// that. Event must not block.
	Event    func(action, reason string, err error)
	Observer Observer // nil: the requests are not observed
}

// withDefaults returns o with the defaults filled in.
func (o Options) withDefaults() *Options {
	if o.Era == "" {
		o.Era = "auto"
	}
	if o.ProbeTimeout == 0 {
		o.ProbeTimeout = 5 * time.Second
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.ReverseRequests <= 0 {
		o.ReverseRequests = 256
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return &o
}

// startContext returns a context that ends when a start takes longer than StartTimeout.
func (o *Options) startContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, o.StartTimeout,
		unavailable(o.Name, "the server took too long to start", nil))
}

// reportEvent logs and reports an event of the server; see Options.Event.
func (o *Options) reportEvent(action string, err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	o.Log.Info("server "+action, "server", o.Name, "reason", reason)
	if o.Event != nil {
		o.Event(action, reason, err)
	}
}
