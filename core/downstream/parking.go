package downstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// A modern client cannot be asked anything while its call runs: it is asked in a result, and makes
// the call again with its answers (protocol.md 3.2). A server that asks live is in the midst of the
// call, which goes on: it is parked from that result until the client comes back.

// siblings is how long a first question waits for others, which then go in the same result.
const siblings = 15 * time.Millisecond

// parking are the calls whose clients have been asked and have not come back.
type parking struct {
	endpoint *Endpoint

	mu   sync.Mutex // taken after that of a parked, never before
	open map[string]waiting
	by   map[string]held // principal -> its part
	all  held
}

// held is how much is kept.
type held struct{ calls, bytes int }

func (h held) with(calls, bytes int) held { return held{h.calls + calls, h.bytes + bytes} }

type waiting struct {
	c       *parked
	round   int
	bytes   int
	release func() // of the session
}

// parked is one call that the client may be asked about. To the proxy it is the client: whichever
// of the client's requests carries the call just then.
type parked struct {
	parking *parking
	peer    peer
	hold    func() (release func())
	m       *mcp.Message // the first request, under the id that the proxy knows
	name    string       // 130 random bits
	cancel  context.CancelFunc
	ended   chan struct{} // closed when answer is there
	answer  pipeline.Passed
	over    chan struct{} // closed when the client will be asked, and heard, no more
	end     func()        // closes it
	news    chan struct{} // holds one when there is a question

	mu       sync.Mutex   // guards what follows
	carrier  proxy.Client // nil while no request of the client waits
	token    []byte       // progress token of that request; nil when it has none
	asked    []*asked     // not answered yet
	count    int          // questions so far
	server   string       // that asked last, and
	exchange string       // for the sake of which call: for the record
	round    int          // results that asked so far
	timer    *time.Timer  // of the one that was the last
}

// asked is one question.
type asked struct {
	key    string
	p      pipeline.Passed
	shown  chan struct{} // closed when the client has been asked it
	answer chan *mcp.Message
}

// ticket is what the client brings back, sealed: which call, and after which of its results.
type ticket struct {
	Name  string `json:"p"`
	Round int    `json:"n"`
}

// begin enters a request at the proxy's session, or finds the call that it resumes. It returns the
// call and the id by which the proxy knows it. m is under the id that it is to have if it is a new
// one.
func (s *modern) begin(m *mcp.Message, client proxy.Client) (call Call, id mcp.ID) {
	if !mcp.CanRequestInput(m) {
		return s.session.Begin(m, client), m.ID()
	}
	if token, ok := m.Text("/requestState"); ok {
		var t ticket
		if s.endpoint.proxy.OpenCallState(m, token, &t) {
			return s.resume(m, t, client)
		}
	}
	c := &parked{parking: &s.endpoint.parking, peer: s.peer, hold: s.hold, m: m, name: rand.Text(),
		ended: make(chan struct{}), over: make(chan struct{}),
		news: make(chan struct{}, 1), carrier: client}
	c.token, _ = m.Get(atToken)
	c.end = sync.OnceFunc(func() { close(c.over) })
	return &newCall{c, s.session.Begin(m, c)}, m.ID()
}

// newCall is the first request of a call that may be parked.
type newCall struct {
	*parked
	call *proxy.Call
}

func (c *newCall) Run(ctx context.Context) pipeline.Passed {
	if ctx.Err() != nil {
		return c.call.Run(ctx)
	}
	var alive context.Context
	alive, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.parking.endpoint.workers.Run(func() {
		c.answer = c.call.Run(alive)
		c.cancel()
		close(c.ended)
	})
	return c.wait(ctx)
}

func (c *newCall) Discard() { c.call.Discard() }

// resume takes up a call that was parked, with the answers in m. A ticket is good once.
func (s *modern) resume(m *mcp.Message, t ticket,
	client proxy.Client) (Call, mcp.ID) {
	c := s.endpoint.parking.take(t, s.peer.session)
	if c == nil {
		return &refusedCall{s.endpoint, s.peer, refuse(mcp.CodeInvalidParams,
			"invalid or expired requestState"), m}, m.ID()
	}
	c.mu.Lock()
	c.carrier = client
	c.token, _ = m.Get(atToken)
	m.Server, m.Exchange = c.server, c.exchange
	c.mu.Unlock()
	return &resumedCall{c, m}, c.m.ID()
}

// resumedCall is a request that brings answers to a parked call.
type resumedCall struct {
	*parked
	request *mcp.Message
}

