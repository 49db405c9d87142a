package bridge

import (
	"context"
	"strconv"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
)

// maxURLElicitations is how many times a server may answer one call with pages that have to be
// opened first.
const maxURLElicitations = 3

// inFlightCall is one call of a modern client at a legacy server. It handles the messages that the
// server sends during the call.
type inFlightCall struct {
	session *pooledSession
	request *mcp.Message
	handler proxy.Handler
}

// run sends o, the request translated for the server, and returns the answer for the client. When
// the server demands that pages are opened first, the client is asked to open them, and the request
// is sent again. A server that demands this has not run the request.
func (c *inFlightCall) run(ctx context.Context, o upstream.Outgoing) (*mcp.Message, error) {
	defer c.session.addCall(c)()
	var answer *mcp.Message
	for range maxURLElicitations {
		var err error
		if answer, err = c.send(ctx, o); err != nil {
			return nil, err
		}
		if answer.ErrorCode() != mcp.CodeURLElicitationRequired {
			break
		}
		if refusal, err := c.openPages(ctx, answer); err != nil || refusal != nil {
			return refusal, err
		}
	}
	var err error
	if answer.Kind == mcp.Error {
		answer, err = errorForModern(c.request, answer)
	} else {
		answer, err = resultForModern(c.request, answer, c.session.initializeAnswer)
	}
	if err != nil {
		return nil, untranslatable(c.session.name, err)
	}
	return answer, nil
}

// send sends the request, as a task if the tool runs only as a task.
func (c *inFlightCall) send(ctx context.Context, o upstream.Outgoing) (*mcp.Message, error) {
	s := c.session
	if s.isTaskOnly(c.request) {
		return s.callAsTask(ctx, c.request, o, c)
	}
	answer, err := s.server.Send(ctx, o, c)
	switch {
	case err != nil:
		return nil, err
	case s.needsTask(ctx, c.request, answer):
		return s.callAsTask(ctx, c.request, o, c)
	case c.request.Method == "tools/list":
		s.taskTools.record(answer)
	}
	return answer, nil
}

// openPages asks the client to open the pages that a server's error names. It returns nil when the
// client has opened all of them, and otherwise the error that ends the call.
func (c *inFlightCall) openPages(ctx context.Context,
	m *mcp.Message) (refusal *mcp.Message, err error) {
	id := c.request.ID()
	_, isDeclared := c.request.Get(mcp.PointerCapabilities + "/elicitation/url")
	if !isDeclared || !c.canAsk() {
		return toClient(mcp.NewError(id, mcp.CodeMissingCapability,
			"the server wants pages to be opened first, and the client did not declare "+
				"elicitation/url",
			[]byte(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`))), nil
	}
	var questions []*mcp.Message
	m.Items("/data/elicitations", func(i int, raw []byte) bool {
		var q *mcp.Message
		q, err = mcp.NewRequest(mcp.ID(strconv.Itoa(i)), "elicitation/create", raw).Edit(
			mcp.Set("/mode", []byte(`"url"`)), mcp.Remove("/elicitationId"))
		if err == nil {
			questions = append(questions, toClient(q))
		}
		return err == nil && len(questions) < maxInputRequests
	})
	if err != nil || len(questions) == 0 {
		return nil, unavailable(c.session.name,
			"the server wants pages to be opened first and does not name them", err)
	}
	for _, p := range c.handler.HandleRequests(ctx, questions) {
		if answer := p.Message(); answer == nil || !answer.TextEquals("/action", "accept") {
			return toClient(mcp.NewError(id, mcp.CodeInternalError,
				"the server wants pages to be opened first, and the client did not agree",
				nil)), nil
		}
	}
	return nil, nil
}

// HandleNotification implements proxy.Handler. A modern client gets log messages only if its
// request names a log level, and only those of that level or above.
func (c *inFlightCall) HandleNotification(ctx context.Context, m *mcp.Message) {
	switch m.Method {
	case "notifications/message":
		wanted, asked := c.request.Text(mcp.PointerLogLevel)
		level, _ := m.Text("/level")
		if !asked || mcp.LogLevelRank(level) < mcp.LogLevelRank(wanted) {
			return
		}
	case "notifications/progress":
	default:
		c.session.HandleNotification(ctx, m)
		return
	}
	c.handler.HandleNotification(ctx, m)
}

// HandleRequests implements proxy.Handler.
func (c *inFlightCall) HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	c.session.questions.any.Store(true)
	if c.canAsk() {
		return c.askInCall(ctx, ms)
	}
	return c.session.ask(ctx, ms)
}

// canAsk implements sessionCall.
func (c *inFlightCall) canAsk() bool { return mcp.AllowsInputRequests(c.request) }

// askInCall implements sessionCall.
func (c *inFlightCall) askInCall(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	questions := make([]*mcp.Message, len(ms))
	for i, m := range ms {
		switch m.Method {
		case "sampling/createMessage", "elicitation/create", "roots/list":
		default:
			// A modern client cannot be asked this. The session's handler inspects, records and
			// refuses the request.
			return c.session.feed.HandleRequests(ctx, ms)
		}
		q, err := questionForModern(m)
		if err != nil {
			return make([]pipeline.Passed, len(ms)) // a zero Passed refuses its request
		}
		questions[i] = toClient(q)
	}
	return c.handler.HandleRequests(ctx, questions)
}

// IsWaiting implements proxy.Handler.
func (c *inFlightCall) IsWaiting() bool { return c.handler.IsWaiting() }

// ReportActivity implements proxy.Handler.
func (c *inFlightCall) ReportActivity() { c.handler.ReportActivity() }
