package mcp

// HasDefinitions reports whether m is a server's description of itself or of its items: the result
// of initialize or server/discover, or a list of tools, prompts, resources, resource templates or
// skills. A server usually sends the same bytes again when it is asked again.
func HasDefinitions(m *Message) bool {
	if m.Kind != Response || m.Direction != ToClient {
		return false
	}
	switch m.Method {
	case "initialize", "server/discover", "tools/list", "prompts/list", "resources/list",
		"resources/templates/list", "skills/list":
		return true
	}
	return false
}