func (c *resumedCall) Run(ctx context.Context) pipeline.Passed {
	f := c.parking.endpoint
	if err := f.proxy.Pipeline().RecordEvent(ctx, c.request,
		"resume", "it brings answers to a call that waits for them", nil); err != nil {
		c.Discard()
		return f.answer(ctx, c.peer, refuse(mcp.CodeInternalError,
			"the request could not be recorded"), c.request)
	}
	c.take(c.request)
	return c.wait(ctx)
}

// Discard ends the parked call: its state has been used.
func (c *resumedCall) Discard() {
	c.end()
	c.cancel()
}

// wait answers when the call does, or when there is something to ask.
func (c *parked) wait(ctx context.Context) pipeline.Passed {
	for {
		select {
		case <-c.ended:
			// A question that is still open is not the call's own, and has no better place: servers
			// ask for the roots when they like.
			if c.answer.Message() != nil && ctx.Err() == nil {
				if answer, asks := c.park(ctx); asks {
					return answer
				}
			}
			c.end()
			return c.answer
		case <-ctx.Done(): // the client has cancelled what it waits for
			c.cancel()
			c.end()
			<-c.ended
			return c.answer
		case <-c.news:
		}
		select {
		case <-c.ended:
			continue
		case <-ctx.Done():
			continue
		case <-time.After(siblings):
		}
		if answer, asks := c.park(ctx); asks {
			return answer
		}
	}
}

// Notify implements proxy.Client. While nobody waits there is nowhere to write to.
func (c *parked) Notify(ctx context.Context, p pipeline.Passed) error {
	c.mu.Lock()
	carrier, token := c.carrier, c.token
	c.mu.Unlock()
	if carrier == nil {
		return nil
	}
	if m := p.Message(); m.Method == "notifications/progress" {
		if token == nil {
			return nil // the request that waits now asked for none
		}
		if raw, _ := m.Get("/progressToken"); !bytes.Equal(raw, token) {
			var err error
			if p, err = p.Edit(mcp.Set("/progressToken", token)); err != nil {
				return err
			}
		}
	}
	return carrier.Notify(ctx, p)
}

// atToken is where a request asks for progress.
const atToken = "/_meta/progressToken"

// TakesInputRequests implements proxy.Rounds: what a server asks for in a result goes to the client
// as it is.
func (c *parked) TakesInputRequests() bool { return true }

// IsWaiting implements proxy.Waiting.
func (c *parked) IsWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.carrier != nil
}

