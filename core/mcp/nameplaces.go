package mcp

import (
	"slices"
	"strings"
)

// NameKind is the kind of the names at a [NamePlace].
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

// NamePlace is a place in one kind of message that holds a name or URI of a server. In messages to
// clients, the proxy adds the server's prefix to the name. In messages to servers, the proxy
// removes the prefix. The catalogue is the list of all places.
type NamePlace struct {
	Group     string // a group of places, such as "tasks"; the tests cover every group
	Method    string // "" means every method
	Kind      Kind
	Direction Direction

	// Pattern is a JSON pointer in which "*" stands for every element of an array or member of an
	// object. If the last token is "@content", the place holds one content block or an array of
	// them. The names are then the uri of each resource_link and the resource.uri of each embedded
	// resource. The content of tool_result blocks is searched too.
	Pattern  string
	NameKind NameKind

	// If ConditionMember is not "", the place holds a name only if the object that contains the
	// name also has a member called ConditionMember, and the value of that member is
	// ConditionValue.
	ConditionMember, ConditionValue string
}

// NamePlaces returns the places in messages with the given method, kind and direction, in the order
// of the catalogue.
func NamePlaces(method string, kind Kind, direction Direction) []NamePlace {
	var found []NamePlace
	for _, p := range namePlaces {
		if (p.Method == "" || p.Method == method) && p.Kind == kind && p.Direction == direction {
			found = append(found, p)
		}
	}
	return found
}

// NamePlaceGroups returns the groups of places, in the order of the catalogue.
func NamePlaceGroups() []string {
	var groups []string
	for _, p := range namePlaces {
		if !slices.Contains(groups, p.Group) {
			groups = append(groups, p.Group)
		}
	}
	return groups
}

// holdsContentBlocks reports whether the place holds content blocks. Other places hold one string.
func (p *NamePlace) holdsContentBlocks() bool {
	return strings.HasSuffix(p.Pattern, "/"+contentBlocks)
}

// contentBlocks is the last token of the Pattern of a place that holds content blocks.
const contentBlocks = "@content"

// The groups of the catalogue.
const (
	listedNames         = "names in lists of tools and prompts"
	calledNames         = "names of called tools and prompts"
	completedPrompts    = "prompts whose arguments are completed"
	completedResources  = "resource templates whose arguments are completed"
	listedURIs          = "URIs and templates in lists of resources"
	requestedURIs       = "URIs to read, subscribe to and unsubscribe from"
	skillEntries        = "skills and their files"
	readContents        = "contents of a read resource"
	updatedResources    = "updated resources"
	toolResults         = "content blocks of tool results"
	promptMessages      = "content blocks of prompts"
	samplingMessages    = "content blocks of sampling requests"
	sampledContent      = "content blocks of sampling results"
	uiResources         = "user interfaces of tools"
	subscribedResources = "resources of a subscription"
	subscribedTasks     = "tasks of a subscription"
	tasks               = "tasks"
	relatedTasks        = "related tasks in _meta"
	elicitations        = "elicitations"
	missingResources    = "resources that were not found"
	loggers             = "loggers"
)

// namePlaces is the catalogue. It lacks names that other packages handle. core/downstream and
// core/upstream handle the HTTP headers that repeat a name, request ids, progress tokens and
// subscription ids. core/proxy handles cursors. In results that carry input requests, core/proxy
// also handles the keys of the input requests and the request state. Each input request or answer
// in a message is parsed and rewritten as a message of its own. A client's roots and the ids of a
// client's own tasks have no prefix. Prose is never rewritten.
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

	// MCP Apps spells this member in two ways.
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
