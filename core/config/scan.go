package config

import (
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// node is where a key, or an element of an array, stands in the document.
type node struct {
	off int // byte offset of its first mention
	// the value as written, for a string (before substitution); set when it is decoded
	text  string
	keys  []string         // of a table, in the order of the document
	table map[string]*node // of a table
	items []*node          // of an array
}

// at finds a descendant. One that is absent is an empty node at the nearest table that exists:
// where its absence is complained of.
func (n *node) at(path ...string) *node {
	for _, k := range path {
		next := n.table[k]
		if next == nil {
			next = &node{off: n.off}
		}
		n = next
	}
	return n
}

// item is the node of an element.
func (n *node) item(i int) *node {
	if i < len(n.items) {
		return n.items[i]
	}
	return &node{off: n.off}
}

// has says whether a key was given.
func (n *node) has(key string) bool { return n.table[key] != nil }

// child is the node of a key, made on its first mention.
func (n *node) child(key string, off int) *node {
	if c := n.table[key]; c != nil {
		return c
	}
	if n.table == nil {
		n.table = map[string]*node{}
	}
	c := &node{off: off}
	n.table[key] = c
	n.keys = append(n.keys, key)
	return c
}

// last is the table that a header's path goes on from: of an array of tables, the newest.
func (n *node) last() *node {
	if len(n.items) > 0 {
		return n.items[len(n.items)-1]
	}
	return n
}

// scanner notes where things stand in a document that the TOML parser has accepted. It checks
// nothing; on a document that is not valid its answer is meaningless, but it ends.
type scanner struct {
	s string
	i int
}

func scan(doc string) *node {
	s := &scanner{s: doc}
	root := &node{}
	table := root
	for s.space(); s.i < len(s.s); s.space() {
		start := s.i
		switch {
		case s.take("[["):
			arr := s.path(root, start)
			table = &node{off: start}
			arr.items = append(arr.items, table)
			s.take("]]")
		case s.take("["):
			table = s.path(root, start).last()
			s.take("]")
		default:
			s.pair(table)
		}
		if s.i == start { // cannot happen in a valid document
			s.i++
		}
	}
	return root
}

// pair reads `key = value`.
func (s *scanner) pair(table *node) {
	n := s.path(table, -1)
	s.take("=")
	s.blank()
	s.value(n)
}

// path reads a dotted key and answers its node. off is where all new nodes are said to be; -1 is
// where each key part is.
func (s *scanner) path(n *node, off int) *node {
	for {
		s.blank()
		at := s.i
		if off >= 0 {
			at = off
		}
		n = n.last().child(s.key(), at)
		s.blank()
		if !s.take(".") {
			return n
		}
	}
}

func (s *scanner) key() string {
	start := s.i
	if s.i < len(s.s) && (s.s[s.i] == '"' || s.s[s.i] == '\'') {
		s.str()
		// The parser knows the escapes; it need not be written twice.
		var v struct{ K string }
		if _, err := toml.Decode("K = "+s.s[start:s.i], &v); err != nil {
			return s.s[start:s.i]
		}
		return v.K
	}
	for s.i < len(s.s) && !strings.ContainsRune(" \t\r\n.=]}#,\"'", rune(s.s[s.i])) {
		s.i++
	}
	return s.s[start:s.i]
}

func (s *scanner) value(n *node) {
	if s.i >= len(s.s) {
		return
	}
	switch s.s[s.i] {
	case '"', '\'':
		s.str()
	case '[':
		s.i++
		for s.separator() && !s.take("]") {
			e := &node{off: s.i}
			n.items = append(n.items, e)
			s.progress(func() { s.value(e) })
		}
	case '{':
		s.i++
		for s.separator() && !s.take("}") {
			s.progress(func() { s.pair(n) })
		}
	default:
		for s.i < len(s.s) && !strings.ContainsRune(",]}\r\n#", rune(s.s[s.i])) {
			s.i++
		}
	}
}

// progress calls f and makes sure that it read something.
func (s *scanner) progress(f func()) {
	start := s.i
	f()
	if s.i == start {
		s.i++
	}
}

// separator skips all that may stand between elements and says whether anything is left.
func (s *scanner) separator() bool {
	for s.space(); s.take(","); s.space() {
	}
	return s.i < len(s.s)
}

// str skips a string of any of the four kinds.
func (s *scanner) str() {
	q := s.s[s.i : s.i+1]
	end := q
	if strings.HasPrefix(s.s[s.i:], q+q+q) {
		end = q + q + q
	}
	for s.i += len(end); s.i < len(s.s); s.i++ {
		if q == `"` && s.s[s.i] == '\\' {
			s.i++
			continue
		}
		if s.take(end) {
			// A long string may end in one or two quotes of its own.
			for n := 0; len(end) == 3 && n < 2 && s.take(q); n++ {
			}
			return
		}
	}
	s.i = min(s.i, len(s.s))
}

func (s *scanner) take(lit string) bool {
	if !strings.HasPrefix(s.s[s.i:], lit) {
		return false
	}
	s.i += len(lit)
	return true
}

func (s *scanner) blank() {
	for s.i < len(s.s) && (s.s[s.i] == ' ' || s.s[s.i] == '\t') {
		s.i++
	}
}

// space skips blanks, line breaks and comments.
func (s *scanner) space() {
	for s.i < len(s.s) {
		switch s.s[s.i] {
		case ' ', '\t', '\r', '\n':
			s.i++
		case '#':
			if n := strings.IndexByte(s.s[s.i:], '\n'); n >= 0 {
				s.i += n
			} else {
				s.i = len(s.s)
			}
		default:
			return
		}
	}
}

// lines turns offsets into places.
type lines struct {
	file, doc string
	starts    []int // offset of each line
}

func newLines(file, doc string) *lines {
	l := &lines{file: file, doc: doc, starts: []int{0}}
	for i := range len(doc) {
		if doc[i] == '\n' {
			l.starts = append(l.starts, i+1)
		}
	}
	return l
}

func (l *lines) place(off int) Place {
	n := sort.SearchInts(l.starts, off+1)
	start := l.starts[n-1]
	return Place{File: l.file, Line: n, Col: utf8.RuneCountInString(l.doc[start:off]) + 1}
}
