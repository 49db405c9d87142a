package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// memoryRecorder is a Recorder in memory.
type memoryRecorder struct {
	mu      sync.Mutex
	rows    []string // action, direction, kind, method, server and name of each record
	reasons []string // action and reason of each record
}

func (j *memoryRecorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := o.Before
	j.reasons = append(j.reasons, o.Action+" "+o.Reason)
	j.rows = append(j.rows, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s %s", o.Action,
		m.Direction, m.Kind, m.Method, m.Server, m.Name)))
	return uint64(len(j.rows)), nil
}

func (j *memoryRecorder) expect(t *testing.T, rows ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, row := range rows {
		if !slices.Contains(j.rows, row) {
			t.Errorf("no record is %q; the records are\n%s", row, strings.Join(j.rows, "\n"))
		}
	}
}

// stage is a function that implements pipeline.Stage.
type stage func(m *mcp.Message) pipeline.Verdict

func (s stage) Inspect(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	return s(m), nil
}

// answerFunc returns the response of a fakeServer to a request.
type answerFunc = func(context.Context, *mcp.Message, proxy.Handler) string

// fakeServer is one upstream server. answer returns one of these:
//   - a raw result
//   - "!CODE text" for an error with a message, or "!!CODE data" for an error with data
//   - "dead" if the server has ended
//   - "" to wait for the end of the call
type fakeServer struct {
	openErr error
	answer  func(ctx context.Context, m *mcp.Message, c proxy.Handler) string

	mu     sync.Mutex
	feed   proxy.Handler // takes the server's messages that belong to no call
	got    []string      // methods and bodies of the received messages
	ended  []error       // causes of the calls that ended before their answer
	closed int           // number of calls of Close
}

func (s *fakeServer) Open(_ context.Context, o proxy.OpenOptions,
	feed proxy.Handler) (proxy.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openErr != nil {
		return nil, s.openErr
	}
	s.feed = feed
	return s, nil
}

func (s *fakeServer) note(m *mcp.Message) {
	s.mu.Lock()
	s.got = append(s.got, m.Method+" "+string(m.Body()))
	s.mu.Unlock()
}

func (s *fakeServer) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *fakeServer) Call(ctx context.Context, p pipeline.Passed,
	c proxy.Handler) (*mcp.Message, error) {
	m := p.Message()
	s.note(m)
	answer := s.answer(ctx, m, c)
	switch {
	case answer == "" || ctx.Err() != nil:
		<-ctx.Done()
		s.mu.Lock()
		s.ended = append(s.ended, context.Cause(ctx))
		s.mu.Unlock()
		return nil, context.Cause(ctx)
	case answer == "dead":
		return nil, &proxy.UnavailableError{Server: m.Server, Reason: "it ended"}
	case strings.HasPrefix(answer, "!!"): // with data instead of text
		var code int
		fmt.Sscanf(answer[2:], "%d", &code)
		_, data, _ := strings.Cut(answer, " ")
		return mcp.NewError(m.ID(), code, "no", []byte(data)), nil
	case strings.HasPrefix(answer, "!"):
		var code int
		fmt.Sscanf(answer[1:], "%d", &code)
		_, text, _ := strings.Cut(answer, " ")
		return mcp.NewError(m.ID(), code, text, nil), nil
	}
	r := mcp.NewResponse(m.ID(), []byte(answer))
	if t, _ := r.Text("/resultType"); t == "input_required" {
		r.CarriesInput = true
	}
	return r, nil
}

// cancelledWith returns the params of the notification that cancelled the server's first call.
func cancelledWith(s *fakeServer) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var c *proxy.CancelledError
	if len(s.ended) == 0 || !errors.As(s.ended[0], &c) || c.Notification.Message() == nil {
		return "nothing"
	}
	return string(c.Notification.Message().Body())
}

func (s *fakeServer) Notify(_ context.Context, p pipeline.Passed) error {
	s.note(p.Message())
	return nil
}

func (s *fakeServer) Close() error {
	s.mu.Lock()
	s.closed++
	s.mu.Unlock()
	return nil
}

// fakeClient is a client that keeps the messages that it receives. The function in the field answer
// returns its answers to servers' requests.
type fakeClient struct {
	takesInputRequests bool
	answer             func(m *mcp.Message) *mcp.Message
	fails              error // returned by each SendRequests

	mu            sync.Mutex
	notifications []string
	asked         []string
}

