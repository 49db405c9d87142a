package proxy

import (
	"context"
	"errors"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// caller is where the messages of one server go: to the client of one call, or to the session's
// feed.
type caller struct {
	s        *Session
	l        *link
	client   Client
	exchange string       // "" outside of any call
	request  *mcp.Message // the client's; nil outside of any call
	watch    *watch
	take     take
}

// take, when it is there, sees each judged notification first and answers whether the client is not
// to get it.
type take func(ctx context.Context, p pipeline.Passed) bool

// rounds says whether the client takes questions inside a result.
func (c *caller) rounds() bool {
	r, ok := c.client.(InputRequestClient)
	return ok && r.TakesInputRequests()
}

// IsWaiting says whether the client waits just now.
func (c *caller) IsWaiting() bool {
	w, ok := c.client.(WaitReporter)
	return !ok || w.IsWaiting()
}

// ReportActivity says that the server is at work.
func (c *caller) ReportActivity() { c.watch.touch() }

// HandleNotification judges a notification of the server and hands it to the client.
func (c *caller) HandleNotification(ctx context.Context, m *mcp.Message) {
	c.watch.touch()
	set := c.s.proxy.settings.Load()
	m = c.stamp(m)
	meth, known := mcp.LookupMethod(m.Method)
	switch {
	case known && (meth.Kind != mcp.Notification || meth.Direction == mcp.ToServer):
		c.s.drop(ctx, set, m, "servers do not send this")
		return
	case m.Method == "notifications/cancelled":
		// what it speaks of is not what the client knows by that id
		c.s.drop(ctx, set, m, "no reverse request in flight")
		return
	case meth.NamePointer == "/taskId" && c.s.proxy.tasks.BelongsToOther(m.Server, m.Name,
		m.Principal):
		c.s.drop(ctx, set, m, "it is a task of another principal")
		return
	case !known && !set.passes(c.l.name, m.Method):
		c.s.drop(ctx, set, m, "an unknown notification; [server."+c.l.name+"] methods lets it pass")
		return
	}
	if asks(m) {
		judged, err := c.judgeQuestions(ctx, set, m)
		if err == nil && judged.denied == nil {
			m, err = m.Edit(judged.edits...)
		}
		if err != nil || judged.denied != nil {
			c.s.drop(ctx, set, m, "what it asks for was refused: the task waits for an answer "+
				"that does not come")
			return
		}
	}
	passed, err := set.Pipeline.Pass(ctx, m)
	if err != nil {
		return // refused and recorded
	}
	if passed, err = c.s.expose(set, passed); err != nil {
		set.Log.Warn("name what a server sent", "server", m.Server, "method", m.Method,
			"error", err)
		return
	}
	if c.take != nil && c.take(ctx, passed) {
		return
	}
	if err := c.client.Notify(ctx, passed); err != nil {
		set.Log.Debug("notify the client", "method", m.Method, "error", err)
	}
}

// HandleRequests judges reverse requests of the server, puts those that pass to the client, and
// judges its answers.
func (c *caller) HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	c.watch.hold()
	defer c.watch.release()
	set := c.s.proxy.settings.Load()
	answers := make([]pipeline.Passed, len(ms))
	var (
		ask    []pipeline.Passed
		judged []*mcp.Message // what ask holds, with the server's own names
		where  []int
	)
	for i, m := range ms {
		m = c.stamp(m)
		p, err := c.admit(ctx, set, m)
		if err != nil {
			answers[i] = c.decline(ctx, set, m, err)
			continue
		}
		shown, err := c.show(set, p)
		if err != nil {
			answers[i] = c.decline(ctx, set, m, err)
			continue
		}
		ask, judged, where = append(ask, shown), append(judged, p.Message()), append(where, i)
	}
	if len(ask) == 0 {
		return answers
	}
	got, err := c.client.SendRequests(ctx, ask)
	for j, i := range where {
		switch {
		case errors.Is(err, ErrOutsideCall) && judged[j].Method != "roots/list":
			// of which the server may well ask again
			answers[i] = c.decline(ctx, set, judged[j], failure(mcp.CodeMethodNotFound, "%s", err))
		case err != nil:
			answers[i] = c.decline(ctx, set, judged[j], failure(mcp.CodeInternalError,
				"the client could not be asked: %s", err))
		case j >= len(got) || got[j] == nil:
			answers[i] = c.decline(ctx, set, judged[j], failure(mcp.CodeInternalError,
				"the client did not answer"))
		default:
			answers[i] = c.answer(ctx, set, judged[j], got[j])
		}
	}
	return answers
}

// stamp is a message of the server with what is known of it.
func (c *caller) stamp(m *mcp.Message) *mcp.Message {
	m = c.s.stamp(m, mcp.ToClient, c.exchange)
	m.Server = c.l.name
	if meth, known := mcp.LookupMethod(m.Method); known && meth.NamePointer != "" {
		m.Name, _ = m.Text(meth.NamePointer)
	}
	return m
}

