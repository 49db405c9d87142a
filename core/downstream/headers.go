package downstream

import (
	"bytes"
	"encoding/base64"
	"math/big"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"gatekit/core/mcp"
)

// The headers of a modern POST repeat parts of its body, for intermediaries that do not read
// bodies. Gatekit uses only the body. It refuses a request whose headers differ from its body, so
// that an intermediary and Gatekit see the same request.

// headerMismatch returns the refusal of a request whose headers and body differ.
func headerMismatch(format string, args ...any) *refusal {
	return refuse(mcp.CodeHeaderMismatch, "Header mismatch: "+format, args...)
}

// singleHeader returns the value of a header. It refuses a header that occurs more than once with
// different values.
func singleHeader(h http.Header, name string) (value string, present bool, r *refusal) {
	values := h.Values(name)
	if len(values) == 0 {
		return "", false, nil
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return "", true, headerMismatch("%s came twice with different values", name)
		}
	}
	return strings.Trim(values[0], " \t"), true, nil
}

// checkHeaders refuses a modern request whose standard headers differ from its body.
func checkHeaders(m *mcp.Message, h http.Header) *refusal {
	if value, present, r := singleHeader(h, mcp.HeaderProtocolVersion); r != nil || !present ||
		!m.TextEquals(mcp.PointerProtocolVersion, value) {
		version, _ := m.Text(mcp.PointerProtocolVersion)
		return refuseHeader(mcp.HeaderProtocolVersion, value, present, r, version)
	}
	if value, present, r := singleHeader(h, mcp.HeaderMethod); r != nil || !present ||
		value != m.Method {
		return refuseHeader(mcp.HeaderMethod, value, present, r, m.Method)
	}
	name, named := namedTarget(m)
	if !named {
		return nil
	}
	value, present, r := singleHeader(h, mcp.HeaderName)
	if r != nil {
		return r
	}
	if !present {
		if strings.HasPrefix(m.Method, "tasks/") {
			return nil // the tasks extension demands the header, but not all clients send it
		}
		return headerMismatch("%s is missing, the body says %q", mcp.HeaderName, name)
	}
	// Some clients do not encode names that are not ASCII. Such a header is accepted when its bytes
	// equal the name in the body.
	if decoded, ok := decodeHeader(value); value != name && (!ok || decoded != name) {
		return headerMismatch("%s is %q, the body says %q", mcp.HeaderName, value, name)
	}
	return nil
}

// refuseHeader returns the refusal of a header that is missing or differs from the body. If r is
// not nil, it returns r.
func refuseHeader(header, value string, present bool, r *refusal, body string) *refusal {
	switch {
	case r != nil:
		return r
	case !present:
		return headerMismatch("%s is missing, the body says %q", header, body)
	}
	return headerMismatch("%s is %q, the body says %q", header, value, body)
}

// namedTarget returns the name in the body that Mcp-Name must repeat. ok is false when the method
// has no such name. ok is also false when the name in the body is not a string. The proxy refuses
// such a body.
func namedTarget(m *mcp.Message) (name string, ok bool) {
	at, ok := mcp.HeaderNamePointer(m.Method)
	if !ok {
		return "", false
	}
	return m.Text(at)
}

// decodeHeader returns the text of a header's value. If the value has the form =?base64?…?=, the
// text is the decoded value. ok is false when the value cannot be decoded.
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

// paramHeaders holds the headers that must repeat arguments of tools (x-mcp-header). The headers
// come from the tool lists that clients receive. If a tool was in no list, its headers are not
// checked.
type paramHeaders struct {
	mu     sync.RWMutex
	byTool map[string][]paramHeader
}

// paramHeader is one header of one tool.
type paramHeader struct {
	header  string // "Mcp-Param-…"
	pointer string // JSON pointer to the argument in params
}

// maxParamHeaderTools bounds the number of tools whose headers are kept.
const maxParamHeaderTools = 10_000

// record records the headers that the tools in an answer to tools/list require. It reads the list
// before it locks ps.mu, because the list may be long.
func (ps *paramHeaders) record(list *mcp.Message) {
	ps.mu.RLock()
	none := len(ps.byTool) == 0
	ps.mu.RUnlock()
	if none && !bytes.Contains(list.Body(), []byte(mcp.HeaderAnnotation)) {
		return
	}
	type tool struct {
		name    string
		headers []paramHeader
	}
	var tools []tool
	list.Items("/tools", func(_ int, raw []byte) bool {
		name, ok := mcp.NewResponse("", raw).Text("/name")
		if !ok {
			return true
		}
		t := tool{name: name}
		mcp.VisitHeaderAnnotations(raw, func(header, pointer string) {
			t.headers = append(t.headers, paramHeader{mcp.HeaderParamPrefix + header, pointer})
		})
		tools = append(tools, t)
		return true
	})
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, t := range tools {
		delete(ps.byTool, t.name)
		if len(t.headers) == 0 || len(ps.byTool) >= maxParamHeaderTools {
			continue
		}
		if ps.byTool == nil {
			ps.byTool = map[string][]paramHeader{}
		}
		ps.byTool[t.name] = t.headers
	}
}

// check refuses a tools/call whose headers differ from its arguments.
func (ps *paramHeaders) check(m *mcp.Message, h http.Header) *refusal {
	if m.Method != "tools/call" {
		return nil
	}
	for _, p := range ps.required(m) {
		value, present, refused := singleHeader(h, p.header)
		if refused != nil {
			return refused
		}
		raw, given := m.Get(p.pointer)
		given = given && string(raw) != "null"
		switch {
		case given && !present:
			return headerMismatch("%s is missing, but the body has that argument", p.header)
		case !given && present:
			return headerMismatch("%s is present, but the body has no such argument", p.header)
		case given && !headerEqualsArgument(m, p.pointer, raw, value):
			return headerMismatch("%s differs from the body", p.header)
		}
	}
	return nil
}

// required returns the headers that the tool of a call requires.
func (ps *paramHeaders) required(m *mcp.Message) []paramHeader {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	if len(ps.byTool) == 0 {
		return nil
	}
	name, _ := m.Text("/name")
	return ps.byTool[name]
}

// decimal matches a JSON number without exponent.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// headerEqualsArgument reports whether a header's value equals raw, the argument at pointer.
func headerEqualsArgument(m *mcp.Message, pointer string, raw []byte, value string) bool {
	value, ok := decodeHeader(value)
	if !ok {
		return false
	}
	if text, isText := m.Text(pointer); isText {
		return value == text
	}
	if value == string(raw) {
		return true
	}
	// Integers are compared as numbers: 1 and 1.0 are the same argument. Other spellings of a
	// number, such as 0b11 or +3, could be read differently by an intermediary.
	if len(value) > 64 || len(raw) > 64 || !decimal.MatchString(value) || !decimal.Match(raw) {
		return false
	}
	a, okA := new(big.Rat).SetString(value)
	b, okB := new(big.Rat).SetString(string(raw))
	return okA && okB && a.Cmp(b) == 0
}
