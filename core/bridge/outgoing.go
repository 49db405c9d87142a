package bridge

import (
	"bytes"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/upstream"
)

// This file makes all messages that the bridge writes to servers. They are translations of requests
// that passed the pipeline, and requests that the bridge itself makes. A request of the bridge
// contains only parts of client messages that have passed the pipeline. test/layout checks that no
// other file of this package makes messages for servers.

// clientDescription is the client's description that each request to a modern server contains, as
// JSON.
type clientDescription struct {
	clientInfo, capabilities []byte
	logLevel                 []byte // nil when the client asked for no log messages
}

// edits returns the edits that put the description into the _meta of a request.
func (d clientDescription) edits() []mcp.Edit {
	edits := []mcp.Edit{
		mcp.Set(mcp.PointerProtocolVersion, []byte(`"`+mcp.Rev20260728+`"`)),
		mcp.Set(mcp.PointerClientInfo, d.clientInfo),
		mcp.Set(mcp.PointerCapabilities, d.capabilities),
	}
	if d.logLevel != nil {
		edits = append(edits, mcp.Set(mcp.PointerLogLevel, d.logLevel))
	}
	return edits
}

// edit returns o with the edits applied.
func edit(o upstream.Outgoing, edits ...mcp.Edit) (upstream.Outgoing, error) {
	m, err := o.Message().Edit(edits...)
	return upstream.Translated(o, m), err
}

// forModernServer returns a legacy client's request, translated for a modern server. It adds the
// client's description, and removes the values that the client itself put under reserved keys.
// Reserved keys have no meaning in the client's revision.
func forModernServer(o upstream.Outgoing, d clientDescription) (upstream.Outgoing, error) {
	edits := d.edits()
	o.Message().Members("/_meta", func(name string, _ []byte) bool {
		pointer := "/_meta/" + mcp.EscapePointer(name)
		isDescribed := slices.ContainsFunc(edits, func(e mcp.Edit) bool {
			return e.Pointer == pointer
		})
		if strings.HasPrefix(name, mcp.ReservedMetaPrefix) && !isDescribed {
			edits = append(edits, mcp.Remove(pointer))
		}
		return true
	})
	edits = append(edits, mcp.Remove("/task"), mcp.Remove("/inputResponses"),
		mcp.Remove("/requestState"))
	return edit(o, edits...)
}

// withInput returns a request to be sent again, with the client's answers, and with state, the
// requestState of the server's result that asked for input. answers and state may be nil.
func withInput(o upstream.Outgoing, answers, state []byte) (upstream.Outgoing, error) {
	var edits []mcp.Edit
	if answers != nil {
		edits = append(edits, mcp.Set("/inputResponses", answers))
	}
	if state != nil {
		edits = append(edits, mcp.Set("/requestState", state))
	}
	return edit(upstream.Again(o), edits...)
}

// discoverRequest returns the server/discover that replaces a legacy client's initialize.
func discoverRequest(initialize *mcp.Message, d clientDescription) (upstream.Outgoing, error) {
	m, err := mcp.NewRequest(initialize.ID(), "server/discover", nil).Edit(d.edits()...)
	return upstream.Own(m), err
}

// listenRequest returns a subscriptions/listen on behalf of a legacy client.
func listenRequest(d clientDescription, filter []byte) (upstream.Outgoing, error) {
	edits := append(d.edits(), mcp.Set("/notifications", filter))
	m, err := mcp.NewRequest("0", "subscriptions/listen", nil).Edit(edits...)
	return upstream.Own(m), err
}

// tasksExtension is the name of the tasks extension in the capabilities of modern clients.
const tasksExtension = "io.modelcontextprotocol/tasks"

// withTasksExtension returns a call in which the client declares the tasks extension of modern
// revisions.
func withTasksExtension(o upstream.Outgoing) (upstream.Outgoing, error) {
	const pointer = mcp.PointerCapabilities + "/extensions"
	if _, ok := o.Message().Get(pointer); ok {
		return edit(o, mcp.Set(pointer+"/"+mcp.EscapePointer(tasksExtension), []byte("{}")))
	}
	return edit(o, mcp.Set(pointer, []byte(`{"`+tasksExtension+`":{}}`)))
}

// modernTaskRequest returns a request about the task that a modern server created for the parameter
// call. The request has the _meta of the call without the progress token and the log level. A
// progress token or a log level would make the server send notifications for the request.
func modernTaskRequest(method string, id []byte, call *mcp.Message,
	more ...mcp.Edit) (upstream.Outgoing, error) {
	meta, _ := call.Get("/_meta")
	m := mcp.NewRequest(call.ID(), method, slices.Concat([]byte(`{"taskId":`), id,
		[]byte(`,"_meta":`), meta, []byte("}")))
	m, err := m.Edit(append(more, mcp.Remove("/_meta/progressToken"),
		mcp.Remove(mcp.PointerLogLevel))...)
	return upstream.Own(m), err
}

