package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/workers"
)

// ParkedCallsOptions configure ParkedCalls.
type ParkedCallsOptions struct {
	Proxy   *proxy.Proxy
	Limits  ParkedCallLimits
	Workers *workers.Pool // runs the calls; nil starts a goroutine for each
	// NewID makes the ids of parked calls, which are in their tickets. nil: ids are random, and no
	// other replica knows whose they are.
	NewID func() string
}

// ParkedCallLimits bound the parked calls. A field that is zero stands for its default.
type ParkedCallLimits struct {
	Calls             int           // how many calls can be parked at a time; default 1024
	CallsPerPrincipal int           // how many of them can belong to one principal; default 64
	Wait              time.Duration // how long a parked call waits for the client; default 10 min
	Rounds            int           // how many results of one call may ask for input; default 32
}

func (l ParkedCallLimits) withDefaults() ParkedCallLimits {
	if l.Calls <= 0 {
		l.Calls = 1024
	}
	if l.CallsPerPrincipal <= 0 {
		l.CallsPerPrincipal = 64
	}
	if l.Wait <= 0 {
		l.Wait = 10 * time.Minute
	}
	if l.Rounds <= 0 {
		l.Rounds = 32
	}
	return l
}

// Bounds of the size of the parked calls and their questions, in bytes.
const (
	maxParkedBytes = 64 << 20
	// the bound for one principal; a principal's only parked call may exceed it
	maxParkedBytesPerPrincipal = maxParkedBytes / 4
)

// ParkedCalls begins and resumes the calls of modern clients, and holds the parked calls. It
// implements downstream.CallParker.
//
// # Why calls are parked
//
// A modern client cannot be asked anything while its call runs. The client gets the questions in a
// result (inputRequests), and makes the call again with its answers (inputResponses; MCP
// 2026-07-28, multi round-trip requests). But a legacy server asks while it runs the call. So the
// call is parked: it waits from the time of the result until the client makes the call again.
//
// # Why a call that may be parked runs in a goroutine of its own
//
// The call outlives its first request: that request is answered with the question, and another
// request brings the answer. Between the two the client holds a ticket, sealed in requestState. The
// ticket is valid once, in this process, for the same call of the same session. Any other
// requestState is refused, and the call is not run a second time. If the client does not come back
// within ParkedCallLimits.Wait, the call is cancelled. The bridge itself then answers the server's
// question, with a cancellation or an error.
//
// # Why a call above a limit waits
//
// Agents make calls in parallel, and answer the questions of one call after the other. A call that
// may not be parked yet waits until an earlier call goes on. The calls that have waited longest are
// parked first. A call that would wait longer than the time-out of its server is refused.
type ParkedCalls struct {
	proxy   *proxy.Proxy
	limits  ParkedCallLimits
	workers *workers.Pool
	newID   func() string

	mu          sync.Mutex               // taken after parkedCall.mu, never before
	parked      map[string]parkedEntry   // by the name of the call
	byPrincipal map[string]parkedAmounts // amounts of one principal, by the principal's name
	total       parkedAmounts
	waiting     []*waitingCall // the call that has waited longest comes first
}

var _ downstream.CallParker = (*ParkedCalls)(nil)

// NewParkedCalls returns a ParkedCalls without calls.
func NewParkedCalls(o ParkedCallsOptions) *ParkedCalls {
	newID := o.NewID
	if newID == nil {
		newID = rand.Text
	}
	return &ParkedCalls{proxy: o.Proxy, limits: o.Limits.withDefaults(), workers: o.Workers,
		newID: newID, parked: map[string]parkedEntry{}, byPrincipal: map[string]parkedAmounts{}}
}

// parkedAmounts is a number of parked calls, and their size in bytes.
type parkedAmounts struct{ calls, bytes int }

func (a parkedAmounts) add(calls, bytes int) parkedAmounts {
	return parkedAmounts{a.calls + calls, a.bytes + bytes}
}

// parkedEntry is a parked call in the table of parked calls.
type parkedEntry struct {
	call    *parkedCall
	round   int
	bytes   int
	release func() // ends the hold that prevents the session from being closed as idle
}

// ticket names a parked call and the round after which the client may resume it. The client holds
// the ticket, sealed, as requestState.
type ticket struct {
	Name  string `json:"p"`
	Round int    `json:"n"`
}

// errRequestState is the error for every requestState that cannot be used. The error does not name
// the reason.
var errRequestState = errors.New("invalid or expired requestState")

