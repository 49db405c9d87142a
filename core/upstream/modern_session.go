package upstream

import (
	"context"
	"fmt"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// modern is a server without sessions as one session sees it: a share of its principal's
// connection.
type modern struct {
	up        *Upstream
	principal string
	shared    *shared
	life      *life
	lane      *lane // of a process; nil over HTTP, where each call has a stream of its own
	onClose   func()
	once      sync.Once // the session and the Upstream both close
}

func newModern(u *Upstream, principal string) *modern {
	s := &modern{up: u, principal: principal, shared: u.pool.get(principal), life: newLife()}
	if s.shared.http == nil {
		s.lane = newLane()
		s.life.run(s.lane.run)
	}
	return s
}

// Call implements proxy.Server. A result that asks for input is handed on as it is, for a client
// that takes it so.
func (s *modern) Call(ctx context.Context, p pipeline.Passed,
	c proxy.Handler) (*mcp.Message, error) {
	answer, kind, err := s.request(ctx, passed(p), c)
	if err != nil || kind != inputRequired {
		return answer, err
	}
	folded := *answer
	folded.CarriesInput = true
	return &folded, nil
}

// request puts a request to the server; kind is the type of the result, "" for an error.
func (s *modern) request(ctx context.Context, o outgoing,
	c proxy.Handler) (answer *mcp.Message, kind string, err error) {
	ctx, end := s.life.bind(ctx)
	defer end()
	answer, err = s.shared.call(ctx, o, c, s.lane)
	// it contradicts itself: nothing was run, and once more does no harm
	if err == nil && answer.ErrorCode() == mcp.CodeUnsupportedVersion && speaks(answer) {
		answer, err = s.shared.call(ctx, o, c, s.lane)
	}
	if err != nil {
		return nil, "", err
	}
	if kind, err = s.resultType(o.m, answer); err != nil {
		return nil, "", err
	}
	return answer, kind, nil
}

// speaks says whether an error about a revision names the one that was used among those that the
// server speaks.
func speaks(refused *mcp.Message) (speaks bool) {
	refused.Items("/data/supported", func(_ int, raw []byte) bool {
		speaks = mcp.NewResponse("", raw).TextEquals("", mcp.Rev20260728)
		return !speaks
	})
	return speaks
}

const inputRequired = "input_required"

// resultType is what a result says it is, "" for an error. What nobody could judge is refused
// (protocol.md 3.8).
func (s *modern) resultType(request, answer *mcp.Message) (string, error) {
	if answer.Kind == mcp.Error {
		if answer.ErrorCode() == mcp.CodeUnsupportedVersion {
			s.up.doubt()
			return "", unavailable(s.up.o.Name,
				"it does not speak the revision that it said it does", nil)
		}
		return "", nil
	}
	raw, ok := answer.Get("/resultType")
	if !ok {
		return "complete", nil
	}
	kind, ok := answer.Text("/resultType")
	switch {
	case !ok:
		return "", unavailable(s.up.o.Name,
			fmt.Sprintf("its result is of type %.40s, which is no name", raw), nil)
	case kind == "complete", kind == "task":
		return kind, nil
	case kind == inputRequired:
		switch request.Method {
		case "tools/call", "prompts/get", "resources/read":
			return kind, nil
		}
		return "", unavailable(s.up.o.Name,
			"it asked for input where the protocol has no place for it ("+request.Method+")", nil)
	}
	extended := false
	request.Members(mcp.PointerCapabilities+"/extensions", func(string, []byte) bool {
		extended = true
		return false
	})
	if !extended {
		return "", unavailable(s.up.o.Name,
			fmt.Sprintf("its result is of type %.40q, and the client has declared no extension",
				kind), nil)
	}
	return kind, nil
}

// Notify implements proxy.Server. What a client of this era has no way to say is not passed on.
func (s *modern) Notify(ctx context.Context, p pipeline.Passed) error {
	switch p.Message().Method {
	case "notifications/initialized", "notifications/progress", "notifications/roots/list_changed",
		"notifications/cancelled", "notifications/tasks/status":
		return nil // a call is cancelled by the end of its context
	}
	ctx, end := s.life.bind(ctx)
	defer end()
	return s.shared.notify(ctx, passed(p))
}

// Close implements proxy.Server. It is safe to call twice.
func (s *modern) Close() error {
	s.once.Do(func() {
		s.life.end()
		if s.lane != nil {
			s.lane.report(s.up.log, s.up.o.Name)
		}
		s.up.pool.put(s.principal)
		s.onClose()
	})
	return nil
}

// takeModern routes what a modern server sends over a pipe beside its answers; it runs in the
// reader. All of it is about some call.
func takeModern(w *wire, m *mcp.Message) {
	if m.Kind == mcp.Request {
		w.log.Debug("a server of a revision without such requests sent one", "server", w.name,
			"method", m.Method)
		w.reply(refusal(m.ID(), mcp.CodeMethodNotFound,
			"servers do not send requests in this revision"))
		return
	}
	c, m := about(w, m)
	switch {
	case c == nil:
		return
	case c.lane == nil:
		c.notify(m)
		return
	}
	if err := c.lane.add(delivery{size: m.Size(), drop: droppable(m),
		run: func(context.Context) { c.notify(m) }}); err != nil && w.calls.take(c.id) != nil {
		c.finish(reply{err: unavailable(w.name, "too much of what it sent is waiting", err)})
		w.reply(cancellation(err, c))
	}
}

// about finds the call that a notification belongs to, and the notification as its client is to get
// it; nil when there is none to hand it to.
func about(w *wire, m *mcp.Message) (*call, *mcp.Message) {
	subscription, subscribed := m.Get(mcp.PointerSubscription)
	switch {
	case m.Method == "notifications/progress":
		restored, c, ok := w.calls.progress(m)
		if ok && c != nil {
			return c, restored
		}
	case m.Method == "notifications/cancelled":
		raw, _ := m.Get("/requestId")
		if c := w.calls.find(mcp.ID(raw)); c != nil && c.m.Method == "subscriptions/listen" {
			if c = w.calls.take(c.id); c != nil {
				c.finish(reply{m: ended(c)}) // its union hands it on in order
			}
			return nil, nil
		}
	case subscribed:
		if c := w.calls.find(mcp.ID(subscription)); c != nil &&
			c.m.Method == "subscriptions/listen" {
			return c, c.subscribed(m)
		}
	default:
		// A log line on stdio says not what it is about. It can only be for a call that asked for
		// logs; with calls of several sessions there is no telling for whose.
		c := w.calls.oldestWhere(func(c *call) bool {
			_, logs := c.m.Get(mcp.PointerLogLevel)
			return c.m.Method != "subscriptions/listen" && (logs ||
				m.Method != "notifications/message")
		})
		if c != nil {
			return c, m
		}
	}
	w.log.Debug("dropped a notification that belongs to no call", "server", w.name,
		"method", m.Method)
	return nil, nil
}

// ended is the result of a subscription that a server has ended with a notifications/cancelled:
// what it would have answered.
func ended(c *call) *mcp.Message {
	m := mcp.NewResponse(c.m.ID(),
		[]byte(`{"resultType":"complete","_meta":{"`+mcp.MetaSubscription+`":`+string(c.m.ID())+
			`}}`))
	m.To = mcp.ToClient
	return m
}
