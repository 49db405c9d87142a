package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// readyWait is how long requests wait for the client's notifications/initialized to be sent before
// them. A client that never sends it gets what the server makes of that.
const readyWait = 2 * time.Second

// maxSubscriptions of one session are restored after a restart.
const maxSubscriptions = 1000

// errExpired is the cause of a connection's end when the server does not know its session any more:
// what it was asked was not run.
var errExpired = errors.New("the server has ended the session")

// link is one connection of a legacy session: a process, an SSE stream, or a session over
// Streamable HTTP.
type link interface {
	call(ctx context.Context, o outgoing, c proxy.Handler) (*mcp.Message, error)
	notify(ctx context.Context, o outgoing) error
	// gone is closed when the link is of no use any more
	lost() (gone <-chan struct{}, why func() error)
	Close() error
}

// legacy is a server with which one session has a connection of its own, opened by the client's
// initialize and opened again, with all that the client told it, when it is lost.
type legacy struct {
	up   *Upstream
	feed proxy.Handler
	life *life
	lane *lane // of links over a pipe
	// holds one token; taken by hold while initialize or initialized are on their way
	greet   chan struct{}
	onClose func()
	ended   func() error // runs end, once

	mu      sync.Mutex
	link    link // nil while there is none
	greeted time.Time
	// the initialize that was answered; zero before, and never changed after
	hello   outgoing
	ready   outgoing            // notifications/initialized; set by who holds greet
	told    bool                // it was sent on this link
	level   outgoing            // the last logging/setLevel
	subs    map[string]outgoing // resources/subscribe, by URI
	down    error               // why there is no link
	next    time.Time           // when the next attempt is due; zero when there will be none
	changed chan struct{}       // closed and made anew with each change of what is above
}

func newLegacy(u *Upstream, feed proxy.Handler) *legacy {
	s := &legacy{up: u, feed: feed, life: newLife(), lane: newLane(), greet: make(chan struct{}, 1),
		changed: make(chan struct{})}
	s.ended = sync.OnceValue(s.end)
	s.life.run(s.lane.run)
	return s
}

// change runs f under the lock and wakes those that wait.
func (s *legacy) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Call implements proxy.Server. The first initialize opens the connection; other requests wait for
// it.
func (s *legacy) Call(ctx context.Context, p pipeline.Passed,
	c proxy.Handler) (*mcp.Message, error) {
	return s.request(ctx, passed(p), c)
}

func (s *legacy) request(ctx context.Context, o outgoing, c proxy.Handler) (*mcp.Message, error) {
	if o.m.Method == "initialize" {
		if answer, done, err := s.initialize(ctx, o, c); done {
			return answer, err
		}
	}
	l, err := s.use(ctx, nil)
	if err != nil {
		return nil, err
	}
	answer, err := l.call(ctx, o, c)
	if errors.Is(err, errExpired) && repeatable(o.m.Method) {
		var again link
		if again, err = s.use(ctx, l); err == nil {
			answer, err = again.call(ctx, o, c)
		}
	}
	if err == nil {
		s.note(o, answer)
	}
	return answer, err
}

// Notify implements proxy.Server.
func (s *legacy) Notify(ctx context.Context, p pipeline.Passed) error {
	return s.notify(ctx, passed(p))
}

func (s *legacy) notify(ctx context.Context, o outgoing) error {
	if o.m.Method != "notifications/initialized" {
		l, err := s.use(ctx, nil)
		if err != nil {
			return err
		}
		return l.notify(ctx, o)
	}
	ctx, end := s.life.bind(ctx)
	defer end()
	release, err := s.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.mu.Lock()
	l, known := s.link, s.hello.m != nil
	if known {
		s.ready = o
	}
	s.mu.Unlock()
	if !known {
		return unavailable(s.up.o.Name, "it has not answered initialize", nil)
	}
	if l == nil {
		return nil // it follows when there is one again
	}
	err = l.notify(ctx, o)
	s.change(func() { s.told = true })
	return err
}

// Close implements proxy.Server. It may be called more than once: the session and the Upstream both
// do.
func (s *legacy) Close() error { return s.ended() }

func (s *legacy) end() error {
	var l link
	told := false
	s.change(func() {
		l, s.link, told = s.link, nil, s.told
		s.down, s.next = s.closing(), time.Time{}
	})
	var err error
	switch {
	case l == nil:
	case told:
		err = l.Close()
	default:
		// its client may never have got the answer to initialize, and be trying again
		err = s.up.leaving.close(l)
	}
	s.life.end()
	s.lane.report(s.up.log, s.up.o.Name)
	s.onClose()
	return err
}

