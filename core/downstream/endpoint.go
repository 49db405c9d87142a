package downstream

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/workers"
)

// Options say what a Front is the front of.
type Options struct {
	Proxy  *proxy.Proxy
	Limits Limits
	Log    *slog.Logger // nil: nothing is logged
	// Parker begins the calls of modern clients. With nil, a server that asks during a modern
	// client's call is told that the client cannot be asked.
	Parker CallParker
}

// Limits of what clients can make us hold; the zero value of each is its default (protocol.md 6.8).
type Limits struct {
	Message     mcp.Limits    // of each message
	InFlight    int           // requests of one pipe that are not answered yet; default 256
	Sessions    int           // HTTP sessions, and principals; default 1000
	SessionIdle time.Duration // after which an HTTP session ends; default 30 min
	// how long a client may take to answer a reverse request; default 5 min
	ReverseTimeout time.Duration
	// events kept for one stream, for a client that comes back or is not there yet; default 256
	ResumeEvents int
	ResumeBytes  int // their bytes; default 1 MiB
}

func (l Limits) withDefaults() Limits {
	orInt := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	orTime := func(v *time.Duration, def time.Duration) {
		if *v <= 0 {
			*v = def
		}
	}
	orInt(&l.InFlight, 256)
	orInt(&l.Sessions, 1000)
	orTime(&l.SessionIdle, 30*time.Minute)
	orTime(&l.ReverseTimeout, 5*time.Minute)
	orInt(&l.ResumeEvents, 256)
	orInt(&l.ResumeBytes, 1<<20)
	return l
}

// Endpoint is all clients' side of one proxy. It is safe for many goroutines.
type Endpoint struct {
	proxy  *proxy.Proxy
	limits Limits
	log    *slog.Logger

	workers    *workers.Pool
	sessions   *table[*httpSession] // legacy, by the id that the client has
	principals *table[*principal]   // modern, by name
	parker     CallParker           // may be nil
}

// New makes the front of a proxy. Nothing runs until a client comes.
func New(o Options) *Endpoint {
	f := &Endpoint{proxy: o.Proxy, limits: o.Limits.withDefaults(), log: o.Log,
		parker: o.Parker}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.sessions = newTable[*httpSession](f.limits.Sessions, f.limits.SessionIdle)
	f.workers = workers.New()
	f.principals = newTable[*principal](f.limits.Sessions, f.limits.SessionIdle)
	return f
}

// Close ends all HTTP sessions, cancels what is in flight in them, and waits until all has ended,
// or for ctx. Pipes end with the context of their ServePipe.
func (f *Endpoint) Close(ctx context.Context) error {
	over := make(chan struct{})
	go func() {
		defer close(over)
		var both sync.WaitGroup
		both.Go(f.sessions.close)
		both.Go(f.principals.close)
		both.Wait()
		f.workers.Close()
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("close the sessions of HTTP clients"), context.Cause(ctx))
	}
}

// peer is who a message comes from, for the record.
type peer struct {
	session   string // name in the audit log
	principal string
}

// newName is a session's name for the audit log. It opens nothing.
func newName(kind string) string { return kind + "-" + strings.ToLower(rand.Text()[:12]) }

// stamp notes on a message of the client's who it comes from. It is for messages that nobody else
// has yet.
func (p peer) stamp(m *mcp.Message) *mcp.Message {
	m.Direction, m.Session, m.Principal = mcp.ToServer, p.session, p.principal
	return m
}

// own records a message of Gatekit's own and lets it move to the client. request is the one that it
// answers, or nil.
func (f *Endpoint) own(ctx context.Context, p peer, m, request *mcp.Message) pipeline.Passed {
	m.Direction, m.Session, m.Principal = mcp.ToClient, p.session, p.principal
	if request != nil {
		m.Method, m.Request = request.Method, request
	}
	return f.proxy.Pipeline().PassOwn(context.WithoutCancel(ctx), m)
}

// drop records a client's message that goes nowhere.
func (f *Endpoint) drop(ctx context.Context, p peer, m *mcp.Message, why string) {
	if err := f.proxy.Pipeline().RecordEvent(ctx, p.stamp(m), "drop", why, nil); err != nil {
		f.log.Error("record a dropped message", "method", m.Method, "error", err)
	}
}
