package proxy

import (
	"context"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// initializeWait is how long one server may keep a client's initialize waiting when others have
// answered, and its first calls.
const initializeWait = 15 * time.Second

// maxInstructions bounds what all servers together may say to the model before anything was asked.
const maxInstructions = 32 << 10

// initialize puts the client's initialize to every server and answers for all of them. Servers that
// fail or are slow are greeted later; the client then hears that lists changed.
func (call *Call) initialize(ctx context.Context) (pipeline.Passed, error) {
	s := call.session
	s.mu.Lock()
	again := s.initialize != nil
	if !again {
		s.initialize = call.request
		// servers of a later configuration are greeted because there is a hello
		call.settings = s.proxy.settings.Load()
	}
	s.mu.Unlock()
	if again {
		return pipeline.Passed{}, requestErrorf(mcp.CodeInvalidRequest,
			"the session is initialized already")
	}
	over := make(chan struct{}) // closed when it is settled what the client is answered
	defer close(over)
	answer, err := call.initializeServers(ctx, over)
	if err != nil || answer.Message().Kind == mcp.Error {
		s.mu.Lock()
		s.initialize = nil // the client may try again
		s.mu.Unlock()
	}
	return answer, err
}

func (call *Call) initializeServers(ctx context.Context, over <-chan struct{}) (pipeline.Passed, error) {
	if call.settings.names.disabled {
		srv, err := call.onlyServer()
		if err != nil {
			return pipeline.Passed{}, err
		}
		return call.initializeServer(ctx, srv)
	}
	type greeting struct {
		i      int
		answer pipeline.Passed
		err    error
	}
	links := call.session.serversInOrder(call.settings)
	heard := make(chan greeting, len(links))
	parts := make([]serverPart, len(links))
	for i, srv := range links {
		parts[i] = serverPart{server: srv.name, err: srv.unavailable("it is still starting")}
		call.session.runInBackground(func(life context.Context) {
			answer, err := call.initializeServer(life, srv)
			heard <- greeting{i, answer, err}
			<-over
			srv.initializeLate(life)
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
				t := time.NewTimer(initializeWait)
				defer t.Stop()
				slow = t.C
			}
		case <-slow:
			n = len(links)
		case <-ctx.Done():
			return pipeline.Passed{}, context.Cause(ctx)
		}
	}
	return call.mergeParts(ctx, parts, call.mergeServerInfo)
}

// initializeServer puts the client's initialize to one server and notes how it answered.
func (call *Call) initializeServer(ctx context.Context, srv *sessionServer) (pipeline.Passed, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle, most := call.timeouts(srv)
	d := call.startDeadline(srv, idle, most, cancel)
	defer d.stop()
	srv.noteInitializeSent()
	m := *call.request
	m.Server = srv.name
	answer, err := call.callOne(ctx, srv, &m, d)
	switch {
	case err != nil:
		srv.noteInitializeAnswer(nil, err)
	case answer.Message().Kind == mcp.Error:
		srv.noteInitializeAnswer(nil, srv.unavailable("it refused initialize: "+errorText(answer.Message())))
	default:
		srv.noteInitializeAnswer(answer.Message(), nil)
	}
	return answer, err
}