func (c *fakeClient) TakesInputRequests() bool { return c.takesInputRequests }

func (c *fakeClient) Notify(_ context.Context, p pipeline.Passed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notifications = append(c.notifications, p.Message().Method+" "+string(p.Message().Body()))
	return nil
}

func (c *fakeClient) received() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.notifications)
}

func (c *fakeClient) SendRequests(_ context.Context, ps []pipeline.Passed) ([]*mcp.Message, error) {
	if c.fails != nil {
		return nil, c.fails
	}
	var answers []*mcp.Message
	for _, p := range ps {
		c.mu.Lock()
		c.asked = append(c.asked, p.Message().Method+" "+string(p.Message().Body()))
		c.mu.Unlock()
		if c.answer == nil {
			return nil, fmt.Errorf("nobody is there")
		}
		answers = append(answers, c.answer(p.Message()))
	}
	return answers, nil
}

// fixedResults returns an answerFunc with one raw result for each method.
func fixedResults(results map[string]string) func(context.Context, *mcp.Message,
	proxy.Handler) string {
	return func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		if r, ok := results[m.Method]; ok {
			return r
		}
		return "!-32601 no such method"
	}
}

// fixture is a proxy with one session and the fakes around it.
type fixture struct {
	proxy   *proxy.Proxy
	session *proxy.Session
	client  *fakeClient // sends the calls
	feed    *fakeClient // gets the servers' messages that belong to no call
	record  *memoryRecorder
	options proxy.Options
}

// open makes a proxy of the servers, in the order of their names, and opens one session.
func open(t *testing.T, servers map[string]*fakeServer, change func(*proxy.Options),
	stages ...pipeline.StageConfig) *fixture {
	t.Helper()
	w := &fixture{client: &fakeClient{}, feed: &fakeClient{}, record: &memoryRecorder{}}
	o := proxy.Options{Pipeline: pipeline.New(w.record, pipeline.Options{}, stages...),
		Version: "1.0", StateKey: []byte("0123456789abcdef0123456789abcdef")}
	for name, s := range servers {
		o.Servers = append(o.Servers, proxy.ServerConfig{Name: name, Upstream: s})
	}
	slices.SortFunc(o.Servers, func(a, b proxy.ServerConfig) int {
		return strings.Compare(a.Name, b.Name)
	})
	if change != nil {
		change(&o)
	}
	var err error
	if w.proxy, err = proxy.New(o); err != nil {
		t.Fatal(err)
	}
	w.options = o
	w.session = w.proxy.Open(proxy.OpenOptions{Session: "s", Principal: identity.FromID("p")},
		w.feed)
	t.Cleanup(func() {
		if err := w.proxy.Close(); err != nil {
			t.Error("close:", err)
		}
	})
	return w
}

// call sends a request and returns its result, or "!CODE text" for an error.
func (w *fixture) call(t *testing.T, method, params string) string {
	t.Helper()
	return w.callAs(t, w.session, w.client, `7`, method, params)
}

func (w *fixture) callAs(t *testing.T, s *proxy.Session, c *fakeClient, id, method,
	params string) string {
	t.Helper()
	return answerText(t, id, s.Call(t.Context(), request(t, id, method, params), c))
}

func answerText(t *testing.T, id string, p pipeline.Passed) string {
	t.Helper()
	m := p.Message()
	if m == nil {
		return "nothing"
	}
	if string(m.ID()) != id {
		t.Errorf("the answer has the id %s, want %s", m.ID(), id)
	}
	if m.Kind == mcp.Error {
		text, _ := m.Text("/message")
		return fmt.Sprintf("!%d %s", m.ErrorCode(), text)
	}
	return string(m.Body())
}

func request(t *testing.T, id, method, params string) *mcp.Message {
	t.Helper()
	m, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method +
		`","params":` + params + `}`))
	if err != nil {
		t.Fatalf("%s: %v", params, err)
	}
	m.CarriesInput = strings.Contains(params, `"inputResponses"`) || strings.Contains(params,
		`"requestState"`)
	return m
}

func notification(t *testing.T, method, params string) *mcp.Message {
	t.Helper()
	m, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params +
		`}`))
	if err != nil {
		t.Fatalf("%s: %v", params, err)
	}
	return m
}

// equal fails the test when got and want are printed differently. The parameter name describes the
// compared value.
func equal(t *testing.T, name string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", name, g, w)
	}
}
