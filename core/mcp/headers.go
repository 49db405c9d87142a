package mcp

// Header… are the names of the headers of Streamable HTTP, as net/http spells them.
const (
	HeaderProtocolVersion = "Mcp-Protocol-Version"
	HeaderSessionID       = "Mcp-Session-Id"
	HeaderLastEventID     = "Last-Event-Id"
	// HeaderMethod and HeaderName repeat the method and name in the body of a modern request.
	HeaderMethod = "Mcp-Method"
	HeaderName   = "Mcp-Name"
	// HeaderParamPrefix begins the name of a header that repeats an argument. The rest of the name
	// comes from the schema of the tool, see [HeaderAnnotation].
	HeaderParamPrefix = "Mcp-Param-"
)

// HeaderNamePointer returns the pointer to the value that HeaderName repeats. ok is false for
// methods that have no such header.
func HeaderNamePointer(method string) (pointer string, ok bool) {
	switch method {
	case "tools/call", "prompts/get":
		return "/name", true
	case "resources/read":
		return "/uri", true
	case "tasks/get", "tasks/update", "tasks/cancel":
		return "/taskId", true
	}
	return "", false
}
