package mcp

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Get is the raw value at pointer in the body.
func (m *Message) Get(pointer string) (raw []byte, ok bool) {
	at, ok := m.find(pointer)
	if !ok {
		return nil, false
	}
	return at.of(m.raw), true
}

// Text is the decoded string at pointer; ok is false when it is absent, no string, or holds a lone
// surrogate (then Get still has it).
func (m *Message) Text(pointer string) (s string, ok bool) {
	raw, ok := m.Get(pointer)
	if !ok {
		return "", false
	}
	return text(raw)
}

// TextEquals says whether the value at pointer is the string s.
func (m *Message) TextEquals(pointer, s string) bool {
	raw, ok := m.Get(pointer)
	return ok && same(raw, s)
}

// Len is the number of elements of the array at pointer, or -1 when there is no array.
func (m *Message) Len(pointer string) int {
	at, ok := m.find(pointer)
	if !ok || at.first(m.raw) != '[' {
		return -1
	}
	n := 0
	items(m.raw, int(at.from), func(span) bool {
		n++
		return true
	})
	return n
}

// Items calls yield for each element of the array at pointer, in order, with its index and raw
// bytes, until yield answers false.
func (m *Message) Items(pointer string, yield func(i int, raw []byte) bool) {
	at, ok := m.find(pointer)
	if !ok || at.first(m.raw) != '[' {
		return
	}
	i := 0
	items(m.raw, int(at.from), func(item span) bool {
		i++
		return yield(i-1, item.of(m.raw))
	})
}

// Members calls yield for each member of the object at pointer, in order, with its decoded name and
// raw value.
func (m *Message) Members(pointer string, yield func(name string, raw []byte) bool) {
	at, ok := m.find(pointer)
	if !ok || at.first(m.raw) != '{' {
		return
	}
	named := func(x member) bool {
		name := string(x.name.of(m.raw))
		if x.escaped {
			name, _ = unquote([]byte(name))
		}
		return yield(name, x.value.of(m.raw))
	}
	if at == m.body {
		m.members(named)
		return
	}
	members(m.raw, int(at.from), named)
}

// find is where the value at pointer is in raw.
func (m *Message) find(pointer string) (span, bool) {
	if m.Body() == nil {
		return span{}, false
	}
	if pointer == "" {
		return m.body, true
	}
	token, rest, ok := cutToken(pointer)
	if !ok {
		return span{}, false
	}
	at, ok := m.top.find(m.raw, m.body, token)
	if ok && rest != "" && token == "_meta" {
		if token, rest, ok = cutToken(rest); ok {
			at, ok = m.meta.find(m.raw, at, token)
		}
	}
	for ok && rest != "" {
		if token, rest, ok = cutToken(rest); ok {
			at, ok = child(m.raw, at, token)
		}
	}
	return at, ok
}

// kept are the first members of an object. An empty one says nothing.
type kept []member

// complete says whether there are no other members.
func (k kept) complete() bool { return 0 < len(k) && len(k) < maxKept }

// find is child for the object at in, most of the time without reading it.
func (k kept) find(b []byte, in span, token string) (span, bool) {
	for _, m := range k {
		if m.is(b, token) {
			return m.value, true
		}
	}
	if k.complete() {
		return span{}, false
	}
	return child(b, in, token)
}

// child is the member or element of the value at in that token names.
func child(b []byte, in span, token string) (at span, ok bool) {
	switch in.first(b) {
	case '{':
		members(b, int(in.from), func(m member) bool {
			at, ok = m.value, m.is(b, token)
			return !ok
		})
	case '[':
		n, valid := element(token)
		if !valid {
			return at, false
		}
		items(b, int(in.from), func(item span) bool {
			at, ok = item, n == 0
			n--
			return !ok
		})
	}
	return at, ok
}

// cutToken takes the first token off a JSON pointer that is not empty.
func cutToken(pointer string) (token, rest string, ok bool) {
	if pointer[0] != '/' {
		return "", "", false
	}
	pointer = pointer[1:]
	if i := strings.IndexByte(pointer, '/'); i >= 0 {
		pointer, rest = pointer[:i], pointer[i:]
	}
	if strings.IndexByte(pointer, '~') < 0 {
		return pointer, rest, true
	}
	if name, ok := reserved[pointer]; ok {
		return name, rest, true
	}
	for i := range len(pointer) {
		if pointer[i] == '~' && (i+1 == len(pointer) || pointer[i+1] != '0' &&
			pointer[i+1] != '1') {
			return "", "", false
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(pointer, "~1", "/"), "~0", "~"), rest, true
}

// reserved are the names that most messages are asked for, by their tokens: so that these need not
// be made each time.
var reserved = func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{MetaProtocolVersion, MetaClientInfo, MetaCapabilities,
		MetaLogLevel,
		MetaServerInfo, MetaSubscriptionID, MetaRelatedTask} {
		names[EscapePointer(name)] = name
	}
	return names
}()

// EscapePointer is a name as it stands in a JSON pointer (RFC 6901 3).
func EscapePointer(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// element is the array index that a token of a pointer says.
func element(token string) (int, bool) {
	n, err := strconv.Atoi(token)
	return n, err == nil && strconv.Itoa(n) == token && n >= 0
}

// Quote is s as a JSON string. Bytes of s that are not UTF-8 become U+FFFD.
func Quote(s string) []byte {
	b, _ := jsontext.AppendQuote(nil, s) // the error says no more than that
	return b
}

// text is the string that the raw value is. ok is false for another value, and for a lone
// surrogate.
func text(raw []byte) (s string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	plain, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "", false
	}
	return string(plain), true
}

// unquote is text for what stands between the quotes.
func unquote(inner []byte) (s string, ok bool) {
	return text(slices.Concat([]byte{'"'}, inner, []byte{'"'}))
}
