package proxy

import (
	"context"
	"errors"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// caller is where the messages of one server go: to the client of one call, or to the session's feed.
type caller struct {
	s        *Session
	l        *link
	client   Client
	exchange string       // "" outside of any call
	request  *mcp.Message // the client's; nil outside of any call
	watch    *watch

	// take, when set, sees each judged notification first and answers whether the client is not to get it.
	take func(ctx context.Context, p pipeline.Passed) bool
}

// Rounds says whether the client takes questions inside a result.
func (c *caller) Rounds() bool {
	r, ok := c.client.(Rounds)
	return ok && r.TakesRounds()
}

// Notify judges a notification of the server and hands it to the client.
func (c *caller) Notify(ctx context.Context, m *mcp.Message) {
	c.watch.touch()
	set := c.s.proxy.settings.Load()
	m = c.stamp(m)
	meth, known := mcp.Lookup(m.Method)
	switch {
	case known && (meth.Kind != mcp.Notification || meth.From == mcp.ToServer):
		c.s.drop(ctx, set, m, "servers do not send this")
		return
	case !known && !c.l.conf.passes(m.Method):
		c.s.drop(ctx, set, m, "an unknown notification; [server."+c.l.conf.Name+"] methods lets it pass")
		return
	}
	if asks(m) {
		judged, err := c.judgeQuestions(ctx, set, m)
		if err != nil || judged.denied != nil {
			return // refused and recorded: the task waits for an answer that does not come
		}
		if m, err = m.Edit(judged.edits...); err != nil {
			return
		}
	}
	passed, err := set.Pipeline.Pass(ctx, m)
	if err != nil {
		return // refused and recorded
	}
	if passed, err = c.s.expose(set, passed); err != nil {
		set.Log.Warn("name what a server sent", "server", m.Server, "method", m.Method, "error", err)
		return
	}
	if c.take != nil && c.take(ctx, passed) {
		return
	}
	if err := c.client.Notify(ctx, passed); err != nil {
		set.Log.Debug("notify the client", "method", m.Method, "error", err)
	}
}

// Ask judges reverse requests of the server, puts those that pass to the client, and judges its answers.
func (c *caller) Ask(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
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
	got, err := c.client.Ask(ctx, ask)
	for j, i := range where {
		switch {
		case err != nil:
			answers[i] = c.decline(ctx, set, judged[j], failure(mcp.CodeInternal, "the client could not be asked: %s", err))
		case j >= len(got) || got[j] == nil:
			answers[i] = c.decline(ctx, set, judged[j], failure(mcp.CodeInternal, "the client did not answer"))
		default:
			answers[i] = c.answer(ctx, set, judged[j], got[j])
		}
	}
	return answers
}

// stamp is a message of the server with what is known of it.
func (c *caller) stamp(m *mcp.Message) *mcp.Message {
	m = c.s.stamp(m, mcp.ToClient, c.exchange)
	m.Server = c.l.conf.Name
	if meth, known := mcp.Lookup(m.Method); known && meth.NameAt != "" {
		m.Name, _ = m.Text(meth.NameAt)
	}
	return m
}

// admit says whether a reverse request may be put to the client: known, declared by the client, judged, recorded.
func (c *caller) admit(ctx context.Context, set *settings, m *mcp.Message) (pipeline.Passed, error) {
	meth, known := mcp.Lookup(m.Method)
	switch {
	case !known && !c.l.conf.passes(m.Method), known && (meth.Kind != mcp.Request || meth.From == mcp.ToServer):
		return pipeline.Passed{}, failure(mcp.CodeMethodNotFound, "method not found: %s", m.Method)
	case known && !c.declares(meth.Capability):
		return pipeline.Passed{}, &undeclared{meth.Capability}
	}
	if mode, _ := m.Text("/mode"); m.Method == "elicitation/create" && mode == "url" && !c.declares("elicitation/url") {
		return pipeline.Passed{}, &undeclared{"elicitation/url"}
	}
	if !c.s.owns(set, m) {
		return pipeline.Passed{}, failure(mcp.CodeInvalidParams, "Unknown task")
	}
	return set.Pipeline.Pass(ctx, m)
}

// declares says whether the client declared a capability, for this request or for the session. Where nothing was seen of the client's capabilities it is asked.
func (c *caller) declares(capability string) bool {
	if capability == "" {
		return true
	}
	if c.request != nil {
		if _, per := c.request.Get("/_meta/" + escape(mcp.MetaCapabilities)); per {
			_, ok := c.request.Get("/_meta/" + escape(mcp.MetaCapabilities) + "/" + capability)
			return ok
		}
	}
	c.s.mu.Lock()
	hello := c.s.hello
	c.s.mu.Unlock()
	if hello == nil {
		return true
	}
	_, ok := hello.Get("/capabilities/" + capability)
	return ok
}

// show is a judged reverse request as the client gets it: our names on its links, and, with several servers, a word on who asks.
func (c *caller) show(set *settings, p pipeline.Passed) (pipeline.Passed, error) {
	p, err := c.s.expose(set, p)
	if err != nil || !set.several() {
		return p, err
	}
	m, server := p.Message(), c.l.conf.Name
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
	if err != nil {
		return c.decline(ctx, set, asked, failure(mcp.CodeInternal, "the client's answer cannot be read"))
	}
	c.s.mint(set, m)
	passed, err := set.Pipeline.Pass(ctx, m)
	if err != nil {
		return c.decline(ctx, set, asked, err)
	}
	return passed.WithID(asked.ID())
}

// decline is what the server gets in place of an answer.
func (c *caller) decline(ctx context.Context, set *settings, asked *mcp.Message, err error) pipeline.Passed {
	var denied *pipeline.Denied
	if errors.As(err, &denied) {
		return denied.Decline(asked.ID())
	}
	own := failure(mcp.CodeInternal, "%s", err.Error())
	if lack := (*undeclared)(nil); errors.As(err, &lack) {
		own = lack.toServer()
	} else {
		errors.As(err, &own)
	}
	m := c.s.stamp(mcp.NewError(asked.ID(), own.code, own.message, own.data), mcp.ToServer, c.exchange)
	m.Server, m.Method, m.Name, m.Request = asked.Server, asked.Method, asked.Name, asked
	return set.Pipeline.Answer(context.WithoutCancel(ctx), m)
}