// admit says whether a reverse request may be put to the client: known, declared by the client,
// judged, recorded.
func (c *caller) admit(ctx context.Context, set *settings,
	m *mcp.Message) (pipeline.Passed, error) {
	meth, known := mcp.LookupMethod(m.Method)
	if !known && !set.passes(c.l.name, m.Method) || known && (meth.Kind != mcp.Request ||
		meth.Direction == mcp.ToServer) {
		return pipeline.Passed{}, failure(mcp.CodeMethodNotFound, "method not found: %s",
			quoteName(m.Method))
	}
	if lack := c.lacks(meth, m); lack != "" {
		return pipeline.Passed{}, &undeclared{lack}
	}
	if !c.s.owns(set, m) {
		return pipeline.Passed{}, failure(mcp.CodeInvalidParams, "Unknown task")
	}
	return set.Pipeline.Pass(ctx, m)
}

// lacks is the capability that the client would need for a reverse request and did not declare, ""
// when there is none.
func (c *caller) lacks(meth mcp.Method, m *mcp.Message) string {
	if meth.Capability == "" {
		return ""
	}
	declares, known := c.declared()
	if !known {
		// nothing was seen of its capabilities: the client itself says what it does not do
		return ""
	}
	if !declares(meth.Capability) {
		return meth.Capability
	}
	switch m.Method {
	case "elicitation/create":
		mode, _ := m.Text("/mode")
		if mode == "url" && !declares("elicitation/url") {
			return "elicitation/url"
		}
		if mode != "url" && declares("elicitation/url") && !declares("elicitation/form") {
			return "elicitation/form" // an empty object means form
		}
	case "sampling/createMessage":
		_, tools := m.Get("/tools")
		_, choice := m.Get("/toolChoice")
		if (tools || choice) && !declares("sampling/tools") {
			return "sampling/tools"
		}
	}
	return ""
}

// declared says what the client declared, for this request or for the session. known is false where
// nothing was seen of its capabilities.
func (c *caller) declared() (declares func(capability string) bool, known bool) {
	m, at := c.s.greeting(), "/capabilities/"
	if c.request != nil {
		if _, per := c.request.Get(mcp.PointerCapabilities); per {
			m, at = c.request, mcp.PointerCapabilities+"/"
		}
	}
	return func(capability string) bool {
		_, ok := m.Get(at + capability)
		return ok
	}, m != nil
}

// show is a judged reverse request as the client gets it: our names on its links, and, with several
// servers, a word on who asks.
func (c *caller) show(set *settings, p pipeline.Passed) (pipeline.Passed, error) {
	p, err := c.s.expose(set, p)
	if err != nil || !set.several() {
		return p, err
	}
	m, server := p.Message(), c.l.name
	switch m.Method {
	case "elicitation/create":
		text, ok := m.Text("/message")
		if !ok {
			return p, failure(mcp.CodeInvalidParams, "elicitation/create needs a message")
		}
		return p.Edit(mcp.Set("/message", mcp.Quote("["+server+"] "+text)))
	case "sampling/createMessage":
		return p.Edit(mcp.Set("/_meta/gatekit~1server", mcp.Quote(server)))
	}
	return p, nil
}

// answer judges what the client answered and answers what the server gets, under the server's id.
func (c *caller) answer(ctx context.Context, set *settings, asked, m *mcp.Message) pipeline.Passed {
	m = c.s.stamp(m, mcp.ToServer, c.exchange)
	m.Server, m.Method, m.Name, m.Request = asked.Server, asked.Method, asked.Name, asked
	m, err := c.s.strip(set, m)
	if err == nil {
		m, err = c.s.ownTasks(set, m)
	}
	if err != nil {
		return c.decline(ctx, set, asked, failure(mcp.CodeInternalError,
			"the client's answer cannot be read"))
	}
	passed, err := set.Pipeline.Pass(ctx, m)
	if err != nil {
		return c.decline(ctx, set, asked, err)
	}
	c.s.mint(passed.Message())
	return passed.WithID(asked.ID())
}

// decline is what the server gets in place of an answer.
func (c *caller) decline(ctx context.Context, set *settings, asked *mcp.Message,
	err error) pipeline.Passed {
	var denied *pipeline.DeniedError
	if errors.As(err, &denied) {
		return denied.DeclineResponse(asked.ID())
	}
	own := failure(mcp.CodeInternalError, "%s", err.Error())
	if lack := (*undeclared)(nil); errors.As(err, &lack) {
		own = lack.toServer()
	} else {
		errors.As(err, &own)
	}
	m := c.s.stamp(mcp.NewError(asked.ID(), own.code, own.message, own.data), mcp.ToServer,
		c.exchange)
	m.Server, m.Method, m.Name, m.Request = asked.Server, asked.Method, asked.Name, asked
	return set.Pipeline.PassOwn(context.WithoutCancel(ctx), m)
}
