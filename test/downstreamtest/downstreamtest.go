// Package downstreamtest connects clients in memory to an Endpoint of core/downstream and one fake
// server, which the test controls. There is no other process or network connection, so tests can
// run in a bubble of synctest.
package downstreamtest

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
	"testing/synctest"
	"time"

	"gatekit/core/conn"
	"gatekit/core/downstream"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// Recorder is a pipeline.Recorder in memory.
type Recorder struct {
	mu   sync.Mutex
	rows []string
}

// Record implements pipeline.Recorder.
func (r *Recorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := o.Before
	row := strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", o.Action, m.Direction, m.Kind, m.Method,
		o.Reason))
	if m.Via != "" {
		row += " via " + m.Via
	}
	r.rows = append(r.rows, row)
	return uint64(len(r.rows)), nil
}

// Rows returns the records, each as "ACTION DIRECTION KIND METHOD REASON". If another replica has
// forwarded the message, " via NAME" follows.
func (r *Recorder) Rows() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.rows)
}

// Contains fails the test unless Rows contains row.
func (r *Recorder) Contains(t *testing.T, row string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.rows, row) {
		t.Errorf("there is no record %q; the records are\n%s", row, strings.Join(r.rows, "\n"))
	}
}

// Server is the fake upstream server of all sessions. It answers initialize like a real server. If
// Answer is nil, the result of any other request is the params of that request.
type Server struct {
	// Answer returns the raw result of a request, or an error as "!CODE text". If it returns "",
	// the request waits until it is cancelled.
	Answer            func(ctx context.Context, m *mcp.Message, c proxy.Handler) string
	RefusesInitialize atomic.Bool
	HoldClose         chan struct{} // if not nil, Close waits until this channel is closed
	HoldNotify        chan struct{} // if not nil, Notify waits until this channel is closed
	// if not nil, the answer to initialize waits until this channel is closed
	HoldInitialize chan struct{}

	mu     sync.Mutex
	feeds  []proxy.Handler
	got    []string            // "METHOD BODY" of each message
	Opened []proxy.OpenOptions // of each opened session
	Closed int                 // number of closed sessions
}

// Open implements proxy.Upstream.
func (s *Server) Open(_ context.Context, o proxy.OpenOptions,
	feed proxy.Handler) (proxy.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds, s.Opened = append(s.feeds, feed), append(s.Opened, o)
	return s, nil
}

// Feed returns the handler for messages outside of any call. It is the handler of the session that
// was opened last.
func (s *Server) Feed() proxy.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feeds[len(s.feeds)-1]
}

func (s *Server) note(text string) {
	s.mu.Lock()
	s.got = append(s.got, text)
	s.mu.Unlock()
}

