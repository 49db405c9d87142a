package upstream

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"gatekit/core/mcp"
)

// modernHeader is the header of a modern request: what its body says, said again for those on the
// way who do not read bodies (protocol.md 3.12). With raw a name is put as it is.
func modernHeader(m *mcp.Message, raw bool) http.Header {
	h := make(http.Header, 8) // room for those of transport
	if v, ok := m.Text(mcp.PointerProtocolVersion); ok {
		h[mcp.HeaderProtocolVersion] = []string{encode(v)}
	}
	h[mcp.HeaderMethod] = []string{encode(m.Method)}
	name, ok := named(m)
	switch {
	case !ok:
	case raw && printable(m):
		h[mcp.HeaderName] = []string{name}
	default:
		h[mcp.HeaderName] = []string{encode(name)}
	}
	return h
}

// named is what Mcp-Name repeats, if the method has it.
func named(m *mcp.Message) (name string, ok bool) {
	at, ok := mcp.HeaderNamePointer(m.Method)
	if !ok {
		return "", false
	}
	return m.Text(at)
}

// printable says that a name can be sent as it is, whatever it is made of.
func printable(m *mcp.Message) bool {
	name, ok := named(m)
	return ok && strings.IndexFunc(name, func(r rune) bool {
		return r < ' ' && r != '\t' || r == 0x7f
	}) < 0
}

const (
	sentinel    = "=?base64?"
	sentinelEnd = "?="
)

func encoded(v string) bool {
	return strings.HasPrefix(v, sentinel) && strings.HasSuffix(v, sentinelEnd)
}

// encode is v as a header can hold it: as it is, or wrapped where it is not plain text, would lose
// blanks, or looks wrapped.
func encode(v string) string {
	plain := !encoded(v) && strings.Trim(v, " \t") == v
	for i := 0; plain && i < len(v); i++ {
		plain = v[i] >= ' ' && v[i] < 0x7f || v[i] == '\t'
	}
	if plain {
		return v
	}
	return sentinel + base64.StdEncoding.EncodeToString([]byte(v)) + sentinelEnd
}

// tools are what a server says of its tools that concerns the header of a call: which arguments are
// mirrored there.
type tools struct {
	asking chan struct{} // holds one token; taken while the list is asked for

	mu       sync.Mutex
	mirrored map[string][]mirrored // by the tool's name; tools that mirror nothing are not in it
	// the whole list has been seen: a tool that is not in mirrored mirrors nothing
	complete bool
}

// mirrored is one argument that is said again in a header.
type mirrored struct {
	header string
	at     string // its pointer in the params of a call
}

// maxMirrored tools of one server are known to mirror arguments, so that no list can fill the
// memory.
const maxMirrored = 10_000

// forget makes the next mirror ask again.
func (t *tools) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mirrored, t.complete = nil, false
}

// learn takes in an answer to tools/list.
func (t *tools) learn(request, answer *mcp.Message) {
	if answer.Kind != mcp.Response {
		return
	}
	found := make(map[string][]mirrored)
	if bytes.Contains(answer.Body(), []byte(mcp.HeaderAnnotation)) {
		answer.Items("/tools", func(_ int, raw []byte) bool {
			if name, ok := mcp.NewResponse("", raw).Text("/name"); ok {
				found[name] = annotated(raw)
			}
			return true
		})
	}
	_, continued := request.Get("/cursor")
	_, more := answer.Get("/nextCursor")
	t.mu.Lock()
	defer t.mu.Unlock()
	if !continued || t.mirrored == nil {
		if !continued && !more {
			t.mirrored = nil
		}
		if t.mirrored == nil {
			t.mirrored = make(map[string][]mirrored)
		}
	}
	for name, ms := range found {
		delete(t.mirrored, name)
		if len(ms) > 0 && len(t.mirrored) < maxMirrored {
			t.mirrored[name] = ms
		}
	}
	t.complete = t.complete || !more
}

// annotated are the arguments that a tool wants mirrored. An annotation that no header can carry is
// left out.
func annotated(tool []byte) []mirrored {
	var found []mirrored
	mcp.VisitHeaderAnnotations(tool, func(header, at string) {
		if isHeaderToken(header) {
			found = append(found, mirrored{"Mcp-Param-" + header, at})
		}
	})
	return found
}

func isHeaderToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// mirror sets the headers for a call's arguments. When the tool is not known and the list was never
// seen whole, it is asked for by list, once.
func (t *tools) mirror(ctx context.Context, h http.Header, call *mcp.Message,
	list func() []*mcp.Message) error {
	if t.none() {
		return nil
	}
	name, _ := call.Text("/name")
	ms, known := t.of(name)
	if !known {
		select {
		case t.asking <- struct{}{}:
			defer func() { <-t.asking }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if ms, known = t.of(name); !known { // nobody else has asked meanwhile
			t.ask(list)
			ms, _ = t.of(name)
		}
	}
	for _, m := range ms {
		if v, ok := headerValue(call, m.at); ok {
			h[http.CanonicalHeaderKey(m.header)] = []string{v}
		}
	}
	return nil
}

// none says that it is known that no tool mirrors anything.
func (t *tools) none() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.complete && len(t.mirrored) == 0
}

// of is what is known of a tool.
func (t *tools) of(name string) (ms []mirrored, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ms, known = t.mirrored[name]
	return ms, known || t.complete
}

// ask takes in the whole list.
func (t *tools) ask(list func() []*mcp.Message) {
	request := mcp.NewRequest("0", "tools/list", nil)
	for _, page := range list() {
		t.learn(request, page)
		request = mcp.NewRequest("0", "tools/list", []byte(`{"cursor":""}`))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.complete = true // or not to be had, and asking again with each call would not change that
}

// headerValue is an argument as a header says it; ok is false for those that are absent, null, or
// no single value.
func headerValue(m *mcp.Message, at string) (v string, ok bool) {
	raw, ok := m.Get(at)
	if !ok || len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		v, ok = m.Text(at)
		return encode(v), ok
	case 't', 'f':
		return string(raw), true
	case 'n', '{', '[':
		return "", false
	}
	// 42.0 and 4.2e1 are the integer 42.
	if f, err := strconv.ParseFloat(string(raw), 64); err == nil && f == float64(int64(f)) &&
		f >= -1<<53 && f <= 1<<53 {
		return strconv.FormatInt(int64(f), 10), true
	}
	return string(raw), true
}
