package upstream

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// toLegacy is a legacy server as the session of a modern client sees it (protocol.md 3): each of
// the client's requests stands for itself, and what the server has to know of the client is told to
// it in sessions that are opened and kept here.
type toLegacy struct {
	up        *Upstream
	principal string
	visits    *visits
	life      *life
	onClose   func()
	once      sync.Once

	mu     sync.Mutex
	native *modern // when the server has turned out to be modern after all; nil before
	closed bool
}

func newToLegacy(u *Upstream, o proxy.OpenOptions, feed proxy.Handler) *toLegacy {
	return &toLegacy{up: u, principal: o.Principal, visits: newVisits(u, feed, o.Shared),
		life: newLife()}
}

// Call implements proxy.Server.
func (s *toLegacy) Call(ctx context.Context, p pipeline.Passed,
	c proxy.Handler) (*mcp.Message, error) {
	ctx, end := s.life.bind(ctx)
	defer end()
	m := p.Message()
	switch meth, known := mcp.Lookup(m.Method); {
	case m.Method == "server/discover", m.Method == "subscriptions/listen":
	case !known, !meth.In(mcp.Rev20251125), meth.Capability == "tasks":
		return toClient(mcp.NewError(m.ID(), mcp.CodeMethodNotFound,
			"method not found: the server speaks a revision of the protocol that has no "+m.Method,
			nil)), nil
	}
	if _, answers := m.Get("/inputResponses"); answers {
		return toClient(mcp.NewError(m.ID(), mcp.CodeInvalidParams,
			"inputResponses to nothing that was asked: make the call again without them", nil)), nil
	}
	v, err := s.visits.take(ctx, m)
	if err != nil {
		if native := s.turned(s.up.speaksModern()); native != nil && ctx.Err() == nil {
			return native.Call(ctx, p, c)
		}
		return nil, err
	}
	defer s.visits.leave(v)
	switch m.Method {
	case "server/discover":
		hello, err := helloForModern(m, v.hello)
		if err != nil {
			return nil, illegible(s.up.o.Name, err)
		}
		return toClient(hello), nil
	case "subscriptions/listen":
		return v.listen(ctx, m, c)
	}
	o, err := passed(p).plain()
	if err != nil {
		return nil, unavailable(s.up.o.Name,
			"the request could not be put into its revision's words", err)
	}
	if err := v.setLevel(ctx, m); err != nil {
		return nil, err
	}
	t := &turn{c: c, m: m, mayAsk: mcp.CanRequestInput(m), visit: v}
	defer v.enter(t)()
	var answer *mcp.Message
	for range maxPagesAsked {
		if answer, err = t.put(ctx, o); err != nil {
			return nil, err
		}
		if answer.ErrorCode() != mcp.CodeURLElicitation {
			break
		}
		if refusal, err := t.openPages(ctx, answer); err != nil || refusal != nil {
			return refusal, err
		}
	}
	switch {
	case answer.Kind == mcp.Error:
		answer, err = errorForModern(m, answer)
	default:
		answer, err = resultForModern(m, answer, v.hello)
	}
	if err != nil {
		return nil, illegible(s.up.o.Name, err)
	}
	return answer, nil
}

// put puts the request to the server, as a task where the tool runs in no other way.
func (t *turn) put(ctx context.Context, o outgoing) (*mcp.Message, error) {
	if t.visit.taskOnly(t.m) {
		return t.asTask(ctx, o)
	}
	answer, err := t.visit.server.request(ctx, o, t)
	switch {
	case err != nil:
		return nil, err
	case t.visit.wantsTask(ctx, t.m, answer):
		return t.asTask(ctx, o)
	case t.m.Method == "tools/list":
		t.visit.tasks.learn(answer)
	}
	return answer, nil
}

// turned answers the server as the modern one that it has turned out to be: some take longer to
// start than they are waited for, and are taken for legacy meanwhile. now says that it has.
func (s *toLegacy) turned(now bool) *modern {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.native == nil && now && !s.closed {
		s.native = newModern(s.up, s.principal)
		s.native.onClose = func() {}
	}
	return s.native
}

// Notify implements proxy.Server. A modern client has nothing to say that a legacy server waits
// for: a call is cancelled by the end of its context.
func (s *toLegacy) Notify(context.Context, pipeline.Passed) error { return nil }

// Close implements proxy.Server. It is safe to call twice.
func (s *toLegacy) Close() error {
	var err error
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		native := s.native
		s.mu.Unlock()
		s.life.cancel(errClosed)
		err = s.visits.close()
		if native != nil {
			err = errors.Join(err, native.Close())
		}
		s.life.end()
		s.onClose()
	})
	return err
}

