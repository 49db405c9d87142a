package pins

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
)

// value is a JSON value. Members of objects are sorted by name, as RFC 8785 sorts them.
type value struct {
	kind    jsontext.Kind // 'n', 't', 'f', '"', '0', '{' or '['
	text    string        // of a string: decoded; of a number: as it is spelt
	members []member
	items   []*value
}

type member struct {
	name  string
	value *value
}

// maxDepth limits the nesting of a definition.
const maxDepth = 200

// parseValue parses strict JSON. A lone surrogate becomes U+FFFD.
func parseValue(raw []byte) (*value, error) {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowInvalidUTF8(true))
	v, err := readValue(d)
	if err != nil {
		return nil, err
	}
	if d.PeekKind() != 0 || len(bytes.TrimSpace(d.UnreadBuffer())) > 0 {
		return nil, &jsontext.SyntacticError{ByteOffset: d.InputOffset(),
			Err: errors.New("unexpected bytes after the value")}
	}
	return v, nil
}

func readValue(d *jsontext.Decoder) (*value, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	if d.StackDepth() > maxDepth {
		return nil, &jsontext.SyntacticError{ByteOffset: d.InputOffset(),
			Err: errors.New("nested too deep")}
	}
	v := &value{kind: t.Kind()}
	switch v.kind {
	case '"', '0':
		v.text = t.String()
	case '{':
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			m := member{name: name.String()}
			if m.value, err = readValue(d); err != nil {
				return nil, err
			}
			v.members = append(v.members, m)
		}
		slices.SortFunc(v.members, func(a, b member) int { return compareNames(a.name, b.name) })
		_, err = d.ReadToken()
	case '[':
		for d.PeekKind() != ']' {
			item, err := readValue(d)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		_, err = d.ReadToken()
	}
	return v, err
}

// compareNames compares two names by their UTF-16 code units, as RFC 8785, section 3.2.3 says.
func compareNames(a, b string) int {
	isASCII := func(s string) bool {
		return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
	}
	if isASCII(a) && isASCII(b) {
		return strings.Compare(a, b)
	}
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// get returns the value of a member, or nil.
func (v *value) get(name string) *value {
	if v == nil || v.kind != '{' {
		return nil
	}
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// at returns the value at a JSON pointer, or nil.
func (v *value) at(pointer string) *value {
	for token := range jsontext.Pointer(pointer).Tokens() {
		if v == nil {
			return nil
		}
		if v.kind == '[' {
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v.items) || strconv.Itoa(i) != token {
				return nil
			}
			v = v.items[i]
			continue
		}
		v = v.get(token)
	}
	return v
}

// put replaces the value at a JSON pointer, adds it, or removes it if w is nil. It reports whether
// the parent of the place exists.
func (v *value) put(pointer string, w *value) bool {
	at := jsontext.Pointer(pointer)
	parent, name := v.at(string(at.Parent())), at.LastToken()
	switch {
	case parent == nil:
		return false
	case parent.kind == '{':
		parent.members = slices.DeleteFunc(parent.members, func(m member) bool {
			return m.name == name
		})
		if w != nil {
			parent.members = append(parent.members, member{name, w.clone()})
			slices.SortFunc(parent.members, func(a, b member) int {
				return compareNames(a.name, b.name)
			})
		}
		return true
	}
	old := v.at(pointer)
	if parent.kind != '[' || old == nil || w == nil {
		return false
	}
	*old = *w.clone()
	return true
}

// clone returns a deep copy.
func (v *value) clone() *value {
	c := *v
	c.members, c.items = slices.Clone(v.members), slices.Clone(v.items)
	for i := range c.members {
		c.members[i].value = c.members[i].value.clone()
	}
	for i := range c.items {
		c.items[i] = c.items[i].clone()
	}
	return &c
}

// append appends the canonical form of RFC 8785, except that numbers stay as they are spelt.
func (v *value) append(b []byte) []byte {
	switch v.kind {
	case '"':
		return appendString(b, v.text)
	case '0':
		return append(b, v.text...)
	case '{':
		b = append(b, '{')
		for i, m := range v.members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, m.name), ':')
			b = m.value.append(b)
		}
		return append(b, '}')
	case '[':
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.append(b)
		}
		return append(b, ']')
	case 't':
		return append(b, "true"...)
	case 'f':
		return append(b, "false"...)
	}
	return append(b, "null"...)
}

func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // the error only reports bytes that are not UTF-8
	return b
}

// String returns a string decoded, and any other value as compact JSON.
func (v *value) String() string {
	switch {
	case v == nil:
		return ""
	case v.kind == '"':
		return v.text
	}
	return string(v.append(nil))
}

// equals reports whether two values have the same canonical form.
func (v *value) equals(w *value) bool {
	if v == nil || w == nil {
		return v == w
	}
	return bytes.Equal(v.append(nil), w.append(nil))
}
