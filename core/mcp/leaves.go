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
	Raw  []byte // as it stands in the message, quotes included
	path *step
}

// LeafKind is what a leaf is.
type LeafKind uint8

// What a leaf may be. A Name is that of the member at its Pointer.
const (
	StringLeaf LeafKind = iota + 1
	NumberLeaf
	NameLeaf
)

// step is one step of the path to a leaf: a member's name, or an index.
type step struct {
	up    *step
	name  []byte // quoted; nil for an index
	index int
}

// Pointer is where the leaf is, for Edit.
func (l Leaf) Pointer() string {
	var tokens []string
	for s := l.path; s != nil; s = s.up {
		if s.name == nil {
			tokens = append(tokens, strconv.Itoa(s.index))
		} else {
			name, _ := text(s.name)
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

// Text is a string or a name decoded, with U+FFFD for each lone surrogate, or a number as it is
// written.
func (l Leaf) Text() string {
	if l.Kind == NumberLeaf {
		return string(l.Raw)
	}
	return lenient(l.Raw)
}

// MemberName is the name of the innermost member that the leaf is in; "" when there is none.
func (l Leaf) MemberName() string {
	for s := l.path; s != nil; s = s.up {
		if s.name != nil {
			return lenient(s.name)
		}
	}
	return ""
}

// Leaves calls yield for each leaf of the body, in the order in which they stand there, until it
// answers false. What a Leaf points to is the message's: it must not be changed.
func (m *Message) Leaves(yield func(Leaf) bool) {
	if !m.body.empty() {
		leaves(m.raw, m.body, nil, yield)
	}
}

func leaves(b []byte, at span, path *step, yield func(Leaf) bool) (more bool) {
	more = true
	switch c := at.first(b); {
	case c == '"':
		return yield(Leaf{StringLeaf, at.of(b), path})
	case c == '-' || c >= '0' && c <= '9':
		return yield(Leaf{NumberLeaf, at.of(b), path})
	case c == '{':
		members(b, int(at.from), func(m member) bool {
			quoted := b[m.name.from-1 : m.name.to+1]
			below := &step{up: path, name: quoted}
			more = yield(Leaf{NameLeaf, quoted, below}) && leaves(b, m.value, below, yield)
			return more
		})
	case c == '[':
		i := 0
		items(b, int(at.from), func(item span) bool {
			more = leaves(b, item, &step{up: path, index: i}, yield)
			i++
			return more
		})
	}
	return more
}

// lenient is a quoted string decoded, whatever it holds.
func lenient(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	// the error says that there is a U+FFFD in it now
	plain, _ := jsontext.AppendUnquote(nil, quoted)
	return string(plain)
}
