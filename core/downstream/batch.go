package downstream

import (
	"context"
	"errors"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/stop"
)

// MCP 2025-03-26 has batches, and MCP 2024-11-05 does not forbid batches. Each message of a batch
// is handled as if it had come alone.

// allowsBatches reports whether the session's revision allows batches.
func (s *legacyClientSession) allowsBatches() bool {
	revision := s.revision()
	return revision != "" && revision <= mcp.Rev20250326
}

var errBatchNotAllowed = &mcp.ParseError{Code: mcp.CodeInvalidRequest,
	Reason: "batches need a session of MCP 2025-03-26 or older"}

// split parses a batch and returns its requests as calls. It calls admit for each request, and
// handleNonRequest for each other message. When split returns an error, it has discarded the calls.
func (s *legacyClientSession) split(b []byte, handleNonRequest func(*mcp.Message) error,
	admit func(*mcp.Message) Call) ([]Call, error) {
	if !s.allowsBatches() {
		return nil, errBatchNotAllowed
	}
	messages, errs, err := s.endpoint.limits.Message.ParseBatch(b)
	if err != nil {
		return nil, err
	}
	var calls []Call
	for i, m := range messages {
		switch {
		case errs[i] != nil:
			calls = append(calls, &invalidCall{s.endpoint, s.peer, errs[i]})
		case m.Kind != mcp.Request:
			if err := handleNonRequest(m); err != nil {
				for _, c := range calls {
					c.Discard()
				}
				return nil, err
			}
		case m.Method == "initialize" || eraOf(m, "") == mcp.Modern:
			calls = append(calls, s.refusedCall(refuse(mcp.CodeInvalidRequest,
				"%s cannot be sent in a batch", m.Method), s.stamp(m)))
		default:
			calls = append(calls, admit(m))
		}
	}
	return calls, nil
}

// runAll runs calls at the same time and returns their answers, in the order of the calls. The
// answer of a cancelled call is the zero Passed.
func runAll(ctx context.Context, calls []Call) []pipeline.Passed {
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

// begunWrites are writes that have begun together.
type begunWrites []stop.Write

// beginAll begins the write of all answers, and replaces each answer by the one to write. The
// caller calls end when they are written.
func beginAll(ctx context.Context, answers []pipeline.Passed) begunWrites {
	writes := make(begunWrites, len(answers))
	for i := range answers {
		answers[i], writes[i] = answers[i].Begin(ctx)
	}
	return writes
}

// end ends the writes.
func (w begunWrites) end() {
	for _, write := range w {
		write.End()
	}
}

// joinAnswers returns the answers as one JSON array, or nil when there are none.
func joinAnswers(answers []pipeline.Passed) []byte {
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

// handleBatch handles a batch on a pipe. It returns an error when an answer could not be written,
// or when ctx has ended.
func (c *pipeConnection) handleBatch(ctx context.Context, b []byte) error {
	var admitted []*mcp.Message
	releaseAll := func() {
		for _, m := range admitted {
			c.release(m)
		}
	}
	calls, err := c.legacy.split(b, func(m *mcp.Message) error {
		m.Via = c.via()
		return c.handleNonRequest(ctx, m)
	}, func(m *mcp.Message) Call {
		m.Via = c.via()
		call := c.admitRequest(m)
		if call == nil {
			return c.legacy.refusedCall(tooManyInFlight, m)
		}
		admitted = append(admitted, m)
		return call
	})
	if err != nil {
		releaseAll()
		if invalid := (*mcp.ParseError)(nil); errors.As(err, &invalid) {
			return c.out.send(ctx, c.endpoint.passParseError(ctx, c.peer, invalid))
		}
		return err
	}
	answer := func() error {
		// The requests stay in flight until the answers are written. So a client that does not read
		// cannot send more and more requests.
		defer releaseAll()
		answers := runAll(ctx, calls)
		writes := beginAll(ctx, answers)
		defer writes.end()
		if answers := joinAnswers(answers); answers != nil {
			return c.out.Write(ctx, answers)
		}
		return nil
	}
	if len(admitted) == 0 {
		// No request of this batch counts as in flight. So the answers are written before the next
		// message is read: a client that does not read its answers cannot send more batches.
		return answer()
	}
	c.calls.Go(func() {
		if err := answer(); err != nil {
			c.endpoint.log.Debug("writing the answers to a batch failed", "session", c.session,
				"error", err)
		}
	})
	return nil
}
