package upstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// Bounds of one connection.
const (
	maxCalls  = 1024 // in flight
	maxAsks   = 64   // of the server's own requests that wait for the client
	maxLinger = 256  // progress tokens of tasks that outlive their calls
	// messages that cannot be read before the connection, or the stream, is given up
	maxInvalid = 100
	// of upstream's own (to pings, say) that wait to be written; those beyond are dropped
	maxReplies = 256
)

// call is a request that waits for its answer.
type call struct {
	id    mcp.ID       // on this hop: the request's id and, of a listen, the subscription's id
	m     *mcp.Message // the request, with the ids and the token that the client gave it
	token mcp.ID       // the client's progress token; "" when it gave none
	// the progress token on this hop: the client's, unless another call of the connection has it or
	// a server might spell it anew
	sent   mcp.ID
	caller proxy.Handler // nil for requests that no client waits for
	lane   *lane         // nil when what the server sends for the call is handed over as it is read
	ctx    context.Context
	end    context.CancelFunc // ends ctx for who waits for more than done; may be nil
	done   chan reply         // holds one
}

// lingering is what is kept of the progress token of a call that was answered with a task.
type lingering struct {
	token mcp.ID // the client's
	task  string // the task's id, as JSON
}

// reply is how a call ended.
type reply struct {
	m   *mcp.Message
	err error
}

// answered is the server's answer as the client is to get it.
func (c *call) answered(m *mcp.Message) *mcp.Message { return c.subscribed(m).WithID(c.m.ID()) }

// subscribed is m under the subscription id that the client knows.
func (c *call) subscribed(m *mcp.Message) *mcp.Message {
	if c.m.Method != "subscriptions/listen" || m.Kind == mcp.Error {
		return m
	}
	return tagged(m, c.m.ID())
}

// tagged is m under another subscription id, if it is under any.
func tagged(m *mcp.Message, id mcp.ID) *mcp.Message {
	if _, ok := m.Get(mcp.PointerSubscriptionID); !ok {
		return m
	}
	if edited, err := m.Edit(mcp.Set(mcp.PointerSubscriptionID, []byte(id))); err == nil {
		return edited
	}
	return m
}

// finish ends the call, unless it has ended.
func (c *call) finish(r reply) {
	select {
	case c.done <- r:
	default:
	}
	if c.end != nil {
		c.end()
	}
}

// notify hands a notification to whoever made the call.
func (c *call) notify(m *mcp.Message) {
	if c.caller != nil && c.ctx.Err() == nil {
		c.caller.HandleNotification(c.ctx, m)
	}
}

// calls are the requests in flight on one connection. Ids are minted here: whatever a client or a
// server calls them, they cannot be mistaken. A progress token is the client's own, which a tool
// may show, unless two calls of one connection have the same, or a server might spell it anew.
type calls struct {
	mu     sync.Mutex
	last   uint64
	open   map[mcp.ID]*call
	tokens map[mcp.ID]*call     // by the progress token on this hop
	over   error                // why none can be begun any more
	linger map[mcp.ID]lingering // by the token on this hop: of tasks
	oldest []mcp.ID             // of linger
}

// begin enters a request. ctx is that of what is done for it; end, if it is not nil, ends it, and
// is called when the call is finished from elsewhere.
func (t *calls) begin(ctx context.Context, end context.CancelFunc, m *mcp.Message,
	caller proxy.Handler, l *lane) (*call, error) {
	c := &call{m: m, caller: caller, lane: l, ctx: ctx, end: end, done: make(chan reply, 1)}
	if raw, ok := m.Get("/_meta/progressToken"); ok && isToken(raw) {
		c.token = mcp.ID(raw)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return nil, t.over
	}
	if len(t.open) >= maxCalls {
		return nil, errors.New("too many requests are in flight; try again when some have been " +
			"answered")
	}
	t.last++
	c.id = mcp.ID(strconv.FormatUint(t.last, 10))
	if t.open == nil {
		t.open = make(map[mcp.ID]*call)
	}
	t.open[c.id] = c
	if c.token != "" {
		c.sent = c.token
		if _, taken := t.linger[c.sent]; taken || t.tokens[c.sent] != nil || !isPlain(c.sent) {
			c.sent = mintedToken + c.id + `"`
		}
		if t.tokens == nil {
			t.tokens = make(map[mcp.ID]*call)
		}
		t.tokens[c.sent] = c
	}
	return c, nil
}

// take removes a call, for whoever will finish it; nil when it is not in flight.
func (t *calls) take(id mcp.ID) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.open[id]
	if c != nil {
		delete(t.open, id)
		delete(t.tokens, c.sent)
	}
	return c
}

// find answers a call in flight, or nil.
func (t *calls) find(id mcp.ID) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[id]
}

// only is the one call that a client waits for, nil when there are none or several.
func (t *calls) only() *call {
	var one *call
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.open {
		if c.caller == nil {
			continue
		}
		if one != nil {
			return nil
		}
		one = c
	}
	return one
}

// unnamed is the call that an error without an id answers: the one that a client waits for or,
// where no client does, the only one. nil when that cannot be told.
func (t *calls) unnamed() *call {
	if c := t.only(); c != nil {
		return c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) == 1 {
		for _, c := range t.open {
			return c
		}
	}
	return nil
}

// oldestWhere is the call that has been in flight the longest among those that f picks, nil when
// they are of more than one lane or there is none.
func (t *calls) oldestWhere(f func(c *call) bool) *call {
	var first *call
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.open {
		if c.caller == nil || !f(c) {
			continue
		}
		if first != nil && first.lane != c.lane {
			return nil
		}
		if first == nil || older(c.id, first.id) {
			first = c
		}
	}
	return first
}

// older compares minted ids.
func older(a, b mcp.ID) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

