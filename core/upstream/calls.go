package upstream

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// Limits of one connection.
const (
	maxCalls      = 1024 // requests in flight
	maxTaskTokens = 256  // progress tokens of tasks that outlive their calls
)

// pendingCall is a request in flight.
type pendingCall struct {
	id      mcp.ID       // on this connection; also the subscription id of a subscriptions/listen
	request *mcp.Message // with the id and the progress token that the client gave
	token   mcp.ID       // the client's progress token; "" if the client gave none
	// the progress token on this connection: the client's token, or a new token if another call has
	// the client's token or a server might spell it differently
	sentToken mcp.ID
	handler   proxy.Handler // nil for requests that no client waits for
	// holds the server's messages for the call; nil when messages are delivered at once
	queue *orderedQueue
	// ctx is the context of the client's request. It is stored because the goroutine that reads the
	// connection hands notifications over on behalf of that request.
	ctx    context.Context
	cancel context.CancelFunc // ends ctx; called by finish; may be nil
	done   chan reply         // has room for one reply
	// the response to the request has begun (only over HTTP)
	responded atomic.Bool
}

// reply is how a call ended: with a response or error message, or with a Go error.
type reply struct {
	m   *mcp.Message
	err error
}

// restored returns the server's answer with the ids that the client gave.
func (c *pendingCall) restored(m *mcp.Message) *mcp.Message {
	return c.withClientSubscription(m).WithID(c.request.ID())
}

// withClientSubscription returns a message of a subscription with the subscription id that the
// client knows. Other messages are returned unchanged.
func (c *pendingCall) withClientSubscription(m *mcp.Message) *mcp.Message {
	if c.request.Method != "subscriptions/listen" || m.Kind == mcp.Error {
		return m
	}
	return withSubscription(m, c.request.ID())
}

// withSubscription returns m with the given subscription id, if m has a subscription id.
func withSubscription(m *mcp.Message, id mcp.ID) *mcp.Message {
	if _, ok := m.Get(mcp.PointerSubscriptionID); !ok {
		return m
	}
	if edited, err := m.Edit(mcp.Set(mcp.PointerSubscriptionID, []byte(id))); err == nil {
		return edited
	}
	return m
}

// subscriptionResult returns the result of a subscription that the server ended with a
// notifications/cancelled instead of an answer.
func (c *pendingCall) subscriptionResult() *mcp.Message {
	id := c.request.ID()
	m := mcp.NewResponse(id, []byte(
		`{"resultType":"complete","_meta":{"`+mcp.MetaSubscriptionID+`":`+string(id)+`}}`))
	m.Direction = mcp.ToClient
	return m
}

// finish ends the call, unless the call has ended already.
func (c *pendingCall) finish(r reply) {
	select {
	case c.done <- r:
	default:
	}
	if c.cancel != nil {
		c.cancel()
	}
}

// notify hands a notification to the call's handler. If the call has no handler or has ended,
// notify does nothing.
func (c *pendingCall) notify(m *mcp.Message) {
	if c.handler != nil && c.ctx.Err() == nil {
		c.handler.HandleNotification(c.ctx, m)
	}
}

// callTable holds the requests in flight on one connection. It gives these requests ids of its own,
// so that requests of several clients cannot be mistaken for each other. A request keeps its
// progress token, because a tool may show it to people. The token is replaced only when another
// call has the same token, or when a server might spell it differently.
type callTable struct {
	mu       sync.Mutex
	lastID   uint64
	inFlight map[mcp.ID]*pendingCall
	byToken  map[mcp.ID]*pendingCall // by sentToken
	closed   error                   // why no call can begin any more; nil while the table is open

	taskTokens     map[mcp.ID]taskToken // by the token on this connection
	taskTokenOrder []mcp.ID             // keys of taskTokens, the oldest first
}

// taskToken is the progress token of a call that was answered with a task.
type taskToken struct {
	token mcp.ID // the client's progress token
	task  string // the task's id, as JSON
}

// begin adds a request to the requests in flight. ctx is the context of the client's request.
// cancel, if not nil, ends ctx, and is called by finish.
func (t *callTable) begin(ctx context.Context, cancel context.CancelFunc, request *mcp.Message,
	h proxy.Handler, q *orderedQueue) (*pendingCall, error) {
	c := &pendingCall{request: request, handler: h, queue: q, ctx: ctx, cancel: cancel,
		done: make(chan reply, 1)}
	if raw, ok := request.Get("/_meta/progressToken"); ok && isToken(raw) {
		c.token = mcp.ID(raw)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return nil, t.closed
	}
	if len(t.inFlight) >= maxCalls {
		return nil, errors.New("too many requests are in flight; try again when some have been " +
			"answered")
	}
	t.lastID++
	c.id = mcp.ID(strconv.FormatUint(t.lastID, 10))
	if t.inFlight == nil {
		t.inFlight = make(map[mcp.ID]*pendingCall)
	}
	t.inFlight[c.id] = c
	if c.token != "" {
		c.sentToken = c.token
		_, taken := t.taskTokens[c.sentToken]
		if taken || t.byToken[c.sentToken] != nil || !hasOneSpelling(c.sentToken) {
			c.sentToken = ownTokenPrefix + c.id + `"`
		}
		if t.byToken == nil {
			t.byToken = make(map[mcp.ID]*pendingCall)
		}
		t.byToken[c.sentToken] = c
	}
	return c, nil
}

// address returns the request o with the id and the progress token of the call.
func (c *pendingCall) address(o Outgoing) (Outgoing, error) {
	if c.sentToken == c.token {
		return o.withIDs(c.id, nil)
	}
	return o.withIDs(c.id, []byte(c.sentToken))
}

