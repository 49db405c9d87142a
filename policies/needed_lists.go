package policies

import (
	"gatekit/core/mcp"
)

// NeedsList implements pipeline.ListReader: rules can read the definition of the item that a
// request uses (input.item and input.schema), and hide rules decide about the item in its list.
func (s *Stage) NeedsList(m *mcp.Message, list string) bool {
	hides, err := s.selector.query(s.hideQuery(m), s.selector.classOf(mcp.ToClient, mcp.Response,
		list, m.Server, ""))
	if err != nil || len(hides.rules) > 0 {
		return true // the verdict about m has the error
	}
	// The state of a schema is not known before the tool is listed, so all rules count.
	if _, reads := s.reads.wants("schema"); reads && list == "tools/list" {
		return true
	}
	if _, reads := s.reads.wants("item"); !reads || !isItemList(m, list) {
		return false
	}
	if canonical, err := canonicalMessage(m); err != nil || canonical != nil {
		return true // other rules can hold for the canonical spelling
	}
	for _, class := range []messageClass{s.selector.classOfMessage(m, false),
		s.selector.classOf(mcp.ToClient, mcp.Response, m.Method, m.Server, m.Name),
		s.selector.classOf(mcp.ToClient, mcp.Error, m.Method, m.Server, m.Name)} {
		q, err := s.selector.query(s.all, class)
		if err != nil {
			return true
		}
		if _, reads := q.reads.wants("item"); reads {
			return true
		}
	}
	return false
}

// isItemList reports whether the list with this method has the item of m, which is input.item.
func isItemList(m *mcp.Message, list string) bool {
	switch m.Method {
	case "tools/call":
		return list == "tools/list"
	case "prompts/get":
		return list == "prompts/list"
	case "skills/get":
		return list == "skills/list"
	case "resources/read", "resources/subscribe", "resources/directory/read":
		return list == "resources/list"
	}
	return false
}
