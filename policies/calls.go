package policies

import (
	"strconv"
	"time"

	"gatekit/core/mcp"

	"github.com/open-policy-agent/opa/v1/ast"
)

// callNameSize returns roughly how many bytes of memory the counters of a name need. The name is a
// key in two maps.
func callNameSize(name string) int { return 2*len(name) + 64 }

// callKey returns the key under which a message is counted. The key of a tool call is the name of
// the server, a space and the name of the tool. The key of a request from a server is its method, a
// space and the name of the server. A message that is not counted has the key "".
func callKey(m *mcp.Message) (key string, tool bool) {
	switch {
	case m.Kind != mcp.Request:
	case m.Method == "tools/call":
		return m.Server + " " + m.Name, true
	case m.Method == "sampling/createMessage", m.Method == "elicitation/create":
		return m.Method + " " + m.Server, false
	}
	return "", false
}

// countCall counts a message before the message is evaluated. Otherwise several concurrent messages
// could all pass as the last call that a limit allows. If the message is denied, the caller must
// call undo, which removes the message from the count. ok is false when there is no room for a
// counter. The message must then be denied, because without a count it could exceed any limit. If
// needsMinute is set, countCall also counts the message for the last minute.
func (s *session) countCall(m *mcp.Message, now time.Time,
	needsMinute bool) (undo func(), ok bool) {
	key, tool := callKey(m)
	if key == "" {
		return func() {}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.calls[key]
	if !known && s.callNameBytes+callNameSize(key) > maxCallNameBytes ||
		needsMinute && !s.lastMinute.count(key, now) {
		return nil, false
	}
	if s.calls[key]++; !known {
		s.callNameBytes += callNameSize(key)
	}
	if tool {
		s.calls[""]++
	}
	s.updateSize()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.updateSize()
		if s.calls[key]--; s.calls[key] == 0 {
			delete(s.calls, key)
			s.callNameBytes -= callNameSize(key)
		}
		if tool {
			s.calls[""]--
		}
		if needsMinute {
			s.lastMinute.undo(key, now)
		}
	}, true
}

// callCounts returns the counts of calls as an object. It subtracts the message m itself, which
// countCall has counted before the evaluation.
func callCounts(calls map[string]int, m *mcp.Message) ast.Value {
	ownKey, tool := callKey(m)
	var members [][2]*ast.Term
	for name, n := range calls {
		if ownKey != "" && (name == ownKey || name == "" && tool) {
			n--
		}
		if n > 0 {
			members = append(members, [2]*ast.Term{ast.StringTerm(name),
				ast.NewTerm(ast.Number(strconv.Itoa(n)))})
		}
	}
	return ast.NewObject(members...)
}
