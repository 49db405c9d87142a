// Package upstreamtest has fakes for tests of core/upstream and core/bridge: a server behind a
// pipe, and the client's side of calls. The test controls both. Most functions wait with
// synctest.Wait, so the tests must run in synctest.Test.
package upstreamtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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
)

// PipeServer is a fake server at the other end of a conn.PipeCloser. The test controls it.
type PipeServer struct {
	Written    chan []byte   // messages that were written to the server
	Gone       chan struct{} // closed when the server has ended
	CloseDelay time.Duration // time that Close takes, as if the server ignored SIGTERM

	sent chan []byte // messages of the server; nil stands for a message that is too large
	once sync.Once
}

// NewPipeServer returns a server that is running.
func NewPipeServer() *PipeServer {
	return &PipeServer{Written: make(chan []byte, 100), sent: make(chan []byte, 5000),
		Gone: make(chan struct{})}
}

// Read implements conn.PipeCloser.
func (p *PipeServer) Read(ctx context.Context) ([]byte, error) {
	read := func(b []byte) ([]byte, error) {
		if b == nil {
			return nil, &conn.TooLargeError{Size: 1 << 30}
		}
		return b, nil
	}
	select {
	case b := <-p.sent:
		return read(b)
	default:
	}
	select {
	case b := <-p.sent:
		return read(b)
	case <-p.Gone:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Write implements conn.PipeCloser.
func (p *PipeServer) Write(ctx context.Context, parts ...[]byte) error {
	select {
	case <-p.Gone:
		return io.ErrClosedPipe
	default:
	}
	select {
	case p.Written <- slices.Concat(parts...):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close implements conn.PipeCloser.
func (p *PipeServer) Close() error {
	p.once.Do(func() {
		time.Sleep(p.CloseDelay)
		close(p.Gone)
	})
	return nil
}

// HasEnded reports whether the server has been closed.
func (p *PipeServer) HasEnded() bool {
	synctest.Wait()
	select {
	case <-p.Gone:
		return true
	default:
		return false
	}
}

// Next returns the next message that was written to the server. It fails the test if there is none.
func (p *PipeServer) Next(t *testing.T) Message {
	t.Helper()
	synctest.Wait()
	select {
	case b := <-p.Written:
		return ParseMessage(t, b)
	default:
		t.Fatal("the server got no message, want one")
		return Message{}
	}
}

// Expect returns the next message that was written to the server. It fails the test unless the
// message has the method.
func (p *PipeServer) Expect(t *testing.T, method string) Message {
	t.Helper()
	m := p.Next(t)
	if m.Method != method {
		t.Fatalf("the server got %s, want %s", m.Raw, method)
	}
	return m
}

// ExpectNothing fails the test if a message has been written to the server.
func (p *PipeServer) ExpectNothing(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case b := <-p.Written:
		t.Fatalf("the server got %s, want no message", b)
	default:
	}
}

// Send lets the server send a message.
func (p *PipeServer) Send(format string, args ...any) {
	p.sent <- fmt.Appendf(nil, format, args...)
}

// Answer lets the server answer a request with a result.
func (p *PipeServer) Answer(id json.RawMessage, result string) {
	p.Send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// SendTooLarge lets the server send a message above the size limit.
func (p *PipeServer) SendTooLarge() { p.sent <- nil }

// Unread returns the number of the server's messages that have not been read.
func (p *PipeServer) Unread() int { return len(p.sent) }

// Message is a message in a form that tests can inspect.
type Message struct {
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

// ParseMessage parses a message.
func ParseMessage(t *testing.T, b []byte) Message {
	t.Helper()
	var m Message
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("got a message that is not JSON: %s", b)
	}
	m.Raw = string(b)
	return m
}

// Launcher starts servers and remembers them. Its method Start is the function Pipe of an
// upstream.Dial.
type Launcher struct {
	Fail       error         // if not nil, no server can be started
	CloseDelay time.Duration // CloseDelay of the servers that Start starts

	mu      sync.Mutex
	servers []*PipeServer
}

// Start starts a server.
func (l *Launcher) Start(context.Context) (conn.PipeCloser, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Fail != nil {
		return nil, l.Fail
	}
	p := NewPipeServer()
	p.CloseDelay = l.CloseDelay
	l.servers = append(l.servers, p)
	return p, nil
}

// Count returns the number of servers that were started.
func (l *Launcher) Count() int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.servers)
}

// Alive returns the servers that have not ended.
func (l *Launcher) Alive() []*PipeServer {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.servers), (*PipeServer).HasEnded)
}

// First returns the server that was started first.
func (l *Launcher) First(t *testing.T) *PipeServer {
	t.Helper()
	return l.at(t, 0)
}

// Last returns the server that was started last.
func (l *Launcher) Last(t *testing.T) *PipeServer {
	t.Helper()
	return l.at(t, l.Count()-1)
}

