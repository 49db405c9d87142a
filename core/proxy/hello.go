package proxy

import (
	"context"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// greetWait is how long one server may keep a client's initialize waiting when others have
// answered, and its first calls.
const greetWait = 15 * time.Second

// maxInstructions bounds what all servers together may say to the model before anything was asked.
const maxInstructions = 32 << 10

// initialize puts the client's initialize to every server and answers for all of them. Servers that
// fail or are slow are greeted later; the client then hears that lists changed.
func (x *Call) initialize(ctx context.Context) (pipeline.Passed, error) {
	s := x.s
	s.mu.Lock()
	again := s.hello != nil
	if !again {
		s.hello = x.m
		// servers of a later configuration are greeted because there is a hello
		x.c = s.proxy.settings.Load()
	}
	s.mu.Unlock()
	if again {
		return pipeline.Passed{}, failure(mcp.CodeInvalidRequest,
			"the session is initialized already")
	}
	over := make(chan struct{}) // closed when it is settled what the client is answered
	defer close(over)
	answer, err := x.greet(ctx, over)
	if err != nil || answer.Message().Kind == mcp.Error {
		s.mu.Lock()
		s.hello = nil // the client may try again
		s.mu.Unlock()
	}
	return answer, err
}

func (x *Call) greet(ctx context.Context, over <-chan struct{}) (pipeline.Passed, error) {
	if x.c.names.bare {
		l, err := x.only()
		if err != nil {
			return pipeline.Passed{}, err
		}
		return x.hello(ctx, l)
	}
	type greeting struct {
		i      int
		answer pipeline.Passed
		err    error
	}
	links := x.s.ordered(x.c)
	heard := make(chan greeting, len(links))
	parts := make([]part, len(links))
	for i, l := range links {
		parts[i] = part{server: l.name, err: l.unavailable("it is still starting")}
		x.s.background(func(life context.Context) {
			answer, err := x.hello(life, l)
			heard <- greeting{i, answer, err}
			<-over
			l.catchUp(life)
		})
	}
	var slow <-chan time.Time // runs from the first good answer
	for n := 0; n < len(links); n++ {
		select {
		case g := <-heard:
			p := &parts[g.i]
			if p.err = g.err; p.err == nil {
				p.err = p.add(g.answer)
			}
			if slow == nil && p.err == nil {
				t := time.NewTimer(greetWait)
				defer t.Stop()
				slow = t.C
			}
		case <-slow:
			n = len(links)
		case <-ctx.Done():
			return pipeline.Passed{}, context.Cause(ctx)
		}
	}
	return x.merged(ctx, parts, x.mergeHello)
}

// hello puts the client's initialize to one server and notes how it answered.
func (x *Call) hello(ctx context.Context, l *link) (pipeline.Passed, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle, most := x.times(l)
	w := x.watch(l, idle, most, cancel)
	defer w.stop()
	l.greet()
	m := *x.m
	m.Server = l.name
	answer, err := x.ask(ctx, l, &m, w)
	switch {
	case err != nil:
		l.met(nil, err)
	case answer.Message().Kind == mcp.Error:
		l.met(nil, l.unavailable("it refused initialize: "+errorText(answer.Message())))
	default:
		l.met(answer.Message(), nil)
	}
	return answer, err
}
