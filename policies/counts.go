package policies

import (
	"strconv"
	"time"

	"gatekit/core/mcp"

	"github.com/open-policy-agent/opa/v1/ast"
)

// nameBytes is what it takes to count calls of a name, about: it is in two maps.
func nameBytes(name string) int { return 2*len(name) + 64 }

// counted is what a message counts as: "server name" of a tool, "method server" of what a server
// asks; "" is what does not count.
func counted(m *mcp.Message) (key string, tool bool) {
	switch {
	case m.Kind != mcp.Request:
	case m.Method == "tools/call":
		return m.Server + " " + m.Name, true
	case m.Method == "sampling/createMessage", m.Method == "elicitation/create":
		return m.Method + " " + m.Server, false
	}
	return "", false
}

// count counts a message before it is judged, so that many at once cannot each be the last that is
// allowed; one that is refused is taken back. It says whether there was room: a session that has
// called so much that it cannot be counted could go round any limit. lately says that the calls of
// the last minute are of interest.
func (s *session) count(m *mcp.Message, now time.Time, lately bool) (takeBack func(), ok bool) {
	key, tool := counted(m)
	if key == "" {
		return func() {}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.calls[key]
	if !known && s.names+nameBytes(key) > maxNames || lately && !s.minute.count(key, now) {
		return nil, false
	}
	if s.calls[key]++; !known {
		s.names += nameBytes(key)
	}
	if tool {
		s.calls[""]++
	}
	s.weigh()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.weigh()
		if s.calls[key]--; s.calls[key] == 0 {
			delete(s.calls, key)
			s.names -= nameBytes(key)
		}
		if tool {
			s.calls[""]--
		}
		if lately {
			s.minute.takeBack(key, now)
		}
	}, true
}

// counts are calls as an object, without the message that is being judged, which was counted.
func counts(calls map[string]int, m *mcp.Message) ast.Value {
	own, tool := counted(m)
	var members [][2]*ast.Term
	for name, n := range calls {
		if own != "" && (name == own || name == "" && tool) {
			n--
		}
		if n > 0 {
			members = append(members, [2]*ast.Term{ast.StringTerm(name),
				ast.NewTerm(ast.Number(strconv.Itoa(n)))})
		}
	}
	return ast.NewObject(members...)
}
