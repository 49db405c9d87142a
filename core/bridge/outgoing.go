package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// outgoing is what may be written to a server, and the only thing that the code that writes takes:
// a message that passed the pipeline, or one of the few of upstream's own, which hold nothing of a
// client that did not pass before. This file is the only one that makes them.
type outgoing struct{ m *mcp.Message }

func passed(p pipeline.Passed) outgoing { return outgoing{p.Message()} }

// addressed is o under the id and, where that is not the client's own, the progress token of a
// call.
func (o outgoing) addressed(c *call) (outgoing, error) {
	m := o.m.WithID(c.id)
	if c.sent == c.token {
		return outgoing{m}, nil
	}
	m, err := m.Edit(mcp.Set("/_meta/progressToken", []byte(c.sent)))
	if err != nil {
		return outgoing{}, fmt.Errorf("give %s a progress token: %w", o.m.Method, err)
	}
	return outgoing{m}, nil
}

// marked is o with what an observer sets under /_meta. Where its _meta can take nothing it stays as
// it is.
func (o outgoing) marked(edits []mcp.Edit) outgoing {
	if len(edits) == 0 {
		return o
	}
	for _, e := range edits {
		if !strings.HasPrefix(e.Pointer, "/_meta/") {
			return o
		}
	}
	if m, err := o.m.Edit(edits...); err == nil {
		o.m = m
	}
	return o
}

// discover asks a server what it is.
func discover(id mcp.ID, version string) outgoing {
	return outgoing{mcp.NewRequest(id, "server/discover",
		[]byte(`{"_meta":{"`+mcp.MetaVersion+`":"`+mcp.Rev20260728+
			`","`+mcp.MetaClientInfo+`":{"name":"gatekit","version":`+string(mcp.Quote(version))+
			`},"`+mcp.MetaCapabilities+`":{}}}`))}
}

// listTools asks for the tools whose arguments are mirrored in headers, in the name of the call
// that needs to know: under its _meta, without what is meant for its own answer.
func listTools(id mcp.ID, call *mcp.Message, cursor []byte) (outgoing, error) {
	params := []byte(`{}`)
	if meta, ok := call.Get("/_meta"); ok {
		params = append(append([]byte(`{"_meta":`), meta...), '}')
	}
	edits := []mcp.Edit{mcp.Remove("/_meta/progressToken"), mcp.Remove(mcp.PointerLogLevel)}
	if cursor != nil {
		edits = append(edits, mcp.Set("/cursor", cursor))
	}
	m, err := mcp.NewRequest(id, "tools/list", params).Edit(edits...)
	return outgoing{m}, err
}

// identity is what a modern server is told with each request of who asks, as JSON.
type identity struct{ clientInfo, capabilities, logLevel []byte }

func (a identity) edits() []mcp.Edit {
	edits := []mcp.Edit{mcp.Set(mcp.PointerVersion, []byte(`"`+mcp.Rev20260728+`"`)),
		mcp.Set(mcp.PointerClientInfo, a.clientInfo), mcp.Set(mcp.PointerCapabilities,
			a.capabilities)}
	if a.logLevel != nil {
		edits = append(edits, mcp.Set(mcp.PointerLogLevel, a.logLevel))
	}
	return edits
}

// from is a request of a legacy client as a modern server is to get it: what the client said when
// it opened its session is said with it. What it put itself in places that the specification keeps
// is no word of its protocol, and goes.
func (o outgoing) from(a identity) (outgoing, error) {
	edits := a.edits()
	o.m.Members("/_meta", func(name string, _ []byte) bool {
		at := "/_meta/" + mcp.EscapePointer(name)
		if strings.HasPrefix(name, reserved) && !slices.ContainsFunc(edits, func(e mcp.Edit) bool {
			return e.Pointer == at
		}) {
			edits = append(edits, mcp.Remove(at))
		}
		return true
	})
	m, err := o.m.Edit(append(edits, mcp.Remove("/task"), mcp.Remove("/inputResponses"),
		mcp.Remove("/requestState"))...)
	return outgoing{m}, err
}

// again is o with the answers to what the server asked for in its result, and with the state that
// it gave for that, if any.
func (o outgoing) again(answers, state []byte) (outgoing, error) {
	var edits []mcp.Edit
	if answers != nil {
		edits = append(edits, mcp.Set("/inputResponses", answers))
	}
	if state != nil {
		edits = append(edits, mcp.Set("/requestState", state))
	}
	m, err := o.m.Edit(edits...)
	return outgoing{m}, err
}

// discoverAs asks a server what it is in the name of a legacy client, whose initialize came as
// hello.
func discoverAs(hello *mcp.Message, a identity) (outgoing, error) {
	m, err := mcp.NewRequest(hello.ID(), "server/discover", nil).Edit(a.edits()...)
	return outgoing{m}, err
}

// listenAs asks a server for notifications in the name of a legacy client.
func listenAs(a identity, filter []byte) (outgoing, error) {
	m, err := mcp.NewRequest("0", "subscriptions/listen", nil).Edit(append(a.edits(),
		mcp.Set("/notifications", filter))...)
	return outgoing{m}, err
}

// plain is a request of a modern client as a legacy server is to get it: without what it says of
// the client, which the server was told when its session began.
func (o outgoing) plain() (outgoing, error) {
	m, err := o.m.Edit(append(unreserved(o.m), mcp.Remove("/inputResponses"),
		mcp.Remove("/requestState"), mcp.Remove("/task"))...)
	return outgoing{m}, err
}