// take removes a call from the calls in flight and returns it. The caller must finish the call.
// take returns nil when no such call is in flight.
func (t *callTable) take(id mcp.ID) *pendingCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.inFlight[id]
	if c != nil {
		delete(t.inFlight, id)
		delete(t.byToken, c.sentToken)
	}
	return c
}

// find returns a call in flight, or nil.
func (t *callTable) find(id mcp.ID) *pendingCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inFlight[id]
}

// onlyCall returns the call in flight that a client waits for, if there is exactly one such call.
// Otherwise it returns nil.
func (t *callTable) onlyCall() *pendingCall {
	var only *pendingCall
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.inFlight {
		if c.handler == nil {
			continue
		}
		if only != nil {
			return nil
		}
		only = c
	}
	return only
}

// forErrorWithoutID returns the call that an error without an id answers. If a client waits for
// exactly one call, it returns that call. If exactly one call is in flight, it returns that call,
// even if no client waits for it. Otherwise it returns nil.
func (t *callTable) forErrorWithoutID() *pendingCall {
	if c := t.onlyCall(); c != nil {
		return c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.inFlight) == 1 {
		for _, c := range t.inFlight {
			return c
		}
	}
	return nil
}

// oldest returns the oldest matching call. A call matches if a client waits for it and the function
// matches returns true. oldest returns nil when no call matches, or when the matching calls belong
// to several sessions.
func (t *callTable) oldest(matches func(c *pendingCall) bool) *pendingCall {
	var first *pendingCall
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.inFlight {
		if c.handler == nil || !matches(c) {
			continue
		}
		if first != nil && first.queue != c.queue {
			return nil
		}
		if first == nil || isOlder(c.id, first.id) {
			first = c
		}
	}
	return first
}

// isOlder reports whether the call with the id a began before the call with the id b.
func isOlder(a, b mcp.ID) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

// close ends all calls with err. After that, no call can begin.
func (t *callTable) close(err error) {
	t.closeIf(err, func(*pendingCall) bool { return true })
}

// closeIf ends every call for which matches returns true. Those calls fail with err. After that, no
// call can begin.
func (t *callTable) closeIf(err error, matches func(c *pendingCall) bool) {
	var ended []*pendingCall
	t.mu.Lock()
	for id, c := range t.inFlight {
		if matches(c) {
			delete(t.inFlight, id)
			delete(t.byToken, c.sentToken)
			ended = append(ended, c)
		}
	}
	if t.closed == nil {
		t.closed = err
	}
	t.mu.Unlock()
	for _, c := range ended {
		c.finish(reply{err: err})
	}
}

// keepTaskToken keeps the progress token of a call that was answered with a task (2025-11-25),
// because the server may send progress for as long as the task lives.
func (t *callTable) keepTaskToken(c *pendingCall, answer *mcp.Message) {
	if c.token == "" || answer.Kind != mcp.Response {
		return
	}
	task, ok := answer.Get("/task/taskId")
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taskTokens == nil {
		t.taskTokens = make(map[mcp.ID]taskToken)
	}
	if len(t.taskTokenOrder) == maxTaskTokens {
		delete(t.taskTokens, t.taskTokenOrder[0])
		t.taskTokenOrder = t.taskTokenOrder[1:]
	}
	t.taskTokens[c.sentToken] = taskToken{c.token, string(task)}
	t.taskTokenOrder = append(t.taskTokenOrder, c.sentToken)
}

// progress returns the notifications/progress m with the client's token, and the call c that m
// belongs to. If the call has been answered with a task, c is the call that waits for the task's
// result, or nil if there is no such call. ok is false when no client asked for the progress.
func (t *callTable) progress(m *mcp.Message) (restored *mcp.Message, c *pendingCall, ok bool) {
	raw, _ := m.Get("/progressToken")
	id := mcp.ID(raw)
	t.mu.Lock()
	c = t.byToken[id]
	kept := t.taskTokens[id]
	token := kept.token
	if c != nil {
		token = c.token
	} else if token != "" {
		for _, other := range t.inFlight { // a tasks/result may wait for the task
			if raw, _ := other.request.Get("/taskId"); other.request.Method == "tasks/result" &&
				other.token == token && string(raw) == kept.task {
				c = other
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

// forTask returns the tasks/result call that waits for the task that m is about (2025-11-25), or
// nil. During that call, a server asks for the input that the task needs.
func (t *callTable) forTask(m *mcp.Message) *pendingCall {
	id, ok := m.Text(mcp.PointerRelatedTask + "/taskId")
	if !ok {
		return nil
	}
	return t.oldest(func(c *pendingCall) bool {
		task, _ := c.request.Text("/taskId")
		return c.request.Method == "tasks/result" && task == id
	})
}

// ownTokenPrefix is the beginning of every progress token that Gatekit makes.
const ownTokenPrefix = `"gatekit-`

// isToken reports whether raw is a string or a number, as a progress token has to be.
func isToken(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '"' || raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// hasOneSpelling reports whether every server writes a token exactly as Gatekit sent the token.
// This holds for integers of at most 15 digits, which a float64 holds exactly, and for strings that
// no encoder escapes.
func hasOneSpelling(token mcp.ID) bool {
	if token[0] != '"' {
		for _, c := range []byte(token) {
			if c < '0' || c > '9' {
				return false
			}
		}
		return len(token) <= 15
	}
	if strings.HasPrefix(string(token), ownTokenPrefix) {
		return false // a client could choose a token that Gatekit makes later
	}
	for _, c := range []byte(token[1 : len(token)-1]) {
		if c <= ' ' || c > '~' || strings.IndexByte(`"\/<>&'+`, c) >= 0 {
			return false
		}
	}
	return true
}