func (l *Launcher) at(t *testing.T, i int) *PipeServer {
	t.Helper()
	if l.Count() == 0 {
		t.Fatal("no server was started, want one")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.servers[i]
}

// Client is a proxy.Handler: the client's side of a call or of a session.
type Client struct {
	// OnAsk returns the answer to a server's request to the client.
	OnAsk func(ctx context.Context, m *mcp.Message) pipeline.Passed
	// If Slow is not nil, each notification waits until a value can be received from Slow.
	Slow chan struct{}
	// Away means that the client does not wait for its call at the moment.
	Away     bool
	Activity atomic.Int32 // calls of ReportActivity

	mu       sync.Mutex
	received []string
	consumed []string
}

// HandleNotification implements proxy.Handler.
func (c *Client) HandleNotification(ctx context.Context, m *mcp.Message) {
	if c.Slow != nil {
		select {
		case <-c.Slow:
		case <-ctx.Done():
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, string(m.Append(nil)))
}

// HandleRequests implements proxy.Handler.
func (c *Client) HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	var answers []pipeline.Passed
	for _, m := range ms {
		answers = append(answers, c.OnAsk(ctx, m))
	}
	return answers
}

// Consume implements proxy.Handler.
func (c *Client) Consume(_ context.Context, m *mcp.Message, action, reason string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.consumed = append(c.consumed, action+": "+reason+": "+string(m.Append(nil)))
	return nil
}

// IsWaiting implements proxy.Handler.
func (c *Client) IsWaiting() bool { return !c.Away }

// ReportActivity implements proxy.Handler.
func (c *Client) ReportActivity() { c.Activity.Add(1) }

// Consumed returns the messages that Consume was called with. Each has its action and reason in
// front, separated by ": ".
func (c *Client) Consumed() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.consumed)
}

// Received returns the notifications that the client has received.
func (c *Client) Received() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.received)
}

// Forget discards the notifications that the client has received.
func (c *Client) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = nil
}

// ExpectReceived fails the test unless the client has received exactly the notifications in want.
func (c *Client) ExpectReceived(t *testing.T, want ...string) {
	t.Helper()
	if got := c.Received(); !slices.Equal(got, want) {
		t.Errorf("the client received\n%s\nwant\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
}

type recorder struct{}

func (recorder) Record(context.Context, pipeline.Outcome) (uint64, error) { return 1, nil }

// Pipeline is a pipeline without stages.
var Pipeline = pipeline.New(recorder{}, pipeline.Options{})

// Pass parses raw as a message of a client and passes it through Pipeline.
func Pass(t *testing.T, raw string) pipeline.Passed {
	t.Helper()
	m, err := mcp.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	m.Direction = mcp.ToServer
	p, err := Pipeline.Pass(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// AnswerWith returns a function for Client.OnAsk that answers each request with the result.
func AnswerWith(result string) func(context.Context, *mcp.Message) pipeline.Passed {
	return func(ctx context.Context, m *mcp.Message) pipeline.Passed {
		r := mcp.NewResponse(m.ID(), []byte(result))
		r.Direction = mcp.ToServer
		return Pipeline.PassOwn(ctx, r)
	}
}

// Call is a call in flight.
type Call struct {
	Cancel context.CancelCauseFunc
	Done   chan struct{} // closed when Answer or Err is set
	Answer *mcp.Message
	Err    error

	t *testing.T
}

// StartCall sends the request raw to s in the background, with h as the handler of the call.
func StartCall(t *testing.T, s proxy.Server, h proxy.Handler, raw string) *Call {
	t.Helper()
	c := &Call{t: t, Done: make(chan struct{})}
	m := Pass(t, raw)
	var ctx context.Context
	ctx, c.Cancel = context.WithCancelCause(t.Context())
	go func() {
		defer close(c.Done)
		c.Answer, c.Err = s.Call(ctx, m, h)
	}()
	return c
}

// ExpectAnswer fails the test unless the call has ended with the answer want.
func (c *Call) ExpectAnswer(want string) {
	c.t.Helper()
	synctest.Wait()
	select {
	case <-c.Done:
	default:
		c.t.Errorf("the call has no answer yet, want %s", want)
		return
	}
	if c.Err != nil {
		c.t.Errorf("the call got the error %v, want the answer %s", c.Err, want)
		return
	}
	if got := string(c.Answer.Append(nil)); got != want {
		c.t.Errorf("the call got the answer\n%s\nwant\n%s", got, want)
	}
	if c.Answer.Direction != mcp.ToClient {
		c.t.Errorf("the answer has the direction %v, want %v", c.Answer.Direction, mcp.ToClient)
	}
}

// ExpectWaiting fails the test if the call has ended.
func (c *Call) ExpectWaiting() {
	c.t.Helper()
	synctest.Wait()
	select {
	case <-c.Done:
		c.t.Errorf("the call has ended with the error %v, want it to wait", c.Err)
	default:
	}
}

// ExpectError fails the test unless the call has failed with an error that contains want.
func (c *Call) ExpectError(want string) {
	c.t.Helper()
	synctest.Wait()
	select {
	case <-c.Done:
	default:
		c.t.Errorf("the call has not ended yet, want the error %q", want)
		return
	}
	if c.Err == nil {
		c.t.Errorf("the call got the answer %s, want the error %q", c.Answer.Append(nil), want)
	} else if !strings.Contains(c.Err.Error(), want) {
		c.t.Errorf("the call got the error %q, want %q", c.Err, want)
	}
}

// ModernRequest returns a modern request. meta are members that come before the client's
// description in _meta, each with a comma after it. params are members that come after _meta, each
// with a comma before it.
func ModernRequest(id, method, meta, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"_meta":{` + meta +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}` + params + `}}`
}