// listed asks a legacy server for a page of its tools.
func listed(cursor []byte) outgoing {
	if cursor == nil {
		return outgoing{mcp.NewRequest("0", "tools/list", nil)}
	}
	return outgoing{mcp.NewRequest("0", "tools/list", slices.Concat([]byte(`{"cursor":`), cursor,
		[]byte("}")))}
}

// asTask is a call of a tool as a task of a legacy server.
func (o outgoing) asTask() (outgoing, error) {
	m, err := o.m.Edit(mcp.Set("/task", []byte("{}")))
	return outgoing{m}, err
}

// taskRequest is a request about a task of a legacy server; it wants the progress that call, if
// there is one, wanted.
func taskRequest(method string, id []byte, call *mcp.Message) outgoing {
	params := slices.Concat([]byte(`{"taskId":`), id)
	if call != nil {
		if token, ok := call.Get("/_meta/progressToken"); ok {
			params = slices.Concat(params, []byte(`,"_meta":{"progressToken":`), token, []byte("}"))
		}
	}
	return outgoing{mcp.NewRequest("0", method, append(params, '}'))}
}

// withTasks is a call whose client declares that it knows tasks of the modern design.
func (o outgoing) withTasks() (outgoing, error) {
	at := mcp.PointerCapabilities + "/extensions"
	edits := []mcp.Edit{mcp.Set(at+"/"+mcp.EscapePointer(tasksExtension), []byte("{}"))}
	if _, ok := o.m.Get(at); !ok {
		edits = []mcp.Edit{mcp.Set(at, []byte(`{"`+tasksExtension+`":{}}`))}
	}
	m, err := o.m.Edit(edits...)
	return outgoing{m}, err
}

// taskRequestAs is a request about the task that a modern server made of call, in the name of the
// same client.
func taskRequestAs(method string, id []byte, call *mcp.Message,
	more ...mcp.Edit) (outgoing, error) {
	meta, _ := call.Get("/_meta")
	m := mcp.NewRequest(call.ID(), method, slices.Concat([]byte(`{"taskId":`), id,
		[]byte(`,"_meta":`), meta, []byte("}")))
	m, err := m.Edit(append(more, mcp.Remove("/_meta/progressToken"),
		mcp.Remove(mcp.PointerLogLevel))...)
	return outgoing{m}, err
}

// greeting is the initialize of a legacy session for a modern client that declares capabilities,
// which m, a request of its own, names it if it does.
func greeting(m *mcp.Message, capabilities []byte, version string) (outgoing, error) {
	info, ok := m.Get(mcp.PointerClientInfo)
	if !ok {
		info = []byte(`{"name":"gatekit","version":` + string(mcp.Quote(version)) + `}`)
	}
	hello, err := mcp.NewRequest("0", "initialize", nil).Edit(mcp.Set("/protocolVersion",
		mcp.Quote(mcp.Rev20251125)),
		mcp.Set("/capabilities", capabilities), mcp.Set("/clientInfo", info))
	return outgoing{hello}, err
}

// greeted ends the opening of a legacy session.
func greeted() outgoing { return outgoing{mcp.NewNotification("notifications/initialized", nil)} }

// subscription subscribes a legacy session to a resource, or ends that.
func subscription(method string, uri []byte) outgoing {
	return outgoing{mcp.NewRequest("0", method, append(append([]byte(`{"uri":`), uri...), '}'))}
}

// levelled sets the logging level of a legacy session.
func levelled(level string) outgoing {
	return outgoing{mcp.NewRequest("0", "logging/setLevel", append(append([]byte(`{"level":`),
		mcp.Quote(level)...), '}'))}
}

// pong answers a server's ping: it measures this hop alone.
func pong(id mcp.ID) outgoing { return outgoing{mcp.NewResponse(id, nil)} }

// refusal answers a server's request that nobody is asked about.
func refusal(id mcp.ID, code int, reason string) outgoing {
	return outgoing{mcp.NewError(id, code, reason, nil)}
}

// cancellation tells a server that the call c was given up: in the words of the client where the
// cause holds any, less what a modern client says of itself in them where the call itself was put
// to a legacy server.
func cancellation(cause error, c *call) outgoing {
	id := c.id
	var cancelled *proxy.Cancelled
	if errors.As(cause, &cancelled) && cancelled.Notice.Message() != nil {
		notice, edits := cancelled.Notice.Message(), []mcp.Edit{mcp.Set("/requestId", []byte(id))}
		_, from := notice.Get(mcp.PointerVersion)
		if _, to := c.m.Get(mcp.PointerVersion); from && !to {
			edits = append(edits, unreserved(notice)...)
		}
		if p, err := cancelled.Notice.Edit(edits...); err == nil {
			return passed(p)
		}
	}
	params := `{"requestId":` + string(id) + `}`
	if errors.Is(cause, context.DeadlineExceeded) {
		params = `{"requestId":` + string(id) + `,"reason":"timed out"}`
	}
	return outgoing{mcp.NewNotification("notifications/cancelled", []byte(params))}
}

// parts is the message as it is written.
func (o outgoing) parts() [][]byte { return o.m.Parts() }

// bytes is parts as one, for HTTP: net/http sends what it knows to be in memory along with the
// header, in one write.
func (o outgoing) bytes() []byte { return o.m.Append(make([]byte, 0, o.m.Size())) }
