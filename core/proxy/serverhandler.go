package proxy

import (
	"context"
	"errors"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// serverHandler is the Handler for one server. It hands the server's messages to the client of one
// call. Outside of any call, it hands them to Session.feed.
type serverHandler struct {
	session   *Session
	server    *sessionServer
	client    Client
	request   *mcp.Message // the client's request; nil outside of any call
	sent      *mcp.Message // the request as the server gets it; nil outside of any call
	deadline  *deadline    // nil when there is none: the methods of a nil deadline do nothing
	intercept interceptor  // may be nil
	// wants reports whether the client subscribed to a notification; nil outside of subscriptions
	wants func(*mcp.Message) bool
}

// interceptor gets each inspected notification before the client. It returns true to keep the
// notification from the client.
type interceptor func(ctx context.Context, p pipeline.Passed) bool

// clientTakesInputRequests reports whether the client takes requests inside a result.
func (h *serverHandler) clientTakesInputRequests() bool {
	r, ok := h.client.(InputRequestClient)
	return ok && r.TakesInputRequests()
}

// IsWaiting reports whether the client is waiting for the answer of the call.
func (h *serverHandler) IsWaiting() bool {
	w, ok := h.client.(WaitReporter)
	return !ok || w.IsWaiting()
}

// ReportActivity restarts the idle time-out of the call.
func (h *serverHandler) ReportActivity() { h.deadline.noteProgress() }

// HandleNotification inspects a notification of the server and hands it to the client.
func (h *serverHandler) HandleNotification(ctx context.Context, m *mcp.Message) {
	h.deadline.noteProgress()
	set := h.session.proxy.settings.Load()
	m = h.stamp(m)
	h.server.noteListChanged(m)
	meth, known := mcp.LookupMethod(m.Method)
	switch {
	case known && (meth.Kind != mcp.Notification || meth.Direction == mcp.ToServer):
		h.session.recordDropped(ctx, set, m, "servers do not send this method")
		return
	case m.Method == "notifications/cancelled":
		// core/upstream handles the cancellation of a request that is in flight
		h.session.recordDropped(ctx, set, m, "no reverse request in flight")
		return
	}
	if reason := h.whyNotNotified(ctx, m); reason != "" {
		h.session.recordDropped(ctx, set, m, reason)
		return
	}
	switch {
	case m.Method == "notifications/resources/updated" && h.session.clientInitialize() != nil &&
		!h.server.isSubscribed(m.Name):
		h.session.recordDropped(ctx, set, m, "the client has not subscribed to the resource")
		return
	case h.wants != nil && !h.wants(m):
		h.session.recordDropped(ctx, set, m, "the subscription does not include it")
		return
	case m.Method == "notifications/message" && !set.Limits.AllLogs && h.isBelowLogLevel(m):
		h.session.recordDropped(ctx, set, m, "below the log level that the client set")
		return
	case !known && !set.allowsVendorMethod(h.server.name, m.Method):
		h.session.recordDropped(ctx, set, m, "unknown notification: to forward it, add it to "+
			"methods of [server."+h.server.name+"]")
		return
	}
	if carriesInputRequests(m) {
		requests, err := h.inspectInputRequests(ctx, set, m)
		if err == nil && requests.denied == nil {
			m, err = m.Edit(requests.edits...)
		}
		if err != nil || requests.denied != nil {
			h.session.recordDropped(ctx, set, m,
				"the task's request for input was denied: the task goes on waiting")
			return
		}
	}
	passed, err := set.Pipeline.Pass(ctx, m)
	if err != nil {
		return // denied and recorded
	}
	if passed, err = h.session.addPrefixes(set, passed); err != nil {
		set.Log.Warn("prefixes not added to a notification", "server", m.Server, "method", m.Method,
			"error", err)
		return
	}
	if h.intercept != nil && h.intercept(ctx, passed) {
		return
	}
	if err := h.client.Notify(ctx, passed); err != nil {
		set.Log.Debug("client not notified", "method", m.Method, "error", err)
	}
}

// isBelowLogLevel reports whether m is a log message that the client did not ask for. A modern
// request asks for log messages with its level. A legacy client sets a level for the session, and
// gets all log messages before that. A log message of an unknown level is below no level.
func (h *serverHandler) isBelowLogLevel(m *mcp.Message) bool {
	if h.request != nil {
		if _, isModern := h.request.Get(mcp.PointerProtocolVersion); isModern {
			wanted, ok := h.request.Text(mcp.PointerLogLevel)
			return !ok || isBelow(m, wanted)
		}
	}
	h.session.mu.Lock()
	wanted := h.session.logLevel
	h.session.mu.Unlock()
	return isBelow(m, wanted)
}

// isBelow reports whether the level of a log message is below the wanted level.
func isBelow(m *mcp.Message, wanted string) bool {
	level, _ := m.Text("/level")
	rank := mcp.LogLevelRank(level)
	return rank >= 0 && rank < mcp.LogLevelRank(wanted)
}

// Consume inspects and records a message of the server that does not reach the client.
func (h *serverHandler) Consume(ctx context.Context, m *mcp.Message, action, reason string) error {
	h.deadline.noteProgress()
	isAnswer, method := m.Kind == mcp.Response || m.Kind == mcp.Error, m.Method
	m = h.stamp(m)
	switch {
	case isAnswer && method != "": // the answer to a request of Gatekit's own
		m.Name = ""
	case isAnswer && h.sent != nil:
		m.Method, m.Name, m.Request = h.sent.Method, h.sent.Name, h.sent
	}
	return h.session.proxy.Pipeline().Consume(ctx, m, action, reason)
}

// HandleRequests inspects requests of the server, sends the requests that pass to the client, and
// inspects the client's answers.
func (h *serverHandler) HandleRequests(ctx context.Context, ms []*mcp.Message) []pipeline.Passed {
	h.deadline.pause()
	defer h.deadline.resume()
	outer := ctx
	ctx, stop := h.followWithdrawal(outer)
	defer stop()
	set := h.session.proxy.settings.Load()
	answers := make([]pipeline.Passed, len(ms))
	var (
		requests  []pipeline.Passed // for the client
		inspected []*mcp.Message    // the same requests with the server's own names
		indices   []int             // the index in ms of each request
	)
	for i, m := range ms {
		m = h.stamp(m)
		p, err := h.inspectRequest(ctx, set, m)
		if err != nil {
			answers[i] = h.declineRequest(ctx, set, m, err)
			continue
		}
		request, err := h.requestForClient(set, p)
		if err != nil {
			answers[i] = h.declineRequest(ctx, set, m, err)
			continue
		}
		requests, inspected = append(requests, request), append(inspected, p.Message())
		indices = append(indices, i)
	}
	if len(requests) == 0 {
		return answers
	}
	replies, err := h.client.SendRequests(ctx, requests)
	if errors.As(err, new(*CancelledError)) && errors.As(context.Cause(outer),
		new(*WithdrawnError)) {
		return answers // the server does not wait for an answer
	}
	for j, i := range indices {
		switch {
		case errors.Is(err, ErrOutsideCall) && inspected[j].Method != "roots/list":
			// roots/list gets an internal error below, so that the server tries again during a call
			answers[i] = h.declineRequest(ctx, set, inspected[j],
				requestErrorf(mcp.CodeMethodNotFound,
					"%s", err))
		case err != nil:
			answers[i] = h.declineRequest(ctx, set, inspected[j],
				requestErrorf(mcp.CodeInternalError,
					"the client could not be asked: %s", err))
		case j >= len(replies) || replies[j] == nil:
			answers[i] = h.declineRequest(ctx, set, inspected[j],
				requestErrorf(mcp.CodeInternalError,
					"the client did not answer"))
		default:
			answers[i] = h.inspectAnswer(ctx, set, inspected[j], replies[j])
		}
	}
	return answers
}

// followWithdrawal returns a context for a server's requests. When the server cancels these
// requests, its notification is inspected and recorded. If the notification passes, the context
// ends with a *CancelledError as its cause. If the notification is denied, the context does not
// end. When outer ends for another reason, the context ends with the same cause. stop waits for an
// inspection that has begun.
func (h *serverHandler) followWithdrawal(outer context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(outer))
	done := make(chan struct{})
	stopAfter := context.AfterFunc(outer, func() {
		defer close(done)
		cause := context.Cause(outer)
		if withdrawn := (*WithdrawnError)(nil); errors.As(cause, &withdrawn) {
			notice, err := h.session.proxy.Pipeline().Pass(ctx, h.stamp(withdrawn.Notification))
			if err != nil {
				return // denied and recorded: the client goes on answering
			}
			cause = &CancelledError{notice}
		}
		cancel(cause)
	})
	return ctx, func() {
		if !stopAfter() {
			<-done
		}
		cancel(nil)
	}
}

