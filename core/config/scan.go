package config

import (
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// node is a key, or an element of an array, at its position in the document.
type node struct {
	offset int // byte offset of the first mention
	// raw is a string value as it is written, before substitution. Decoding sets it.
	raw   string
	keys  []string         // keys of a table, in the order of the document
	table map[string]*node // nodes of the keys of a table
	items []*node          // elements of an array
}

// lookup returns the descendant at a path. For an absent one it returns an empty node with the
// position of the nearest table, where errors about the absence are reported.
func (n *node) lookup(path ...string) *node {
	for _, k := range path {
		next := n.table[k]
		if next == nil {
			next = &node{offset: n.offset}
		}
		n = next
	}
	return n
}

// item returns the element i, or an empty node at the position of n.
func (n *node) item(i int) *node {
	if i < len(n.items) {
		return n.items[i]
	}
	return &node{offset: n.offset}
}

// has reports whether the document sets a key.
func (n *node) has(key string) bool { return n.table[key] != nil }

// addChild returns the node of a key, and creates it at its first mention.
func (n *node) addChild(key string, off int) *node {
	if c := n.table[key]; c != nil {
		return c
	}
	if n.table == nil {
		n.table = map[string]*node{}
	}
	c := &node{offset: off}
	n.table[key] = c
	n.keys = append(n.keys, key)
	return c
}

// lastTable returns the last table of an array of tables, or n itself. The path of a header
// continues there.
func (n *node) lastTable() *node {
	if len(n.items) > 0 {
		return n.items[len(n.items)-1]
	}
	return n
}

// scanner notes the position of each key in a document that the TOML parser has accepted. It checks
// nothing. On an invalid document the result is meaningless, but the scan ends.
type scanner struct {
	doc string
	pos int
}

func scan(doc string) *node {
	s := &scanner{doc: doc}
	root := &node{}
	table := root
	for s.skipSpace(); s.pos < len(s.doc); s.skipSpace() {
		start := s.pos
		switch {
		case s.accept("[["):
			arr := s.scanPath(root, start)
			table = &node{offset: start}
			arr.items = append(arr.items, table)
			s.accept("]]")
		case s.accept("["):
			table = s.scanPath(root, start).lastTable()
			s.accept("]")
		default:
			s.scanPair(table)
		}
		if s.pos == start { // cannot happen in a valid document
			s.pos++
		}
	}
	return root
}

// scanPair reads `key = value`.
func (s *scanner) scanPair(table *node) {
	n := s.scanPath(table, -1)
	s.accept("=")
	s.skipBlanks()
	s.scanValue(n)
}

// scanPath reads a dotted key and returns its node. New nodes get the given offset, or, when it is
// -1, the offset of their part of the key.
func (s *scanner) scanPath(n *node, off int) *node {
	for {
		s.skipBlanks()
		at := s.pos
		if off >= 0 {
			at = off
		}
		n = n.lastTable().addChild(s.scanKey(), at)
		s.skipBlanks()
		if !s.accept(".") {
			return n
		}
	}
}

func (s *scanner) scanKey() string {
	start := s.pos
	if s.pos < len(s.doc) && (s.doc[s.pos] == '"' || s.doc[s.pos] == '\'') {
		s.skipString()
		// The parser resolves the escapes.
		var v struct{ K string }
		if _, err := toml.Decode("K = "+s.doc[start:s.pos], &v); err != nil {
			return s.doc[start:s.pos]
		}
		return v.K
	}
	for s.pos < len(s.doc) && !strings.ContainsRune(" \t\r\n.=]}#,\"'", rune(s.doc[s.pos])) {
		s.pos++
	}
	return s.doc[start:s.pos]
}

func (s *scanner) scanValue(n *node) {
	if s.pos >= len(s.doc) {
		return
	}
	switch s.doc[s.pos] {
	case '"', '\'':
		s.skipString()
	case '[':
		s.pos++
		for s.skipSeparators() && !s.accept("]") {
			e := &node{offset: s.pos}
			n.items = append(n.items, e)
			s.ensureProgress(func() { s.scanValue(e) })
		}
	case '{':
		s.pos++
		for s.skipSeparators() && !s.accept("}") {
			s.ensureProgress(func() { s.scanPair(n) })
		}
	default:
		for s.pos < len(s.doc) && !strings.ContainsRune(",]}\r\n#", rune(s.doc[s.pos])) {
			s.pos++
		}
	}
}

// ensureProgress calls f, and moves on by one byte when f reads nothing.
func (s *scanner) ensureProgress(f func()) {
	start := s.pos
	f()
	if s.pos == start {
		s.pos++
	}
}

// skipSeparators skips commas, space and comments between elements, and reports whether anything is
// left.
func (s *scanner) skipSeparators() bool {
	for s.skipSpace(); s.accept(","); s.skipSpace() {
	}
	return s.pos < len(s.doc)
}

// skipString skips a string of any of the four kinds.
func (s *scanner) skipString() {
	q := s.doc[s.pos : s.pos+1]
	end := q
	if strings.HasPrefix(s.doc[s.pos:], q+q+q) {
		end = q + q + q
	}
	for s.pos += len(end); s.pos < len(s.doc); s.pos++ {
		if q == `"` && s.doc[s.pos] == '\\' {
			s.pos++
			continue
		}
		if s.accept(end) {
			// A multi-line string may end with one or two quotes of its own.
			for n := 0; len(end) == 3 && n < 2 && s.accept(q); n++ {
			}
			return
		}
	}
	s.pos = min(s.pos, len(s.doc))
}

// accept skips lit and reports whether it was there.
func (s *scanner) accept(lit string) bool {
	if !strings.HasPrefix(s.doc[s.pos:], lit) {
		return false
	}
	s.pos += len(lit)
	return true
}

func (s *scanner) skipBlanks() {
	for s.pos < len(s.doc) && (s.doc[s.pos] == ' ' || s.doc[s.pos] == '\t') {
		s.pos++
	}
}

// skipSpace skips blanks, line breaks and comments.
func (s *scanner) skipSpace() {
	for s.pos < len(s.doc) {
		switch s.doc[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		case '#':
			if n := strings.IndexByte(s.doc[s.pos:], '\n'); n >= 0 {
				s.pos += n
			} else {
				s.pos = len(s.doc)
			}
		default:
			return
		}
	}
}

// document is a text that turns byte offsets into positions.
type document struct {
	file, text string
	lineStarts []int // byte offset of each line
}

func newDocument(file, doc string) *document {
	l := &document{file: file, text: doc, lineStarts: []int{0}}
	for i := range len(doc) {
		if doc[i] == '\n' {
			l.lineStarts = append(l.lineStarts, i+1)
		}
	}
	return l
}

func (l *document) position(off int) Position {
	n := sort.SearchInts(l.lineStarts, off+1)
	start := l.lineStarts[n-1]
	return Position{File: l.file, Line: n, Col: utf8.RuneCountInString(l.text[start:off]) + 1}
}

// positionInLine returns the position of an offset that should be in a line. When it is the line
// break before that line, where the parser has counted the line break already, positionInLine
// returns the line break's position. Otherwise it returns the position in the line that is nearest
// to the offset.
func (l *document) positionInLine(off, line int) Position {
	line = min(max(line, 1), len(l.lineStarts))
	start, end := l.lineStarts[line-1], len(l.text)
	if line < len(l.lineStarts) {
		end = l.lineStarts[line] - 1
	}
	if off >= 0 && off == start-1 {
		return l.position(off)
	}
	return l.position(min(max(off, start), end))
}