// turn is one call of the client: where goes what the server sends for it.
type turn struct {
	c      proxy.Handler
	m      *mcp.Message
	mayAsk bool
	visit  *visit
}

// Notify implements proxy.Caller. Log lines reach a modern client only when it asked for them, and
// of the level that it asked for.
func (t *turn) Notify(ctx context.Context, m *mcp.Message) {
	switch m.Method {
	case "notifications/message":
		wanted, asked := t.m.Text(mcp.PointerLogLevel)
		level, _ := m.Text("/level")
		if !asked || mcp.LogLevelRank(level) < mcp.LogLevelRank(wanted) {
			return
		}
	case "notifications/progress":
	default:
		t.visit.Notify(ctx, m)
		return
	}
	t.c.Notify(ctx, m)
}

// Ask implements proxy.Caller.
func (t *turn) Ask(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	if t.mayAsk {
		return t.ask(ctx, ms)
	}
	return t.visit.Ask(ctx, ms)
}

// ask asks the client in this call.
func (t *turn) ask(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	asked := make([]*mcp.Message, len(ms))
	for i, m := range ms {
		switch m.Method {
		case "sampling/createMessage", "elicitation/create", "roots/list":
		default:
			// there is no way to ask it; what a server asks is judged and recorded all the same
			return t.visit.of.feed.Ask(ctx, ms)
		}
		q, err := questionForModern(m)
		if err != nil {
			return make([]pipeline.Passed, len(ms)) // which are refusals
		}
		asked[i] = toClient(q)
	}
	return t.c.Ask(ctx, asked)
}

// IsWaiting implements proxy.Caller.
func (t *turn) IsWaiting() bool { return t.c.IsWaiting() }

// ReportActivity implements proxy.Caller.
func (t *turn) ReportActivity() { t.c.ReportActivity() }

// maxPagesAsked is how many times a server may answer one call by saying that pages have to be
// opened first.
const maxPagesAsked = 3

// openPages asks the client to open the pages that a server's error names (protocol.md 3.5):
// nothing was run, and the call is made again when the client has agreed to all of them. Else it
// ends with refusal.
func (t *turn) openPages(ctx context.Context, m *mcp.Message) (refusal *mcp.Message, err error) {
	if _, declared := t.m.Get(mcp.PointerCapabilities + "/elicitation/url"); !declared ||
		!t.mayAsk {
		return toClient(mcp.NewError(t.m.ID(), mcp.CodeMissingCapability,
			"the server wants pages to be opened first, and the client did not declare "+
				"elicitation/url",
			[]byte(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`))), nil
	}
	var questions []*mcp.Message
	m.Items("/data/elicitations", func(i int, raw []byte) bool {
		var q *mcp.Message
		if q, err = mcp.NewRequest(mcp.ID(strconv.Itoa(i)), "elicitation/create",
			raw).Edit(mcp.Set("/mode", []byte(`"url"`)), mcp.Remove("/elicitationId")); err == nil {
			questions = append(questions, toClient(q))
		}
		return err == nil && len(questions) < maxInputs
	})
	if err != nil || len(questions) == 0 {
		return nil, unavailable(t.visit.of.up.o.Name,
			"it wants pages to be opened first, and does not say which", err)
	}
	for _, p := range t.c.Ask(ctx, questions) {
		if a := p.Message(); a == nil || !a.TextEquals("/action", "accept") {
			return toClient(mcp.NewError(t.m.ID(), mcp.CodeInternal,
					"the server wants pages to be opened first, and the client did not agree",
					nil)),
				nil
		}
	}
	return nil, nil
}

// setLevel sees to it that the server logs what the request wants to hear, where it can log.
func (v *visit) setLevel(ctx context.Context, m *mcp.Message) error {
	level, ok := m.Text(mcp.PointerLogLevel)
	if _, logs := v.hello.Get("/capabilities/logging"); !ok || !logs {
		return nil
	}
	release, err := v.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if v.level != "" && mcp.LogLevelRank(v.level) <= mcp.LogLevelRank(level) {
		return nil
	}
	answer, err := v.server.request(ctx, levelled(level), nil)
	if err == nil && answer.Kind == mcp.Response {
		v.level = level
	}
	return err
}

// hold takes the right to change what the session has been told; release gives it back.
func (v *visit) hold(ctx context.Context) (release func(), err error) {
	select {
	case v.telling <- struct{}{}:
		return func() { <-v.telling }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
