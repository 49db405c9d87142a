package mcp

import (
	"slices"
	"strings"
)

// NameKind is the kind of name that a place of the catalogue holds.
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

// NamePlace is a place that holds a server's name or URI, in one kind of message. The proxy adds
// the server's prefix there (ToClient) or takes it off (ToServer).
type NamePlace struct {
	Group     string // what the place belongs to, as docs/protocol.md lists it: "tasks"
	Method    string // "" is every method
	Kind      Kind
	Direction Direction

	// Pattern is a JSON pointer in which "*" stands for every element of an array or member of an
	// object. The last token "@content" stands for the content blocks at that place, one object or
	// an array: the uri of a resource_link and the resource.uri of an embedded resource. The
	// content of tool_result blocks is searched too.
	Pattern  string
	NameKind NameKind

	// If ConditionMember is not "", the place holds a name only where the same object has a member
	// ConditionMember whose value is the string ConditionValue.
	ConditionMember, ConditionValue string
}

// NamePlaces returns the catalogue's places in one kind of message, in order.
func NamePlaces(method string, kind Kind, direction Direction) []NamePlace {
	var found []NamePlace
	for _, p := range namePlaces {
		if (p.Method == "" || p.Method == method) && p.Kind == kind && p.Direction == direction {
			found = append(found, p)
		}
	}
	return found
}

// NamePlaceGroups returns the groups of the catalogue, in order.
func NamePlaceGroups() []string {
	var groups []string
	for _, p := range namePlaces {
		if !slices.Contains(groups, p.Group) {
			groups = append(groups, p.Group)
		}
	}
	return groups
}

// holdsContentBlocks reports whether the place holds content blocks, and not one string.
func (p *NamePlace) holdsContentBlocks() bool {
	return strings.HasSuffix(p.Pattern, "/"+contentBlocks)
}

// contentBlocks is the last token of a Pattern for content blocks.
const contentBlocks = "@content"

// The groups of the catalogue.
const (
	listedNames         = "names in lists of tools and prompts"
	calledNames         = "names of called tools and prompts"
	completedPrompts    = "prompts to complete an argument of"
	completedResources  = "resource templates to complete an argument of"
	listedURIs          = "URIs and templates in lists of resources"
	requestedURIs       = "URIs to read, subscribe to and unsubscribe from"
	skillEntries        = "skills and their files"
	readContents        = "contents of a read resource"
	updatedResources    = "updated resources"
	toolResults         = "content blocks of tool results"
	promptMessages      = "content blocks of prompts"
	samplingMessages    = "content blocks to sample from"
	sampledContent      = "sampled content blocks"
	uiResources         = "user interfaces of tools"
	subscribedResources = "resources of a subscription"
	subscribedTasks     = "tasks of a subscription"
	tasks               = "tasks"
	relatedTasks        = "related tasks in _meta"
	elicitations        = "elicitations"
	missingResources    = "resources that were not found"
	loggers             = "loggers"
)

