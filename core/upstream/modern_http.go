package upstream

import (
	"context"
	"net/http"
	"sync"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// maxToolPages is how many pages of tools/list Gatekit reads to find the headers that a call needs.
const maxToolPages = 100

// modernHTTP sends requests to a modern server over Streamable HTTP. Requests are independent of
// each other: each has its own stream, and closing the stream cancels the request.
type modernHTTP struct {
	opts      *Options
	doubt     func() // called when the server does not behave like a modern server
	calls     callTable
	arguments *argumentHeaders
	records   recorder

	mu       sync.Mutex
	rawNames bool // the server compares Mcp-Name without decoding it
}

func newModernHTTP(o *Options, principal *identity.Principal, doubt func()) *modernHTTP {
	return &modernHTTP{records: recorder{opts: o, principal: principal},
		opts: o, doubt: doubt, arguments: newArgumentHeaders()}
}

// send sends a request and waits for its answer. A server that answers with a header mismatch has
// not run the request, so send may repeat it. If the name was encoded, send repeats the request
// without encoding the name, because go-sdk v1.8.0 does not decode names. A tools/call is also
// repeated once after the tools have been listed again.
func (h *modernHTTP) send(ctx context.Context, o Outgoing,
	handler proxy.Handler) (*mcp.Message, error) {
	m := o.m
	h.mu.Lock()
	rawName := h.rawNames
	h.mu.Unlock()
	refreshed := false
	for attempt := 0; ; attempt++ {
		if attempt > 0 {
			o = Again(o)
		}
		header := modernHeader(m, rawName)
		if m.Method == "tools/call" {
			if err := h.arguments.set(ctx, header, o.written(), func() []*mcp.Message {
				return h.listTools(ctx, m)
			}); err != nil {
				return nil, err
			}
		}
		answer, err := h.sendOnce(ctx, o, handler, header)
		if err != nil {
			return nil, err
		}
		if answer.ErrorCode() != mcp.CodeHeaderMismatch {
			if m.Method == "tools/list" {
				h.arguments.record(m, answer)
			}
			if rawName {
				h.mu.Lock()
				h.rawNames = true
				h.mu.Unlock()
			}
			return answer, nil
		}
		switch {
		case !rawName && isEncoded(header.Get(mcp.HeaderName)) && hasPrintableName(m):
			rawName = true
		case m.Method == "tools/call" && !refreshed:
			refreshed = true
			h.arguments.forget()
		default:
			text, _ := answer.Text("/message")
			h.opts.Log.Warn("a server rejects the headers of a request", "server", h.opts.Name,
				"method", m.Method, "message", text)
			return nil, unavailable(h.opts.Name, "the server rejected the headers of the request",
				nil)
		}
	}
}

// sendOnce posts the request once.
func (h *modernHTTP) sendOnce(ctx context.Context, o Outgoing, handler proxy.Handler,
	header http.Header) (answer *mcp.Message, err error) {
	o, ended := observe(ctx, h.opts.Observer, o)
	defer func() { ended(answer, err) }()
	c, err := h.calls.begin(ctx, nil, o.m, handler, nil)
	if err != nil {
		return nil, notStarted(h.opts.Name, err)
	}
	defer h.calls.take(c.id)
	if o, err = c.address(o); err != nil {
		return nil, unavailable(h.opts.Name, "the request could not be given its id", err)
	}
	answer, err = h.exchange(c, o, header)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return answer, err
}

// exchange posts a request and reads until it is answered.
func (h *modernHTTP) exchange(c *pendingCall, o Outgoing,
	header http.Header) (*mcp.Message, error) {
	name, limits := h.opts.Name, h.opts.Limits
	o, err := h.records.record(c.ctx, o)
	if err != nil {
		return nil, err
	}
	o, write, err := h.records.beginWrite(c.ctx, o)
	if err != nil {
		return nil, err
	}
	postCtx, post := untilWritten(c.ctx, write)
	defer post.end()
	a, err := h.opts.httpOf(o.m, h.records.principal).Post(postCtx, header, o.parts()...)
	if err != nil {
		return nil, noResponse(name, err)
	}
	var answer *mcp.Message
	take := func(m *mcp.Message, invalid error) bool {
		switch {
		case invalid != nil && (endsCall(c.id, invalid) || !isStream(a)):
			err = invalidAnswer(name, invalid)
		case invalid != nil:
			h.opts.Log.Warn("invalid message from a server", "server", name, "error", invalid)
		case isAnswer(m) && (m.ID() == c.id || isErrorWithoutID(m)):
			answer = c.restored(m)
		default:
			answer = h.incoming(c, m)
		}
		return err == nil && answer == nil
	}
	switch {
	case isStream(a):
		broken := readMessages(c.ctx, a.Events, limits, &streamPosition{}, take)
		if broken != nil {
			err = unavailable(name, "the stream broke before the answer", broken)
		}
	case isSuccess(a.Status):
		if len(a.Body) > 0 {
			messages(limits, a.Body)(take)
		}
	default:
		if a.Events != nil {
			a.Events.Close()
		}
		m, _ := bodyError(limits, a, c.id)
		switch a.Status {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
			if m == nil || !isModernError(m) && m.ErrorCode() != mcp.CodeMethodNotFound &&
				m.ErrorCode() != mcp.CodeInvalidParams {
				h.doubt() // the response looks like that of a legacy server
			}
		}
		if m == nil {
			return nil, statusError(name, a)
		}
		return c.restored(m), nil
	}
	if answer == nil && err == nil {
		err = statusError(name, a)
	}
	return answer, err
}

// incoming handles a message on a call's stream that is not the call's answer. If the message
// cancels the call, and the call is a subscription, incoming returns the answer to the call.
// Otherwise it returns nil.
func (h *modernHTTP) incoming(c *pendingCall, m *mcp.Message) *mcp.Message {
	switch {
	case m.Kind != mcp.Notification:
		h.records.drop(m, "does not belong on the stream of a request")
	case m.Method == "notifications/cancelled":
		raw, _ := m.Get("/requestId")
		if mcp.ID(raw) == c.id && c.request.Method == "subscriptions/listen" {
			h.records.drop(m, "ends a subscription")
			return c.subscriptionResult()
		}
		h.records.drop(m, "belongs to no request in flight")
	case m.Method == "notifications/progress":
		if restored, target, ok := h.calls.progress(m); ok && target == c {
			c.notify(restored)
		} else {
			h.records.drop(m, unknownToken)
		}
	default:
		c.notify(c.withClientSubscription(m))
	}
	return nil
}

// notify posts a notification.
func (h *modernHTTP) notify(ctx context.Context, o Outgoing) error {
	o, err := h.records.record(ctx, o)
	if err != nil {
		return err
	}
	header := modernHeader(o.m, true)
	if header.Get(mcp.HeaderProtocolVersion) == "" {
		header.Set(mcp.HeaderProtocolVersion, mcp.Modern.Revisions()[0])
	}
	o, write, err := h.records.beginWrite(ctx, o)
	if err != nil {
		return err
	}
	postCtx, post := untilWritten(ctx, write)
	defer post.end()
	a, err := h.opts.httpOf(o.m, h.records.principal).Post(postCtx, header, o.parts()...)
	if err != nil {
		return noResponse(h.opts.Name, err)
	}
	if a.Events != nil {
		a.Events.Close()
	}
	if !isSuccess(a.Status) {
		return statusError(h.opts.Name, a)
	}
	return nil
}

// listTools returns the pages of tools/list. It is used before a call of a tool that Gatekit does
// not know. listTools stops at a page that cannot be read. If the call then lacks a header, the
// server refuses the call.
func (h *modernHTTP) listTools(ctx context.Context, call *mcp.Message) []*mcp.Message {
	var pages []*mcp.Message
	var cursor []byte
	for range maxToolPages {
		page, err := h.listToolsPage(ctx, call, cursor)
		if err != nil || page.Kind != mcp.Response {
			h.opts.Log.Debug("listing a server's tools failed", "server", h.opts.Name,
				"error", err)
			return pages
		}
		pages = append(pages, page)
		var more bool
		if cursor, more = page.Get("/nextCursor"); !more {
			return pages
		}
	}
	return pages
}

func (h *modernHTTP) listToolsPage(ctx context.Context, call *mcp.Message,
	cursor []byte) (*mcp.Message, error) {
	c, err := h.calls.begin(ctx, nil, mcp.NewRequest("0", "", nil), nil, nil)
	if err != nil {
		return nil, notStarted(h.opts.Name, err)
	}
	defer h.calls.take(c.id)
	o, err := listToolsRequest(c.id, call, cursor)
	if err != nil {
		return nil, err
	}
	answer, err := h.exchange(c, o, modernHeader(o.m, false))
	h.records.receiveOwn(answer, o.m)
	return answer, err
}
