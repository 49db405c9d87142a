package clientfiles

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Format is the syntax of a file.
type Format string

// The formats. JSON has comments and trailing commas in the files of many clients, so JSON and
// JSONC are read by one parser.
const (
	JSON Format = "json"
	TOML Format = "toml"
	YAML Format = "yaml"
)

// kind is the kind of a value.
type kind int

const (
	other  kind = iota // a number, a boolean, a date or null
	text               // a string
	list               // an array
	object             // an object or a table
)

// value is a value in a file, with its place.
type value struct {
	kind       kind
	start, end int // of the value's bytes; a TOML table that is no inline table has none
	raw        string
	text       string // of a string
	members    []member
	index      map[string]*value // the value of the first member with each name
	items      []*value
	// position of the dash of each item of a YAML block sequence; nil for other lists
	dashes []int
	// why the value cannot be changed; "" if it can
	fixed string
}

// member is a key with its value.
type member struct {
	name  string
	start int // of the key's bytes
	// what is before the last part of a dotted TOML key, such as `mcp_servers.files.`
	dotted string
	// the object is written on lines of its own, without braces and commas
	block bool
	value *value
}

// add adds a member to an object.
func (v *value) add(m member) {
	if v.index == nil {
		v.index = map[string]*value{}
	}
	if v.index[m.name] == nil {
		v.index[m.name] = m.value
	}
	v.members = append(v.members, m)
}

// member returns the value of a key, or nil.
func (v *value) member(name string) *value {
	if v == nil {
		return nil
	}
	return v.index[name]
}

// string returns the text of a string, or "".
func (v *value) string() string {
	if v == nil || v.kind != text {
		return ""
	}
	return v.text
}

// hasDuplicate reports whether an object has a key twice, and returns the key.
func (v *value) hasDuplicate() (string, bool) {
	for _, m := range v.members {
		if v.index[m.name] != m.value {
			return m.name, true
		}
	}
	return "", false
}

// hasOtherCase reports whether an object has a key that differs from one of the names only in upper
// and lower case, and returns the key.
func (v *value) hasOtherCase(names ...string) (string, bool) {
	for _, m := range v.members {
		for _, name := range names {
			if m.name != name && strings.EqualFold(m.name, name) {
				return m.name, true
			}
		}
	}
	return "", false
}

// texts returns the texts of a list of strings. It returns false for any other value.
func (v *value) texts() ([]string, bool) {
	if v == nil || v.kind != list {
		return nil, false
	}
	words := make([]string, 0, len(v.items))
	for _, i := range v.items {
		if i.kind != text {
			return nil, false
		}
		words = append(words, i.text)
	}
	return words, true
}

// equal reports whether two values are the same, without regard to how they are written. The
// function skip reports whether the value at a path is not compared; a missing value at such a path
// equals any value. Paths have the names of keys and the numbers of items.
func equal(a, b *value, path []string, skip func(path []string) bool) bool {
	if skip(path) {
		return true
	}
	if a == nil || b == nil || a.kind != b.kind || len(a.items) != len(b.items) {
		return a == b
	}
	switch a.kind {
	case text:
		return a.text == b.text
	case other:
		return a.raw == b.raw
	case list:
		for i := range a.items {
			if !equal(a.items[i], b.items[i], append(path, fmt.Sprint(i)), skip) {
				return false
			}
		}
		return true
	}
	compared := func(v *value) (all []member) {
		for _, m := range v.members {
			if !skip(append(path, m.name)) {
				all = append(all, m)
			}
		}
		return all
	}
	return slices.EqualFunc(compared(a), compared(b), func(a, b member) bool {
		return a.name == b.name && equal(a.value, b.value, append(path, a.name), skip)
	})
}

// quote returns a string as the format writes it, in double quotes. It escapes everything that is
// not printable.
func quote(f Format, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		case f == JSON:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
