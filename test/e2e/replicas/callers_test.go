package replicas

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// callTime bounds a call. A call that takes longer is lost.
const callTime = 20 * time.Second

// outcome describes the end of one call of a client, or of the opening of its session.
type outcome struct {
	id           string
	principal    string
	server       string // "" for the opening of a session
	asks         bool   // whether the server asks the client during the call
	began, ended time.Time
	opened       time.Time // when the session was opened
	status       int       // of HTTP; 0 if there was none
	fault        string    // "" if the call got its result
}

// includes reports whether a record is of the call, or of another message of its principal at the
// same time, such as a question or a notification of the server.
func (o outcome) includes(r harness.Record) bool {
	return strings.HasSuffix(r.Principal, "#"+o.principal) && !r.Time.Before(o.began) &&
		!r.Time.After(o.ended)
}

func (o outcome) String() string {
	fault := o.fault
	if len(fault) > 300 {
		fault = fault[:300] + "…"
	}
	return fmt.Sprintf("%s at the server %q, after %v, with status %d: %s", o.id, o.server,
		o.ended.Sub(o.began).Round(time.Millisecond), o.status, fault)
}

// load has the clients of a fleet, which are connected to a balancer.
type load struct {
	*fleet
	url  string
	ctx  context.Context // ends with the load
	pace time.Duration   // between two calls of one client

	mu       sync.Mutex
	killed   time.Time // when the killed replica had ended
	outcomes []outcome
	ended    int // sessions that had ended, as their clients learned by status 404
}

func (l *load) add(o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes = append(l.outcomes, o)
}

// pause waits until the next call of a client.
func (l *load) pause() {
	select {
	case <-time.After(l.pace):
	case <-l.ctx.Done():
	}
}

// caller is one client, which makes one call after the other.
type caller struct {
	load     *load
	name     string // of the client, and of its principal
	revision string
	client   *mcptest.Client
	opened   time.Time
	count    int // of its calls

	mu      sync.Mutex
	status  int    // of the last answer to a request
	refusal string // the text of this answer if its status is an error
	stream  error  // why the session has no stream
	cancel  context.CancelFunc
}

// connect connects the client to the balancer.
func (c *caller) connect() {
	client, h := c.load.connect(c.load.url, c.name, c.revision)
	h.Answered, h.Unanswered, h.StreamRefused = c.answered, c.unanswered, c.streamRefused
	c.client, c.opened = client, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = nil
}

// answered is called with the answer to each POST. An error of HTTP ends the request that is in
// flight: the answer to a request may be a message without its id, and if the client's answer to a
// question is lost, the server waits for it in vain.
func (c *caller) answered(r *http.Response) {
	body, err := r.Request.GetBody()
	if err != nil {
		return
	}
	sent, _ := io.ReadAll(body)
	m, _ := mcptest.Parse(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.IsRequest() {
		c.status, c.refusal = r.StatusCode, ""
	}
	if r.StatusCode < http.StatusBadRequest || c.cancel == nil { // a subscription has no cancel
		return
	}
	text, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	c.refusal = string(text)
	if !m.IsRequest() {
		c.refusal = fmt.Sprintf("%s %s: %s", lostMessage, r.Status, text)
	}
	c.cancel()
}

// unanswered is called when the connection of a POST broke before its answer.
func (c *caller) unanswered(posted mcptest.Message, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !posted.IsRequest() && c.cancel != nil {
		c.refusal = fmt.Sprintf("%s no response: %v", lostMessage, err)
		c.cancel()
	}
}

// streamRefused is called when the stream of the session is not opened.
func (c *caller) streamRefused(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = err
}

// noStream returns why the session has no stream, or nil if it has one.
func (c *caller) noStream() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream
}

// lostMessage begins the fault if the client's answer to a question of the server, or its first
// notification, was refused or lost.
const lostMessage = "the client's answer or notification got"

// begin begins a request, and returns its context.
func (c *caller) begin() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ctx context.Context
	ctx, c.cancel = context.WithTimeout(context.WithoutCancel(c.load.ctx), callTime)
	c.status, c.refusal = 0, ""
	return ctx
}

// end notes the end of a request, which got the answer m or an error.
func (c *caller) end(o *outcome, m mcptest.Message, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
	o.ended, o.status = time.Now(), c.status
	switch {
	case c.refusal != "":
		o.fault = c.refusal
	case err != nil:
		o.fault = err.Error()
	case m.Error != nil:
		o.fault = string(m.Raw)
	}
}

// open connects the client and makes its handshake.
func (c *caller) open() bool {
	c.count++
	o := outcome{id: fmt.Sprintf("%s-open-%d", c.name, c.count), principal: c.name,
		began: time.Now()}
	c.connect()
	m, err := c.client.Open(c.begin())
	c.end(&o, m, err)
	c.load.add(o)
	if o.fault != "" {
		c.close()
	}
	return o.fault == ""
}

func (c *caller) close() {
	if c.client != nil {
		c.client.Close()
		c.client = nil
	}
}

