package mcp

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Leaf is a string or a number in the body of a message, or the name of a member.
type Leaf struct {
	Kind LeafKind
	Raw  []byte // the bytes in the message, with the quotes
	path *pathStep
}

// LeafKind is the kind of a leaf.
type LeafKind uint8

// These are the kinds of leaves. The Pointer of a NameLeaf locates the member with that name.
const (
	StringLeaf LeafKind = iota + 1
	NumberLeaf
	NameLeaf
)

// pathStep is one step of the path to a leaf: the name of a member or the index of an element.
type pathStep struct {
	parent *pathStep
	name   []byte // quoted; nil for an index
	index  int
}

// Pointer returns the JSON pointer of the leaf, for Edit.
func (l Leaf) Pointer() string {
	var tokens []string
	for s := l.path; s != nil; s = s.parent {
		if s.name == nil {
			tokens = append(tokens, strconv.Itoa(s.index))
		} else {
			name, _ := decodeString(s.name)
			tokens = append(tokens, EscapePointer(name))
		}
	}
	var b strings.Builder
	for i := len(tokens) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(tokens[i])
	}
	return b.String()
}

// Text returns the decoded text of a string or name, with U+FFFD for each lone surrogate. For a
// number it returns the raw text.
func (l Leaf) Text() string {
	if l.Kind == NumberLeaf {
		return string(l.Raw)
	}
	return decodeLeniently(l.Raw)
}

// MemberName returns the name of the innermost member that contains the leaf, or "" if no member
// does. For a NameLeaf, it returns the name itself.
func (l Leaf) MemberName() string {
	for s := l.path; s != nil; s = s.parent {
		if s.name != nil {
			return decodeLeniently(s.name)
		}
	}
	return ""
}

// Leaves calls yield for each leaf of the body, in order, until yield returns false. The bytes of a
// Leaf belong to the message and must not be changed.
func (m *Message) Leaves(yield func(Leaf) bool) {
	if !m.bodySpan.isEmpty() {
		eachLeaf(m.raw, m.bodySpan, nil, yield)
	}
}

func eachLeaf(b []byte, at span, path *pathStep, yield func(Leaf) bool) (more bool) {
	more = true
	switch c := at.firstByte(b); {
	case c == '"':
		return yield(Leaf{StringLeaf, at.bytes(b), path})
	case c == '-' || c >= '0' && c <= '9':
		return yield(Leaf{NumberLeaf, at.bytes(b), path})
	case c == '{':
		eachMember(b, int(at.from), func(m member) bool {
			quoted := b[m.name.from-1 : m.name.to+1]
			below := &pathStep{parent: path, name: quoted}
			more = yield(Leaf{NameLeaf, quoted, below}) && eachLeaf(b, m.value, below, yield)
			return more
		})
	case c == '[':
		i := 0
		eachItem(b, int(at.from), func(item span) bool {
			more = eachLeaf(b, item, &pathStep{parent: path, index: i}, yield)
			i++
			return more
		})
	}
	return more
}

// decodeLeniently decodes a quoted string. It replaces each lone surrogate by U+FFFD.
func decodeLeniently(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	// an error only means that the text now contains U+FFFD
	plain, _ := jsontext.AppendUnquote(nil, quoted)
	return string(plain)
}
