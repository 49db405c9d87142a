package downstream

import (
	"bytes"
	"encoding/base64"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"

	"gatekit/core/mcp"
)

// The headers of a modern POST repeat what its body says, for intermediaries that read no bodies.
// We decide on the body alone, and refuse what differs: the two must not be able to tell two
// stories (protocol.md 3.12).

func mismatch(format string, args ...any) *refusal {
	return refuse(mcp.CodeHeaderMismatch, "Header mismatch: "+format, args...)
}

// single is the value of a header; more than one line of it must say the same.
func single(h http.Header, name string) (value string, present bool, r *refusal) {
	values := h.Values(name)
	if len(values) == 0 {
		return "", false, nil
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return "", true, mismatch("%s is there twice", name)
		}
	}
	return strings.Trim(values[0], " \t"), true, nil
}

// checkHeaders holds the standard headers of a modern request against its body.
func checkHeaders(m *mcp.Message, h http.Header) *refusal {
	if value, present, r := single(h, mcp.HeaderProtocolVersion); r != nil || !present ||
		!m.TextEquals(mcp.PointerProtocolVersion, value) {
		version, _ := m.Text(mcp.PointerProtocolVersion)
		return differs(mcp.HeaderProtocolVersion, value, present, r, version)
	}
	if value, present, r := single(h, mcp.HeaderMethod); r != nil || !present || value != m.Method {
		return differs(mcp.HeaderMethod, value, present, r, m.Method)
	}
	name, named := nameOf(m)
	if !named {
		return nil
	}
	value, present, r := single(h, mcp.HeaderName)
	if r != nil {
		return r
	}
	if !present {
		if strings.HasPrefix(m.Method, "tasks/") {
			return nil // the extension asks for it, its clients do not all send it
		}
		return mismatch("%s is missing, the body says %q", mcp.HeaderName, name)
	}
	// Some peers send names that are not ASCII as they are. A value that equals the body byte for
	// byte tells no second story.
	if decoded, ok := decodeHeader(value); value != name && (!ok || decoded != name) {
		return mismatch("%s is %q, the body says %q", mcp.HeaderName, value, name)
	}
	return nil
}

// differs is the refusal of a header that does not say what the body says.
func differs(header, value string, present bool, r *refusal, body string) *refusal {
	switch {
	case r != nil:
		return r
	case !present:
		return mismatch("%s is missing, the body says %q", header, body)
	}
	return mismatch("%s is %q, the body says %q", header, value, body)
}

// nameOf is what Mcp-Name repeats, where the method has it and the body holds a string there. What
// is missing in the body is for the proxy to refuse.
func nameOf(m *mcp.Message) (name string, ok bool) {
	at, ok := mcp.HeaderNamePointer(m.Method)
	if !ok {
		return "", false
	}
	return m.Text(at)
}

// decodeHeader is the text that a header stands for: the value itself, or what its sentinel form
// holds.
func decodeHeader(value string) (text string, ok bool) {
	inner, ok := strings.CutPrefix(value, "=?base64?")
	if !ok {
		return value, true
	}
	if inner, ok = strings.CutSuffix(inner, "?="); !ok {
		return value, true
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(decoded), err == nil && utf8.Valid(decoded)
}

// params are the headers that tools want their arguments repeated in (x-mcp-header), as the lists
// that clients got say. What no list said is not checked.
type params struct {
	mu     sync.RWMutex
	byTool map[string][]param
}

type param struct {
	header string // "Mcp-Param-…"
	at     string // pointer of the argument in params
}

const maxParamTools = 10_000

// learn takes what an answer to tools/list says. A list may be long: it is read before calls have
// to wait.
func (ps *params) learn(list *mcp.Message) {
	ps.mu.RLock()
	idle := len(ps.byTool) == 0
	ps.mu.RUnlock()
	if idle && !bytes.Contains(list.Body(), []byte(mcp.HeaderAnnotation)) {
		return
	}
	type tool struct {
		name   string
		params []param
	}
	var tools []tool
	list.Items("/tools", func(_ int, raw []byte) bool {
		name, ok := mcp.NewResponse("", raw).Text("/name")
		if !ok {
			return true
		}
		t := tool{name: name}
		mcp.VisitHeaderAnnotations(raw, func(header, at string) {
			t.params = append(t.params,
				param{mcp.HeaderParamPrefix + header, at})
		})
		tools = append(tools, t)
		return true
	})
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, t := range tools {
		delete(ps.byTool, t.name)
		if len(t.params) == 0 || len(ps.byTool) >= maxParamTools {
			continue
		}
		if ps.byTool == nil {
			ps.byTool = map[string][]param{}
		}
		ps.byTool[t.name] = t.params
	}
}

// check holds the headers of a tools/call against its arguments.
func (ps *params) check(m *mcp.Message, h http.Header) *refusal {
	if m.Method != "tools/call" {
		return nil
	}
	wanted := ps.of(m)
	for _, p := range wanted {
		value, present, r := single(h, p.header)
		if r != nil {
			return r
		}
		raw, given := m.Get(p.at)
		given = given && string(raw) != "null"
		switch {
		case given && !present:
			return mismatch("%s is missing, and the body has that argument", p.header)
		case !given && present:
			return mismatch("%s is there, and the body has no such argument", p.header)
		case given && !repeats(m, p.at, raw, value):
			return mismatch("%s differs from the body", p.header)
		}
	}
	return nil
}

// of is what the tool of a call wants.
func (ps *params) of(m *mcp.Message) []param {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	if len(ps.byTool) == 0 {
		return nil
	}
	name, _ := m.Text("/name")
	return ps.byTool[name]
}

// repeats says whether a header's value says the same as the argument at a pointer.
func repeats(m *mcp.Message, at string, raw []byte, value string) bool {
	value, ok := decodeHeader(value)
	if !ok {
		return false
	}
	if text, isText := m.Text(at); isText {
		return value == text
	}
	if value == string(raw) {
		return true
	}
	// Integers are compared as numbers: 1 and 1.0 are one argument.
	if len(value) > 64 || len(raw) > 64 || strings.ContainsAny(value+string(raw), "eE/xXpP_") {
		return false
	}
	a, okA := new(big.Rat).SetString(value)
	b, okB := new(big.Rat).SetString(string(raw))
	return okA && okB && a.Cmp(b) == 0
}
