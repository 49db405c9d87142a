package mcptest

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// Modern is the first revision without initialize and sessions. Older revisions are legacy.
const Modern = "2026-07-28"

const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
)

// Server is a scripted server. Handle has a function for each method, except for the handshake, for
// subscriptions/listen and for the ping of a legacy client, which the Server answers itself. Each
// request is handled in a goroutine of its own.
type Server struct {
	Name           string
	Revisions      []string // supported revisions, newest first
	Capabilities   string   // a JSON object
	Instructions   string
	Handle         map[string]func(*Call)
	OnNotification func(Message) // called with each notification of a client; may be nil
	// AsksOnStream makes Call.Ask write its legacy requests on the session's GET stream, not on the
	// stream of the call. Over stdio there is only one stream.
	AsksOnStream bool

	mu           sync.Mutex              // guards the fields below
	sessions     map[string]*httpSession // by id; "" is the session of all modern requests
	sessionCount int
}

// session is one connection or legacy HTTP session, or all modern HTTP requests together.
type session struct {
	server *Server
	feed   func(b []byte) // writes messages that belong to no call

	mu sync.Mutex // guards the fields below
	// Calls in flight, by id. If two clients of one HTTP server use the same id, calls has the
	// later call.
	calls    map[string]*Call
	pending  map[string]chan Message
	listens  map[*Call]bool // modern: open subscriptions/listen
	askCount int
}

func (s *Server) session(feed func([]byte)) *session {
	return &session{server: s, feed: feed,
		calls: map[string]*Call{}, pending: map[string]chan Message{}, listens: map[*Call]bool{}}
}

func (s *Server) supportsLegacy() bool { return s.Revisions[len(s.Revisions)-1] < Modern }
func (s *Server) supportsModern() bool { return s.Revisions[0] >= Modern }

// Serve serves one connection until the other side closes it. Call.Die calls die; if die is nil,
// Call.Die closes the connection.
func (s *Server) Serve(ctx context.Context, c Conn, die func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	write := func(b []byte) { c.Write(ctx, b) }
	if die == nil {
		die = func() { c.Close() }
	}
	ses := s.session(write)
	for {
		b, err := c.Read(ctx)
		if err != nil {
			return err
		}
		m, err := Parse(b)
		switch {
		case err != nil:
			write(fmt.Appendf(
				nil, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":%s}}`,
				Quote(err.Error())))
		case m.IsRequest():
			call := ses.call(ctx, m, write, die)
			calls.Go(call.run)
		default:
			ses.receive(m)
		}
	}
}

// receive handles a notification, or an answer to a reverse request.
func (s *session) receive(m Message) {
	if m.Method == "" {
		s.mu.Lock()
		ch := s.pending[string(m.ID)]
		delete(s.pending, string(m.ID))
		s.mu.Unlock()
		if ch != nil {
			ch <- m
		}
		return
	}
	if m.Method == "notifications/cancelled" {
		s.cancel(string(At(m.Params, "requestId")))
	}
	if s.server.OnNotification != nil {
		s.server.OnNotification(m)
	}
}

// call registers a request, so that a cancellation can find the request. The method run of the
// returned Call handles the request.
func (s *session) call(ctx context.Context, m Message, out func([]byte), die func()) *Call {
	ctx, cancel := context.WithCancel(ctx)
	c := &Call{Message: m, Context: ctx, cancel: cancel, version: Text(m.Params,
		"_meta", metaVersion), session: s, out: out, die: die}
	s.mu.Lock()
	s.calls[string(m.ID)] = c
	s.mu.Unlock()
	return c
}

func (c *Call) run() {
	defer c.end() // also when Ask or Die ends the goroutine
	c.session.dispatch(c)
}

func (c *Call) end() {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	if id := string(c.ID); c.session.calls[id] == c {
		delete(c.session.calls, id)
	}
	c.cancel()
}

func (s *session) cancel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[id]; c != nil {
		c.cancel()
	}
}

func (s *session) dispatch(c *Call) {
	handle, ok := s.server.Handle[c.Method]
	switch version := c.version; {
	case version != "" && !s.server.supportsModern():
		c.Error(-32022, "unsupported protocol version",
			fmt.Sprintf(`{"supported":%s,"requested":%s}`, list(s.server.Revisions),
				Quote(version)))
	case version != "" && c.Method == "server/discover":
		c.Result(fmt.Sprintf(
			`{"supportedVersions":%s,"capabilities":%s,"instructions":%s,"ttlMs":0,"cacheScope":"private"}`,
			list(s.server.Revisions), s.server.Capabilities, Quote(s.server.Instructions)))
	case version != "" && c.Method == "subscriptions/listen":
		c.listen()
	case version == "" && !s.server.supportsLegacy():
		c.Error(-32602, "this server supports only "+s.server.Revisions[0], "")
	case version == "" && c.Method == "initialize":
		v := Text(c.Params, "protocolVersion")
		if v >= Modern || !strings.Contains(list(s.server.Revisions), v) {
			v = s.server.Revisions[len(s.server.Revisions)-1]
		}
		c.Result(fmt.Sprintf(
			`{"protocolVersion":%s,"capabilities":%s,"serverInfo":{"name":%s,"version":"1"},"instructions":%s}`,
			Quote(v), s.server.Capabilities, Quote(s.server.Name), Quote(s.server.Instructions)))
	case version == "" && c.Method == "ping":
		c.Result(`{}`)
	case !ok:
		c.Error(-32601, "method not found: "+c.Method, "")
	default:
		handle(c)
	}
}

