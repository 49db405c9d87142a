package upstream

import (
	"context"
	"fmt"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
)

// modernSession is one session of a client with a modern server. The server knows no sessions: the
// sessions of a principal share one connection to it. modernSession implements ModernSession.
type modernSession struct {
	opts       *Options
	prober     *prober
	pool       *modernPool
	principal  string
	overPipe   bool // the client is on a pipe: the process is not ended for lack of use
	conn       *sharedConn
	goroutines *taskgroup.Group
	queue      *orderedQueue // of the messages that a process sends; nil over HTTP
	closeOnce  sync.Once
}

func newModernSession(p *prober, pool *modernPool, o proxy.OpenOptions) *modernSession {
	overPipe := o.HasStream == nil
	s := &modernSession{opts: p.opts, prober: p, pool: pool, principal: o.Principal.ID(),
		overPipe: overPipe, conn: pool.acquire(o.Principal, overPipe), goroutines: taskgroup.New()}
	if !s.conn.isHTTP() {
		s.queue = newOrderedQueue(s.goroutines)
	}
	return s
}

// Call implements proxy.Server. A result that asks for input is returned with CarriesInput set; a
// modern client accepts such results.
func (s *modernSession) Call(ctx context.Context, p pipeline.Passed,
	h proxy.Handler) (*mcp.Message, error) {
	answer, resultType, err := s.Send(ctx, Forward(p), h)
	if err != nil || resultType != ResultInputRequired {
		return answer, err
	}
	marked := *answer
	marked.CarriesInput = true
	return &marked, nil
}

// Send implements ModernSession.
func (s *modernSession) Send(ctx context.Context, o Outgoing,
	h proxy.Handler) (answer *mcp.Message, resultType string, err error) {
	ctx, release := s.goroutines.Bind(ctx)
	defer release()
	answer, err = s.conn.send(ctx, o, h, s.queue)
	if err == nil && answer.ErrorCode() == mcp.CodeUnsupportedVersion && contradictsItself(answer) {
		answer, err = s.conn.send(ctx, Again(o), h, s.queue) // the server has not run the request
	}
	if err != nil {
		return nil, "", err
	}
	if resultType, err = s.checkResult(o.m, answer); err != nil {
		if h != nil { // without a handler, the answer is already recorded
			_ = h.Consume(ctx, answer, "drop", "Gatekit does not accept this type of result")
		}
		return nil, "", err
	}
	return answer, resultType, nil
}

// contradictsItself reports whether an error that refuses the request's revision lists the same
// revision as supported.
func contradictsItself(answer *mcp.Message) bool {
	listed := false
	answer.Items("/data/supported", func(_ int, raw []byte) bool {
		listed = mcp.NewResponse("", raw).TextEquals("", mcp.Rev20260728)
		return !listed
	})
	return listed
}

// checkResult returns the type of a result, or "" for an error message. It returns an error for a
// type that the protocol and the client's capabilities do not allow, because the pipeline could not
// inspect such a result.
func (s *modernSession) checkResult(request, answer *mcp.Message) (resultType string, err error) {
	name := s.opts.Name
	if answer.Kind == mcp.Error {
		if answer.ErrorCode() == mcp.CodeUnsupportedVersion {
			s.prober.discardAny()
			return "", unavailable(name, "the server refused a revision that it claimed to speak",
				nil)
		}
		return "", nil
	}
	raw, ok := answer.Get("/resultType")
	if !ok {
		return "complete", nil
	}
	resultType, ok = answer.Text("/resultType")
	switch {
	case !ok:
		return "", unavailable(name, fmt.Sprintf("the resultType %.40s is not a string", raw), nil)
	case resultType == "complete", resultType == "task":
		return resultType, nil
	case resultType == ResultInputRequired:
		switch request.Method {
		case "tools/call", "prompts/get", "resources/read":
			return resultType, nil
		}
		return "", unavailable(name, "the server asked for input in the result of "+
			request.Method+", where the protocol does not allow it", nil)
	}
	hasExtension := false
	request.Members(mcp.PointerCapabilities+"/extensions", func(string, []byte) bool {
		hasExtension = true
		return false
	})
	if !hasExtension {
		return "", unavailable(name, fmt.Sprintf(
			"the result is of type %.40q, and the client has declared no extension", resultType),
			nil)
	}
	return resultType, nil
}

// Notify implements proxy.Server. It drops notifications that only legacy clients send. It also
// drops notifications/cancelled, because the end of a call's context cancels the call.
func (s *modernSession) Notify(ctx context.Context, p pipeline.Passed) error {
	switch p.Message().Method {
	case "notifications/initialized", "notifications/progress", "notifications/roots/list_changed",
		"notifications/cancelled", "notifications/tasks/status":
		return nil
	}
	ctx, release := s.goroutines.Bind(ctx)
	defer release()
	return s.conn.notify(ctx, Forward(p))
}

// Close implements proxy.Server. It is safe to call twice.
func (s *modernSession) Close() error {
	s.closeOnce.Do(func() {
		s.goroutines.Close()
		if s.queue != nil {
			s.queue.logDropped(s.opts.Log, s.opts.Name)
		}
		s.pool.release(s.principal, s.overPipe)
	})
	return nil
}
