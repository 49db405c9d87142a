package mcp

// Revisions of the protocol that Gatekit speaks, oldest first. They are dates and compare as
// strings.
const (
	Rev20241105 = "2024-11-05"
	Rev20250326 = "2025-03-26"
	Rev20250618 = "2025-06-18"
	Rev20251125 = "2025-11-25"
	Rev20260728 = "2026-07-28"
)

// Era is which of the two designs a revision belongs to. Only core/downstream and core/upstream may
// branch on one.
type Era uint8

const (
	Legacy Era = iota + 1 // initialize, sessions, live reverse requests
	Modern                // stateless, server/discover, input_required
)

// Revisions are those of the era that Gatekit speaks, newest first.
func (e Era) Revisions() []string {
	switch e {
	case Legacy:
		return []string{Rev20251125, Rev20250618, Rev20250326, Rev20241105}
	case Modern:
		return []string{Rev20260728}
	}
	return nil
}

// Revisions are all that Gatekit speaks, newest first.
func Revisions() []string { return append(Modern.Revisions(), Legacy.Revisions()...) }

// EraOf is the era of a revision that Gatekit speaks; 0 for any other text.
func EraOf(revision string) Era {
	switch revision {
	case Rev20241105, Rev20250326, Rev20250618, Rev20251125:
		return Legacy
	case Rev20260728:
		return Modern
	}
	return 0
}

// Error codes of JSON-RPC, of the specification (protocol.md 5), and Gatekit's own.
const (
	CodeParseError       = -32700
	CodeInvalidRequest   = -32600
	CodeMethodNotFound   = -32601
	CodeInvalidParams    = -32602
	CodeInternalError    = -32603
	CodeResourceNotFound = -32002 // no such resource; CodeInvalidParams since 2026-07-28
	// 2025-11-25: pages have to be opened first; a question since 2026-07-28
	CodeURLElicitationRequired = -32042
	CodeHeaderMismatch         = -32020 // 2026-07-28
	CodeMissingCapability      = -32021 // 2026-07-28
	CodeUnsupportedVersion     = -32022 // 2026-07-28
	CodeSamplingRejected       = -1     // a sampling request was rejected
	CodeDenied                 = -31000 // refused by policy
)

// Meta… are the keys in _meta that the protocol reserves for itself and that Gatekit reads or sets.
const (
	MetaProtocolVersion = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo      = "io.modelcontextprotocol/clientInfo"
	MetaCapabilities    = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel        = "io.modelcontextprotocol/logLevel"
	MetaServerInfo      = "io.modelcontextprotocol/serverInfo"
	MetaSubscriptionID  = "io.modelcontextprotocol/subscriptionId"
	MetaRelatedTask     = "io.modelcontextprotocol/related-task"
)

// At… are pointers to these keys in a message's _meta.
const (
	PointerProtocolVersion = atReserved + "protocolVersion"
	PointerClientInfo      = atReserved + "clientInfo"
	PointerCapabilities    = atReserved + "clientCapabilities"
	PointerLogLevel        = atReserved + "logLevel"
	PointerServerInfo      = atReserved + "serverInfo"
	PointerSubscriptionID  = atReserved + "subscriptionId"
	PointerRelatedTask     = atReserved + "related-task"

	atReserved = "/_meta/io.modelcontextprotocol~1"
)

// CanRequestInput says whether a modern request may be answered with questions: its method is one
// of those that can be (26/basic/patterns/mrtr), and its client has declared that it can be asked
// something.
func CanRequestInput(m *Message) bool {
	switch m.Method {
	case "tools/call", "prompts/get", "resources/read":
	default:
		return false
	}
	for _, capability := range []string{"/elicitation", "/sampling", "/roots"} {
		if _, ok := m.Get(PointerCapabilities + capability); ok {
			return true
		}
	}
	return false
}

// Route is how a client's message finds its servers (protocol.md 2).
type Route uint8

const (
	RouteLocal Route = iota + 1 // answered or consumed by the hop that got it: ping
	// to all servers; answers merged: lists, initialize, server/discover, logging/setLevel
	RouteBroadcast
	RouteByName       // params name: tools/call, prompts/get
	RouteByURI        // params uri
	RouteByReference  // params ref: completion/complete
	RouteByTask       // params taskId
	RouteSubscription // subscriptions/listen: broadcast, filter split by owner
	// cancelled, progress: goes where the request went that it speaks of
	RouteByExchange
)

// Method is one row of the specification's table of methods (protocol.md 1.1-1.3).
type Method struct {
	Name string
	Kind Kind
	// ToServer: clients send it; ToClient: servers do; 0: both
	Direction Direction
	// revisions that have it, inclusive; Last "" is still there
	FirstRevision, LastRevision string
	// top-level server (client, for reverse requests) capability that gates it; "" none
	Capability   string
	Route        Route  // for what clients send
	NamePointer  string // pointer of the name, URI or task id in its params; "" none
	ItemsPointer string // pointer of the list in its result: "/tools"; "" when it is no list
	// within an item of that list: "/name", "/uri", "/uriTemplate", "/taskId"
	ItemNamePointer string
}

// LookupMethod finds a method of any revision.
func LookupMethod(name string) (Method, bool) {
	m, ok := methods[name]
	return m, ok
}

// ExistsIn says whether the method exists in the revision.
func (m Method) ExistsIn(revision string) bool {
	return m.FirstRevision <= revision && (m.LastRevision == "" || revision <= m.LastRevision)
}

// known is the method that a raw string names, without a copy of its own where the table has it.
func known(raw []byte) (string, bool) {
	if len(raw) > 2 {
		if m, ok := methods[string(raw[1:len(raw)-1])]; ok {
			return m.Name, true
		}
	}
	return text(raw)
}

