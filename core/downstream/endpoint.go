package downstream

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/workers"
)

// Options configure an Endpoint.
type Options struct {
	Proxy  *proxy.Proxy
	Limits Limits
	Log    *slog.Logger // nil: nothing is logged
	// Parker begins the calls of modern clients. If it is nil, a modern client cannot be asked
	// during a call, so a server's request during the call is refused.
	Parker CallParker
	// Replica makes the ids of sessions, if other replicas serve the same clients; nil: there are
	// none.
	Replica Replica
	// SessionName returns the name of the session of a principal's modern requests: the same on all
	// replicas, so that their logs name one session, and so that they share the state of policies.
	// nil: the name is random.
	SessionName func(principal string) string
}

// Replica makes the ids that all replicas behind one address understand.
// *cluster.Replica implements it.
type Replica interface {
	// NewID returns a secret id that names this replica as its owner.
	NewID() string
}

// Limits bound the memory and time that clients can use. A field that is zero stands for its
// default.
type Limits struct {
	Message  mcp.Limits // limits of each message
	InFlight int        // how many requests of one pipe can be in flight; default 256
	// Sessions is how many legacy HTTP sessions can be open. It is also how many principals can
	// have a session of modern requests over HTTP. The default is 1000.
	Sessions       int
	SessionIdle    time.Duration // how long an unused HTTP session is kept; default 30 min
	ReverseTimeout time.Duration // how long a client may take to answer a server; default 5 min
	// ReverseRequests is how many requests of servers can be open at one client at a time. The
	// default is 256. Further requests wait.
	ReverseRequests int
	ResumeEvents    int // how many events of a stream are kept for a resume; default 256
	ResumeBytes     int // how many bytes of these events are kept; default 1 MiB
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
	orInt(&l.ReverseRequests, 256)
	orInt(&l.ResumeEvents, 256)
	orInt(&l.ResumeBytes, 1<<20)
	return l
}

// Endpoint serves the clients of one proxy: clients on pipes, and clients that send HTTP requests.
// It is safe for many goroutines.
type Endpoint struct {
	proxy   *proxy.Proxy
	limits  Limits
	log     *slog.Logger
	parker  CallParker // may be nil
	replica Replica    // may be nil

	sessionName func(principal string) string // may be nil

	requests          requestCounter // counts all requests except subscriptions
	workers           *workers.Pool
	legacySessions    *sessionTable[*httpSession]      // by Mcp-Session-Id
	principalSessions *sessionTable[*principalSession] // of modern requests, by principal

	endingSessions atomic.Bool // set by EndSessions
}

// New returns an Endpoint. It starts no goroutine.
func New(o Options) *Endpoint {
	limits := o.Limits.withDefaults()
	e := &Endpoint{proxy: o.Proxy, limits: limits, log: o.Log, parker: o.Parker, replica: o.Replica,
		sessionName:       o.SessionName,
		workers:           workers.New(),
		legacySessions:    newSessionTable[*httpSession](limits.Sessions, limits.SessionIdle),
		principalSessions: newSessionTable[*principalSession](limits.Sessions, limits.SessionIdle),
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	return e
}

// Close ends all HTTP sessions and cancels their calls. It returns when all sessions and calls have
// ended. When ctx ends first, it returns an error. Close does not end pipes. A pipe ends when the
// context of its ServePipe ends.
func (e *Endpoint) Close(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var tables sync.WaitGroup
		tables.Go(e.legacySessions.close)
		tables.Go(e.principalSessions.close)
		tables.Wait()
		e.workers.Close()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("close the sessions of HTTP clients"), context.Cause(ctx))
	}
}

// EndPrincipal ends the HTTP sessions of a principal, and cancels their calls. It does not wait
// until they have ended, and does not end pipes.
func (e *Endpoint) EndPrincipal(principal string) {
	e.legacySessions.removeIf(func(s *httpSession) bool { return s.principal.ID() == principal })
	e.principalSessions.removeIf(func(s *principalSession) bool {
		return s.principal.ID() == principal
	})
}

// peer identifies a client in the audit log.
type peer struct {
	session   string // the name of the session; see newSessionName
	principal *identity.Principal
}

// newSessionName returns a name for a session in the audit log. The name gives no access to the
// session.
func newSessionName(kind string) string { return kind + "-" + strings.ToLower(rand.Text()[:12]) }

// newID returns the id of a new HTTP session.
func (e *Endpoint) newID() string {
	if e.replica != nil {
		return e.replica.NewID()
	}
	return rand.Text() // 130 bits
}

// principalSessionName returns the name of the session of a principal's modern requests.
func (e *Endpoint) principalSessionName(principal string) string {
	if e.sessionName != nil {
		return e.sessionName(principal)
	}
	return newSessionName("principal")
}

// stamp sets the direction, the session and the principal of a message from the client, and returns
// the message. The message keeps the Principal of its own HTTP request, which may have a newer
// token than the request that opened the session. No other goroutine may have the message yet.
func (p peer) stamp(m *mcp.Message) *mcp.Message {
	m.Direction, m.Session = mcp.ToServer, p.session
	if m.Principal.ID() != p.principal.ID() {
		m.Principal = p.principal
	}
	return m
}

// passOwn records m, a message that Gatekit itself made, and returns it as a message that may be
// sent to the client. request is the request that m answers, or nil.
func (e *Endpoint) passOwn(ctx context.Context, p peer, m, request *mcp.Message) pipeline.Passed {
	m.Direction, m.Session, m.Principal = mcp.ToClient, p.session, p.principal
	if request != nil {
		m.Method, m.Request = request.Method, request
		if request.Principal.ID() == p.principal.ID() {
			m.Principal = request.Principal
		}
	}
	return e.proxy.Pipeline().PassOwn(context.WithoutCancel(ctx), m)
}

// inspectOwn inspects and records a request that Gatekit itself answers. If a stage denies the
// request or answers it, ok is false, and denial is the stage's answer for the client.
func (e *Endpoint) inspectOwn(ctx context.Context, p peer, m *mcp.Message) (denial pipeline.Passed,
	ok bool) {
	err := e.proxy.Pipeline().Consume(ctx, p.stamp(m), "pass", "answered by Gatekit")
	if denied := (*pipeline.DeniedError)(nil); errors.As(err, &denied) {
		return denied.Response(m.ID()), false
	}
	return pipeline.Passed{}, true
}

// recordDrop inspects and records a message of the client. The message is not forwarded, even if no
// stage denies it.
func (e *Endpoint) recordDrop(ctx context.Context, p peer, m *mcp.Message, reason string) {
	_ = e.proxy.Pipeline().Consume(ctx, p.stamp(m), "drop", reason) // a denial is recorded too
}
