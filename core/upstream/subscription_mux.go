package upstream

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// union is the one subscription that a modern server behind a pipe is given: all that the sessions
// that share the pipe want to hear is asked for in it, and each is told its part (protocol.md 3.6).
//
// # Why one
//
// The go-sdk's stdio server (v1.8.0) has one subscription for a connection: a second takes the
// place of the first, and the end of any ends them all. So before another is asked for, the last is
// cancelled and has ended; what may have happened in between is told as if it had. A subscription
// that is wider than needed stays as it is.
type union struct {
	w     *wire
	begin func()        // starts run, once
	wake  chan struct{} // holds one: members or what they want have changed

	mu      sync.Mutex // guards what follows, the acked of members, and the ack of open
	members []*member  // the youngest last
	open    *united    // nil while there is none
}

// member is one subscription of a client.
type member struct {
	m      *mcp.Message
	filter filter
	caller proxy.Handler
	lane   *lane
	acked  bool
	done   chan reply // holds one
}

// united is a subscription at the server.
type united struct {
	of     *union
	by     *member // in whose words it was asked for
	c      *call
	filter filter
	ack    *mcp.Message  // nil until it came
	over   chan struct{} // closed when it has ended
	end    reply         // how; read it after over
}

// endWithin is how long a server that was told that a subscription is cancelled is waited for. Not
// all answer what was cancelled.
const endWithin = 500 * time.Millisecond

func newUnion(w *wire) *union {
	u := &union{w: w, wake: make(chan struct{}, 1)}
	u.begin = sync.OnceFunc(func() { w.life.run(u.run) })
	return u
}

// call is a subscriptions/listen: it answers when the server ends it, or with the cause of ctx.
func (u *union) call(ctx context.Context, o outgoing, c proxy.Handler,
	l *lane) (*mcp.Message, error) {
	n := &member{m: o.m, filter: filterOf(o.m), caller: c, lane: l, done: make(chan reply, 1)}
	u.begin()
	u.mu.Lock()
	u.members = append(u.members, n)
	if u.open != nil && u.open.ack != nil && u.open.filter.covers(n.filter) {
		u.tell(n, u.open.ack)
	}
	u.mu.Unlock()
	u.changed()
	defer u.changed()
	defer u.leave(n)
	select {
	case r := <-n.done:
		if r.m == nil {
			return nil, r.err
		}
		return tagged(r.m, n.m.ID()).WithID(n.m.ID()), nil
	case <-u.w.gone:
		return nil, u.w.fault
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (u *union) changed() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func (u *union) leave(n *member) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.members = slices.DeleteFunc(u.members, func(other *member) bool { return other == n })
}

// run keeps the subscription as it should be until the connection is closed.
func (u *union) run(ctx context.Context) {
	var over <-chan struct{} // of the open one
	for {
		select {
		case <-u.wake:
		case <-over:
		case <-u.w.gone:
			return
		case <-ctx.Done():
			return
		}
		u.mu.Lock()
		open := u.open
		u.mu.Unlock()
		if open != nil {
			select {
			case <-open.over:
				u.settle(open)
			default:
			}
		}
		over = u.adjust(ctx)
	}
}

// settle passes the end of a subscription on: to all or, when it never began, to the one whose
// words the server did not take.
func (u *union) settle(open *united) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open = nil
	u.members = slices.DeleteFunc(u.members, func(n *member) bool {
		ends := open.ack != nil || n == open.by
		if ends {
			n.lane.after(func() { n.finish(open.end) })
		}
		return ends
	})
}

// finish ends a subscription, unless it has ended.
func (n *member) finish(r reply) {
	select {
	case n.done <- r:
	default:
	}
}

// adjust ends the subscription that nobody wants, or that is too narrow, and opens the one that is
// wanted. It answers what is closed when the open one has ended.
func (u *union) adjust(ctx context.Context) (over <-chan struct{}) {
	u.mu.Lock()
	open, wanted := u.open, filter{}
	var youngest *member
	for _, n := range u.members {
		wanted.add(n.filter)
		youngest = n
	}
	if youngest != nil && open != nil && open.filter.covers(wanted) {
		u.mu.Unlock()
		return open.over
	}
	u.open = nil
	u.mu.Unlock()
	if open != nil {
		open.cancel(ctx)
	}
	if youngest == nil {
		return nil
	}
	return u.ask(ctx, youngest, wanted).over
}

