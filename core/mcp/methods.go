package mcp

import (
	"maps"
	"slices"
	"strings"
)

// Revisions of the protocol that Gatekit speaks, oldest first. They are dates and compare as
// strings.
const (
	Rev20241105 = "2024-11-05"
	Rev20250326 = "2025-03-26"
	Rev20250618 = "2025-06-18"
	Rev20251125 = "2025-11-25"
	Rev20260728 = "2026-07-28"
)

// Era is the group of revisions with the same design of sessions and requests. Only
// core/downstream, core/upstream and core/bridge may branch on it.
type Era uint8

const (
	Legacy Era = iota + 1 // initialize, sessions, live reverse requests
	Modern                // stateless, server/discover, input_required
)

// Revisions returns the era's revisions that Gatekit supports, newest first.
func (e Era) Revisions() []string {
	switch e {
	case Legacy:
		return []string{Rev20251125, Rev20250618, Rev20250326, Rev20241105}
	case Modern:
		return []string{Rev20260728}
	}
	return nil
}

// Revisions returns all revisions that Gatekit supports, newest first.
func Revisions() []string { return append(Modern.Revisions(), Legacy.Revisions()...) }

// EraOf returns the era of a revision that Gatekit supports, and 0 for any other text.
func EraOf(revision string) Era {
	switch revision {
	case Rev20241105, Rev20250326, Rev20250618, Rev20251125:
		return Legacy
	case Rev20260728:
		return Modern
	}
	return 0
}

// Error codes of JSON-RPC and of the MCP specification, and the code of Gatekit's own errors.
const (
	CodeParseError       = -32700
	CodeInvalidRequest   = -32600
	CodeMethodNotFound   = -32601
	CodeInvalidParams    = -32602
	CodeInternalError    = -32603
	CodeResourceNotFound = -32002 // no such resource; CodeInvalidParams since 2026-07-28
	// 2025-11-25: the client has to open URLs first; 2026-07-28 uses an input request instead
	CodeURLElicitationRequired = -32042
	CodeHeaderMismatch         = -32020 // 2026-07-28
	CodeMissingCapability      = -32021 // 2026-07-28
	CodeUnsupportedVersion     = -32022 // 2026-07-28
	CodeSamplingRejected       = -1     // the user rejected a sampling request
	CodeDenied                 = -31000 // denied by a policy, a plugin or the audit log
)

// UnknownResourceCode returns the error code for an unknown resource in the given revision.
func UnknownResourceCode(revision string) int {
	if EraOf(revision) == Legacy {
		return CodeResourceNotFound
	}
	return CodeInvalidParams
}

// Meta… are keys in _meta that the protocol reserves for itself. Gatekit reads or sets them.
const (
	MetaProtocolVersion = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo      = "io.modelcontextprotocol/clientInfo"
	MetaCapabilities    = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel        = "io.modelcontextprotocol/logLevel"
	MetaServerInfo      = "io.modelcontextprotocol/serverInfo"
	MetaSubscriptionID  = "io.modelcontextprotocol/subscriptionId"
	MetaRelatedTask     = "io.modelcontextprotocol/related-task"
)

// Pointer… are JSON pointers to these keys in a message's _meta.
const (
	PointerProtocolVersion = reservedPrefix + "protocolVersion"
	PointerClientInfo      = reservedPrefix + "clientInfo"
	PointerCapabilities    = reservedPrefix + "clientCapabilities"
	PointerLogLevel        = reservedPrefix + "logLevel"
	PointerServerInfo      = reservedPrefix + "serverInfo"
	PointerSubscriptionID  = reservedPrefix + "subscriptionId"
	PointerRelatedTask     = reservedPrefix + "related-task"

	reservedPrefix = "/_meta/io.modelcontextprotocol~1"
)