// stamp returns a copy of m, a message of the server, with Direction, Session, Principal, Exchange,
// Server and Name set.
func (h *serverHandler) stamp(m *mcp.Message) *mcp.Message {
	m = h.session.stamp(m, mcp.ToClient, h.request)
	m.Server = h.server.name
	if meth, known := mcp.LookupMethod(m.Method); known && meth.NamePointer != "" {
		m.Name, _ = m.Text(meth.NamePointer)
	}
	return m
}

// inspectRequest checks that the method of a server's request is known and that the client declared
// the capability for it. Then it passes the request through the pipeline.
func (h *serverHandler) inspectRequest(ctx context.Context, set *settings,
	m *mcp.Message) (pipeline.Passed, error) {
	refused := h.checkRequest(set, m)
	if refused == nil {
		return set.Pipeline.Pass(ctx, m)
	}
	if err := set.Pipeline.Consume(ctx, m, "pass", "answered by Gatekit"); err != nil {
		return pipeline.Passed{}, err
	}
	return pipeline.Passed{}, refused
}

// checkRequest returns the reason why the client does not get a server's request, or nil.
func (h *serverHandler) checkRequest(set *settings, m *mcp.Message) error {
	meth, known := mcp.LookupMethod(m.Method)
	if !known && !set.allowsVendorMethod(h.server.name, m.Method) ||
		known && (meth.Kind != mcp.Request || meth.Direction == mcp.ToServer) {
		return requestErrorf(mcp.CodeMethodNotFound, "method not found: %s", quoteName(m.Method))
	}
	if lack := h.missingCapability(meth, m); lack != "" {
		return &capabilityError{lack}
	}
	if !h.session.ownsClientTask(set, m) {
		return requestErrorf(mcp.CodeInvalidParams, "Unknown task")
	}
	return nil
}

