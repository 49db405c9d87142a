package mcp

import "strings"

// What a place of the rewrite catalogue holds.
type NameKind uint8

const (
	ToolName NameKind = iota + 1
	PromptName
	URI
	URITemplate
	TaskID
	ElicitationID
	LoggerName
)

// NamePlace is one row of the rewrite catalogue (protocol.md 1.4) that holds a name: which
// messages, where, which way. In At "*" stands for every element of an array or member of an
// object, and a last segment "@content" for every content block at that place (one object, or an
// array; tool_result blocks are walked into): the uri of a resource_link, the resource.uri of an
// embedded resource.
type NamePlace struct {
	Row             int    // in protocol.md 1.4
	Method          string // "" is every method
	Kind            Kind
	Direction       Direction // ToClient: the prefix is added; ToServer: it is taken off
	Pattern         string
	NameKind        NameKind
	ConditionMember string // the place counts only where this member, beside it in the same object,
	ConditionValue  string // is this string; "" no condition
}

// NamePlaces is the catalogue for one message, in order.
func NamePlaces(method string, kind Kind, to Direction) []NamePlace {
	var found []NamePlace
	for _, p := range catalogue {
		if (p.Method == "" || p.Method == method) && p.Kind == kind && p.Direction == to {
			found = append(found, p)
		}
	}
	return found
}

// blocks says whether the place is content blocks.
func (p *NamePlace) blocks() bool { return strings.HasSuffix(p.Pattern, "/"+content) }

// content is the last segment of a Place.At for content blocks.
const content = "@content"

// catalogue is protocol.md 1.4 but for the rows that hold no name: headers (3), cursors (17),
// progress tokens, request and subscription ids (18-20), keys and state of folded requests (24;
// each request and answer in them is rewritten as the message that it is), roots (27), prose (28).
// The ids of a client's own tasks are not in it: a client has no prefix.
var catalogue = []NamePlace{
	{1, "tools/list", Response, ToClient, "/tools/*/name", ToolName, "", ""},
	{1, "prompts/list", Response, ToClient, "/prompts/*/name", PromptName, "", ""},
	{2, "tools/call", Request, ToServer, "/name", ToolName, "", ""},
	{2, "prompts/get", Request, ToServer, "/name", PromptName, "", ""},
	{4, "completion/complete", Request, ToServer, "/ref/name", PromptName, "type", "ref/prompt"},
	{5, "completion/complete", Request, ToServer, "/ref/uri", URI, "type", "ref/resource"},
	{6, "resources/list", Response, ToClient, "/resources/*/uri", URI, "", ""},
	{6, "resources/templates/list", Response, ToClient, "/resourceTemplates/*/uriTemplate",
		URITemplate, "", ""},
	{7, "resources/read", Request, ToServer, "/uri", URI, "", ""},
	{7, "resources/subscribe", Request, ToServer, "/uri", URI, "", ""},
	{7, "resources/unsubscribe", Request, ToServer, "/uri", URI, "", ""},
	{8, "resources/read", Response, ToClient, "/contents/*/uri", URI, "", ""},
	{9, "notifications/resources/updated", Notification, ToClient, "/uri", URI, "", ""},
	{10, "tools/call", Response, ToClient, "/content/" + content, URI, "", ""},
	{10, "tasks/result", Response, ToClient, "/content/" + content, URI, "", ""},
	{10, "tasks/get", Response, ToClient, "/result/content/" + content, URI, "", ""},
	{10, "notifications/tasks", Notification, ToClient, "/result/content/" + content, URI, "", ""},
	{11, "prompts/get", Response, ToClient, "/messages/*/content/" + content, URI, "", ""},
	{12, "sampling/createMessage", Request, ToClient, "/messages/*/content/" + content, URI,
		"", ""},
	{13, "sampling/createMessage", Response, ToServer, "/content/" + content, URI, "", ""},
	{14, "tools/list", Response, ToClient, "/tools/*/_meta/ui/resourceUri", URI, "", ""},
	{14, "tools/list", Response, ToClient, "/tools/*/_meta/ui~1resourceUri", URI, "", ""},
	{15, "subscriptions/listen", Request, ToServer, "/notifications/resourceSubscriptions/*", URI,
		"", ""},
	{15, "notifications/subscriptions/acknowledged", Notification, ToClient,
		"/notifications/resourceSubscriptions/*", URI, "", ""},
	{16, "subscriptions/listen", Request, ToServer, "/notifications/taskIds/*", TaskID, "", ""},
	{16, "notifications/subscriptions/acknowledged", Notification, ToClient,
		"/notifications/taskIds/*", TaskID, "", ""},
	{21, "tools/call", Response, ToClient, "/task/taskId", TaskID, "", ""},
	{21, "tools/call", Response, ToClient, "/taskId", TaskID, "resultType", "task"},
	{21, "tasks/get", Request, ToServer, "/taskId", TaskID, "", ""},
	{21, "tasks/get", Response, ToClient, "/taskId", TaskID, "", ""},
	{21, "tasks/result", Request, ToServer, "/taskId", TaskID, "", ""},
	{21, "tasks/cancel", Request, ToServer, "/taskId", TaskID, "", ""},
	{21, "tasks/cancel", Response, ToClient, "/taskId", TaskID, "", ""},
	{21, "tasks/update", Request, ToServer, "/taskId", TaskID, "", ""},
	{21, "tasks/list", Response, ToClient, "/tasks/*/taskId", TaskID, "", ""},
	{21, "notifications/tasks/status", Notification, ToClient, "/taskId", TaskID, "", ""},
	{21, "notifications/tasks", Notification, ToClient, "/taskId", TaskID, "", ""},
	{22, "", Request, ToServer, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{22, "", Request, ToClient, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{22, "", Notification, ToServer, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{22, "", Notification, ToClient, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{22, "", Response, ToServer, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{22, "", Response, ToClient, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{23, "elicitation/create", Request, ToClient, "/elicitationId", ElicitationID, "", ""},
	{23, "notifications/elicitation/complete", Notification, ToClient, "/elicitationId",
		ElicitationID, "", ""},
	{23, "", Error, ToClient, "/data/elicitations/*/elicitationId", ElicitationID, "", ""},
	{25, "resources/read", Error, ToClient, "/data/uri", URI, "", ""},
	{25, "resources/subscribe", Error, ToClient, "/data/uri", URI, "", ""},
	{25, "resources/unsubscribe", Error, ToClient, "/data/uri", URI, "", ""},
	{26, "notifications/message", Notification, ToClient, "/logger", LoggerName, "", ""},
}
