package upstream

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// toModern is a modern server as the session of a legacy client sees it (protocol.md 3): what that
// client says once is said with each request, and what the server asks for in a result is asked of
// the client live.
type toModern struct {
	up       *Upstream
	server   *modern
	feed     proxy.Handler
	revision string // the client's
	life     *life
	onClose  func()
	once     sync.Once

	mu     sync.Mutex
	client identity
	listen *standing // nil before initialize was answered
}

// Bounds of one call.
const (
	maxInputs = 64 // that it may ask for in one of them
	// times that a server may ask to be asked again without asking for anything
	maxSheds    = 8
	firstShed   = 200 * time.Millisecond // before the first of these
	longestShed = 5 * time.Second
)

func newToModern(u *Upstream, o proxy.OpenOptions, feed proxy.Handler) *toModern {
	s := &toModern{up: u, server: newModern(u, o.Principal), feed: feed, revision: o.Revision,
		life: newLife()}
	s.server.onClose = func() {}
	return s
}

// Call implements proxy.Server.
func (s *toModern) Call(ctx context.Context, p pipeline.Passed,
	c proxy.Handler) (*mcp.Message, error) {
	m := p.Message()
	s.mu.Lock()
	listen, client := s.listen, s.client
	s.mu.Unlock()
	switch {
	case m.Method == "initialize":
		return s.initialize(ctx, m, c)
	case listen == nil:
		return nil, unavailable(s.up.o.Name, "the client has not initialized it", nil)
	case m.Method == "logging/setLevel":
		return s.setLevel(m), nil
	case m.Method == "resources/subscribe":
		return listen.subscribe(ctx, m)
	case m.Method == "resources/unsubscribe":
		return listen.unsubscribe(m), nil
	}
	if meth, known := mcp.Lookup(m.Method); !known || !meth.In(mcp.Rev20260728) ||
		meth.Capability == "tasks" {
		return toClient(mcp.NewError(m.ID(), mcp.CodeMethodNotFound,
			"method not found: the server speaks a revision of the protocol that has no "+m.Method,
			nil)), nil
	}
	if err := listen.hear(ctx); err != nil {
		return nil, err
	}
	o, err := passed(p).from(client)
	if err != nil {
		return nil, unavailable(s.up.o.Name,
			"the request could not be put into its revision's words", err)
	}
	return s.play(ctx, o, c)
}

func toClient(m *mcp.Message) *mcp.Message {
	m.To = mcp.ToClient
	return m
}