// ask opens a subscription in the words of a member.
func (u *union) ask(ctx context.Context, by *member, wanted filter) *united {
	o := &united{of: u, by: by, filter: wanted, over: make(chan struct{})}
	c, err := o.write(ctx)
	if err != nil {
		o.end = reply{err: refused(u.w.name, err)}
		close(o.over)
		return o
	}
	u.w.life.run(func(context.Context) {
		select {
		case o.end = <-c.done:
		case <-u.w.gone:
			o.end = reply{err: u.w.fault}
		}
		close(o.over)
	})
	return o
}

func (o *united) write(ctx context.Context) (*call, error) {
	w, m := o.of.w, o.by.m
	o.of.mu.Lock()
	o.of.open = o
	o.of.mu.Unlock()
	if !o.by.filter.covers(o.filter) {
		wider, err := m.Edit(mcp.Set("/notifications", o.filter.json()))
		if err != nil {
			return nil, fmt.Errorf("ask for all that is wanted: %w", err)
		}
		m = wider
	}
	c, err := w.calls.begin(ctx, nil, m, o, nil)
	o.of.mu.Lock()
	o.c = c
	o.of.mu.Unlock()
	if err != nil {
		return nil, err
	}
	addressed, err := outgoing{m}.addressed(c)
	if err == nil {
		err = w.pipe.Write(ctx, addressed.parts()...)
	}
	if err != nil {
		w.calls.take(c.id)
		return nil, fmt.Errorf("write the subscription: %w", err)
	}
	return c, nil
}

// cancel ends a subscription, and answers when it has ended or took too long.
func (o *united) cancel(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	select {
	case <-o.over:
		return
	default:
	}
	if o.c == nil {
		return // it was not written
	}
	o.of.w.write(ctx, cancellation(nil, o.c))
	select {
	case <-o.over:
	case <-ctx.Done():
		if c := o.of.w.calls.take(o.c.id); c != nil {
			c.finish(reply{err: context.Cause(ctx)})
		}
	}
}

// Notify implements proxy.Caller. It runs in the reader of the pipe, and waits for nobody.
func (o *united) Notify(_ context.Context, m *mcp.Message) {
	u := o.of
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open != o {
		return
	}
	if m.Method == "notifications/subscriptions/acknowledged" {
		if o.ack != nil {
			return // once is enough
		}
		o.ack = m
		for _, n := range u.members {
			switch {
			case !o.filter.covers(n.filter): // another is to be opened for it
			case n.acked:
				u.missed(n)
			default:
				u.tell(n, m)
			}
		}
		return
	}
	exact := o.filter.names(m)
	for _, n := range u.members {
		if (n.acked || o.filter.covers(n.filter)) && n.filter.wants(m, exact) {
			u.deliver(n, tagged(m, n.m.ID()))
		}
	}
}

// Ask implements proxy.Caller: nothing is asked on a subscription.
func (o *united) Ask(_ context.Context, ms []*mcp.Message) []pipeline.Passed {
	return make([]pipeline.Passed, len(ms))
}

// IsWaiting implements proxy.Caller.
func (o *united) IsWaiting() bool { return true }

// ReportActivity implements proxy.Caller.
func (o *united) ReportActivity() {}

// tell gives a member its part of the server's acknowledgement. The mu is held.
func (u *union) tell(n *member, ack *mcp.Message) {
	n.acked = true
	var edits []mcp.Edit
	for name, honoured := range filterOf(ack) {
		at := "/notifications/" + mcp.EscapePointer(name)
		switch kept := honoured.within(n.filter[name]); {
		case len(kept.values) == len(honoured.values):
		case len(kept.values) == 0:
			edits = append(edits, mcp.Remove(at))
		default:
			edits = append(edits, mcp.Set(at, kept.json()))
		}
	}
	mine, err := ack.Edit(edits...)
	if err != nil {
		u.w.log.Warn("a server acknowledged a subscription in words that cannot be edited",
			"server", u.w.name, "error", err)
		return
	}
	u.deliver(n, tagged(mine, n.m.ID()))
}

