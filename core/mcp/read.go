package mcp

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Get returns the raw value at pointer in the body. In a pointer, U+FFFD stands for a lone
// surrogate in the name of a member.
func (m *Message) Get(pointer string) (raw []byte, ok bool) {
	at, ok := m.find(pointer)
	if !ok {
		return nil, false
	}
	return at.bytes(m.raw), true
}

// Text returns the decoded string at pointer. ok is false when the value is absent, is not a
// string, or has a lone surrogate.
func (m *Message) Text(pointer string) (s string, ok bool) {
	raw, ok := m.Get(pointer)
	if !ok {
		return "", false
	}
	return decodeString(raw)
}

// TextEquals reports whether the value at pointer is the string s.
func (m *Message) TextEquals(pointer, s string) bool {
	raw, ok := m.Get(pointer)
	return ok && isString(raw, s)
}

// Len returns the number of elements of the array at pointer, or -1 if the value there is not an
// array.
func (m *Message) Len(pointer string) int {
	at, ok := m.find(pointer)
	if !ok || at.firstByte(m.raw) != '[' {
		return -1
	}
	n := 0
	eachItem(m.raw, int(at.from), func(span) bool {
		n++
		return true
	})
	return n
}

// Items calls yield for each element of the array at pointer, in order, with its index and raw
// bytes, until yield returns false.
func (m *Message) Items(pointer string, yield func(i int, raw []byte) bool) {
	at, ok := m.find(pointer)
	if !ok || at.firstByte(m.raw) != '[' {
		return
	}
	i := 0
	eachItem(m.raw, int(at.from), func(item span) bool {
		i++
		return yield(i-1, item.bytes(m.raw))
	})
}

// ItemTexts calls yield for each element of the array at list, in order, with its index, its raw
// bytes and the string at pointer in it, until yield returns false. ok is as for Text.
func (m *Message) ItemTexts(list, pointer string, yield func(i int, raw []byte, text string,
	ok bool) bool) {
	at, ok := m.find(list)
	if !ok || at.firstByte(m.raw) != '[' {
		return
	}
	i := 0
	eachItem(m.raw, int(at.from), func(item span) bool {
		i++
		at, ok := item, true
		for token, rest := "", pointer; ok && rest != ""; {
			if token, rest, ok = cutToken(rest); ok {
				at, ok = childSpan(m.raw, at, token)
			}
		}
		text := ""
		if ok {
			text, ok = decodeString(at.bytes(m.raw))
		}
		return yield(i-1, item.bytes(m.raw), text, ok)
	})
}

// Members calls yield for each member of the object at pointer, in order, with its decoded name and
// raw value, until yield returns false. The name has U+FFFD for each lone surrogate.
func (m *Message) Members(pointer string, yield func(name string, raw []byte) bool) {
	at, ok := m.find(pointer)
	if !ok || at.firstByte(m.raw) != '{' {
		return
	}
	named := func(x member) bool {
		name := string(x.name.bytes(m.raw))
		if x.escaped {
			name = decodeLeniently(x.name.bytes(m.raw))
		}
		return yield(name, x.value.bytes(m.raw))
	}
	if at == m.bodySpan {
		m.eachBodyMember(named)
		return
	}
	eachMember(m.raw, int(at.from), named)
}

// find returns the span of the value at pointer.
func (m *Message) find(pointer string) (span, bool) {
	if m.Body() == nil {
		return span{}, false
	}
	if pointer == "" {
		return m.bodySpan, true
	}
	token, rest, ok := cutToken(pointer)
	if !ok {
		return span{}, false
	}
	at, ok := m.bodyMembers.find(m.raw, m.bodySpan, token)
	if ok && rest != "" && token == "_meta" {
		if token, rest, ok = cutToken(rest); ok {
			at, ok = m.metaMembers.find(m.raw, at, token)
		}
	}
	for ok && rest != "" {
		if token, rest, ok = cutToken(rest); ok {
			at, ok = childSpan(m.raw, at, token)
		}
	}
	return at, ok
}

// memberList holds the first members of an object, up to maxIndexed. It is empty if the object is
// not indexed.
type memberList []member

// isComplete reports whether the list is sure to have all members of the object.
func (k memberList) isComplete() bool { return 0 < len(k) && len(k) < maxIndexed }

// find returns the span of the value of the member named token. The parameter object is the span of
// the object. find reads the object only when the list lacks the member and is not complete.
func (k memberList) find(b []byte, object span, token string) (span, bool) {
	for _, m := range k {
		if m.hasName(b, token) {
			return m.value, true
		}
	}
	if k.isComplete() {
		return span{}, false
	}
	return childSpan(b, object, token)
}

// childSpan returns the span of one child of an object or array. The parameter parent is the span
// of the object or array. token is the name of the member, or the index of the element.
func childSpan(b []byte, parent span, token string) (at span, ok bool) {
	switch parent.firstByte(b) {
	case '{':
		eachMember(b, int(parent.from), func(m member) bool {
			at, ok = m.value, m.hasName(b, token)
			return !ok
		})
	case '[':
		n, valid := arrayIndex(token)
		if !valid {
			return at, false
		}
		eachItem(b, int(parent.from), func(item span) bool {
			at, ok = item, n == 0
			n--
			return !ok
		})
	}
	return at, ok
}

// cutToken splits the first token off a JSON pointer that is not empty, and decodes it.
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
	if name, ok := reservedTokens[pointer]; ok {
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

// reservedTokens maps pointer tokens to their decoded names. It has the names that are looked up in
// most messages, so that cutToken need not decode them.
var reservedTokens = func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{MetaProtocolVersion, MetaClientInfo, MetaCapabilities,
		MetaLogLevel, MetaServerInfo, MetaSubscriptionID, MetaRelatedTask} {
		names[EscapePointer(name)] = name
	}
	return names
}()

// EscapePointer returns a name as a token of a JSON pointer (RFC 6901, section 3).
func EscapePointer(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// arrayIndex returns the array index that a token denotes.
func arrayIndex(token string) (int, bool) {
	n, err := strconv.Atoi(token)
	return n, err == nil && strconv.Itoa(n) == token && n >= 0
}

// Quote returns s as a JSON string. Bytes of s that are not UTF-8 become U+FFFD.
func Quote(s string) []byte {
	b, _ := jsontext.AppendQuote(nil, s) // the error only reports bytes that are not UTF-8
	return b
}

// decodeString decodes the raw value. ok is false if it is not a string, or has a lone surrogate.
func decodeString(raw []byte) (s string, ok bool) {
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

// decodeUnquoted decodes a string like decodeString, given only the text between its quotes.
func decodeUnquoted(inner []byte) (s string, ok bool) {
	return decodeString(slices.Concat([]byte{'"'}, inner, []byte{'"'}))
}
