package downstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/core/conn"
	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// journal is a Recorder in memory.
type journal struct {
	mu   sync.Mutex
	rows []string
}

func (j *journal) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := o.Before
	j.rows = append(j.rows, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", o.Action, m.Direction,
		m.Kind,
		m.Method, o.Reason)))
	return uint64(len(j.rows)), nil
}

func (j *journal) has(t *testing.T, row string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Contains(j.rows, row) {
		t.Errorf("the record lacks %q; it has\n%s", row, strings.Join(j.rows, "\n"))
	}
}

// server plays the upstream server of all sessions. answer answers each request by its raw result,
// or an error as "!CODE text"; "" waits for the call to be cancelled. The default is to answer with
// the params, and initialize as servers do.
type server struct {
	answer func(ctx context.Context, m *mcp.Message, c proxy.Handler) string
	cold   atomic.Bool   // it refuses initialize
	stays  chan struct{} // Close waits until it is closed; nil: for nothing

	mu       sync.Mutex
	feeds    []proxy.Handler
	got      []string // "METHOD BODY" of what came
	openings []proxy.OpenOptions
	closed   int
}

func (s *server) Open(_ context.Context, o proxy.OpenOptions,
	feed proxy.Handler) (proxy.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds, s.openings = append(s.feeds, feed), append(s.openings, o)
	return s, nil
}

func (s *server) feed() proxy.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feeds[len(s.feeds)-1]
}

func (s *server) note(text string) {
	s.mu.Lock()
	s.got = append(s.got, text)
	s.mu.Unlock()
}

func (s *server) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *server) Call(ctx context.Context, p pipeline.Passed,
	c proxy.Handler) (*mcp.Message, error) {
	m := p.Message()
	s.note(m.Method + " " + string(m.Body()))
	answer := string(m.Body())
	switch {
	case m.Method == "initialize" && s.cold.Load():
		answer = "!-32603 not now"
	case m.Method == "initialize":
		version, _ := m.Text("/protocolVersion")
		answer = fmt.Sprintf(
			`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`, version)
	case s.answer != nil:
		answer = s.answer(ctx, m, c)
	case answer == "":
		answer = "{}"
	}
	switch {
	case answer == "":
		<-ctx.Done()
		s.note("ended " + m.Method + ": " + context.Cause(ctx).Error())
		return nil, context.Cause(ctx)
	case strings.HasPrefix(answer, "!"):
		var code int
		fmt.Sscanf(answer[1:], "%d", &code)
		_, text, _ := strings.Cut(answer, " ")
		return mcp.NewError(m.ID(), code, text, nil), nil
	}
	return mcp.NewResponse(m.ID(), []byte(answer)), nil
}

func (s *server) Notify(_ context.Context, p pipeline.Passed) error {
	s.note(p.Message().Method + " " + string(p.Message().Body()))
	return nil
}

func (s *server) Close() error {
	if s.stays != nil {
		<-s.stays
	}
	s.mu.Lock()
	s.closed++
	s.mu.Unlock()
	return nil
}

// world is a Front before one server whose names are left as they are.
type world struct {
	front  *downstream.Endpoint
	proxy  *proxy.Proxy
	server *server
	record *journal
}