// missed tells a member what may have happened while there was no subscription. The mu is held.
func (u *union) missed(n *member) {
	for _, name := range slices.Sorted(maps.Keys(n.filter)) {
		var told []*mcp.Message
		if feature, ok := strings.CutSuffix(name, "ListChanged"); ok {
			told = append(told, mcp.NewNotification("notifications/"+feature+"/list_changed", nil))
		} else if name == "resourceSubscriptions" {
			for _, uri := range n.filter[name].values {
				told = append(told, mcp.NewNotification("notifications/resources/updated",
					slices.Concat([]byte(`{"uri":`), []byte(uri), []byte(`}`))))
			}
		}
		for _, m := range told {
			if m, err := toClient(m).Edit(mcp.Set(mcp.PointerSubscription,
				[]byte(n.m.ID()))); err == nil {
				u.deliver(n, m)
			}
		}
	}
}

// deliver hands a notification over, in the order of all that is for the member's session. The mu
// is held.
func (u *union) deliver(n *member, m *mcp.Message) {
	if err := n.lane.add(delivery{size: m.Size(),
		run: func(ctx context.Context) { n.caller.Notify(ctx, m) }}); err != nil {
		n.finish(reply{err: unavailable(u.w.name, "too much of what it sent is waiting", err)})
	}
}

// filter is what a subscription is to hear, or does: the members of notifications.
type filter map[string]interest

// interest is one member of a filter: true, or what it names.
type interest struct {
	list   bool
	values []string // as they were written
}

func filterOf(m *mcp.Message) filter {
	f := filter{}
	m.Members("/notifications", func(name string, raw []byte) bool {
		at := "/notifications/" + mcp.EscapePointer(name)
		switch {
		case bytes.HasPrefix(raw, []byte("[")):
			i := interest{list: true}
			m.Items(at, func(_ int, raw []byte) bool {
				i.values = append(i.values, string(raw))
				return true
			})
			f[name] = i
		case string(raw) != "false" && string(raw) != "null":
			f[name] = interest{values: []string{string(raw)}}
		}
		return true
	})
	return f
}

// covers says that whoever hears f hears all of g.
func (f filter) covers(g filter) bool {
	for name, i := range g {
		if len(i.within(f[name]).values) < len(i.values) {
			return false
		}
	}
	return true
}

// within is i without what j has not.
func (i interest) within(j interest) interest {
	kept := interest{list: i.list}
	for _, v := range i.values {
		if slices.Contains(j.values, v) {
			kept.values = append(kept.values, v)
		}
	}
	return kept
}

func (f filter) add(g filter) {
	for name, i := range g {
		mine := interest{list: i.list, values: slices.Clone(f[name].values)}
		for _, v := range i.values {
			if !slices.Contains(mine.values, v) {
				mine.values = append(mine.values, v)
			}
		}
		f[name] = mine
	}
}

func (i interest) json() []byte {
	if !i.list {
		return []byte(i.values[0])
	}
	return []byte("[" + strings.Join(i.values, ",") + "]")
}

func (f filter) json() []byte {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		members = append(members, string(mcp.Quote(name))+":"+string(f[name].json()))
	}
	return []byte("{" + strings.Join(members, ",") + "}")
}

// subject is the member of a filter that a notification falls under, and what it is about there.
func subject(m *mcp.Message) (name, value string) {
	switch m.Method {
	case "notifications/resources/updated":
		raw, _ := m.Get("/uri")
		return "resourceSubscriptions", string(raw)
	case "notifications/tasks":
		raw, _ := m.Get("/taskId")
		return "taskIds", string(raw)
	}
	feature, ok := strings.CutSuffix(strings.TrimPrefix(m.Method, "notifications/"),
		"/list_changed")
	if !ok {
		return "", ""
	}
	return feature + "ListChanged", "true"
}

// names says that a notification is about what the filter names.
func (f filter) names(m *mcp.Message) bool {
	name, value := subject(m)
	return slices.Contains(f[name].values, value)
}

// wants says whether a notification is for the filter's member. exact says that what it is about is
// what some filter named: else it may be about something below that.
func (f filter) wants(m *mcp.Message, exact bool) bool {
	name, _ := subject(m)
	return name == "" || f.names(m) || !exact && len(f[name].values) > 0
}