// missingCapability returns the capability that a server's request needs and the client did not
// declare, or "".
func (h *serverHandler) missingCapability(meth mcp.Method, m *mcp.Message) string {
	if meth.Capability == "" {
		return ""
	}
	declares, known := h.clientCapabilities()
	if !known {
		// the client's capabilities are unknown: the client itself refuses requests that it does
		// not support
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
			// the client supports only url; a client that declares no mode supports form
			return "elicitation/form"
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

// clientCapabilities returns a function that reports whether the client declared a capability, for
// this request or for the session. known is false when the client's declaration was not seen.
func (h *serverHandler) clientCapabilities() (declares func(capability string) bool, known bool) {
	m, at := h.session.clientInitialize(), "/capabilities/"
	if h.request != nil {
		if _, inRequest := h.request.Get(mcp.PointerCapabilities); inRequest {
			m, at = h.request, mcp.PointerCapabilities+"/"
		}
	}
	return func(capability string) bool {
		_, ok := m.Get(at + capability)
		return ok
	}, m != nil
}

// requestForClient returns an inspected request as the client gets it. It adds the prefixes and, if
// there is more than one server, the name of the server that asks.
func (h *serverHandler) requestForClient(set *settings,
	p pipeline.Passed) (pipeline.Passed, error) {
	p, err := h.session.addPrefixes(set, p)
	if err != nil || !set.hasSeveralServers() {
		return p, err
	}
	m, server := p.Message(), h.server.name
	switch m.Method {
	case "elicitation/create":
		text, ok := m.Text("/message")
		if !ok {
			return p, requestErrorf(mcp.CodeInvalidParams, "elicitation/create needs a message")
		}
		return p.Edit(mcp.Set("/message", mcp.Quote("["+server+"] "+text)))
	case "sampling/createMessage":
		return p.Edit(mcp.Set("/_meta/gatekit~1server", mcp.Quote(server)))
	}
	return p, nil
}

// inspectAnswer inspects the client's answer and returns the answer for the server, under the
// server's id.
func (h *serverHandler) inspectAnswer(ctx context.Context, set *settings, asked,
	m *mcp.Message) pipeline.Passed {
	m = h.session.stamp(m, mcp.ToServer, h.request)
	m.Server, m.Method, m.Name, m.Request = asked.Server, asked.Method, asked.Name, asked
	m, err := h.session.removePrefixes(set, m)
	if err == nil {
		m, err = h.session.filterClientTasks(set, m)
	}
	if err != nil {
		return h.declineRequest(ctx, set, asked, requestErrorf(mcp.CodeInternalError,
			"the client's answer cannot be read"))
	}
	passed, err := set.Pipeline.Pass(ctx, m)
	if err != nil {
		return h.declineRequest(ctx, set, asked, err)
	}
	h.session.addClientTask(passed.Message())
	return passed.WithID(asked.ID())
}

// declineRequest returns the answer to asked, a server's request that was denied or failed with
// err.
func (h *serverHandler) declineRequest(ctx context.Context, set *settings, asked *mcp.Message,
	err error) pipeline.Passed {
	var denied *pipeline.DeniedError
	if errors.As(err, &denied) {
		return denied.DeclineResponse(asked.ID())
	}
	own := requestErrorf(mcp.CodeInternalError, "%s", err.Error())
	if lack := (*capabilityError)(nil); errors.As(err, &lack) {
		own = lack.toServer()
	} else {
		errors.As(err, &own)
	}
	m := mcp.NewError(asked.ID(), own.code, own.message, own.data)
	if lack := (*capabilityError)(nil); errors.As(err, &lack) && lack.capability == "roots" {
		// The client has no roots. Some servers ask for roots nevertheless, and wait or fail if
		// they get no list.
		m = mcp.NewResponse(asked.ID(), []byte(`{"roots":[]}`))
	}
	m = h.session.stamp(m, mcp.ToServer, h.request)
	m.Server, m.Method, m.Name, m.Request = asked.Server, asked.Method, asked.Name, asked
	return set.Pipeline.PassOwn(context.WithoutCancel(ctx), m)
}