// fail ends all calls and lets none begin.
func (t *calls) fail(err error) {
	t.mu.Lock()
	open := t.open
	t.open, t.tokens = nil, nil
	if t.over == nil {
		t.over = err
	}
	t.mu.Unlock()
	for _, c := range open {
		c.finish(reply{err: err})
	}
}

// keep remembers the progress token of a call that was answered with a task (2025-11-25): progress
// may follow for as long as the task lives.
func (t *calls) keep(c *call, answer *mcp.Message) {
	if c.token == "" || answer.Kind != mcp.Response {
		return
	}
	task, ok := answer.Get("/task/taskId")
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.linger == nil {
		t.linger = make(map[mcp.ID]lingering)
	}
	if len(t.oldest) == maxLinger {
		delete(t.linger, t.oldest[0])
		t.oldest = t.oldest[1:]
	}
	t.linger[c.sent] = lingering{c.token, string(task)}
	t.oldest = append(t.oldest, c.sent)
}

// progress is a notifications/progress under the client's token, and the call that it belongs to:
// nil when that has been answered with a task. ok is false when nobody asked for it.
func (t *calls) progress(m *mcp.Message) (restored *mcp.Message, c *call, ok bool) {
	raw, _ := m.Get("/progressToken")
	id := mcp.ID(raw)
	t.mu.Lock()
	c = t.tokens[id]
	kept := t.linger[id]
	token := kept.token
	if c != nil {
		token = c.token
	} else if token != "" {
		for _, o := range t.open { // whoever waits for the task's result
			if raw, _ := o.m.Get("/taskId"); o.m.Method == "tasks/result" && o.token == token &&
				string(raw) == kept.task {
				c = o
			}
		}
	}
	t.mu.Unlock()
	switch token {
	case "":
		return nil, nil, false
	case id:
		return m, c, true
	}
	restored, err := m.Edit(mcp.Set("/progressToken", []byte(token)))
	return restored, c, err == nil
}

// task is the call that streams what a task of the server asks (2025-11-25): its tasks/result.
func (t *calls) task(m *mcp.Message) *call {
	id, ok := m.Text(mcp.PointerRelatedTask + "/taskId")
	if !ok {
		return nil
	}
	return t.oldestWhere(func(c *call) bool {
		of, _ := c.m.Text("/taskId")
		return c.m.Method == "tasks/result" && of == id
	})
}

// asks are the server's own requests that wait for the client.
type asks struct {
	mu   sync.Mutex
	open map[mcp.ID]context.CancelCauseFunc
}

// begin enters a request of the server; its context ends when the server cancels it.
func (a *asks) begin(ctx context.Context, id mcp.ID) (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = make(map[mcp.ID]context.CancelCauseFunc)
	}
	if a.open[id] != nil {
		return nil, errors.New("a request with this id has not been answered yet")
	}
	if len(a.open) >= maxAsks {
		return nil, errors.New("too many requests wait for the client")
	}
	ctx, a.open[id] = context.WithCancelCause(ctx)
	return ctx, nil
}

// end says whether the request is to be answered: the server has not cancelled it.
func (a *asks) end(id mcp.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	cancel, ok := a.open[id]
	if ok {
		delete(a.open, id)
		cancel(nil)
	}
	return ok
}

// cancel ends the request that a notifications/cancelled of the server speaks of, if it is waiting.
func (a *asks) cancel(m *mcp.Message) {
	raw, _ := m.Get("/requestId")
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel, ok := a.open[mcp.ID(raw)]; ok {
		delete(a.open, mcp.ID(raw))
		cancel(&proxy.CancelledError{})
	}
}

// mintedToken is how tokens of our own begin.
const mintedToken = `"gatekit-`

// replies are what is written without anybody waiting for it.
type replies struct{ waiting atomic.Int32 }

// run runs write in the life, unless a server that asks and does not read has too much waiting
// already.
func (r *replies) run(l *life, within time.Duration, write func(ctx context.Context)) {
	if r.waiting.Add(1) > maxReplies {
		r.waiting.Add(-1)
		return
	}
	started := l.run(func(ctx context.Context) {
		defer r.waiting.Add(-1)
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		write(ctx)
	})
	if !started {
		r.waiting.Add(-1)
	}
}

// isToken says that raw is a string or a number: what a progress token may be.
func isToken(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '"' || raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// isPlain says that a token has one spelling only, so that it comes back as it went: short
// integers, and strings that nobody escapes.
func isPlain(token mcp.ID) bool {
	if token[0] != '"' {
		for _, c := range []byte(token) {
			if c < '0' || c > '9' {
				return false
			}
		}
		return len(token) <= 15
	}
	if strings.HasPrefix(string(token), mintedToken) {
		return false // else a client could choose one that will be minted
	}
	for _, c := range []byte(token[1 : len(token)-1]) {
		if c <= ' ' || c > '~' || strings.IndexByte(`"\/<>&'+`, c) >= 0 {
			return false
		}
	}
	return true
}

// unavailable is the error for an answer that did not come.
func unavailable(server, reason string, err error) error {
	return &proxy.UnavailableError{Server: server, Reason: reason, Err: err}
}

// illegible is the error of a call whose answer came and was none.
func illegible(server string, err error) error {
	if large := (*conn.TooLargeError)(nil); errors.As(err, &large) {
		return unavailable(server, fmt.Sprintf("its answer of %d bytes is too large", large.Size),
			err)
	}
	return unavailable(server, "its answer cannot be read", err)
}

// refused is the error of a call that could not begin.
func refused(server string, err error) error {
	if u := (*proxy.UnavailableError)(nil); errors.As(err, &u) {
		return err
	}
	return unavailable(server, err.Error(), nil)
}
