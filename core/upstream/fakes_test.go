package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
)

// pipe is a server at the other end of a Pipe, played by the test.
type pipe struct {
	up, down chan []byte
	gone     chan struct{}
	once     sync.Once
	deaf     time.Duration // how long Close waits before it is gone: a server that ignores TERM
}

func newPipe() *pipe {
	return &pipe{up: make(chan []byte, 100), down: make(chan []byte, 5000),
		gone: make(chan struct{})}
}

func (p *pipe) Read(ctx context.Context) ([]byte, error) {
	read := func(b []byte) ([]byte, error) {
		if b == nil {
			return nil, &conn.TooLargeError{Size: 1 << 30}
		}
		return b, nil
	}
	select {
	case b := <-p.down:
		return read(b)
	default:
	}
	select {
	case b := <-p.down:
		return read(b)
	case <-p.gone:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *pipe) Write(ctx context.Context, parts ...[]byte) error {
	select {
	case <-p.gone:
		return io.ErrClosedPipe
	default:
	}
	select {
	case p.up <- slices.Concat(parts...):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pipe) Close() error {
	p.once.Do(func() {
		time.Sleep(p.deaf)
		close(p.gone)
	})
	return nil
}

// said is a message as the test reads it.
type said struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
	}
	Raw string
}

func parse(t *testing.T, b []byte) said {
	t.Helper()
	var s said
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatalf("not JSON: %s", b)
	}
	s.Raw = string(b)
	return s
}

// next is the next message that reached the server.
func (p *pipe) next(t *testing.T) said {
	t.Helper()
	synctest.Wait()
	select {
	case b := <-p.up:
		return parse(t, b)
	default:
		t.Fatal("the server got nothing")
		return said{}
	}
}

// expect is the next message, which has to be of that method.
func (p *pipe) expect(t *testing.T, method string) said {
	t.Helper()
	m := p.next(t)
	if m.Method != method {
		t.Fatalf("the server got %s, want %s", m.Raw, method)
	}
	return m
}

func (p *pipe) quiet(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case b := <-p.up:
		t.Fatalf("the server got %s, want nothing", b)
	default:
	}
}

func (p *pipe) sendTooMuch() { p.down <- nil }

func (p *pipe) send(format string, args ...any) { p.down <- fmt.Appendf(nil, format, args...) }

func (p *pipe) result(id json.RawMessage, result string) {
	p.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// starter hands out pipes, and keeps them.
type starter struct {
	mu    sync.Mutex
	pipes []*pipe
	fail  error
	deaf  time.Duration // of those it starts
}

func (s *starter) start(context.Context) (conn.PipeCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	p := newPipe()
	p.deaf = s.deaf
	s.pipes = append(s.pipes, p)
	return p, nil
}

func (s *starter) count() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pipes)
}

// alive are the processes that are not gone.
func (s *starter) alive() []*pipe {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.pipes), (*pipe).ended)
}

// last is the process that was started last.
func (s *starter) last(t *testing.T) *pipe {
	t.Helper()
	if s.count() == 0 {
		t.Fatal("no process was started")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pipes[len(s.pipes)-1]
}

// client is what the proxy hands to a Server: it keeps what it is told and answers as it is told.
type client struct {
	mu     sync.Mutex
	told   []string
	alive  atomic.Int32 // how often it was heard that the server is at work
	answer func(ctx context.Context, m *mcp.Message) pipeline.Passed
	slow   chan struct{} // when not nil, each notification waits for one of these
	away   bool          // it does not wait for this call just now
}

func (c *client) HandleNotification(ctx context.Context, m *mcp.Message) {
	if c.slow != nil {
		select {
		case <-c.slow:
		case <-ctx.Done():
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, string(m.Append(nil)))
}

func (c *client) HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	var answers []pipeline.Passed
	for _, m := range ms {
		answers = append(answers, c.answer(ctx, m))
	}
	return answers
}

func (c *client) IsWaiting() bool { return !c.away }

func (c *client) ReportActivity() { c.alive.Add(1) }

// heard is what the client was told so far.
func (c *client) heard() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.told)
}

func (c *client) wants(t *testing.T, want ...string) {
	t.Helper()
	if got := c.heard(); !slices.Equal(got, want) {
		t.Errorf("the client was told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want,
			"\n"))
	}
}

type recorder struct{}

func (recorder) Record(context.Context, pipeline.Outcome) (uint64, error) { return 1, nil }

var judge = pipeline.New(recorder{}, pipeline.Options{})

