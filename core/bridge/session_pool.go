package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// A legacy server is told once, when a session begins, who its client is and what it can be asked;
// a modern client says so with each request. So for each set of capabilities that the client
// declares there is a session with the server: a visit.
//
// # Why calls share a visit
//
// What a server asks live often does not say which call it is about: never on stdio, and over HTTP
// as the server likes. Calls in visits of their own could not be mistaken for each other, but would
// not see what each other did: a session is a process with its own memory. So they share one, and a
// question that says nothing is put to the client in the youngest call that it waits for. Its
// answer finds the server's question whichever call brought it. Where several clients may be behind
// the session (those of one principal over HTTP) and several of such calls are in flight, it is put
// to none: it could be shown to another than the one whose call it is about.

// Bounds of the visits of one session of a modern client.
const (
	maxVisits = 8               // sets of capabilities; requests with further ones wait
	visitIdle = 5 * time.Minute // after which a visit that nobody uses ends
)

// visits are the sessions that one modern client has with a legacy server.
type visits struct {
	up     *Upstream
	feed   proxy.Handler
	shared bool // several clients may be behind the session
	life   *life

	mu       sync.Mutex // guards what follows, and the fields of visits that say so
	all      []*visit
	closed   bool
	changed  chan struct{} // closed and made anew when a visit has become free, or is gone
	pace     pace          // of visits that could not begin
	refused  error         // why the last one could not, and what the client had declared then
	declared string
	next     time.Time // when another may be tried then
}

// visit is one session with the server.
type visit struct {
	of     *visits
	key    string // what the client declared, by its meaning
	server *legacy
	ready  chan struct{} // closed when it has begun, or could not
	hello  *mcp.Message  // what the server answered to initialize; read it after ready
	err    error         // why it could not begin; read it after ready

	uses  int         // guarded by visits.mu
	timer *time.Timer // runs while uses is zero; guarded by visits.mu

	telling chan struct{}  // holds one token; taken by hold while the server is told what follows
	level   string         // of logging; guarded by telling
	uris    map[string]int // that are subscribed to, and by how many listens; guarded by telling

	tasks taskTools

	mu      sync.Mutex
	turns   []*turn              // calls in flight, the oldest first
	entered chan struct{}        // closed and made anew with each call
	hear    map[*hearer]struct{} // listens
}

func newVisits(u *Upstream, feed proxy.Handler, shared bool) *visits {
	return &visits{up: u, feed: feed, shared: shared, life: newLife(), changed: make(chan struct{})}
}

// wake wakes those that wait. vs.mu is held.
func (vs *visits) wake() {
	close(vs.changed)
	vs.changed = make(chan struct{})
}