// initialize opens the connection and greets the server. done is false when it has been greeted
// before: then the request is one like others.
func (s *legacy) initialize(ctx context.Context, o outgoing,
	c proxy.Handler) (answer *mcp.Message, done bool, err error) {
	ctx, end := s.life.bind(ctx)
	defer end()
	release, err := s.hold(ctx)
	if err != nil {
		return nil, true, err
	}
	defer release()
	s.mu.Lock()
	known := s.hello.m != nil
	s.mu.Unlock()
	if known {
		return nil, false, nil
	}
	l, answer, err := s.dial(ctx, o, c)
	if err != nil {
		return nil, true, err
	}
	if answer.Kind == mcp.Error {
		s.up.doubt()
		s.giveUp(ctx, l)
		return answer, true, nil
	}
	if err := s.revision(answer); err != nil {
		s.giveUp(ctx, l)
		return nil, true, err
	}
	s.change(func() { s.hello, s.link, s.greeted = o, l, time.Now() })
	if !s.life.run(s.supervise) {
		s.giveUp(ctx, l)
		return nil, true, s.closing()
	}
	return answer, true, nil
}

// closing is the error of everything that comes when the session is being closed.
func (s *legacy) closing() error {
	return unavailable(s.up.o.Name, "it is being closed", errClosed)
}