// pass is raw as a client's message that passed.
func pass(t *testing.T, raw string) pipeline.Passed {
	t.Helper()
	m, err := mcp.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	m.Direction = mcp.ToServer
	p, err := judge.Pass(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func answers(raw string) func(context.Context, *mcp.Message) pipeline.Passed {
	return func(ctx context.Context, m *mcp.Message) pipeline.Passed {
		r := mcp.NewResponse(m.ID(), []byte(raw))
		r.Direction = mcp.ToServer
		return judge.PassOwn(ctx, r)
	}
}

// pending is a call under way.
type pending struct {
	t      *testing.T
	cancel context.CancelCauseFunc
	done   chan struct{}
	m      *mcp.Message
	err    error
}

func call(t *testing.T, s proxy.Server, c proxy.Handler, raw string) *pending {
	t.Helper()
	p := &pending{t: t, done: make(chan struct{})}
	m := pass(t, raw)
	var ctx context.Context
	ctx, p.cancel = context.WithCancelCause(t.Context())
	go func() {
		defer close(p.done)
		p.m, p.err = s.Call(ctx, m, c)
	}()
	return p
}

// is checks that the call has been answered with a message.
func (p *pending) is(want string) {
	p.t.Helper()
	synctest.Wait()
	select {
	case <-p.done:
	default:
		p.t.Errorf("not answered yet, want %s", want)
		return
	}
	if p.err != nil {
		p.t.Errorf("got error %v, want %s", p.err, want)
		return
	}
	if got := string(p.m.Append(nil)); got != want {
		p.t.Errorf("answered %s\nwant     %s", got, want)
	}
	if p.m.Direction != mcp.ToClient {
		p.t.Errorf("an answer goes to %v", p.m.Direction)
	}
}

func (p *pending) waits() {
	p.t.Helper()
	synctest.Wait()
	select {
	case <-p.done:
		p.t.Errorf("answered early: %v", p.err)
	default:
	}
}

// fails checks that the call has failed with an error that says want.
func (p *pending) fails(want string) {
	p.t.Helper()
	synctest.Wait()
	select {
	case <-p.done:
	default:
		p.t.Errorf("not ended yet, want the error %q", want)
		return
	}
	if p.err == nil {
		p.t.Errorf("answered %s, want the error %q", p.m.Append(nil), want)
	} else if !strings.Contains(p.err.Error(), want) {
		p.t.Errorf("got error %q, want %q", p.err, want)
	}
}

// web is a server at the other end of HTTP, played by a function. It must be set before it is used.
type web struct {
	serve func(r request) *upstream.Answer // nil: the network fails

	mu   sync.Mutex
	seen []request
}

type request struct {
	ctx    context.Context
	method string
	header http.Header
	body   string
	said
}

func (w *web) do(ctx context.Context, method string, h http.Header,
	body []byte) (*upstream.Answer, error) {
	r := request{ctx: ctx, method: method, header: h.Clone(), body: string(body)}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &r.said); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	w.seen = append(w.seen, r)
	w.mu.Unlock()
	a := w.serve(r)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if a == nil {
		return nil, io.ErrUnexpectedEOF
	}
	return a, nil
}

func (w *web) Post(ctx context.Context, h http.Header, b []byte) (*upstream.Answer, error) {
	return w.do(ctx, "POST", h, b)
}
func (w *web) Get(ctx context.Context, h http.Header) (*upstream.Answer, error) {
	return w.do(ctx, "GET", h, nil)
}
func (w *web) Delete(ctx context.Context, h http.Header) (*upstream.Answer, error) {
	return w.do(ctx, "DELETE", h, nil)
}

// log is what reached the server, in short: the HTTP method and that of the message.
func (w *web) log() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var log []string
	for _, r := range w.seen {
		log = append(log, strings.TrimSpace(r.method+" "+r.Method))
	}
	return log
}

// requests are those of one kind, as in log.
func (w *web) requests(kind string) []request {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []request
	for _, r := range w.seen {
		if strings.TrimSpace(r.method+" "+r.Method) == kind {
			found = append(found, r)
		}
	}
	return found
}

// events is a stream that the test writes.
type events struct {
	ch   chan conn.Event
	gone chan struct{}
	once sync.Once
}

func newEvents(es ...conn.Event) *events {
	s := &events{ch: make(chan conn.Event, 100), gone: make(chan struct{})}
	for _, e := range es {
		s.ch <- e
	}
	return s
}

func (s *events) send(id, format string, args ...any) {
	s.ch <- conn.Event{ID: id, Data: fmt.Appendf(nil, format, args...)}
}

func (s *events) end() { close(s.ch) }

func (s *events) Next() (conn.Event, error) {
	select {
	case e, ok := <-s.ch:
		switch {
		case !ok:
			return e, io.EOF
		case e.Name == "too large":
			return e, &conn.TooLargeError{Size: 1 << 30}
		}
		return e, nil
	case <-s.gone:
		return conn.Event{}, io.ErrClosedPipe
	}
}

func (s *events) Close() error {
	s.once.Do(func() { close(s.gone) })
	return nil
}

// closed says whether whoever read the stream has dropped it.
func (s *events) closed() bool {
	synctest.Wait()
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

func status(code int, body string) *upstream.Answer {
	return &upstream.Answer{Status: code, Header: http.Header{}, Body: []byte(body)}
}

func stream(s *events) *upstream.Answer {
	return &upstream.Answer{Status: 200, Header: http.Header{}, Events: s}
}

func reply(id json.RawMessage, result string) *upstream.Answer {
	return status(200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

func contains(s, part string) bool { return strings.Contains(s, part) }

func replace(s, old, new string) string { return strings.ReplaceAll(s, old, new) }