// take answers a visit for a request, begun, to be given back with leave.
func (vs *visits) take(ctx context.Context, m *mcp.Message) (*visit, error) {
	raw, _ := m.Get(mcp.PointerCapabilities)
	capabilities, err := capabilitiesForLegacy(raw)
	if err != nil {
		return nil, unavailable(vs.up.o.Name,
			"the client's capabilities could not be put into its revision's words", err)
	}
	meaning, err := mcp.CanonicalDigest(capabilities)
	if err != nil {
		return nil, unavailable(vs.up.o.Name, "the client's capabilities cannot be read", err)
	}
	key := string(meaning)
	for {
		v, stale, changed, err := vs.find(key, m, capabilities)
		if stale != nil {
			vs.dismiss(stale)
		}
		switch {
		case err != nil:
			return nil, err
		case v != nil:
			select {
			case <-v.ready:
			case <-ctx.Done():
				vs.leave(v)
				return nil, context.Cause(ctx)
			}
			if v.err != nil {
				vs.leave(v)
				return nil, v.err
			}
			return v, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// find answers the visit for what a client declares, or begins it; nil when there is room for none,
// until changed is closed. stale was taken out to make room.
func (vs *visits) find(key string, m *mcp.Message,
	capabilities []byte) (v, stale *visit, changed <-chan struct{}, err error) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.closed {
		return nil, nil, nil, unavailable(vs.up.o.Name, "it is being closed", errClosed)
	}
	i := slices.IndexFunc(vs.all, func(v *visit) bool { return v.key == key })
	switch {
	case i >= 0:
		v = vs.all[i]
	case vs.refused != nil && vs.declared == key && time.Now().Before(vs.next):
		return nil, nil, nil, vs.refused
	case len(vs.all) >= maxVisits:
		idle := slices.IndexFunc(vs.all, func(v *visit) bool { return v.uses == 0 })
		if idle < 0 {
			return nil, nil, vs.changed, nil
		}
		stale = vs.all[idle]
		vs.all = slices.Delete(vs.all, idle, idle+1)
		fallthrough
	default:
		if v, err = vs.begin(key, m, capabilities); err != nil {
			return nil, stale, nil, err
		}
	}
	v.uses++
	if v.timer != nil {
		v.timer.Stop()
	}
	return v, stale, nil, nil
}

// begin opens a session. vs.mu is held.
func (vs *visits) begin(key string, m *mcp.Message, capabilities []byte) (*visit, error) {
	hello, err := greeting(m, capabilities, vs.up.o.Version)
	if err != nil {
		return nil, unavailable(vs.up.o.Name, "it could not be told who its client is", err)
	}
	v := &visit{of: vs, key: key, ready: make(chan struct{}), telling: make(chan struct{}, 1),
		entered: make(chan struct{}), uris: map[string]int{}, hear: map[*hearer]struct{}{}}
	v.server = newLegacy(vs.up, v)
	v.server.onClose = func() {}
	vs.all = append(vs.all, v)
	started := vs.life.run(func(ctx context.Context) {
		v.hello, v.err = v.greet(ctx, hello)
		vs.begun(v)
	})
	if !started {
		v.err = unavailable(vs.up.o.Name, "it is being closed", errClosed)
		close(v.ready)
	}
	return v, nil
}

func (v *visit) greet(ctx context.Context, hello outgoing) (*mcp.Message, error) {
	u := v.of.up
	ctx, cancel := context.WithTimeoutCause(ctx, u.o.StartTimeout, unavailable(u.o.Name,
		"it took too long to start", nil))
	defer cancel()
	answer, err := v.server.request(ctx, hello, nil)
	switch {
	case err != nil:
		return nil, err
	case answer.Kind == mcp.Error:
		text, _ := answer.Text("/message")
		return nil, unavailable(u.o.Name, fmt.Sprintf("it refused initialize: error %d, %.200q",
			answer.ErrorCode(), text), nil)
	}
	return answer, v.server.notify(ctx, greeted())
}

// begun notes how the opening of a session ended, and takes one out that has failed.
func (vs *visits) begun(v *visit) {
	vs.mu.Lock()
	if vs.refused, vs.declared = v.err, v.key; v.err != nil {
		vs.pace.failed(0)
		vs.next = vs.pace.due(time.Now())
		vs.all = slices.DeleteFunc(vs.all, func(other *visit) bool { return other == v })
		vs.wake()
	} else {
		vs.pace = pace{}
	}
	vs.mu.Unlock()
	close(v.ready)
	if v.err != nil {
		vs.dismiss(v)
	}
}

// leave gives a visit back.
func (vs *visits) leave(v *visit) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v.uses--; v.uses == 0 {
		v.timer = time.AfterFunc(visitIdle, func() { vs.expire(v) })
	}
	vs.wake()
}

// expire ends a visit that nobody has used for a while.
func (vs *visits) expire(v *visit) {
	vs.mu.Lock()
	i := slices.Index(vs.all, v)
	if i < 0 || v.uses > 0 {
		vs.mu.Unlock()
		return
	}
	vs.all = slices.Delete(vs.all, i, i+1)
	vs.mu.Unlock()
	vs.dismiss(v)
}

// dismiss closes a visit that was taken out, without waiting for it. It counts among those that are
// leaving: a client could have one opened after the other.
func (vs *visits) dismiss(v *visit) {
	vs.up.dropLater(vs.up.leaving.later(v.server))
}

// close ends all visits.
func (vs *visits) close() error {
	vs.mu.Lock()
	vs.closed = true
	all := vs.all
	vs.all = nil
	for _, v := range all {
		if v.timer != nil {
			v.timer.Stop()
		}
	}
	vs.wake()
	vs.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, v := range all {
		wg.Go(func() { errs[i] = v.server.Close() })
	}
	wg.Wait()
	vs.life.end()
	return errors.Join(errs...)
}

// Notify implements proxy.Caller for what the server sends outside of calls, as far as that can be
// told.
func (v *visit) Notify(ctx context.Context, m *mcp.Message) {
	switch m.Method {
	case "notifications/message": // with several calls there is no telling for which it is
		v.mu.Lock()
		turns := v.turns
		v.mu.Unlock()
		if len(turns) == 1 {
			turns[0].Notify(ctx, m)
		}
		return
	case "notifications/elicitation/complete", "notifications/tasks/status",
		"notifications/progress":
		return // the client's revision has no such thing, or it is for no call
	}
	if m.Method == "notifications/tools/list_changed" {
		v.tasks.forget()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for h := range v.hear {
		h.tell(m)
	}
}

// Ask implements proxy.Caller: it asks in the youngest call in flight that the client can be asked
// in, before all in one that the client waits for: it may never come back for others.
func (v *visit) Ask(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	for {
		t := v.askable(ctx, ms)
		if t == nil {
			return v.of.feed.Ask(ctx, ms) // which is refused: there is no request to ask in
		}
		answers := t.ask(ctx, ms)
		if ctx.Err() != nil || v.flies(t) || !failed(answers) {
			return answers
		}
		// The call was answered before the client could be asked in it.
	}
}

// rootsWait is how long a server that asks for the roots outside of any call waits for one. Many
// ask as soon as a session has begun, and that begins with a call.
const rootsWait = 10 * time.Second

// askable is the call that a question goes into; nil when there is none, and none comes that is
// worth waiting for.
func (v *visit) askable(ctx context.Context, ms []*mcp.Message) *turn {
	var late <-chan time.Time
	for {
		v.mu.Lock()
		turns, entered := v.turns, v.entered
		v.mu.Unlock()
		var waiting, parked []*turn // the youngest first
		for _, t := range slices.Backward(turns) {
			switch {
			case t.mayAsk && t.c.IsWaiting():
				waiting = append(waiting, t)
			case t.mayAsk:
				parked = append(parked, t)
			}
		}
		for _, turns := range [][]*turn{waiting, parked} {
			if len(turns) > 1 && v.of.shared {
				return nil
			}
			if len(turns) > 0 {
				return turns[0]
			}
		}
		if ms[0].Method != "roots/list" {
			return nil
		}
		if late == nil {
			timer := time.NewTimer(rootsWait)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-entered:
		case <-late:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// failed says whether a client was not asked.
func failed(answers []pipeline.Passed) bool {
	return slices.ContainsFunc(answers, func(p pipeline.Passed) bool {
		m := p.Message()
		return m == nil || m.ErrorCode() == mcp.CodeInternal
	})
}

// IsWaiting implements proxy.Caller.
func (v *visit) IsWaiting() bool { return true }

// ReportActivity implements proxy.Caller.
func (v *visit) ReportActivity() {}

// enter notes that a call is in flight; the function that it answers undoes that.
func (v *visit) enter(t *turn) (leave func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.turns = append(slices.Clone(v.turns), t)
	close(v.entered)
	v.entered = make(chan struct{})
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.turns = slices.DeleteFunc(slices.Clone(v.turns), func(other *turn) bool {
			return other == t
		})
	}
}

// flies says whether a call is in flight.
func (v *visit) flies(t *turn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Contains(v.turns, t)
}