// Received returns the messages that the server has received, each as "METHOD BODY".
func (s *Server) Received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// Call implements proxy.Server.
func (s *Server) Call(ctx context.Context, p pipeline.Passed,
	c proxy.Handler) (*mcp.Message, error) {
	m := p.Message()
	s.note(m.Method + " " + string(m.Body()))
	answer := string(m.Body())
	if m.Method == "initialize" && s.HoldInitialize != nil {
		<-s.HoldInitialize
	}
	switch {
	case m.Method == "initialize" && s.RefusesInitialize.Load():
		answer = "!-32603 not now"
	case m.Method == "initialize":
		version, _ := m.Text("/protocolVersion")
		answer = fmt.Sprintf(
			`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`, version)
	case s.Answer != nil:
		answer = s.Answer(ctx, m, c)
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

// Notify implements proxy.Server.
func (s *Server) Notify(_ context.Context, p pipeline.Passed) error {
	if s.HoldNotify != nil {
		<-s.HoldNotify
	}
	s.note(p.Message().Method + " " + string(p.Message().Body()))
	return nil
}

// Close implements proxy.Server.
func (s *Server) Close() error {
	if s.HoldClose != nil {
		<-s.HoldClose
	}
	s.mu.Lock()
	s.Closed++
	s.mu.Unlock()
	return nil
}

// Gateway is an Endpoint with a proxy in front of one Server. The proxy adds no prefixes to names.
type Gateway struct {
	Endpoint *downstream.Endpoint
	Proxy    *proxy.Proxy
	Server   *Server
	Records  *Recorder
}

// New returns a Gateway in front of s. The functions in options change the options of its Endpoint.
func New(t *testing.T, s *Server, limits downstream.Limits,
	options ...func(*downstream.Options)) *Gateway {
	t.Helper()
	w := &Gateway{Server: s, Records: &Recorder{}}
	var err error
	w.Proxy, err = proxy.New(proxy.Options{
		Pipeline: pipeline.New(w.Records, pipeline.Options{}),
		Servers:  []proxy.ServerConfig{{Name: "s", Upstream: s}},
		Naming:   proxy.Naming{Prefix: "never"},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := downstream.Options{Proxy: w.Proxy, Limits: limits}
	for _, change := range options {
		change(&o)
	}
	w.Endpoint = downstream.New(o)
	return w
}

// Close closes the Gateway. It fails the test unless every session with the server has been closed.
func (w *Gateway) Close(t *testing.T) {
	t.Helper()
	if err := w.Endpoint.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := w.Proxy.Close(); err != nil {
		t.Error(err)
	}
	w.Server.mu.Lock()
	defer w.Server.mu.Unlock()
	if w.Server.Closed != len(w.Server.Opened) {
		t.Errorf("%d sessions with the server were closed, want all %d", w.Server.Closed,
			len(w.Server.Opened))
	}
}

// Pipe is the client's end of a pipe in memory.
type Pipe struct {
	In     chan []byte   // messages to the Endpoint; nil stands for a message that is too large
	Out    chan string   // messages from the Endpoint
	Unread chan struct{} // if not nil, the client reads nothing until this channel is closed
	Served chan error    // the result of ServePipe
}

// Read implements conn.Pipe, for the Endpoint.
func (l *Pipe) Read(ctx context.Context) ([]byte, error) {
	select {
	case b, ok := <-l.In:
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

// Write implements conn.Pipe, for the Endpoint.
func (l *Pipe) Write(ctx context.Context, parts ...[]byte) error {
	if l.Unread != nil {
		select {
		case <-l.Unread:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.Out <- string(slices.Concat(parts...))
	return nil
}

// Connect connects a client with a pipe, which the Endpoint serves.
func (w *Gateway) Connect(t *testing.T) *Pipe {
	l := &Pipe{In: make(chan []byte, 1000), Out: make(chan string, 100_000),
		Served: make(chan error, 1)}
	w.Serve(t, l)
	return l
}

// Serve lets the Endpoint serve a pipe.
func (w *Gateway) Serve(t *testing.T, l *Pipe) {
	go func() { l.Served <- w.Endpoint.ServePipe(t.Context(), l, nil) }()
}

// Send sends messages to the Endpoint.
func (l *Pipe) Send(messages ...string) {
	for _, m := range messages {
		l.In <- []byte(m)
	}
}

// Ask sends a message and returns the next message that the client gets.
func (l *Pipe) Ask(message string) string {
	l.Send(message)
	return <-l.Out
}

// Initialize opens a session.
func (l *Pipe) Initialize(revision string) {
	l.Ask(Initialize(revision))
	l.Send(Initialized)
}

// Close closes the pipe and waits until the Endpoint has stopped serving it.
func (l *Pipe) Close(t *testing.T) {
	t.Helper()
	close(l.In)
	if err := <-l.Served; err != nil {
		t.Errorf("ServePipe: %v", err)
	}
}

// Messages, and parts of messages, that tests send.
const (
	Initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	ModernMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
)

// Initialize returns an initialize request of a client that declares all capabilities.
func Initialize(revision string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{"roots":{},"sampling":{},"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}`, revision)
}

// Request returns a request.
func Request(id any, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":%q,"params":%s}`, id, method, params)
}

// ModernRequest returns a modern request. Its params are members and ModernMeta.
func ModernRequest(id any, method, members string) string {
	if members != "" {
		members += ","
	}
	return Request(id, method, "{"+members+ModernMeta+"}")
}

// Cancelled returns the notification that cancels a request.
func Cancelled(id any) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%v}}`, id)
}

// HTTPExchange is one HTTP request in memory, with the reply to it. It implements downstream.Reply
// and downstream.Stream.
type HTTPExchange struct {
	mu         sync.Mutex
	StatusCode int
	Header     http.Header
	Body       string
	Events     []conn.Event
	opened     bool
	closed     bool
	Broken     bool // writes fail
	Replies    int  // number of calls of Write and Stream

	Done chan struct{}      // closed when the Endpoint has served the request
	Drop context.CancelFunc // cancels the request's context, like a dropped connection
}

// Write implements downstream.Reply.
func (x *HTTPExchange) Write(status int, header http.Header, parts ...[]byte) error {
	body := slices.Concat(parts...)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Replies++
	x.StatusCode, x.Header, x.Body = status, header, string(body)
	if x.Broken {
		return errors.New("broken")
	}
	return nil
}

// Stream implements downstream.Reply.
func (x *HTTPExchange) Stream(header http.Header) (downstream.Stream, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Replies++
	x.StatusCode, x.Header, x.opened = 200, header, true
	return x, nil
}

// Send implements downstream.Stream.
func (x *HTTPExchange) Send(e conn.Event) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.Broken {
		return errors.New("broken")
	}
	e.Data = bytes.Clone(e.Data)
	x.Events = append(x.Events, e)
	return nil
}

// Close implements downstream.Stream.
func (x *HTTPExchange) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return nil
}

// Text returns the reply as text. For a body the text is "STATUS BODY". For a stream the text has
// one line "ID: DATA" for each event, and the line "EOF" if the stream is closed.
func (x *HTTPExchange) Text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.opened {
		return strings.TrimSpace(fmt.Sprintf("%d %s", x.StatusCode, x.Body))
	}
	var lines []string
	for _, e := range x.Events {
		lines = append(lines, strings.TrimSpace(e.ID+": "+string(e.Data)))
	}
	if x.closed {
		lines = append(lines, "EOF")
	}
	return strings.Join(lines, "\n")
}

// HTTPClient is a client over HTTP. Header is sent with each of its requests.
type HTTPClient struct {
	*Gateway
	Principal *identity.Principal
	Header    http.Header
	// StreamsEnd is sent with each request.
	StreamsEnd time.Time
}

// HTTPClient returns a client that belongs to the principal with the given ID.
func (w *Gateway) HTTPClient(principal string) *HTTPClient {
	return &HTTPClient{Gateway: w, Principal: identity.FromID(principal), Header: http.Header{}}
}

// Begin calls serve with a request in the background. Each of headers is a header line, "Name:
// value". The field Done of the result is closed when serve has returned.
func (c *HTTPClient) Begin(t *testing.T, serve func(context.Context, downstream.HTTPRequest,
	downstream.Reply),
	body string, headers ...string) *HTTPExchange {
	ctx, cancel := context.WithCancel(t.Context())
	x := &HTTPExchange{Done: make(chan struct{}), Drop: cancel}
	h := c.Header.Clone()
	for _, kv := range headers {
		k, v, _ := strings.Cut(kv, ": ")
		h.Add(k, v)
	}
	go func() {
		defer close(x.Done)
		defer cancel()
		serve(ctx, downstream.HTTPRequest{Header: h, Body: []byte(body), Principal: c.Principal,
			StreamsEnd: c.StreamsEnd}, x)
	}()
	return x
}

// Post sends a message, waits for its reply and returns it as Text.
func (c *HTTPClient) Post(t *testing.T, body string, headers ...string) string {
	t.Helper()
	x := c.Begin(t, c.Endpoint.Post, body, headers...)
	<-x.Done
	if x.Replies != 1 {
		t.Errorf("the request got %d replies, want 1", x.Replies)
	}
	return x.Text()
}

// Initialize opens a session, and the client uses this session for its further requests.
func (c *HTTPClient) Initialize(t *testing.T, revision string) {
	t.Helper()
	x := c.Begin(t, c.Endpoint.Post, Initialize(revision))
	<-x.Done
	if id := x.Header.Get("Mcp-Session-Id"); id == "" {
		t.Fatalf("initialize got %s, want a session id", x.Text())
	} else {
		c.Header.Set("Mcp-Session-Id", id)
	}
	Equal(t, "initialized", c.Post(t, Initialized), "202")
}

// BeginModern sends a modern message with its standard headers.
func (c *HTTPClient) BeginModern(t *testing.T, method, name, body string,
	headers ...string) *HTTPExchange {
	all := append([]string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}, headers...)
	if name != "" {
		all = append(all, "Mcp-Name: "+name)
	}
	return c.Begin(t, c.Endpoint.Post, body, all...)
}

// Equal fails the test unless got is want. The parameter what describes the compared text.
func Equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// ContainsText fails the test unless got contains want. The parameter what describes the text got.
func ContainsText(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s:\n got %s\nwant it to contain %s", what, got, want)
	}
}

// Run runs a test with a Gateway, in a bubble of synctest. When the test returns, all goroutines
// must have ended.
func Run(t *testing.T, s *Server, limits downstream.Limits, test func(t *testing.T, w *Gateway),
	options ...func(*downstream.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := New(t, s, limits, options...)
		test(t, w)
		w.Close(t)
	})
}