// call calls the tool work of a server once. The same id is used again only if the call was not
// run, as the status of the answer promises.
// Each third answer comes a while after the call was run.
func (c *caller) call(server, id, ask string, change bool) outcome {
	o := outcome{id: id, principal: c.name, server: server, asks: ask != "", began: time.Now(),
		opened: c.opened}
	m, err := c.client.Tool(c.begin(), server+"__work", fmt.Sprintf(
		`{"id":%q,"ask":%q,"change":%t,"hold":%t}`, id, ask, change, c.count%3 == 0))
	if c.end(&o, m, err); o.fault == "" &&
		mcptest.Text(m.Result, "content", 0, "text") != "ran "+id {
		o.fault = "not its own result: " + string(m.Raw)
	}
	return o
}

// wasNotRun reports whether an answer promises that the call was not run. A balancer's own answers
// are not JSON, and promise nothing.
func (o outcome) wasNotRun() bool {
	return o.isGatekits() && (o.status == http.StatusNotFound ||
		o.status == http.StatusServiceUnavailable)
}

// isGatekits reports whether an error is Gatekit's answer, and not a balancer's.
func (o outcome) isGatekits() bool {
	return strings.HasPrefix(o.fault, "{") && !strings.Contains(o.fault, `"code":0,`)
}

// isBroken reports whether the connection broke before the answer. haproxy breaks it if it has sent
// a request to a replica on a kept connection, and that replica was dead.
func (o outcome) isBroken() bool { return o.status == 0 && hasBroken(o.fault) }

// hasBroken reports whether a fault is a connection that broke before the answer.
func hasBroken(fault string) bool {
	return strings.Contains(fault, ": EOF") || strings.Contains(fault, "connection reset by peer")
}

// balancerRefusedStream reports whether the session has no stream because the balancer, and not
// Gatekit, refused it.
func (o outcome) balancerRefusedStream() bool {
	_, refusal, ok := strings.Cut(o.fault, noStream)
	return ok && !strings.Contains(refusal, "jsonrpc") && (hasBroken(refusal) ||
		strings.HasPrefix(refusal, " HTTP 502 ") || strings.HasPrefix(refusal, " HTTP 503 "))
}

// work makes calls until the load ends. pick returns the server of a call, the question that
// the server asks during the call, and whether it announces that its tools have changed.
func (c *caller) work(pick func(n int) (server, ask string, change bool)) {
	defer c.close()
	id := ""
	for ; c.load.ctx.Err() == nil; c.load.pause() {
		if c.client == nil {
			if c.revision == mcptest.Modern {
				c.connect() // a modern client needs no handshake
			} else if !c.open() {
				continue
			}
		}
		if id == "" {
			c.count++
			id = fmt.Sprintf("%s-%d", c.name, c.count)
		}
		server, ask, change := pick(c.count)
		mark := c.client.Mark()
		o := c.call(server, id, ask, change)
		if o.wasNotRun() {
			if o.status == http.StatusNotFound {
				c.load.mu.Lock()
				c.load.ended++
				c.load.mu.Unlock()
				c.close()
			}
			continue // with the same id
		}
		if change && o.fault == "" {
			c.awaitChange(mark, &o)
		}
		c.load.add(o)
		id = ""
	}
}

// awaitChange waits for the notification that the tools of a server have changed, on the stream of
// the session. If there is no stream, or it may have been at the killed replica, it does not wait
// for long. The client then opens a new session.
func (c *caller) awaitChange(mark int, o *outcome) {
	c.load.mu.Lock()
	killed := c.load.killed
	c.load.mu.Unlock()
	limit := callTime
	if !killed.IsZero() && c.opened.Before(killed) || c.noStream() != nil {
		limit = 2 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.load.ctx), limit)
	defer cancel()
	if _, err := c.client.AwaitMethod(ctx, mark, "notifications/tools/list_changed"); err != nil {
		if refusal := c.noStream(); refusal != nil {
			err = fmt.Errorf("%s %w", noStream, refusal)
		}
		o.fault = fmt.Sprintf("%s of a session that is %v old: %v", noChange,
			time.Since(c.opened).Round(time.Millisecond), err)
		c.close() // the stream may have ended
	}
	o.ended = time.Now()
}

// noChange begins the fault of a call whose notification did not arrive. If the stream was not
// opened, it also contains noStream.
const (
	noChange = "no list_changed on the stream"
	noStream = "the stream was refused:"
)

// subscriber is a modern client that subscribes to changes, and subscribes again when the
// subscription ends.
type subscriber struct {
	caller
	mu     sync.Mutex
	open   bool
	breaks []gap
}

// gap is a time without a subscription.
type gap struct{ from, to time.Time }

// follow subscribes until the load ends, and each time the subscription ends.
func (s *subscriber) follow() {
	s.connect()
	defer s.close()
	for lost := time.Now(); s.load.ctx.Err() == nil; lost = time.Now() {
		mark, id := s.client.Mark(), s.client.ID()
		s.client.Send(s.client.Request(id, "subscriptions/listen",
			`{"notifications":{"toolsListChanged":true}}`))
		m, err := s.client.Await(s.load.ctx, mark, func(m mcptest.Message) bool {
			return m.Method == "notifications/subscriptions/acknowledged" || string(m.ID) == id
		})
		if err != nil || m.Method == "" {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		s.set(true, gap{lost, time.Now()})
		_, err = s.client.Reply(s.load.ctx, mark, id)
		s.set(false, gap{})
		if err != nil {
			return
		}
	}
}

func (s *subscriber) set(open bool, g gap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = open
	if open {
		s.breaks = append(s.breaks, g)
	}
}

func (s *subscriber) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}