// AllowsInputRequests reports whether a server may answer the modern request m with input requests
// (MCP 2026-07-28, Multi Round-Trip Requests). The method of m must allow them, and the client must
// have declared one of elicitation, sampling and roots.
func AllowsInputRequests(m *Message) bool {
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

// Route is the way in which the proxy finds the servers for a client's message.
type Route uint8

const (
	RouteLocal Route = iota + 1 // to no server, because Gatekit itself answers the message: ping
	// to all servers, and their answers are merged into one: lists, initialize, server/discover,
	// logging/setLevel
	RouteBroadcast
	RouteByName       // to the server of the tool or prompt in /name: tools/call, prompts/get
	RouteByURI        // to the server of the resource in /uri
	RouteByReference  // to the server of the prompt or template in /ref: completion/complete
	RouteByTask       // to the server of the task in /taskId
	RouteSubscription // to all servers, each with its part of the filter: subscriptions/listen
	// to the server of the request that the notification names: cancelled, progress
	RouteByExchange
)

// Method is one method of the specification.
type Method struct {
	Name string
	Kind Kind
	// ToServer if only clients send the method, ToClient if only servers send it, 0 if both do
	Direction Direction
	// first and last revision with the method; LastRevision is "" if the newest one has it
	FirstRevision, LastRevision string
	// the capability that the receiver must declare; "" is none; the capability of an extension has
	// the form "extensions/name"
	Capability   string
	Route        Route  // for messages of clients
	NamePointer  string // of the name, URI or task id in the params; "" if they have none
	ItemsPointer string // the list in the result, such as "/tools"; "" if the result has no list
	// the name in each item of that list: "/name", "/uri", "/uriTemplate" or "/taskId"
	ItemNamePointer string
}

// LookupMethod returns the method with that name. Any revision may have it.
func LookupMethod(name string) (Method, bool) {
	m, ok := methods[name]
	return m, ok
}

// Methods returns all methods of all revisions, ordered by name.
func Methods() []Method {
	return slices.SortedFunc(maps.Values(methods), func(a, b Method) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// ExistsIn reports whether the revision has the method.
func (m Method) ExistsIn(revision string) bool {
	return m.FirstRevision <= revision && (m.LastRevision == "" || revision <= m.LastRevision)
}

// methodName decodes a raw method. If the table has the method, methodName returns the string of
// the table, so that all messages share it.
func methodName(raw []byte) (string, bool) {
	if len(raw) > 2 {
		if m, ok := methods[string(raw[1:len(raw)-1])]; ok {
			return m.Name, true
		}
	}
	return decodeString(raw)
}

// The extension for skills (SEP-2640) belongs to no revision. Servers of every revision may declare
// it.
const (
	SkillsExtension  = "io.modelcontextprotocol/skills"
	skillsCapability = "extensions/" + SkillsExtension
)

// methods is the table of all methods, by name. In 2026-07-28, requests for sampling, elicitation
// and roots exist only as members of inputRequests. The rows of their methods still include that
// revision. In 2024-11-05, completion/complete needs no capability.
var methods = func() map[string]Method {
	const (
		none   = ""
		legacy = Rev20251125 // the last revision of the legacy era
	)
	rows := []Method{
		// requests of clients
		{"initialize", Request, ToServer, Rev20241105, legacy, none, RouteBroadcast, "", "", ""},
		{"server/discover", Request, ToServer, Rev20260728, "", none, RouteBroadcast, "", "", ""},
		{"ping", Request, 0, Rev20241105, legacy, none, RouteLocal, "", "", ""},
		{"tools/list", Request, ToServer, Rev20241105, "", "tools", RouteBroadcast,
			"", "/tools", "/name"},
		{"tools/call", Request, ToServer, Rev20241105, "", "tools", RouteByName, "/name", "", ""},
		{"resources/list", Request, ToServer, Rev20241105, "", "resources", RouteBroadcast,
			"", "/resources", "/uri"},
		{"resources/templates/list", Request, ToServer, Rev20241105, "", "resources",
			RouteBroadcast, "", "/resourceTemplates", "/uriTemplate"},
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
		{"resources/directory/read", Request, ToServer, Rev20241105, "", skillsCapability,
			RouteByURI, "/uri", "/resources", "/uri"},
		{"skills/list", Request, ToServer, Rev20241105, "", skillsCapability, RouteBroadcast,
			"", "/skills", "/uri"},
		{"skills/get", Request, ToServer, Rev20241105, "", skillsCapability, RouteByURI,
			"/uri", "", ""},
		{"completion/complete", Request, ToServer, Rev20241105, "", "completions", RouteByReference,
			"", "", ""},
		{"logging/setLevel", Request, ToServer, Rev20241105, legacy, "logging", RouteBroadcast,
			"", "", ""},
		{"subscriptions/listen", Request, ToServer, Rev20260728, "", none, RouteSubscription,
			"", "", ""},
		// in 2025-11-25 servers, too, send tasks/get, tasks/result, tasks/list and tasks/cancel
		{"tasks/get", Request, 0, Rev20251125, "", "tasks", RouteByTask, "/taskId", "", ""},
		{"tasks/result", Request, 0, Rev20251125, legacy, "tasks", RouteByTask, "/taskId", "", ""},
		{"tasks/list", Request, 0, Rev20251125, legacy, "tasks", RouteBroadcast,
			"", "/tasks", "/taskId"},
		{"tasks/cancel", Request, 0, Rev20251125, "", "tasks", RouteByTask, "/taskId", "", ""},
		{"tasks/update", Request, ToServer, Rev20260728, "", "tasks", RouteByTask,
			"/taskId", "", ""},

		// requests of servers
		{"sampling/createMessage", Request, ToClient, Rev20241105, "", "sampling", 0, "", "", ""},
		{"roots/list", Request, ToClient, Rev20241105, "", "roots", 0, "", "", ""},
		{"elicitation/create", Request, ToClient, Rev20250618, "", "elicitation", 0, "", "", ""},

		// notifications
		{"notifications/initialized", Notification, ToServer, Rev20241105, legacy, none,
			RouteBroadcast, "", "", ""},
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

// CreatedTaskID returns the id of the task that was created according to the answer m. ok is false
// if m reports no new task, or if m answers a request about an existing task.
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
