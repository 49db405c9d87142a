package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// Dial says how the server is reached: by Pipe, or by HTTP with or without SSE as its fallback.
type Dial struct {
	// starts a process; ctx bounds the start, not the process
	Pipe func(ctx context.Context) (conn.PipeCloser, error)
	HTTP HTTP // Streamable HTTP
	// the 2024-11-05 transport of the same URL; nil when there is none
	SSE func(ctx context.Context) (conn.PipeCloser, error)
}

// Options are one configured server.
type Options struct {
	Name    string
	Version string // Gatekit's own, for the clientInfo of the probe
	Dial    Dial
	Era     string // "auto" (default), "legacy" or "modern"; the latter two skip the probe
	Restart bool   // start a process again that ended, with back-off, at most 5 times in 5 minutes

	// how long a process may stay silent before it is taken for legacy; default 5 s
	ProbeTimeout time.Duration
	StartTimeout time.Duration // of starting and initializing again after a loss; default 60 s
	Limits       mcp.Limits    // of the messages that the server sends
	// in which a modern server may ask a legacy client for input in one call; default 16
	Rounds int

	Log *slog.Logger // nil: nothing is logged
	// Event, if not nil, is told what is no message: "lost", "restarted". It must not block.
	Event func(action, reason string, err error)
	// Observer, if not nil, is told of what is asked of the server.
	Observer Observer
}

// Upstream is a configured server, running or not. It is safe for many goroutines.
type Upstream struct {
	o    Options
	log  *slog.Logger
	life *life
	pool pool

	leaving leaving // legacy connections on their way out

	mu     sync.Mutex
	closed bool
	probe  *probe              // the last one; nil before the first and when it proved wrong
	fails  int                 // probes that failed one after another
	spare  *wire               // the process that was probed, until a session takes it
	met    bool                // spare has answered server/discover, and will not take initialize
	sseOK  bool                // the URL speaks the 2024-11-05 transport and not Streamable HTTP
	open   map[closer]struct{} // what Open answered and is not closed yet
	wires  map[*wire]struct{}  // connections over pipes
	// why the last of them ended, or could not be made; nil since one was, and where it was closed
	// here
	fault error
}

type closer interface{ Close() error }

var _ proxy.Upstream = (*Upstream)(nil)

// New answers the server that o describes. Nothing is started until it is asked for something.
func New(o Options) *Upstream {
	if o.Era == "" {
		o.Era = "auto"
	}
	if o.ProbeTimeout == 0 {
		o.ProbeTimeout = 5 * time.Second
	}
	if o.Rounds <= 0 {
		o.Rounds = 16
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	u := &Upstream{o: o, log: log, life: newLife(), open: make(map[closer]struct{})}
	u.pool.up = u
	return u
}

// Open answers the server as one session sees it. Its Call stamps nothing on an answer but Kind and
// To: the rest is the proxy's.
func (u *Upstream) Open(ctx context.Context, o proxy.OpenOptions,
	feed proxy.Handler) (proxy.Server, error) {
	have, err := u.Revisions(ctx)
	if err != nil {
		return nil, err
	}
	era := mcp.EraOf(o.Revision)
	native := slices.ContainsFunc(have, func(r string) bool { return mcp.EraOf(r) == era })
	if !native {
		u.doubtWeak()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, unavailable(u.o.Name, "it is being closed", errClosed)
	}
	var s proxy.Server
	forget := func() { u.forget(s) }
	switch {
	case era == mcp.Legacy && native:
		l := newLegacy(u, feed)
		s, l.onClose = l, forget
	case era == mcp.Legacy:
		l := newToModern(u, o, feed)
		s, l.onClose = l, forget
	case native:
		m := newModern(u, o.Principal)
		s, m.onClose = m, forget
	default:
		m := newToLegacy(u, o, feed)
		s, m.onClose = m, forget
	}
	u.open[s] = struct{}{}
	return s, nil
}

func (u *Upstream) forget(s closer) {
	u.mu.Lock()
	delete(u.open, s)
	u.mu.Unlock()
}

// Close ends all that was opened, processes included, and waits for it. It is safe to call twice.
func (u *Upstream) Close() error {
	u.mu.Lock()
	u.closed = true
	open := make([]closer, 0, len(u.open))
	for s := range u.open {
		open = append(open, s)
	}
	spare := u.spare
	u.spare = nil
	u.mu.Unlock()

	errs := make([]error, len(open)+2)
	var wg sync.WaitGroup
	for i, s := range open {
		wg.Go(func() { errs[i] = s.Close() })
	}
	if spare != nil {
		wg.Go(func() { errs[len(open)] = spare.Close() })
	}
	wg.Wait()
	errs[len(open)+1] = u.pool.close()
	u.life.end()
	return errors.Join(errs...)
}

func (u *Upstream) event(action string, err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	u.log.Info("server "+action, "server", u.o.Name, "reason", reason)
	if u.o.Event != nil {
		u.o.Event(action, reason, err)
	}
}

// process answers a connection to a process for one session or principal: the one that was probed,
// if it can be used, or a new one.
func (u *Upstream) process(ctx context.Context, era mcp.Era) (*wire, error) {
	u.mu.Lock()
	w := u.spare
	if w != nil && u.met == (era == mcp.Modern) {
		u.spare = nil
	} else {
		w = nil
	}
	u.mu.Unlock()
	if w != nil {
		select {
		case <-w.gone:
			u.drop(w)
		default:
			return w, nil
		}
	}
	return u.start(ctx)
}

// drop closes a connection that is not to be used. What goes wrong then is nobody's concern but the
// log's.
func (u *Upstream) drop(c closer) {
	if err := c.Close(); err != nil {
		u.log.Debug("close a connection", "server", u.o.Name, "error", err)
	}
}

// dropLater is drop for who must not wait for a process to end.
func (u *Upstream) dropLater(c closer) {
	if !u.life.run(func(context.Context) { u.drop(c) }) {
		u.drop(c)
	}
}

// start starts a process.
func (u *Upstream) start(ctx context.Context) (*wire, error) {
	p, err := u.o.Dial.Pipe(ctx)
	if err != nil {
		err = unavailable(u.o.Name, "it could not be started", err)
		u.mu.Lock()
		u.fault = err
		u.mu.Unlock()
		return nil, err
	}
	return u.openWire(p), nil
}

// sse connects by the 2024-11-05 transport, and remembers whether this is the way.
func (u *Upstream) sse(ctx context.Context) (*wire, error) {
	p, err := u.o.Dial.SSE(ctx)
	u.mu.Lock()
	u.sseOK = err == nil
	u.mu.Unlock()
	if err != nil {
		return nil, unavailable(u.o.Name, "its HTTP+SSE stream cannot be opened", err)
	}
	return u.openWire(p), nil
}

func (u *Upstream) useSSE() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sseOK
}

// declaredUnknown is the error for a server that speaks only what nobody here does.
func declaredUnknown(name string, versions []string) error {
	return unavailable(name, fmt.Sprintf("it speaks only MCP %q, which Gatekit does not know",
		versions), nil)
}
