package bridge

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// question is one request of a server that is put to the client of a parked call.
type question struct {
	key    string // in inputRequests and inputResponses
	passed pipeline.Passed
	asked  chan struct{} // closed when a result has put the question to the client
	answer chan *mcp.Message
}

// SendRequests implements proxy.Client. It adds requests of the server to the questions of the
// call. If a request of the client waits for the call, its result asks the client the questions. If
// none waits, the client is asked when it resumes the call.
func (c *parkedCall) SendRequests(ctx context.Context,
	requests []pipeline.Passed) ([]*mcp.Message, error) {
	added := make([]*question, len(requests))
	c.mu.Lock()
	for i, p := range requests {
		added[i] = &question{key: "g" + strconv.Itoa(c.questionCount), passed: p,
			asked: make(chan struct{}), answer: make(chan *mcp.Message, 1)}
		c.questionCount++
	}
	c.questions = append(c.questions, added...)
	c.mu.Unlock()
	defer c.withdraw(added)
	c.notifyWait()
	answers := make([]*mcp.Message, len(added))
	for i, q := range added {
		var err error
		if answers[i], err = c.await(ctx, q); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// await waits for the answer to a question. The client may answer a question after the call has
// ended, since a question is not always about the call.
func (c *parkedCall) await(ctx context.Context, q *question) (*mcp.Message, error) {
	select {
	case <-q.asked:
	case <-c.closed:
		return nil, errors.New("the call has ended")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-q.answer:
		return a, nil
	case <-c.closed:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-q.answer:
		return a, nil
	default:
		return abandonedAnswer(q.passed.Message()), nil
	}
}

// abandonedAnswer returns the answer to m, a request of a server. The server gets this answer when
// the client did not come back.
func abandonedAnswer(m *mcp.Message) *mcp.Message {
	switch m.Method {
	case "elicitation/create":
		return mcp.NewResponse(m.ID(), []byte(`{"action":"cancel"}`))
	case "sampling/createMessage":
		return mcp.NewError(m.ID(), mcp.CodeSamplingRejected, "User rejected sampling request", nil)
	}
	return mcp.NewError(m.ID(), mcp.CodeInternalError, "the client did not answer in time", nil)
}

// withdraw removes questions whose answers are not needed any more.
func (c *parkedCall) withdraw(withdrawn []*question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.questions = slices.DeleteFunc(c.questions, func(q *question) bool {
		return slices.Contains(withdrawn, q)
	})
}

// appendInputRequired appends to b the result that asks the client the questions, and marks the
// questions as asked.
func appendInputRequired(b []byte, questions []*question, requestState string) []byte {
	b = append(b, `{"resultType":"input_required","inputRequests":{`...)
	for i, q := range questions {
		if i > 0 {
			b = append(b, ',')
		}
		select {
		case <-q.asked: // in an earlier round
		default:
			close(q.asked)
		}
		// A question always has params, because the client of go-sdk cannot read a question
		// without params.
		m, params := q.passed.Message(), []byte("{}")
		if body := m.Body(); body != nil {
			params = body
		}
		b = append(append(append(b, '"'), q.key...), `":{"method":`...)
		b = append(append(append(b, mcp.Quote(m.Method)...), `,"params":`...), params...)
		b = append(b, '}')
	}
	b = append(append(b, `},"requestState":`...), mcp.Quote(requestState)...)
	return append(b, '}')
}
