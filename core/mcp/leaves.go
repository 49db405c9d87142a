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
			tokens = append(tokens, EscapePointer(decodeQuotedLeniently(s.name)))
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
	return decodeQuotedLeniently(l.Raw)
}

// MemberName returns the name of the innermost member that contains the leaf, or "" if no member
// does. For a NameLeaf, it returns the name itself.
func (l Leaf) MemberName() string {
	for s := l.path; s != nil; s = s.parent {
		switch {
		case s.text != "":
			return s.text
		case s.name != nil:
			return decodeQuotedLeniently(s.name)
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
	w.walk(int(m.bodySpan.from), nil, yield)
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
	maxKeptLeaves = 1 << 13
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
	w.walk(int(m.bodySpan.from), nil, func(l Leaf) bool {
		n++
		return n <= len(k.leaves) || yield(l)
	})
}

func (k *keptLeaves) fill(m *Message) {
	w := leafWalker{raw: m.raw, keeps: true}
	w.walk(int(m.bodySpan.from), nil, func(l Leaf) bool {
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

	keeps      bool            // the leaves get their texts
	texts      []string        // memory for the next texts
	shortTexts strings.Builder // memory for the next short texts
}

// walk calls yield for each leaf of the value that begins at i, until yield returns false. It
// returns the offset after the value, unless yield has returned false.
func (w *leafWalker) walk(i int, path *pathStep, yield func(Leaf) bool) (end int, more bool) {
	if i >= len(w.raw) {
		return i, true
	}
	switch c := w.raw[i]; {
	case c == '"':
		end = skipString(w.raw, i)
		l, _ := w.leaf(StringLeaf, span{int32(i), int32(end)}, path)
		return end, yield(l)
	case c == '-' || c >= '0' && c <= '9':
		end = skipValue(w.raw, i)
		l, _ := w.leaf(NumberLeaf, span{int32(i), int32(end)}, path)
		return end, yield(l)
	case c == '{':
		return w.walkMembers(i, path, yield)
	case c == '[':
		return w.walkItems(i, path, yield)
	}
	return skipValue(w.raw, i), true
}

// walkMembers does what walk does, for an object.
func (w *leafWalker) walkMembers(i int, path *pathStep,
	yield func(Leaf) bool) (end int, more bool) {
	i = skipBlanks(w.raw, i+1)
	for i < len(w.raw) && w.raw[i] == '"' {
		below := w.step(path)
		name := span{int32(i), int32(skipString(w.raw, i))}
		below.name = name.bytes(w.raw)
		var l Leaf
		if l, below.text = w.leaf(NameLeaf, name, below); !yield(l) {
			return i, false
		}
		i = min(skipBlanks(w.raw, int(name.to))+1, len(w.raw)) // after the colon
		if i, more = w.walk(skipBlanks(w.raw, i), below, yield); !more {
			return i, false
		}
		if i = skipBlanks(w.raw, i); i >= len(w.raw) || w.raw[i] != ',' {
			break
		}
		i = skipBlanks(w.raw, i+1)
	}
	return min(i+1, len(w.raw)), true
}

// walkItems does what walk does, for an array.
func (w *leafWalker) walkItems(i int, path *pathStep,
	yield func(Leaf) bool) (end int, more bool) {
	i = skipBlanks(w.raw, i+1)
	for n := 0; i < len(w.raw) && w.raw[i] != ']'; n++ {
		below := w.step(path)
		below.index = n
		if i, more = w.walk(i, below, yield); !more {
			return i, false
		}
		if i = skipBlanks(w.raw, i); i >= len(w.raw) || w.raw[i] != ',' {
			break
		}
		i = skipBlanks(w.raw, i+1)
	}
	return min(i+1, len(w.raw)), true
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
		text = w.text(l.Raw)
	case len(l.Raw) >= 2 && bytes.IndexByte(l.Raw, '\\') < 0:
		text = w.text(l.Raw[1 : len(l.Raw)-1])
	default:
		text = decodeQuotedLeniently(l.Raw)
	}
	if len(w.texts) == cap(w.texts) {
		w.texts = make([]string, 0, min(max(8, 2*cap(w.texts)), 128))
	}
	w.texts = append(w.texts, text)
	l.kept = &w.texts[len(w.texts)-1]
	return l, text
}

// text returns b as a string. Short texts share memory.
func (w *leafWalker) text(b []byte) string {
	const short, shared = 64, 1 << 10
	if len(b) > short {
		return string(b)
	}
	if w.shortTexts.Cap()-w.shortTexts.Len() < len(b) {
		size := min(max(short, 2*w.shortTexts.Cap()), shared)
		w.shortTexts.Reset() // leaves its memory to the texts
		w.shortTexts.Grow(size)
	}
	w.shortTexts.Write(b)
	all := w.shortTexts.String()
	return all[len(all)-len(b):]
}

// decodeQuotedLeniently does what decodeLeniently does, for a string with its quotes.
func decodeQuotedLeniently(quoted []byte) string {
	if len(quoted) < 2 {
		return ""
	}
	return decodeLeniently(quoted[1 : len(quoted)-1])
}

// decodeLeniently decodes a string without its quotes. It replaces each lone surrogate by U+FFFD.
// In an accepted message, the decoded names of an object are all different.
func decodeLeniently(rest []byte) string {
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