// methods is the table by name. What 2026-07-28 has as a member of inputRequests only (sampling,
// elicitation, roots) is in it for that revision too; 2024-11-05 has completion/complete without a
// capability for it.
var methods = func() map[string]Method {
	const (
		none   = ""
		legacy = Rev20251125 // the last revision of the legacy era
	)
	rows := []Method{
		// 1.1 requests, client to server
		{"initialize", Request, ToServer, Rev20241105, legacy, none, RouteBroadcast, "", "", ""},
		{"server/discover", Request, ToServer, Rev20260728, "", none, RouteBroadcast, "", "", ""},
		{"ping", Request, 0, Rev20241105, legacy, none, RouteLocal, "", "", ""},
		{"tools/list", Request, ToServer, Rev20241105, "", "tools", RouteBroadcast,
			"", "/tools", "/name"},
		{"tools/call", Request, ToServer, Rev20241105, "", "tools", RouteByName, "/name", "", ""},
		{"resources/list", Request, ToServer, Rev20241105, "", "resources", RouteBroadcast,
			"", "/resources", "/uri"},
		{"resources/templates/list", Request, ToServer, Rev20241105, "", "resources",
			RouteBroadcast,
			"", "/resourceTemplates", "/uriTemplate"},
		{"resources/read", Request, ToServer, Rev20241105, "", "resources", RouteByURI,
			"/uri", "", ""},
		{"resources/subscribe", Request, ToServer, Rev20241105, legacy, "resources", RouteByURI,
			"/uri", "", ""},
		{"resources/unsubscribe", Request, ToServer, Rev20241105, legacy, "resources", RouteByURI,
			"/uri", "", ""},
		{"prompts/list", Request, ToServer, Rev20241105, "", "prompts", RouteBroadcast,
			"", "/prompts", "/name"},
		{"prompts/get", Request, ToServer, Rev20241105, "", "prompts", RouteByName,
			"/name", "", ""},
		{"completion/complete", Request, ToServer, Rev20241105, "", "completions", RouteByReference,
			"", "", ""},
		{"logging/setLevel", Request, ToServer, Rev20241105, legacy, "logging", RouteBroadcast,
			"", "", ""},
		{"subscriptions/listen", Request, ToServer, Rev20260728, "", none, RouteSubscription,
			"", "", ""},
		// tasks/get to tasks/cancel are servers' requests too in 2025-11-25
		{"tasks/get", Request, 0, Rev20251125, "", "tasks", RouteByTask, "/taskId", "", ""},
		{"tasks/result", Request, 0, Rev20251125, legacy, "tasks", RouteByTask, "/taskId", "", ""},
		{"tasks/list", Request, 0, Rev20251125, legacy, "tasks", RouteBroadcast,
			"", "/tasks", "/taskId"},
		{"tasks/cancel", Request, 0, Rev20251125, "", "tasks", RouteByTask, "/taskId", "", ""},
		{"tasks/update", Request, ToServer, Rev20260728, "", "tasks", RouteByTask,
			"/taskId", "", ""},

		// 1.2 requests, server to client
		{"sampling/createMessage", Request, ToClient, Rev20241105, "", "sampling", 0, "", "", ""},
		{"roots/list", Request, ToClient, Rev20241105, "", "roots", 0, "", "", ""},
		{"elicitation/create", Request, ToClient, Rev20250618, "", "elicitation", 0, "", "", ""},

		// 1.3 notifications
		{"notifications/initialized", Notification, ToServer, Rev20241105, legacy, none,
			RouteBroadcast,
			"", "", ""},
		{"notifications/cancelled", Notification, 0, Rev20241105, "", none, RouteByExchange,
			"", "", ""},
		{"notifications/progress", Notification, 0, Rev20241105, "", none, RouteByExchange,
			"", "", ""},
		{"notifications/message", Notification, ToClient, Rev20241105, "", "logging", 0,
			"", "", ""},
		{"notifications/tools/list_changed", Notification, ToClient, Rev20241105, "", "tools", 0,
			"", "", ""},
		{"notifications/prompts/list_changed", Notification, ToClient, Rev20241105,
			"", "prompts", 0, "", "", ""},
		{"notifications/resources/list_changed", Notification, ToClient, Rev20241105,
			"", "resources", 0, "", "", ""},
		{"notifications/resources/updated", Notification, ToClient, Rev20241105, "", "resources", 0,
			"/uri", "", ""},
		{"notifications/roots/list_changed", Notification, ToServer, Rev20241105, legacy,
			"roots", RouteBroadcast, "", "", ""},
		{"notifications/elicitation/complete", Notification, ToClient, Rev20251125, legacy,
			"elicitation", 0, "", "", ""},
		{"notifications/tasks/status", Notification, 0, Rev20251125, legacy, "tasks", RouteByTask,
			"/taskId", "", ""},
		{"notifications/tasks", Notification, ToClient, Rev20260728, "", "tasks", 0,
			"/taskId", "", ""},
		{"notifications/subscriptions/acknowledged", Notification, ToClient, Rev20260728, "", none,
			0, "", "", ""},
	}
	table := make(map[string]Method, len(rows))
	for _, m := range rows {
		table[m.Name] = m
	}
	return table
}()

// CreatedTaskID is the id of the task that an answer says has begun. Answers about a task that
// there was before say nothing of its beginning.
func CreatedTaskID(m *Message) (id string, ok bool) {
	if meth, _ := LookupMethod(m.Method); m.Kind != Response || meth.Route == RouteByTask {
		return "", false
	}
	if id, ok = m.Text("/task/taskId"); ok {
		return id, true
	}
	if kind, _ := m.Text("/resultType"); kind != "task" {
		return "", false
	}
	return m.Text("/taskId")
}
