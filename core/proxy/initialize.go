package proxy

import (
	"context"
	"errors"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// initializeWait is the longest time that the first calls to a server wait for its answer to
// initialize.
const initializeWait = 15 * time.Second

// longestInitialize is how long initialize waits while no server has answered. The time-outs of the
// servers are usually shorter.
const longestInitialize = time.Hour

// maxInstructions bounds the instructions of all servers together, in bytes.
const maxInstructions = 32 << 10

// initialize sends the client's initialize to every server and merges the answers. Servers that
// fail or are slow are initialized later; the client is then notified that lists changed.
func (call *Call) initialize(ctx context.Context) (pipeline.Passed, error) {
	s := call.session
	s.mu.Lock()
	again := s.initialize != nil
	if !again {
		s.initialize = call.request
		// servers of a later configuration are initialized by Session.apply
		call.settings = s.proxy.settings.Load()
	}
	s.mu.Unlock()
	if again {
		return pipeline.Passed{}, requestErrorf(mcp.CodeInvalidRequest,
			"the session is initialized already")
	}
	decided := make(chan struct{}) // closed when the client's answer is decided
	defer close(decided)
	answer, err := call.initializeServers(ctx, decided)
	if err != nil || answer.Message().Kind == mcp.Error {
		s.mu.Lock()
		s.initialize = nil // the client may initialize again
		s.mu.Unlock()
	}
	return answer, err
}

func (call *Call) initializeServers(ctx context.Context,
	decided <-chan struct{}) (pipeline.Passed, error) {
	if call.settings.names.disabled {
		srv, err := call.onlyServer()
		if err != nil {
			return pipeline.Passed{}, err
		}
		return call.initializeServer(ctx, srv)
	}
	type result struct {
		i      int
		answer pipeline.Passed
		err    error
	}
	servers := call.session.serversInOrder(call.settings)
	results := make(chan result, len(servers))
	patience := &call.session.proxy.patience
	wait := &answerWait{began: time.Now(), servers: make([]serverWait, len(servers)),
		withoutAnswer: longestInitialize, withoutAnswerLate: longestInitialize}
	parts := make([]serverPart, len(servers))
	for i, srv := range servers {
		parts[i] = serverPart{server: srv.name, err: srv.unavailable("it is still starting")}
		key := patienceKey{srv.upstream, "initialize"}
		limit, isLate := patience.limit(key)
		wait.add(i, limit, isLate)
		call.session.runInBackground(func(background context.Context) {
			answer, err := call.initializeServer(background, srv)
			if !errors.As(err, new(*timeoutError)) && background.Err() == nil {
				patience.noteAnswer(key, time.Since(wait.began))
			}
			results <- result{i, answer, err}
			<-decided
			srv.initializeLate(background)
		})
	}
	for left := wait.left(); left > 0; left = wait.left() {
		timer := time.NewTimer(left)
		select {
		case r := <-results:
			p := &parts[r.i]
			if p.err = r.err; p.err == nil {
				p.err = p.add(r.answer)
			}
			wait.note(r.i, p.err == nil)
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return pipeline.Passed{}, context.Cause(ctx)
		}
		timer.Stop()
	}
	for i, s := range wait.servers {
		if s.isWaited {
			call.isPartialInitialize = true
			patience.noteLate(patienceKey{servers[i].upstream, "initialize"})
			call.settings.Log.Info("server not waited for", "server", servers[i].name,
				"method", "initialize")
		}
	}
	if call.isPartialInitialize {
		call.session.noteDeclaredAhead()
	}
	call.declareForLogin(parts)
	return call.mergeParts(ctx, parts, call.mergeServerInfo)
}

// initializeServer sends the client's initialize to one server and notes the answer in srv.
func (call *Call) initializeServer(ctx context.Context,
	srv *sessionServer) (pipeline.Passed, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle, total := call.settings.timeouts(srv.name)
	d := call.startDeadline(srv, idle, total, cancel)
	defer d.stop()
	srv.noteInitializeSent()
	m := *call.request
	m.Server = srv.name
	answer, err := call.callOneOfSeveral(ctx, srv, &m, d)
	switch {
	case err != nil:
		srv.noteInitializeAnswer(nil, err)
	case answer.Message().Kind == mcp.Error:
		srv.noteInitializeAnswer(nil,
			srv.unavailable("it refused initialize: "+errorText(answer.Message())))
	default:
		srv.noteInitializeAnswer(answer.Message(), nil)
	}
	return answer, err
}
