package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// Outgoing is a message that may be written to a server. Code that writes to servers accepts no
// other type. Either the message passed the pipeline, or Gatekit made it. If Gatekit made it from
// parts of a client's message, these parts have passed the pipeline, too.
type Outgoing struct {
	m *mcp.Message
	// the message has passed the pipeline, or is a translation of a message that has; other
	// messages are recorded when they are written
	isRecorded bool
	values     pipeline.Restoration // applied when the message is written
}

// Forward returns the Outgoing for a message that passed the pipeline.
func Forward(p pipeline.Passed) Outgoing { return Outgoing{p.Message(), true, p.Restoration()} }

// Own returns the Outgoing for a message that Gatekit made. The message is recorded when it is
// written. Only recorder.go and outgoing.go of this package and outgoing.go of core/bridge make
// such messages; test/layout checks that.
func Own(m *mcp.Message) Outgoing { return Outgoing{m: m} }

// Translated returns m as a translation of o for a server of the other era. The record of o stands
// for m, too.
func Translated(o Outgoing, m *mcp.Message) Outgoing { return o.with(m) }

// Again returns o to be sent again. The message is then recorded again, too.
func Again(o Outgoing) Outgoing {
	o.isRecorded = false
	return o
}

// with returns o with m as its message.
func (o Outgoing) with(m *mcp.Message) Outgoing {
	o.m = m
	return o
}

// Message returns the message, with placeholders for redacted values. It returns nil for the zero
// Outgoing.
func (o Outgoing) Message() *mcp.Message { return o.m }

// withIDs returns o with the id and the progress token for a connection. If token is nil, the
// message keeps its progress token.
func (o Outgoing) withIDs(id mcp.ID, token []byte) (Outgoing, error) {
	m := o.m.WithID(id)
	if token == nil {
		return o.with(m), nil
	}
	m, err := m.Edit(mcp.Set("/_meta/progressToken", token))
	if err != nil {
		return Outgoing{}, fmt.Errorf("give %s a progress token: %w", o.m.Method, err)
	}
	return o.with(m), nil
}

// withMeta returns o with an observer's edits. It returns o unchanged when an edit is outside of
// /_meta, or cannot be made.
func (o Outgoing) withMeta(edits []mcp.Edit) Outgoing {
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

// parts returns the bytes of the message in parts, for a Pipe.
func (o Outgoing) parts() [][]byte { return o.written().Parts() }

// written returns the message with the redacted values that its server gets.
func (o Outgoing) written() *mcp.Message { return o.values.Apply(o.m) }

// discoverRequest returns the server/discover of a probe.
func discoverRequest(id mcp.ID, version string) Outgoing {
	return Own(mcp.NewRequest(id, "server/discover",
		[]byte(`{"_meta":{"`+mcp.MetaProtocolVersion+`":"`+mcp.Rev20260728+
			`","`+mcp.MetaClientInfo+`":{"name":"gatekit","version":`+string(mcp.Quote(version))+
			`},"`+mcp.MetaCapabilities+`":{}}}`)))
}

// pingRequest returns a ping.
func pingRequest() Outgoing { return Own(mcp.NewRequest("0", "ping", nil)) }

// listToolsRequest returns a tools/list. Its answer shows which arguments of the tools are repeated
// in headers. The request has the _meta of the tools/call that needs the list, without the progress
// token and the log level, which would ask for notifications.
func listToolsRequest(id mcp.ID, call *mcp.Message, cursor []byte) (Outgoing, error) {
	params := []byte(`{}`)
	if meta, ok := call.Get("/_meta"); ok {
		params = append(append([]byte(`{"_meta":`), meta...), '}')
	}
	edits := []mcp.Edit{mcp.Remove("/_meta/progressToken"), mcp.Remove(mcp.PointerLogLevel)}
	if cursor != nil {
		edits = append(edits, mcp.Set("/cursor", cursor))
	}
	m, err := mcp.NewRequest(id, "tools/list", params).Edit(edits...)
	return Own(m), err
}

// firstAnswer returns the answer to a single request of the server. A request of the server is
// always answered: with a refusal when the client could not be asked.
func firstAnswer(answers []pipeline.Passed, request *mcp.Message) Outgoing {
	if len(answers) == 1 && answers[0].Message() != nil {
		return Forward(answers[0])
	}
	answer := mcp.NewError(request.ID(), mcp.CodeInternalError,
		"the client could not be asked", nil)
	answer.Method, answer.Request = request.Method, request
	return Own(answer)
}

// cancellation returns the notification that cancels a request. The parameter id is the id of the
// request on its connection. If cause holds the client's notification, that notification is
// forwarded. A modern client describes itself in the notification. The description is removed if
// the request was sent without a description, for example to a legacy server.
func cancellation(cause error, id mcp.ID, request *mcp.Message) Outgoing {
	var cancelled *proxy.CancelledError
	if errors.As(cause, &cancelled) && cancelled.Notification.Message() != nil {
		notice, edits := cancelled.Notification.Message(),
			[]mcp.Edit{mcp.Set("/requestId", []byte(id))}
		_, described := notice.Get(mcp.PointerProtocolVersion)
		if _, wanted := request.Get(mcp.PointerProtocolVersion); described && !wanted {
			edits = append(edits, mcp.RemoveReservedMeta(notice)...)
		}
		if p, err := cancelled.Notification.Edit(edits...); err == nil {
			return Forward(p)
		}
	}
	params := `{"requestId":` + string(id) + `}`
	if errors.Is(cause, context.DeadlineExceeded) {
		params = `{"requestId":` + string(id) + `,"reason":"timed out"}`
	}
	n := mcp.NewNotification("notifications/cancelled", []byte(params))
	n.Session, n.Principal, n.Exchange = request.Session, request.Principal, request.Exchange
	return Own(n)
}
