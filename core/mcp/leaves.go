package mcp

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Leaf is a string or a number in the body of a message, or the name of a member.
type Leaf struct {
	Kind LeafKind
	Raw  []byte // the bytes in the message, with the quotes
	path *pathStep
	kept *string // the decoded text, if the message keeps it: see WithLeaves
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
	text   string // the decoded name, if the message keeps it
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
	switch {
	case l.kept != nil:
		return *l.kept
	case l.Kind == NumberLeaf:
		return string(l.Raw)
	}
	return decodeLeniently(l.Raw)
}

// MemberName returns the name of the innermost member that contains the leaf, or "" if no member
// does. For a NameLeaf, it returns the name itself.
func (l Leaf) MemberName() string {
	for s := l.path; s != nil; s = s.parent {
		switch {
		case s.text != "":
			return s.text
		case s.name != nil:
			return decodeLeniently(s.name)
		}
	}
	return ""
}

// Leaves calls yield for each leaf of the body, in order, until yield returns false. The bytes of a
// Leaf belong to the message and must not be changed.
func (m *Message) Leaves(yield func(Leaf) bool) {
	if m.bodySpan.isEmpty() {
		return
	}
	if m.leaves != nil && m.bodySpan.to-m.bodySpan.from <= maxKeptBody {
		m.leaves.each(m, yield)
		return
	}
	w := leafWalker{raw: m.raw}
	w.walk(m.bodySpan, nil, yield)
}

// WithLeaves returns a copy of m that keeps its leaves and their texts after the first call of
// Leaves. It is for messages that are searched several times. The memory is bounded: leaves beyond
// the first thousands are read again each time, and a large body keeps none.
func (m *Message) WithLeaves() *Message {
	c := *m
	c.leaves = &keptLeaves{}
	return &c
}

// Limits of the leaves that a message keeps.
const (
	maxKeptBody   = 1 << 20 // bytes of a body
	maxKeptLeaves = 1 << 12
)

// keptLeaves are the first leaves of a message, with their texts.
type keptLeaves struct {
	once   sync.Once // fills leaves and texts
	leaves []Leaf
	isFull bool // the message may have more leaves
}

// each does what Leaves does.
func (k *keptLeaves) each(m *Message, yield func(Leaf) bool) {
	k.once.Do(func() { k.fill(m) })
	for _, l := range k.leaves {
		if !yield(l) {
			return
		}
	}
	if !k.isFull {
		return
	}
	n := 0
	w := leafWalker{raw: m.raw}
	w.walk(m.bodySpan, nil, func(l Leaf) bool {
		n++
		return n <= len(k.leaves) || yield(l)
	})
}

func (k *keptLeaves) fill(m *Message) {
	// The texts of most leaves are parts of one copy of the body.
	body := string(m.bodySpan.bytes(m.raw))
	w := leafWalker{raw: m.raw, body: body, bodyAt: m.bodySpan.from, keeps: true}
	w.walk(m.bodySpan, nil, func(l Leaf) bool {
		k.isFull = len(k.leaves) == maxKeptLeaves
		if !k.isFull {
			k.leaves = append(k.leaves, l)
		}
		return !k.isFull
	})
}

// leafWalker finds the leaves in raw.
type leafWalker struct {
	raw   []byte
	steps []pathStep // memory for the next steps of paths

	// If keeps is true, the leaves get their texts. body is the text of raw from bodyAt on.
	keeps  bool
	body   string
	bodyAt int32
	texts  []string // memory for the next texts
}

// walk calls yield for each leaf of the value at the span, until yield returns false.
func (w *leafWalker) walk(at span, path *pathStep, yield func(Leaf) bool) (more bool) {
	more = true
	switch c := at.firstByte(w.raw); {
	case c == '"':
		l, _ := w.leaf(StringLeaf, at, path)
		return yield(l)
	case c == '-' || c >= '0' && c <= '9':
		l, _ := w.leaf(NumberLeaf, at, path)
		return yield(l)
	case c == '{':
		eachMember(w.raw, int(at.from), func(m member) bool {
			below := w.step(path)
			quoted := span{m.name.from - 1, m.name.to + 1}
			below.name = w.raw[quoted.from:quoted.to]
			var name Leaf
			name, below.text = w.leaf(NameLeaf, quoted, below)
			more = yield(name) && w.walk(m.value, below, yield)
			return more
		})
	case c == '[':
		i := 0
		eachItem(w.raw, int(at.from), func(item span) bool {
			below := w.step(path)
			below.index = i
			more = w.walk(item, below, yield)
			i++
			return more
		})
	}
	return more
}

// step returns a new step below parent.
func (w *leafWalker) step(parent *pathStep) *pathStep {
	if len(w.steps) == cap(w.steps) {
		w.steps = make([]pathStep, 0, min(max(4, 2*cap(w.steps)), 64))
	}
	w.steps = append(w.steps, pathStep{parent: parent})
	return &w.steps[len(w.steps)-1]
}

// leaf returns the leaf at the span, and its text if the leaf has got one.
func (w *leafWalker) leaf(kind LeafKind, at span, path *pathStep) (l Leaf, text string) {
	l = Leaf{Kind: kind, Raw: at.bytes(w.raw), path: path}
	if !w.keeps {
		return l, ""
	}
	switch {
	case kind == NumberLeaf:
		text = w.body[at.from-w.bodyAt : at.to-w.bodyAt]
	case bytes.IndexByte(l.Raw, '\\') < 0:
		text = w.body[at.from+1-w.bodyAt : at.to-1-w.bodyAt]
	default:
		text = decodeLeniently(l.Raw)
	}
	if len(w.texts) == cap(w.texts) {
		w.texts = make([]string, 0, min(max(8, 2*cap(w.texts)), 128))
	}
	w.texts = append(w.texts, text)
	l.kept = &w.texts[len(w.texts)-1]
	return l, text
}

// decodeLeniently decodes a quoted string. It replaces each lone surrogate by U+FFFD.
func decodeLeniently(quoted []byte) string {
	if len(quoted) < 2 {
		return ""
	}
	rest := quoted[1 : len(quoted)-1]
	next := bytes.IndexByte(rest, '\\')
	if next < 0 {
		return string(rest)
	}
	var plain strings.Builder
	plain.Grow(len(rest))
	for ; next >= 0; next = bytes.IndexByte(rest, '\\') {
		plain.Write(rest[:next])
		rest = rest[next:]
		if len(rest) < 2 {
			break
		}
		if c := escapedChars[rest[1]]; c != 0 {
			plain.WriteByte(c)
			rest = rest[2:]
			continue
		}
		n := unicodeEscapes(rest)
		// an error only means that the text now contains U+FFFD
		decoded, _ := jsontext.AppendUnquote(nil, "\""+string(rest[:n])+"\"")
		plain.Write(decoded)
		rest = rest[n:]
	}
	plain.Write(rest)
	return plain.String()
}

// escapedChars are the characters of the escapes of two bytes, by the second byte.
var escapedChars = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n',
	'r': '\r', 't': '\t'}

// unicodeEscapes returns the length of the escapes with four hexadecimal digits that b begins with,
// or the length of b if they are cut off. Two of them may form one character. b begins with such an
// escape.
func unicodeEscapes(b []byte) int {
	const length = len(`\u0000`)
	n := length
	for n+1 < len(b) && b[n] == '\\' && b[n+1] == 'u' {
		n += length
	}
	return min(n, len(b))
}