// SendRequests implements proxy.Client.
func (c *parked) SendRequests(ctx context.Context, ps []pipeline.Passed) ([]*mcp.Message, error) {
	qs := make([]*asked, len(ps))
	c.mu.Lock()
	for i, p := range ps {
		qs[i] = &asked{key: "g" + strconv.Itoa(c.count), p: p, shown: make(chan struct{}),
			answer: make(chan *mcp.Message, 1)}
		c.count++
	}
	c.asked = append(c.asked, qs...)
	c.mu.Unlock()
	defer c.withdraw(qs)
	c.tell()
	answers := make([]*mcp.Message, len(qs))
	for i, q := range qs {
		var err error
		if answers[i], err = c.await(ctx, q); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// await waits for the answer to a question. One that the client has been asked may be answered
// although the call has ended: it is not always the call's own.
func (c *parked) await(ctx context.Context, q *asked) (*mcp.Message, error) {
	select {
	case <-q.shown:
	case <-c.over:
		return nil, errors.New("the call has ended")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-q.answer:
		return a, nil
	case <-c.over:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-q.answer:
		return a, nil
	default:
		return abandoned(q.p.Message()), nil
	}
}

// tell wakes wait.
func (c *parked) tell() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// withdraw takes out questions that nobody waits for any more.
func (c *parked) withdraw(qs []*asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.asked[:0]
	for _, a := range c.asked {
		gone := false
		for _, q := range qs {
			gone = gone || a == q
		}
		if !gone {
			open = append(open, a)
		}
	}
	c.asked = open
}

// abandoned is what a server gets that asked a client which did not come back.
func abandoned(m *mcp.Message) *mcp.Message {
	switch m.Method {
	case "elicitation/create":
		return mcp.NewResponse(m.ID(), []byte(`{"action":"cancel"}`))
	case "sampling/createMessage":
		return mcp.NewError(m.ID(), mcp.CodeSamplingRejected, "User rejected sampling request", nil)
	}
	return mcp.NewError(m.ID(), mcp.CodeInternalError, "the client did not answer in time", nil)
}

// park makes the result that asks the client, and keeps the call until it comes back. asks is false
// when there is nothing to ask any more.
func (c *parked) park(ctx context.Context) (answer pipeline.Passed, asks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) == 0 {
		return pipeline.Passed{}, false
	}
	f := c.parking.endpoint
	fail := func(why string) (pipeline.Passed, bool) {
		select {
		case <-c.ended: // there is an answer to give
			return pipeline.Passed{}, false
		default:
		}
		c.cancel()
		c.end()
		return f.answer(ctx, c.peer, refuse(mcp.CodeInternalError,
			"the server asks for input, and %s",
			why), c.m), true
	}
	if c.round++; c.round > f.limits.Rounds {
		return fail("has done so too many times")
	}
	t := ticket{c.name, c.round}
	state, err := f.proxy.SealCallState(c.m, t)
	if err != nil {
		return fail("the call cannot be kept")
	}
	bytes := c.m.Size()
	for _, q := range c.asked {
		bytes += q.p.Message().Size()
	}
	if !c.parking.keep(c, t, bytes) {
		return fail("too many calls wait for answers: answer those, then try again")
	}
	b := []byte(`{"resultType":"input_required","inputRequests":{`)
	for i, q := range c.asked {
		if i > 0 {
			b = append(b, ',')
		}
		select {
		case <-q.shown:
		default:
			close(q.shown)
		}
		// always there: go-sdk's client does not read a question without
		m, params := q.p.Message(), []byte("{}")
		if body := m.Body(); body != nil {
			params = body
		}
		b = append(append(append(b, '"'), q.key...), `":{"method":`...)
		b = append(append(append(b, mcp.Quote(m.Method)...), `,"params":`...), params...)
		b = append(b, '}')
	}
	b = append(append(append(b, `},"requestState":`...), mcp.Quote(state)...), '}')
	result := mcp.NewResponse(c.m.ID(), b)
	first := c.asked[0].p.Message()
	c.server, c.exchange = first.Server, first.Exchange
	result.Server, result.Exchange, result.CarriesInput = c.server, c.exchange, true
	c.carrier = nil
	c.timer = time.AfterFunc(f.limits.ParkedFor, func() { c.expire(t) })
	return f.own(ctx, c.peer, result, c.m), true
}

// take hands the answers in m to the questions. What is missing, or is no answer, is asked for
// again.
func (c *parked) take(m *mcp.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	open := c.asked[:0]
	for _, q := range c.asked {
		asked := q.p.Message()
		raw, _ := m.Get("/inputResponses/" + q.key)
		answer, err := mcp.ParseEmbeddedResponse(asked.ID(), raw)
		if err != nil || !mcp.IsAnswerTo(answer, asked.Method) {
			open = append(open, q)
			continue
		}
		q.answer <- answer
	}
	if c.asked = open; len(open) > 0 {
		c.tell()
	}
}

// expire gives up a call whose client did not come back.
func (c *parked) expire(t ticket) {
	if c.parking.take(t, c.peer.session) == c {
		c.end()
		c.cancel()
	}
}

// Bounds of the bytes of the calls that are parked, and of what they ask.
const (
	maxParkedBytes = 64 << 20
	maxBytesOfOne  = maxParkedBytes / 4 // principal's; one call can always be as large as a message
)

// keep enters a call, unless there are too many.
func (p *parking) keep(c *parked, t ticket, bytes int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open, p.by = map[string]waiting{}, map[string]held{}
	}
	its := p.by[c.peer.principal]
	if p.all.calls >= p.endpoint.limits.Parked || its.calls >= p.endpoint.limits.ParkedOfOne ||
		p.all.bytes+bytes > maxParkedBytes || its.calls > 0 && its.bytes+bytes > maxBytesOfOne {
		return false
	}
	p.open[t.Name] = waiting{c, t.Round, bytes, c.hold()}
	p.all, p.by[c.peer.principal] = p.all.with(1, bytes), its.with(1, bytes)
	return true
}

// take takes a call of a session out, for whoever goes on with it; nil when it is not there, or has
// asked again since.
func (p *parking) take(t ticket, session string) *parked {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.open[t.Name]
	if !ok || w.round != t.Round || w.c.peer.session != session {
		return nil
	}
	p.drop(w.c)
	return w.c
}

// drop takes a call out. p.mu is held.
func (p *parking) drop(c *parked) {
	w := p.open[c.name]
	w.release()
	p.all = p.all.with(-1, -w.bytes)
	delete(p.open, c.name)
	if its := p.by[c.peer.principal].with(-1, -w.bytes); its.calls > 0 {
		p.by[c.peer.principal] = its
	} else {
		delete(p.by, c.peer.principal)
	}
}

// end takes out the calls of a session that has ended.
func (p *parking) end(session string) {
	var its []*parked
	p.mu.Lock()
	for _, w := range p.open {
		if w.c.peer.session == session {
			p.drop(w.c)
			its = append(its, w.c)
		}
	}
	p.mu.Unlock()
	for _, c := range its {
		c.mu.Lock()
		c.timer.Stop()
		c.mu.Unlock()
		c.end()
		c.cancel()
	}
}
