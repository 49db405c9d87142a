package bridge

import (
	"context"
	"strconv"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
)

// maxURLElicitations is how many times a server may answer one call with the demand to open web
// pages first. The client is not asked after the last of these demands, since the call is not sent
// again.
const maxURLElicitations = 3

// inFlightCall is one call of a modern client to a legacy server. It handles the messages that the
// server sends during the call.
type inFlightCall struct {
	session *pooledSession
	request *mcp.Message
	handler proxy.Handler
}

// run sends o, the request translated for the server, and returns the answer for the client. When
// the server demands that web pages are opened first, run asks the client to open the pages and
// sends the request again. A server that makes this demand has not run the request.
func (c *inFlightCall) run(ctx context.Context, o upstream.Outgoing) (*mcp.Message, error) {
	defer c.session.addCall(c)()
	for demands := 1; ; demands++ {
		answer, err := c.send(ctx, o)
		if err != nil {
			return nil, err
		}
		if answer.ErrorCode() != mcp.CodeURLElicitationRequired || demands == maxURLElicitations {
			return c.translate(ctx, answer)
		}
		if err := c.Consume(ctx, answer, "pass", answeredByGatekit); err != nil {
			return nil, err
		}
		if refusal, err := c.openPages(ctx, answer); err != nil || refusal != nil {
			return refusal, err
		}
		o = upstream.Again(o)
	}
}

// translate returns an answer of the server, translated for the client.
func (c *inFlightCall) translate(ctx context.Context, answer *mcp.Message) (*mcp.Message, error) {
	var translated *mcp.Message
	var err error
	if answer.Kind == mcp.Error {
		translated, err = errorForModern(c.request, answer)
	} else {
		translated, err = resultForModern(c.request, answer, c.session.initializeAnswer)
	}
	if err != nil {
		drop(ctx, c, answer, cannotTranslate)
		return nil, untranslatable(c.session.name, err)
	}
	return translated, nil
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
		if err := c.Consume(ctx, answer, "pass", answeredByGatekit); err != nil {
			return nil, err
		}
		return s.callAsTask(ctx, c.request, upstream.Again(o), c)
	case c.request.Method == "tools/list":
		s.taskTools.record(answer)
	}
	return answer, nil
}

// openPages asks the client to open the web pages that m, a server's error, names. refusal is nil
// when the client has agreed to open all pages. Otherwise refusal or err ends the call.
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
	if m.Len("/data/elicitations") > c.session.maxInputRequests {
		return nil, unavailable(c.session.name, "the server asked for too many pages at once", nil)
	}
	var questions []*mcp.Message
	m.Items("/data/elicitations", func(i int, raw []byte) bool {
		var q *mcp.Message
		q, err = mcp.NewRequest(mcp.ID(strconv.Itoa(i)), "elicitation/create", raw).Edit(
			mcp.Set("/mode", []byte(`"url"`)), mcp.Remove("/elicitationId"))
		if err == nil {
			questions = append(questions, toClient(q))
		}
		return err == nil
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
// request names a log level. It gets only the log messages of that level or above.
func (c *inFlightCall) HandleNotification(ctx context.Context, m *mcp.Message) {
	switch m.Method {
	case "notifications/message":
		wanted, asked := c.request.Text(mcp.PointerLogLevel)
		level, _ := m.Text("/level")
		switch {
		case !asked:
			drop(ctx, c, m, "the request asks for no log messages")
			return
		case mcp.LogLevelRank(level) < mcp.LogLevelRank(wanted):
			drop(ctx, c, m, "below the log level that the request asks for")
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
	c.session.questions.inCall.Store(true)
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
			// A modern client accepts no other requests. The session's handler inspects, records
			// and refuses this request.
			return c.session.feed.HandleRequests(ctx, ms)
		}
		q, err := questionForModern(m)
		if err != nil {
			for _, m := range ms {
				drop(ctx, c, m, cannotTranslate)
			}
			return make([]pipeline.Passed, len(ms)) // a zero Passed refuses the request
		}
		questions[i] = toClient(q)
	}
	return c.handler.HandleRequests(ctx, questions)
}

// Consume implements proxy.Handler.
func (c *inFlightCall) Consume(ctx context.Context, m *mcp.Message, action, reason string) error {
	return c.handler.Consume(ctx, m, action, reason)
}

// IsWaiting implements proxy.Handler.
func (c *inFlightCall) IsWaiting() bool { return c.handler.IsWaiting() }

// ReportActivity implements proxy.Handler.
func (c *inFlightCall) ReportActivity() { c.handler.ReportActivity() }
