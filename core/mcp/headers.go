package mcp

// Header… are the names of the headers of Streamable HTTP, as net/http spells them.
const (
	HeaderProtocolVersion = "Mcp-Protocol-Version"
	HeaderSessionID       = "Mcp-Session-Id"
	HeaderLastEventID     = "Last-Event-Id"
	// this and the next repeat what the body of a modern request says
	HeaderMethod      = "Mcp-Method"
	HeaderName        = "Mcp-Name"
	HeaderParamPrefix = "Mcp-Param-" // and what a tool says (x-mcp-header)
)

// HeaderNamePointer is where a modern request has what HeaderName repeats; ok is false for the
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