// Begin begins the request m of session s, or resumes the parked call that m brings answers to. It
// returns the call, and the id under which s.Session knows the call. A new call has the id of m.
// The error is the reason why m must be refused.
func (p *ParkedCalls) Begin(s downstream.ParkerSession, m *mcp.Message,
	client proxy.Client) (downstream.Call, mcp.ID, error) {
	if !mcp.AllowsInputRequests(m) {
		return s.Session.Begin(m, client), m.ID(), nil
	}
	if t, ok := p.ticketOf(m); ok {
		return p.resume(s, t, m, client)
	}
	c := &parkedCall{calls: p, session: s, firstRequest: m, name: p.newID(),
		finished: make(chan struct{}), closed: make(chan struct{}),
		questionAdded: make(chan struct{}, 1), client: client}
	c.progressToken, _ = m.Get(progressTokenPointer)
	c.close = sync.OnceFunc(func() { close(c.closed) })
	return &newCall{c, s.Session.Begin(m, c)}, m.ID(), nil
}

// ticketOf returns the ticket that m brings. Any other requestState belongs to a question of a
// modern server, or is invalid. The proxy handles both cases.
func (p *ParkedCalls) ticketOf(m *mcp.Message) (t ticket, ok bool) {
	state, ok := m.Text("/requestState")
	return t, ok && p.proxy.OpenCallState(m, state, &t)
}

// ParkedID implements downstream.CallParker.
func (p *ParkedCalls) ParkedID(m *mcp.Message) string {
	if !mcp.AllowsInputRequests(m) {
		return ""
	}
	t, _ := p.ticketOf(m)
	return t.Name
}

// resume removes the call that t names from the parked calls. The call goes on, and client gets its
// messages.
func (p *ParkedCalls) resume(s downstream.ParkerSession, t ticket, m *mcp.Message,
	client proxy.Client) (downstream.Call, mcp.ID, error) {
	c := p.take(t, s.Name)
	if c == nil {
		return nil, "", errRequestState
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = client
	c.progressToken, _ = m.Get(progressTokenPointer)
	m.Server, m.Exchange = c.askingServer, c.askingExchange
	return &resumedCall{c, m}, c.firstRequest.ID(), nil
}

// Count returns how many calls are parked.
func (p *ParkedCalls) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total.calls
}

// keep parks a call. It returns false if a limit does not allow another parked call, or if other
// calls have waited longer.
func (p *ParkedCalls) keep(c *parkedCall, t ticket, bytes int, hasWaited bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasRoom(c, bytes) || !hasWaited && !p.mayOvertake(c) {
		return false
	}
	p.parked[t.Name] = parkedEntry{c, t.Round, bytes, c.session.Hold()}
	own := p.byPrincipal[c.session.Principal]
	p.total, p.byPrincipal[c.session.Principal] = p.total.add(1, bytes), own.add(1, bytes)
	return true
}

// take removes the call of a ticket from the parked calls, and returns it. It returns nil when the
// call is not parked, belongs to another session, or has asked again since the ticket was made.
func (p *ParkedCalls) take(t ticket, session string) *parkedCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	entry, ok := p.parked[t.Name]
	if !ok || entry.round != t.Round || entry.call.session.Name != session {
		return nil
	}
	p.remove(entry.call)
	return entry.call
}

// remove removes a call from the parked calls. The caller holds p.mu.
func (p *ParkedCalls) remove(c *parkedCall) {
	entry := p.parked[c.name]
	entry.release()
	delete(p.parked, c.name)
	p.total = p.total.add(-1, -entry.bytes)
	own := p.byPrincipal[c.session.Principal].add(-1, -entry.bytes)
	if own.calls > 0 {
		p.byPrincipal[c.session.Principal] = own
	} else {
		delete(p.byPrincipal, c.session.Principal)
	}
	p.wakeNext()
}

// EndSession ends the parked calls of a session.
func (p *ParkedCalls) EndSession(name string) {
	var ended []*parkedCall
	p.mu.Lock()
	for _, entry := range p.parked {
		if entry.call.session.Name == name {
			p.remove(entry.call)
			ended = append(ended, entry.call)
		}
	}
	p.mu.Unlock()
	for _, c := range ended {
		c.mu.Lock()
		c.timer.Stop()
		c.mu.Unlock()
		c.abandon()
	}
}

// refuse returns an error that answers request, after recording the error.
func (p *ParkedCalls) refuse(ctx context.Context, s downstream.ParkerSession, request *mcp.Message,
	code int, reason string) pipeline.Passed {
	return p.passOwn(ctx, s, mcp.NewError(request.ID(), code, reason, nil), request)
}

// passOwn records m, Gatekit's own answer to request, and returns m as a message that may be sent.
func (p *ParkedCalls) passOwn(ctx context.Context, s downstream.ParkerSession,
	m, request *mcp.Message) pipeline.Passed {
	m.Direction, m.Session, m.Principal = mcp.ToClient, s.Name, request.Principal
	m.Method, m.Request = request.Method, request
	return p.proxy.Pipeline().PassOwn(context.WithoutCancel(ctx), m)
}