func list(s []string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// Call is one request that the server received. Its Context ends when the call is cancelled or
// answered, or when the connection is closed.
type Call struct {
	Message
	context.Context
	cancel  context.CancelFunc
	version string // the revision in a modern request; "" for legacy requests
	session *session
	out     func([]byte)
	die     func()
}

// Raw writes b on the call's stream unchanged.
func (c *Call) Raw(b string) { c.out([]byte(b)) }

// Result sends a result as the answer. If the request is modern and the result has no resultType,
// Result adds a resultType.
func (c *Call) Result(result string) {
	if c.version != "" && At(json.RawMessage(result), "resultType") == nil {
		result = member(result, "resultType", `"complete"`)
	}
	c.Raw(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, c.ID, result))
}

// member returns a JSON object's text with a member added at its start.
func member(object, name, value string) string {
	rest := strings.TrimLeft(strings.TrimLeft(object, " ")[1:], " ")
	comma := ","
	if rest == "}" {
		comma = ""
	}
	return "{" + Quote(name) + ":" + value + comma + rest
}

// Error sends an error as the answer; data is JSON or "".
func (c *Call) Error(code int, message, data string) {
	if data != "" {
		data = `,"data":` + data
	}
	c.Raw(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s%s}}`, c.ID, code,
		Quote(message), data))
}

// Notify writes a notification on the call's stream.
func (c *Call) Notify(method, params string) { c.Raw(notification(method, params)) }

func notification(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%s,"params":%s}`, Quote(method), params)
}

// Token returns the call's raw progress token, or nil if the call has none.
func (c *Call) Token() json.RawMessage { return At(c.Params, "_meta", "progressToken") }

// Feed writes a notification that belongs to no call. For a legacy client it writes to the
// session's stream, for modern clients to all open subscriptions.
func (c *Call) Feed(method, params string) {
	if c.version == "" {
		c.session.feed([]byte(notification(method, params)))
		return
	}
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	for l := range c.session.listens {
		l.Notify(method, member(params, "_meta", fmt.Sprintf(`{%s:%s}`, Quote(metaSubscription),
			l.ID)))
	}
}

// listen serves a subscriptions/listen request. It acknowledges everything that the client asks
// for, and returns when the request is cancelled.
func (c *Call) listen() {
	meta := fmt.Sprintf(`"_meta":{%s:%s}`, Quote(metaSubscription), c.ID)
	// Feed needs this lock, too. So no notification comes before the acknowledgement, and no later
	// notification is lost.
	c.session.mu.Lock()
	c.Notify("notifications/subscriptions/acknowledged", fmt.Sprintf(`{"notifications":%s,%s}`,
		At(c.Params, "notifications"), meta))
	c.session.listens[c] = true
	c.session.mu.Unlock()
	<-c.Done()
	c.session.mu.Lock()
	delete(c.session.listens, c)
	c.session.mu.Unlock()
}

// Ask sends a reverse request to the client and returns the result or the error object. For a
// modern client, Ask sends an input_required result and ends the handler's goroutine. The client's
// next request runs the handler again, and then Ask returns the client's answer. requestState holds
// the answers to earlier calls of Ask.
func (c *Call) Ask(key, method, params string) (result, fault json.RawMessage) {
	s := c.session
	if c.version != "" {
		var answers map[string]json.RawMessage
		json.Unmarshal([]byte(Text(c.Params, "requestState")), &answers)
		json.Unmarshal(At(c.Params, "inputResponses"), &answers)
		if a := answers[key]; a != nil {
			return a, nil
		}
		state, _ := json.Marshal(answers)
		c.Result(fmt.Sprintf(
			`{"resultType":"input_required","inputRequests":{%s:{"method":%s,"params":%s}},"requestState":%s}`,
			Quote(key), Quote(method), params, Quote(string(state))))
		runtime.Goexit()
	}
	s.mu.Lock()
	s.askCount++
	// Every session counts from 1, so that a test fails if the proxy mixes up sessions.
	id := Quote(fmt.Sprintf("ask-%d", s.askCount))
	ch := make(chan Message, 1)
	s.pending[id] = ch
	s.mu.Unlock()
	write := c.out
	if s.server.AsksOnStream {
		write = s.feed
	}
	write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}`, id, Quote(method),
		params))
	select {
	case m := <-ch:
		return m.Result, m.Error
	case <-c.Done():
		runtime.Goexit()
		return nil, nil
	}
}

// Die ends the server, or the call's connection, without an answer.
func (c *Call) Die() {
	c.die()
	runtime.Goexit()
}
