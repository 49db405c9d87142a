package upstream

import (
	"context"
	"net/http"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// modernHTTP is a modern server over Streamable HTTP: every request stands for itself, its stream
// is its own, and closing it cancels it.
type modernHTTP struct {
	up    *Upstream
	calls calls
	tools tools

	mu       sync.Mutex
	rawNames bool // the server compares Mcp-Name without decoding it
}

func newModernHTTP(u *Upstream) *modernHTTP {
	return &modernHTTP{up: u, tools: tools{asking: make(chan struct{}, 1)}}
}

// call puts a request to the server. A header mismatch says that nothing was run: it is put once
// more with the name as it is where it was encoded (go-sdk v1.8.0 does not decode it), and once
// more with fresh knowledge of the tools.
func (h *modernHTTP) call(ctx context.Context, o outgoing,
	caller proxy.Handler) (*mcp.Message, error) {
	m := o.m
	h.mu.Lock()
	raw := h.rawNames
	h.mu.Unlock()
	refreshed := false
	for {
		header := modernHeader(m, raw)
		if m.Method == "tools/call" {
			if err := h.tools.mirror(ctx, header, m, func() []*mcp.Message {
				return h.list(ctx, m)
			}); err != nil {
				return nil, err
			}
		}
		answer, err := h.attempt(ctx, o, caller, header)
		if err != nil {
			return nil, err
		}
		if answer.ErrorCode() != mcp.CodeHeaderMismatch {
			if m.Method == "tools/list" {
				h.tools.learn(m, answer)
			}
			if raw {
				h.mu.Lock()
				h.rawNames = true
				h.mu.Unlock()
			}
			return answer, nil
		}
		switch {
		case !raw && encoded(header.Get(mcp.HeaderName)) && printable(m):
			raw = true
		case m.Method == "tools/call" && !refreshed:
			refreshed = true
			h.tools.forget()
		default:
			text, _ := answer.Text("/message")
			h.up.log.Warn("a server refuses the headers of a request", "server", h.up.o.Name,
				"method", m.Method, "message", text)
			return nil, unavailable(h.up.o.Name, "it refused the headers of the request", nil)
		}
	}
}

// attempt posts the request once.
func (h *modernHTTP) attempt(ctx context.Context, o outgoing, caller proxy.Handler,
	header http.Header) (answer *mcp.Message, err error) {
	o, ended := o.watched(ctx, h.up.o.Observer)
	defer func() { ended(answer, err) }()
	c, err := h.calls.begin(ctx, nil, o.m, caller, nil)
	if err != nil {
		return nil, refused(h.up.o.Name, err)
	}
	defer h.calls.take(c.id)
	if o, err = o.addressed(c); err != nil {
		return nil, unavailable(h.up.o.Name, "the request could not be addressed", err)
	}
	answer, err = h.exchange(c, o, header)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return answer, err
}

func (h *modernHTTP) exchange(c *call, o outgoing, header http.Header) (*mcp.Message, error) {
	name, limits := h.up.o.Name, h.up.o.Limits
	a, err := h.up.o.Dial.HTTP.Post(c.ctx, header, o.bytes())
	if err != nil {
		return nil, unsent(name, err)
	}
	var answer *mcp.Message
	take := func(m *mcp.Message, bad error) bool {
		switch {
		case bad != nil && (spoiled(c, bad) || !streams(a)):
			err = illegible(name, bad)
		case bad != nil:
			h.up.log.Warn("a server sent what is no message", "server", name, "error", bad)
		case (m.Kind == mcp.Response || m.Kind == mcp.Error) && (m.ID() == c.id || nameless(m)):
			answer = c.answered(m)
		default:
			answer = h.incoming(c, m)
		}
		return err == nil && answer == nil
	}
	switch {
	case streams(a):
		if end := each(c.ctx, a.Events, limits, &position{}, take); end != nil {
			err = unavailable(name, "the stream with its answer broke", end)
		}
	case ok(a.Status):
		if len(a.Body) > 0 {
			messages(limits, a.Body)(take)
		}
	default:
		if a.Events != nil {
			a.Events.Close()
		}
		m, _ := bodyError(limits, a, c.id)
		if a.Status == http.StatusBadRequest || a.Status == http.StatusNotFound ||
			a.Status == http.StatusMethodNotAllowed {
			if m == nil || !modernError(m) && m.ErrorCode() != mcp.CodeMethodNotFound &&
				m.ErrorCode() != mcp.CodeInvalidParams {
				h.up.doubt() // it looks like another era's
			}
		}
		if m == nil {
			return nil, statusError(name, a)
		}
		return c.answered(m), nil
	}
	if answer == nil && err == nil {
		err = statusError(name, a)
	}
	return answer, err
}

// incoming hands over what a call's stream carries beside the answer. It answers one itself when
// the server ended a subscription by cancelling it.
func (h *modernHTTP) incoming(c *call, m *mcp.Message) *mcp.Message {
	switch {
	case m.Kind != mcp.Notification:
		h.up.log.Debug("a server sent what has no place on a stream", "server", h.up.o.Name,
			"kind", m.Kind, "method", m.Method)
	case m.Method == "notifications/cancelled":
		if raw, _ := m.Get("/requestId"); mcp.ID(raw) == c.id &&
			c.m.Method == "subscriptions/listen" {
			return ended(c)
		}
	case m.Method == "notifications/progress":
		if restored, of, ok := h.calls.progress(m); ok && of == c {
			c.notify(restored)
		}
	default:
		c.notify(c.subscribed(m))
	}
	return nil
}

// notify posts a notification.
func (h *modernHTTP) notify(ctx context.Context, o outgoing) error {
	header := modernHeader(o.m, true)
	if header.Get(mcp.HeaderVersion) == "" {
		header.Set(mcp.HeaderVersion, mcp.Modern.Revisions()[0])
	}
	a, err := h.up.o.Dial.HTTP.Post(ctx, header, o.bytes())
	if err != nil {
		return unsent(h.up.o.Name, err)
	}
	if a.Events != nil {
		a.Events.Close()
	}
	if !ok(a.Status) {
		return statusError(h.up.o.Name, a)
	}
	return nil
}

// list asks for all tools, for the sake of a call whose tool is not known. What cannot be had is
// left out: the server will say so if it matters.
func (h *modernHTTP) list(ctx context.Context, call *mcp.Message) []*mcp.Message {
	var pages []*mcp.Message
	var cursor []byte
	for range maxPages {
		page, err := h.own(ctx, func(id mcp.ID) (outgoing, error) {
			return listTools(id, call, cursor)
		})
		if err != nil || page.Kind != mcp.Response {
			h.up.log.Debug("list a server's tools", "server", h.up.o.Name, "error", err)
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

// own posts a request of upstream's own.
func (h *modernHTTP) own(ctx context.Context, make func(id mcp.ID) (outgoing,
	error)) (*mcp.Message, error) {
	c, err := h.calls.begin(ctx, nil, mcp.NewRequest("0", "", nil), nil, nil)
	if err != nil {
		return nil, refused(h.up.o.Name, err)
	}
	defer h.calls.take(c.id)
	o, err := make(c.id)
	if err != nil {
		return nil, err
	}
	return h.exchange(c, o, modernHeader(o.m, false))
}

// probeHTTP asks a URL what it is (protocol.md 4.3).
func (u *Upstream) probeHTTP(ctx context.Context) finding {
	ctx, cancel := context.WithTimeoutCause(ctx, httpProbeTimes*u.o.ProbeTimeout,
		unavailable(u.o.Name, "its URL did not answer in time", nil))
	defer cancel()
	h := newModernHTTP(u)
	c, err := h.calls.begin(ctx, nil, discover("0", u.o.Version).m, nil, nil)
	if err != nil {
		return finding{err: err}
	}
	o := discover(c.id, u.o.Version)
	a, err := u.o.Dial.HTTP.Post(ctx, modernHeader(o.m, false), o.bytes())
	switch {
	case ctx.Err() != nil:
		return finding{err: context.Cause(ctx)}
	case err != nil:
		return finding{err: unsent(u.o.Name, err)}
	}
	var answer *mcp.Message
	find := func(m *mcp.Message, bad error) bool {
		if bad == nil && (m.Kind == mcp.Response || m.Kind == mcp.Error) && (m.ID() == c.id ||
			nameless(m)) {
			answer = m
		}
		return answer == nil
	}
	switch {
	case streams(a):
		err = each(ctx, a.Events, u.o.Limits, &position{}, find)
		switch {
		case answer != nil:
		case ctx.Err() != nil:
			return finding{err: context.Cause(ctx)}
		default:
			return finding{err: unavailable(u.o.Name, "the stream with its answer broke", err)}
		}
	case ok(a.Status):
		messages(u.o.Limits, a.Body)(find)
	default:
		if a.Events != nil {
			a.Events.Close()
		}
		switch a.Status {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed,
			http.StatusNotAcceptable,
			http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
			answer, _ = bodyError(u.o.Limits, a, c.id)
		default:
			return finding{err: statusError(u.o.Name, a)} // no evidence of anything
		}
	}
	if answer == nil {
		return finding{revisions: mcp.Legacy.Revisions()}
	}
	return u.classify(answer)
}

// httpProbeTimes is how many times the time of a probe a URL has to answer one: unlike a process's,
// its silence is no evidence.
const httpProbeTimes = 3

// maxPages of a list of tools are read for a call.
const maxPages = 100