// namePlaces is the catalogue. Some parts of a message name something and are not in it, because
// another part of Gatekit handles them: HTTP headers that repeat a name (core/downstream,
// core/upstream); cursors (core/proxy); request ids, progress tokens and subscription ids
// (core/downstream, core/upstream); keys and request state of results that carry input requests,
// where each request and answer inside is rewritten as a message of its own (core/proxy). A
// client's roots and the ids of a client's own tasks have no prefix, and prose is never rewritten.
var namePlaces = []NamePlace{
	{listedNames, "tools/list", Response, ToClient, "/tools/*/name", ToolName, "", ""},
	{listedNames, "prompts/list", Response, ToClient, "/prompts/*/name", PromptName, "", ""},

	{calledNames, "tools/call", Request, ToServer, "/name", ToolName, "", ""},
	{calledNames, "prompts/get", Request, ToServer, "/name", PromptName, "", ""},

	{completedPrompts, "completion/complete", Request, ToServer, "/ref/name", PromptName,
		"type", "ref/prompt"},
	{completedResources, "completion/complete", Request, ToServer, "/ref/uri", URI,
		"type", "ref/resource"},

	{listedURIs, "resources/list", Response, ToClient, "/resources/*/uri", URI, "", ""},
	{listedURIs, "resources/directory/read", Response, ToClient, "/resources/*/uri", URI, "", ""},
	{listedURIs, "resources/templates/list", Response, ToClient,
		"/resourceTemplates/*/uriTemplate", URITemplate, "", ""},

	{requestedURIs, "resources/read", Request, ToServer, "/uri", URI, "", ""},
	{requestedURIs, "resources/subscribe", Request, ToServer, "/uri", URI, "", ""},
	{requestedURIs, "resources/unsubscribe", Request, ToServer, "/uri", URI, "", ""},
	{requestedURIs, "resources/directory/read", Request, ToServer, "/uri", URI, "", ""},
	{requestedURIs, "skills/get", Request, ToServer, "/uri", URI, "", ""},
	{readContents, "resources/read", Response, ToClient, "/contents/*/uri", URI, "", ""},
	{updatedResources, "notifications/resources/updated", Notification, ToClient, "/uri", URI,
		"", ""},

	{skillEntries, "skills/list", Response, ToClient, "/skills/*/uri", URI, "", ""},
	{skillEntries, "skills/list", Response, ToClient, "/skills/*/resources/*/uri", URI, "", ""},
	{skillEntries, "skills/get", Response, ToClient, "/skill/uri", URI, "", ""},
	{skillEntries, "skills/get", Response, ToClient, "/skill/resources/*/uri", URI, "", ""},

	{toolResults, "tools/call", Response, ToClient, "/content/" + contentBlocks, URI, "", ""},
	{toolResults, "tasks/result", Response, ToClient, "/content/" + contentBlocks, URI, "", ""},
	{toolResults, "tasks/get", Response, ToClient, "/result/content/" + contentBlocks, URI,
		"", ""},
	{toolResults, "notifications/tasks", Notification, ToClient,
		"/result/content/" + contentBlocks, URI, "", ""},
	{promptMessages, "prompts/get", Response, ToClient, "/messages/*/content/" + contentBlocks,
		URI, "", ""},
	{samplingMessages, "sampling/createMessage", Request, ToClient,
		"/messages/*/content/" + contentBlocks, URI, "", ""},
	{sampledContent, "sampling/createMessage", Response, ToServer, "/content/" + contentBlocks,
		URI, "", ""},

	// The member of MCP Apps, in its two spellings.
	{uiResources, "tools/list", Response, ToClient, "/tools/*/_meta/ui/resourceUri", URI, "", ""},
	{uiResources, "tools/list", Response, ToClient, "/tools/*/_meta/ui~1resourceUri", URI, "", ""},

	{subscribedResources, "subscriptions/listen", Request, ToServer,
		"/notifications/resourceSubscriptions/*", URI, "", ""},
	{subscribedResources, "notifications/subscriptions/acknowledged", Notification, ToClient,
		"/notifications/resourceSubscriptions/*", URI, "", ""},
	{subscribedTasks, "subscriptions/listen", Request, ToServer, "/notifications/taskIds/*",
		TaskID, "", ""},
	{subscribedTasks, "notifications/subscriptions/acknowledged", Notification, ToClient,
		"/notifications/taskIds/*", TaskID, "", ""},

	{tasks, "tools/call", Response, ToClient, "/task/taskId", TaskID, "", ""},
	{tasks, "tools/call", Response, ToClient, "/taskId", TaskID, "resultType", "task"},
	{tasks, "tasks/get", Request, ToServer, "/taskId", TaskID, "", ""},
	{tasks, "tasks/get", Response, ToClient, "/taskId", TaskID, "", ""},
	{tasks, "tasks/result", Request, ToServer, "/taskId", TaskID, "", ""},
	{tasks, "tasks/cancel", Request, ToServer, "/taskId", TaskID, "", ""},
	{tasks, "tasks/cancel", Response, ToClient, "/taskId", TaskID, "", ""},
	{tasks, "tasks/update", Request, ToServer, "/taskId", TaskID, "", ""},
	{tasks, "tasks/list", Response, ToClient, "/tasks/*/taskId", TaskID, "", ""},
	{tasks, "notifications/tasks/status", Notification, ToClient, "/taskId", TaskID, "", ""},
	{tasks, "notifications/tasks", Notification, ToClient, "/taskId", TaskID, "", ""},

	{relatedTasks, "", Request, ToServer, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{relatedTasks, "", Request, ToClient, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{relatedTasks, "", Notification, ToServer, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{relatedTasks, "", Notification, ToClient, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{relatedTasks, "", Response, ToServer, PointerRelatedTask + "/taskId", TaskID, "", ""},
	{relatedTasks, "", Response, ToClient, PointerRelatedTask + "/taskId", TaskID, "", ""},

	{elicitations, "elicitation/create", Request, ToClient, "/elicitationId", ElicitationID,
		"", ""},
	{elicitations, "notifications/elicitation/complete", Notification, ToClient,
		"/elicitationId", ElicitationID, "", ""},
	{elicitations, "", Error, ToClient, "/data/elicitations/*/elicitationId", ElicitationID,
		"", ""},

	{missingResources, "resources/read", Error, ToClient, "/data/uri", URI, "", ""},
	{missingResources, "resources/subscribe", Error, ToClient, "/data/uri", URI, "", ""},
	{missingResources, "resources/unsubscribe", Error, ToClient, "/data/uri", URI, "", ""},
	{missingResources, "resources/directory/read", Error, ToClient, "/data/uri", URI, "", ""},
	{missingResources, "skills/get", Error, ToClient, "/data/uri", URI, "", ""},

	{loggers, "notifications/message", Notification, ToClient, "/logger", LoggerName, "", ""},
}
