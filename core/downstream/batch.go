package downstream

import (
	"context"
	"errors"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Batches are of 2025-03-26; 2024-11-05 says nothing against them. Their members are taken one by
// one, as if they had come alone.

// batches says whether the client's revision has them.
func (s *legacy) batches() bool {
	revision := s.revision()
	return revision != "" && revision <= mcp.Rev20250326
}

var errNoBatch = &mcp.ParseError{Code: mcp.CodeInvalidRequest,
	Reason: "batches are of MCP 2025-03-26, and need a session of that revision"}

// split parses a batch and returns its requests as calls. hear takes the other messages; admit
// enters a request.
func (s *legacy) split(b []byte, hear func(*mcp.Message) error,
	admit func(*mcp.Message) Call) ([]Call, error) {
	if !s.batches() {
		return nil, errNoBatch
	}
	ms, errs, err := s.endpoint.limits.Message.ParseBatch(b)
	if err != nil {
		return nil, err
	}
	var calls []Call
	for i, m := range ms {
		switch {
		case errs[i] != nil:
			calls = append(calls, &invalidCall{s.endpoint, s.peer, errs[i]})
		case m.Kind != mcp.Request:
			if err := hear(m); err != nil {
				discard(calls)
				return nil, err
			}
		case m.Method == "initialize" || eraOf(m, "") == mcp.Modern:
			calls = append(calls, s.refusing(refuse(mcp.CodeInvalidRequest,
				"%s has no place in a batch", m.Method), s.stamp(m)))
		default:
			calls = append(calls, admit(m))
		}
	}
	return calls, nil
}

// gather runs calls at once and returns their answers, in the order of the calls; those of
// cancelled ones are the zero Passed.
func gather(ctx context.Context, calls []Call) []pipeline.Passed {
	if len(calls) == 1 {
		return []pipeline.Passed{calls[0].Run(ctx)}
	}
	answers := make([]pipeline.Passed, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() { answers[i] = c.Run(ctx) })
	}
	wg.Wait()
	return answers
}

// array is the answers as one JSON array, nil when there are none.
func array(answers []pipeline.Passed) []byte {
	var b []byte
	for _, a := range answers {
		if m := a.Message(); m != nil {
			b = m.Append(append(b, ','))
		}
	}
	if b == nil {
		return nil
	}
	b[0] = '['
	return append(b, ']')
}

// batch handles a batch on a pipe. The error is that of writing.
func (c *pipe) batch(ctx context.Context, b []byte) error {
	var admitted []*mcp.Message
	leave := func() {
		for _, m := range admitted {
			c.leave(m)
		}
	}
	calls, err := c.legacy.split(b, func(m *mcp.Message) error {
		return c.hear(ctx, m)
	}, func(m *mcp.Message) Call {
		call := c.admit(m)
		if call == nil {
			return c.legacy.refusing(tooMany, m)
		}
		admitted = append(admitted, m)
		return call
	})
	if err != nil {
		leave()
		if bad := (*mcp.ParseError)(nil); errors.As(err, &bad) {
			return c.out.send(ctx, c.endpoint.unread(ctx, c.peer, bad))
		}
		return err
	}
	answer := func() error {
		defer leave() // not before: a client that does not read cannot ask for ever
		if answers := array(gather(ctx, calls)); answers != nil {
			return c.out.Write(ctx, answers)
		}
		return nil
	}
	if len(admitted) == 0 {
		return answer() // nothing counts it, so nothing else is read before it is written
	}
	c.calls.Go(func() {
		if err := answer(); err != nil {
			c.endpoint.log.Debug("answer a batch", "session", c.session, "error", err)
		}
	})
	return nil
}