// forLegacyServer returns a modern client's request, translated for a legacy server. It removes the
// client's description, which the server got when the session was initialized.
func forLegacyServer(o upstream.Outgoing) (upstream.Outgoing, error) {
	edits := append(mcp.RemoveReservedMeta(o.Message()), mcp.Remove("/inputResponses"),
		mcp.Remove("/requestState"), mcp.Remove("/task"))
	return edit(o, edits...)
}

// initializeRequest returns the initialize of a session with a legacy server, for a modern client
// that declares capabilities with its request m.
func initializeRequest(m *mcp.Message, capabilities []byte,
	version string) (upstream.Outgoing, error) {
	info, ok := m.Get(mcp.PointerClientInfo)
	if !ok {
		info = []byte(`{"name":"gatekit","version":` + string(mcp.Quote(version)) + `}`)
	}
	initialize, err := mcp.NewRequest("0", "initialize", nil).Edit(
		mcp.Set("/protocolVersion", mcp.Quote(mcp.Rev20251125)),
		mcp.Set("/capabilities", capabilities), mcp.Set("/clientInfo", info))
	return upstream.Own(initialize), err
}

// initializedNotification returns the notification that ends the handshake with a legacy server.
func initializedNotification() upstream.Outgoing {
	return upstream.Own(mcp.NewNotification("notifications/initialized", nil))
}

// listToolsRequest returns a tools/list for a legacy server. cursor is nil for the first page.
func listToolsRequest(cursor []byte) upstream.Outgoing {
	if cursor == nil {
		return upstream.Own(mcp.NewRequest("0", "tools/list", nil))
	}
	return upstream.Own(mcp.NewRequest("0", "tools/list",
		slices.Concat([]byte(`{"cursor":`), cursor, []byte("}"))))
}

// subscriptionRequest returns a resources/subscribe or resources/unsubscribe. uri is JSON.
func subscriptionRequest(method string, uri []byte) upstream.Outgoing {
	return upstream.Own(mcp.NewRequest("0", method,
		slices.Concat([]byte(`{"uri":`), uri, []byte("}"))))
}

// setLevelRequest returns a logging/setLevel.
func setLevelRequest(level string) upstream.Outgoing {
	return upstream.Own(mcp.NewRequest("0", "logging/setLevel",
		slices.Concat([]byte(`{"level":`), mcp.Quote(level), []byte("}"))))
}

// asTaskCall returns a tools/call that asks a legacy server to run the call as a task.
func asTaskCall(o upstream.Outgoing) (upstream.Outgoing, error) {
	return edit(o, mcp.Set("/task", []byte("{}")))
}

// legacyTaskRequest returns a request about a task of a legacy server. If call is not nil and asked
// for progress, the request asks for progress too.
func legacyTaskRequest(method string, id []byte, call *mcp.Message) upstream.Outgoing {
	params := slices.Concat([]byte(`{"taskId":`), id)
	if call != nil {
		if token, ok := call.Get("/_meta/progressToken"); ok {
			params = slices.Concat(params, []byte(`,"_meta":{"progressToken":`), token, []byte("}"))
		}
	}
	return upstream.Own(mcp.NewRequest("0", method, append(params, '}')))
}

// capabilitiesForLegacy returns the capabilities that a modern client declared with a request,
// translated for the initialize of a legacy server. raw may be nil.
func capabilitiesForLegacy(raw []byte) ([]byte, error) {
	if !bytes.HasPrefix(raw, []byte("{")) {
		return []byte("{}"), nil
	}
	m := mcp.NewResponse("", raw)
	edits := []mcp.Edit{mcp.Remove("/extensions"), mcp.Remove("/tasks")}
	if _, ok := m.Get("/roots"); ok {
		// modern clients do not notify of changed roots
		edits = append(edits, mcp.Set("/roots", []byte("{}")))
	}
	m, err := m.Edit(edits...)
	if err != nil {
		return nil, err
	}
	return m.Body(), nil
}

// capabilitiesForModern returns the capabilities that a legacy client declared in initialize,
// translated for the requests to a modern server. raw may be nil.
func capabilitiesForModern(raw []byte) ([]byte, error) {
	if !bytes.HasPrefix(raw, []byte("{")) {
		return []byte("{}"), nil
	}
	m := mcp.NewResponse("", raw)
	edits := []mcp.Edit{mcp.Remove("/tasks")} // modern revisions have another design of tasks
	if _, ok := m.Get("/roots"); ok {
		// modern servers cannot be notified of changed roots
		edits = append(edits, mcp.Set("/roots", []byte("{}")))
	}
	m, err := m.Edit(edits...)
	if err != nil {
		return nil, err
	}
	return m.Body(), nil
}