// initialize is answered with what the server says of itself.
func (s *toModern) initialize(ctx context.Context, m *mcp.Message,
	c proxy.Handler) (*mcp.Message, error) {
	raw, _ := m.Get("/capabilities")
	capabilities, err := capabilitiesForModern(raw)
	if err != nil {
		return nil, unavailable(s.up.o.Name,
			"the client's capabilities could not be put into its revision's words", err)
	}
	client := identity{capabilities: capabilities,
		clientInfo: []byte(`{"name":"unknown","version":"unknown"}`)}
	if raw, _ := m.Get("/clientInfo"); bytes.HasPrefix(raw, []byte("{")) {
		client.clientInfo = raw
	}
	o, err := discoverAs(m, client)
	if err != nil {
		return nil, unavailable(s.up.o.Name, "it could not be asked what it is", err)
	}
	answer, _, err := s.server.request(ctx, o, c)
	if err != nil || answer.Kind == mcp.Error {
		return answer, err
	}
	hello, err := helloForLegacy(m.ID(), answer, s.revision)
	if err != nil {
		return nil, illegible(s.up.o.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = client
	if s.listen == nil {
		s.listen = newStanding(s, answer)
	}
	return hello, nil
}

// setLevel is remembered: a modern server is told with each request.
func (s *toModern) setLevel(m *mcp.Message) *mcp.Message {
	raw, _ := m.Get("/level")
	if level, _ := m.Text("/level"); mcp.LogLevelRank(level) >= 0 {
		s.mu.Lock()
		s.client.logLevel = raw
		s.mu.Unlock()
		return toClient(mcp.NewResponse(m.ID(), nil))
	}
	return toClient(mcp.NewError(m.ID(), mcp.CodeInvalidParams,
		"logging/setLevel needs a level, from debug to emergency", nil))
}

// play puts a request to the server for as many rounds as it asks for input.
func (s *toModern) play(ctx context.Context, first outgoing,
	c proxy.Handler) (*mcp.Message, error) {
	if _, ok := first.m.Get("/_meta/progressToken"); ok {
		c = &rising{Handler: c}
	}
	o, rounds, sheds := first, 0, 0
	for {
		answer, kind, err := s.server.request(ctx, o, c)
		switch {
		case err != nil:
			return nil, err
		case kind == "" && wantsTasks(first.m, answer):
			if first, err = first.withTasks(); err != nil {
				return nil, unavailable(s.up.o.Name, "the call could not be made as a task", err)
			}
			o = first
			continue
		case kind == "task" && knowsTasks(first.m):
			if answer, err = s.task(ctx, first.m, answer, c); err != nil {
				return nil, err
			}
			if answer.Kind == mcp.Response {
				return resultForLegacy(first.m, answer, s.revision)
			}
			fallthrough
		case kind == "":
			return errorForLegacy(first.m, answer)
		case kind == "complete":
			return resultForLegacy(first.m, answer, s.revision)
		case kind != inputRequired:
			return nil, unavailable(s.up.o.Name,
				fmt.Sprintf("its result is of type %.40q, which the client does not know", kind),
				nil)
		}
		state, _ := answer.Get("/requestState")
		answers, refusal, err := s.ask(ctx, first.m, answer, c)
		switch {
		case err != nil:
			return nil, err
		case refusal != nil:
			return toClient(refusal), nil
		case answers == nil && state == nil:
			return nil, unavailable(s.up.o.Name, "it asked for input and did not say for what", nil)
		case answers == nil:
			if sheds++; sheds > maxSheds {
				return nil, unavailable(s.up.o.Name, "it put the call off too many times", nil)
			}
			if !sleep(ctx, min(firstShed<<(sheds-1), longestShed)) {
				return nil, context.Cause(ctx)
			}
		default:
			if rounds++; rounds > s.up.o.Rounds {
				return nil, unavailable(s.up.o.Name, "it asked for input too many times", nil)
			}
		}
		if o, err = first.again(answers, state); err != nil {
			return nil, unavailable(s.up.o.Name,
				"the answers that it asked for could not be put to it", err)
		}
	}
}

// ask puts the questions in a server's result to the client, one after another, and answers the
// object of its answers; nil when there was no question. A question that the client cannot or would
// not answer ends the call with a refusal, where the server's revision has no words for that.
func (s *toModern) ask(ctx context.Context, request, m *mcp.Message,
	c proxy.Handler) (answers []byte, refusal *mcp.Message, err error) {
	raw, ok := m.Get("/inputRequests")
	if !ok {
		return nil, nil, nil
	}
	if raw[0] != '{' {
		return nil, nil, unavailable(s.up.o.Name, "its inputRequests are no object", nil)
	}
	given := []byte("{")
	n := 0
	m.Members("/inputRequests", func(key string, raw []byte) bool {
		if n++; n > maxInputs {
			err = unavailable(s.up.o.Name, "it asked for too much input at once", nil)
			return false
		}
		var answer []byte
		if answer, refusal, err = s.askOne(ctx, request, key, raw, c); err == nil &&
			refusal == nil {
			if n > 1 {
				given = append(given, ',')
			}
			given = append(append(append(given, mcp.Quote(key)...), ':'), answer...)
		}
		return err == nil && refusal == nil
	})
	if err != nil || refusal != nil || n == 0 {
		return nil, refusal, err
	}
	return append(given, '}'), nil, nil
}

// askOne puts one question to the client and answers what the server is to get.
func (s *toModern) askOne(ctx context.Context, request *mcp.Message, key string, raw []byte,
	c proxy.Handler) (answer []byte, refusal *mcp.Message, err error) {
	q, err := mcp.EmbeddedRequest(mcp.ID(mcp.Quote(key)), raw)
	if err != nil {
		return nil, nil, unavailable(s.up.o.Name, "its inputRequests hold what is no request", err)
	}
	switch q.Method {
	case "sampling/createMessage", "elicitation/create", "roots/list":
	default:
		return nil, nil, unavailable(s.up.o.Name,
			"its inputRequests hold what servers may not ask for", nil)
	}
	unsupported := func(why string) *mcp.Message {
		return mcp.NewError(request.ID(), mcp.CodeInternal,
			"the server asks for input that this client cannot give: "+why,
			[]byte(`{"unsupportedInput":`+string(mcp.Quote(key))+`}`))
	}
	older, why := questionForLegacy(q, s.revision)
	if why != "" {
		return nil, unsupported(why), nil
	}
	older.To = mcp.ToClient
	got := c.Ask(ctx, []*mcp.Message{older})
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if len(got) != 1 || got[0].Message() == nil {
		return nil, unsupported("it could not be asked"), nil
	}
	switch a, denied := got[0].Message(), got[0].Refusal(); {
	case a.Kind == mcp.Response:
		return a.Body(), nil, nil
	case denied != nil: // what the server would have to be told, its revision has no words for
		return nil, nil, denied
	case a.ErrorCode() == mcp.CodeMethodNotFound || a.ErrorCode() == mcp.CodeInvalidParams:
		return nil, unsupported(q.Method), nil
	case q.Method == "elicitation/create":
		return []byte(`{"action":"cancel"}`), nil, nil
	default:
		code := mcp.CodeInternal
		if a.ErrorCode() == mcp.CodeRejected {
			code = mcp.CodeRejected
		}
		return nil, mcp.NewError(request.ID(), code,
			"the client refused what the server asked it for ("+q.Method+")",
			[]byte(`{"input":`+string(mcp.Quote(key))+`,"error":`+string(a.Body())+`}`)), nil
	}
}

// Notify implements proxy.Server. There is nothing that a modern server would have to be told: it
// hears of a call's end by the end of its context.
func (s *toModern) Notify(_ context.Context, p pipeline.Passed) error {
	if p.Message().Method == "notifications/initialized" {
		s.mu.Lock()
		listen := s.listen
		s.mu.Unlock()
		if listen != nil {
			listen.start()
		}
	}
	return nil
}

// Close implements proxy.Server. It is safe to call twice.
func (s *toModern) Close() error {
	var err error
	s.once.Do(func() {
		s.life.end()
		err = s.server.Close()
		s.onClose()
	})
	return err
}

// rising leaves out progress that does not rise: a server begins anew with each round.
type rising struct {
	proxy.Handler
	mu   sync.Mutex
	last float64
	any  bool
}

func (r *rising) Notify(ctx context.Context, m *mcp.Message) {
	if m.Method == "notifications/progress" && !r.rises(m) {
		return
	}
	r.Handler.Notify(ctx, m)
}

func (r *rising) rises(m *mcp.Message) bool {
	raw, _ := m.Get("/progress")
	v, err := strconv.ParseFloat(string(raw), 64)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.any && v <= r.last {
		return false
	}
	r.last, r.any = max(v, r.last), true
	return true
}