// hold takes the right to tell the server who its client is; release gives it back.
func (s *legacy) hold(ctx context.Context) (release func(), err error) {
	select {
	case s.greet <- struct{}{}:
		return func() { <-s.greet }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// revision refuses a server that chose a revision that nobody here knows: its answers could not be
// judged.
func (s *legacy) revision(answer *mcp.Message) error {
	v, _ := answer.Text("/protocolVersion")
	for _, known := range mcp.Legacy.Revisions() {
		if v == known {
			return nil
		}
	}
	return unavailable(s.up.o.Name,
		fmt.Sprintf("it answered initialize with protocol version %q, which Gatekit does not know",
			v), nil)
}

// use answers the link when it is ready for requests: initialize answered, initialized sent. With
// not it waits for another one.
func (s *legacy) use(ctx context.Context, not link) (link, error) {
	var since error // why there was no link when the wait began
	for {
		s.mu.Lock()
		l, changed, down, next := s.link, s.changed, s.down, s.next
		hold := time.Duration(0)
		if l != nil && !s.told {
			hold = time.Until(s.greeted.Add(readyWait))
		}
		known := s.hello.m != nil
		s.mu.Unlock()
		if l == not || l != nil && isGone(l) {
			l = nil // supervise will say what becomes of it
		}
		switch {
		case l != nil && hold <= 0:
			return l, nil
		case l == nil && down != nil && (next.IsZero() || time.Until(next) > patience ||
			since != nil && down != since):
			return nil, down // and not soon, or an attempt has failed while this waited
		case l == nil && !known:
			hold = readyWait // for a client that does not wait for the answer to its initialize
		}
		since = down
		var timer <-chan time.Time
		if hold > 0 {
			timer = time.After(hold)
		}
		select {
		case <-changed:
		case <-timer:
			if !known {
				return nil, unavailable(s.up.o.Name, "the client has not initialized it", nil)
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// isGone says that a link is of no use any more.
func isGone(l link) bool {
	gone, _ := l.lost()
	select {
	case <-gone:
		return true
	default:
		return false
	}
}

// note remembers what has to be said again after a restart.
func (s *legacy) note(o outgoing, answer *mcp.Message) {
	m := o.m
	if answer.Kind != mcp.Response {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Method {
	case "logging/setLevel":
		s.level = o
	case "resources/subscribe":
		if uri, ok := m.Text("/uri"); ok && len(s.subs) < maxSubscriptions {
			if s.subs == nil {
				s.subs = make(map[string]outgoing)
			}
			s.subs[uri] = o
		}
	case "resources/unsubscribe":
		if uri, ok := m.Text("/uri"); ok {
			delete(s.subs, uri)
		}
	}
}

// repeatable says that a request may be put twice: it changes nothing.
func repeatable(method string) bool {
	switch method {
	case "tools/list", "resources/list", "resources/templates/list", "resources/read",
		"resources/subscribe", "resources/unsubscribe",
		"prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "ping":
		return true
	}
	return false
}

// supervise opens the connection again when it is lost, until the session ends.
func (s *legacy) supervise(ctx context.Context) {
	var p pace
	for {
		s.mu.Lock()
		l, since := s.link, s.greeted
		s.mu.Unlock()
		if l == nil {
			return // closed
		}
		gone, why := l.lost()
		select {
		case <-gone:
		case <-ctx.Done():
			return
		}
		cause := why()
		if lived := time.Since(since); !errors.Is(cause, errExpired) || lived < goodFor {
			p.failed(lived)
		} else {
			p = pace{} // sessions expire: nothing is wrong with that server
		}
		if !s.recover(ctx, l, cause, &p) {
			return
		}
	}
}

// recover replaces a lost link. It answers false when there will be no other.
func (s *legacy) recover(ctx context.Context, lost link, cause error, p *pace) bool {
	again := s.up.o.Restart || s.up.o.Dial.Pipe == nil
	next, closed := p.due(time.Now()), false
	s.change(func() {
		if closed = s.link != lost; closed {
			return
		}
		s.link, s.told, s.down, s.next = nil, false, cause, next
		if !again {
			s.next = time.Time{}
		}
	})
	if closed {
		return false
	}
	s.up.event("lost", cause)
	s.up.drop(lost)
	if !again {
		return false
	}
	for {
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return false
		}
		if s.up.o.Dial.Pipe != nil {
			p.started(time.Now())
		}
		answer, err := s.reconnect(ctx)
		if err == nil {
			s.up.event("restarted", nil)
			s.announce(answer)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.up.doubt()
		p.failed(0)
		next = p.due(time.Now())
		s.change(func() { s.down, s.next = err, next })
		s.up.log.Warn("start a server again", "server", s.up.o.Name, "error", err,
			"next", time.Until(next).Round(time.Millisecond))
	}
}

// replace puts a new link in force, unless the session was closed.
func (s *legacy) replace(l link) bool {
	ok := false
	s.change(func() {
		if ok = !errors.Is(s.down, errClosed); ok {
			s.link, s.greeted, s.down, s.next = l, time.Now(), nil, time.Time{}
		}
	})
	return ok
}

// reconnect opens a link, tells the server again what the client told the last one, and puts the
// link in force.
func (s *legacy) reconnect(ctx context.Context) (answer *mcp.Message, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.up.o.StartTimeout, unavailable(s.up.o.Name,
		"it took too long to start", nil))
	defer cancel()
	release, err := s.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	l, answer, err := s.dial(ctx, s.hello, nil)
	if err != nil {
		return nil, err
	}
	if answer.Kind == mcp.Error {
		s.up.doubt()
		err = unavailable(s.up.o.Name, "it refused to be initialized again", nil)
	} else {
		err = s.revision(answer)
	}
	if err == nil {
		err = s.retell(ctx, l)
	}
	if err == nil && !s.replace(l) {
		err = s.closing()
	}
	if err != nil {
		s.up.drop(l)
		return nil, err
	}
	return answer, nil
}

// retell repeats initialized, the logging level and the subscriptions.
func (s *legacy) retell(ctx context.Context, l link) error {
	s.mu.Lock()
	ready := s.ready
	said := make([]outgoing, 0, 1+len(s.subs))
	if s.level.m != nil {
		said = append(said, s.level)
	}
	for _, sub := range s.subs {
		said = append(said, sub)
	}
	s.mu.Unlock()
	if ready.m == nil {
		return nil // the client's will follow
	}
	if err := l.notify(ctx, ready); err != nil {
		return err
	}
	s.change(func() { s.told = true })
	for _, o := range said {
		answer, err := l.call(ctx, o, nil)
		if err != nil {
			return err
		}
		if answer.Kind == mcp.Error {
			s.up.log.Warn("a restarted server refused what it had accepted", "server", s.up.o.Name,
				"method", o.m.Method)
		}
	}
	return nil
}

// announce tells the client that what it knew of the server may have changed while nobody listened.
func (s *legacy) announce(hello *mcp.Message) {
	for _, what := range []string{"tools", "prompts", "resources"} {
		if raw, _ := hello.Get("/capabilities/" + what + "/listChanged"); string(raw) != "true" {
			continue
		}
		m := mcp.NewNotification("notifications/"+what+"/list_changed", nil)
		m.To = mcp.ToClient
		// A full lane has enough to tell; that the lists changed is then known soon enough by
		// asking.
		_ = s.lane.add(delivery{size: m.Size(), run: func(ctx context.Context) {
			s.feed.Notify(ctx,
				m)
		}})
	}
}