func newWorld(t *testing.T, s *server, limits downstream.Limits) *world {
	t.Helper()
	w := &world{server: s, record: &journal{}}
	var err error
	w.proxy, err = proxy.New(proxy.Options{
		Pipeline: pipeline.New(w.record, pipeline.Options{}),
		Servers:  []proxy.ServerConfig{{Name: "s", Upstream: s}},
		Naming:   proxy.Naming{Prefix: "never"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.front = downstream.New(downstream.Options{Proxy: w.proxy, Limits: limits})
	return w
}

// close ends everything, and checks that what was opened was closed.
func (w *world) close(t *testing.T) {
	t.Helper()
	if err := w.front.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := w.proxy.Close(); err != nil {
		t.Error(err)
	}
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if w.server.closed != len(w.server.openings) {
		t.Errorf("servers opened: %d, closed: %d", len(w.server.openings), w.server.closed)
	}
}

// line is a pipe in memory, seen from the client.
type line struct {
	in    chan []byte // nil is a message that is too long
	out   chan string
	stuck chan struct{} // while it is open nothing is read by the client; nil: it reads all
	gone  chan error
}

func (l *line) Read(ctx context.Context) ([]byte, error) {
	select {
	case b, ok := <-l.in:
		if !ok {
			return nil, io.EOF
		}
		if b == nil {
			return nil, &conn.TooLargeError{Size: 99, Limit: 50}
		}
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *line) Write(ctx context.Context, parts ...[]byte) error {
	if l.stuck != nil {
		select {
		case <-l.stuck:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.out <- string(slices.Concat(parts...))
	return nil
}

// pipe connects a client by a pipe.
func (w *world) pipe(t *testing.T) *line {
	l := &line{in: make(chan []byte, 1000), out: make(chan string, 100_000), gone: make(chan error,
		1)}
	w.serve(t, l)
	return l
}

func (w *world) serve(t *testing.T, l *line) {
	go func() { l.gone <- w.front.ServePipe(t.Context(), l, "") }()
}

func (l *line) send(messages ...string) {
	for _, m := range messages {
		l.in <- []byte(m)
	}
}

// ask sends a message and answers what comes next.
func (l *line) ask(message string) string {
	l.send(message)
	return <-l.out
}

func (l *line) initialize(revision string) {
	l.ask(initialize(revision))
	l.send(initialized)
}

// leave closes the pipe and waits until the Front is done with it.
func (l *line) leave(t *testing.T) {
	t.Helper()
	close(l.in)
	if err := <-l.gone; err != nil {
		t.Errorf("ServePipe: %v", err)
	}
}

const (
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	modernMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
)

func initialize(revision string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{"roots":{},"sampling":{},"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}`, revision)
}

func request(id any, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":%q,"params":%s}`, id, method, params)
}

func modern(id any, method, members string) string {
	if members != "" {
		members += ","
	}
	return request(id, method, "{"+members+modernMeta+"}")
}

func cancelled(id any) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%v}}`, id)
}

// exchange is one HTTP request in memory, and what became of it.
type exchange struct {
	mu     sync.Mutex
	status int
	header http.Header
	body   string
	events []conn.Event
	opened bool
	closed bool
	broken bool // writes fail
	calls  int  // of Write and Stream

	done chan struct{} // closed when the Front has returned
	drop context.CancelFunc
}

func (x *exchange) Write(status int, header http.Header, parts ...[]byte) error {
	body := slices.Concat(parts...)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls++
	x.status, x.header, x.body = status, header, string(body)
	if x.broken {
		return errors.New("broken")
	}
	return nil
}

func (x *exchange) Stream(header http.Header) (downstream.Stream, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls++
	x.status, x.header, x.opened = 200, header, true
	return x, nil
}

func (x *exchange) Send(e conn.Event) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.broken {
		return errors.New("broken")
	}
	e.Data = bytes.Clone(e.Data)
	x.events = append(x.events, e)
	return nil
}

func (x *exchange) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return nil
}

// text is what was written: "STATUS BODY", or "ID: DATA" of each event, with "EOF" when the stream
// was closed.
func (x *exchange) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.opened {
		return strings.TrimSpace(fmt.Sprintf("%d %s", x.status, x.body))
	}
	var lines []string
	for _, e := range x.events {
		lines = append(lines, strings.TrimSpace(e.ID+": "+string(e.Data)))
	}
	if x.closed {
		lines = append(lines, "EOF")
	}
	return strings.Join(lines, "\n")
}

// client is a client over HTTP.
type client struct {
	*world
	principal string
	header    http.Header
}

func (w *world) client(principal string) *client {
	return &client{w, principal, http.Header{}}
}

func (c *client) begin(t *testing.T, serve func(context.Context, downstream.HTTPRequest,
	downstream.Reply),
	body string, headers ...string) *exchange {
	ctx, cancel := context.WithCancel(t.Context())
	x := &exchange{done: make(chan struct{}), drop: cancel}
	h := c.header.Clone()
	for _, kv := range headers {
		k, v, _ := strings.Cut(kv, ": ")
		h.Add(k, v)
	}
	go func() {
		defer close(x.done)
		defer cancel()
		serve(ctx, downstream.HTTPRequest{Header: h, Body: []byte(body), Principal: c.principal}, x)
	}()
	return x
}

// post sends a message and waits for the end of its answer.
func (c *client) post(t *testing.T, body string, headers ...string) string {
	t.Helper()
	x := c.begin(t, c.front.Post, body, headers...)
	<-x.done
	if x.calls != 1 {
		t.Errorf("the reply was used %d times", x.calls)
	}
	return x.text()
}

func (c *client) initialize(t *testing.T, revision string) {
	t.Helper()
	x := c.begin(t, c.front.Post, initialize(revision))
	<-x.done
	if id := x.header.Get("Mcp-Session-Id"); id == "" {
		t.Fatalf("initialize gave no session: %s", x.text())
	} else {
		c.header.Set("Mcp-Session-Id", id)
	}
	equal(t, "initialized", c.post(t, initialized), "202")
}

// modernPost sends a modern message with the headers that belong to it.
func (c *client) modernPost(t *testing.T, method, name, body string, headers ...string) *exchange {
	all := append([]string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}, headers...)
	if name != "" {
		all = append(all, "Mcp-Name: "+name)
	}
	return c.begin(t, c.front.Post, body, all...)
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func contains(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s:\n got %s\nwant it to contain %s", what, got, want)
	}
}
