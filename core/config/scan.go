package config

import (
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// node is a key or an array element, with its position in the document.
type node struct {
	offset int // byte offset at which the document first mentions the key or element
	// raw is a string value before substitution, as the document contains it. Decoding sets raw.
	raw   string
	keys  []string         // keys of a table, in the order of the document
	table map[string]*node // nodes of the keys of a table
	items []*node          // elements of an array
}

// lookup returns the node at a path below n. If the document has no such node, lookup returns an
// empty node with the position of the nearest table on the path. Errors about a missing key have
// that position.
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

// item returns array element i. If there is none, it returns an empty node at the position of n.
func (n *node) item(i int) *node {
	if i < len(n.items) {
		return n.items[i]
	}
	return &node{offset: n.offset}
}

// has reports whether the document sets a key.
func (n *node) has(key string) bool { return n.table[key] != nil }

// addChild returns the node of a key of n. If n has no such key yet, addChild creates the node at
// the offset off.
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

// lastTable returns the last table of n if n is an array of tables, and n otherwise. In a header
// such as [a.b], the name of an array of tables refers to its last table.
func (n *node) lastTable() *node {
	if len(n.items) > 0 {
		return n.items[len(n.items)-1]
	}
	return n
}

// scanner records the position of each key in a document that the TOML parser has accepted. It does
// not check the document. The scan of an invalid document ends, but its result is meaningless.
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

// scanPath reads a dotted key and returns its node. New nodes get the offset off. If off is -1,
// each new node gets the offset of its own part of the key.
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

// ensureProgress calls f. If f reads nothing, ensureProgress skips one byte, so that the scan ends.
func (s *scanner) ensureProgress(f func()) {
	start := s.pos
	f()
	if s.pos == start {
		s.pos++
	}
}

// skipSeparators skips commas, space and comments between elements. It returns false at the end of
// the document.
func (s *scanner) skipSeparators() bool {
	for s.skipSpace(); s.accept(","); s.skipSpace() {
	}
	return s.pos < len(s.doc)
}

// skipString skips a TOML string: basic or literal, on one line or on several lines.
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
			// The text of a multi-line string may itself end with one or two quotes.
			for n := 0; len(end) == 3 && n < 2 && s.accept(q); n++ {
			}
			return
		}
	}
	s.pos = min(s.pos, len(s.doc))
}

// accept skips lit if the rest of the document begins with lit. It reports whether it skipped lit.
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

// document is the text of a configuration. It converts byte offsets into positions.
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

// positionInLine returns the position of an error for which the parser reported an offset and a
// line. If the error is at a line break, the parser may have counted the line break already.
// positionInLine then returns the position of the line break. If the offset is in a later line, the
// offset is right. If it is in an earlier line, positionInLine returns the beginning of the line.
func (l *document) positionInLine(off, line int) Position {
	start := l.lineStarts[min(max(line, 1), len(l.lineStarts))-1]
	if off >= 0 && off == start-1 {
		return l.position(off)
	}
	return l.position(min(max(off, start), len(l.text)))
}
