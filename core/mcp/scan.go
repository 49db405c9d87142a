package mcp

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// scanner reads JSON strictly, once, front to back: RFC 8259 and valid UTF-8, no name twice in an
// object, no lone surrogate in a name, within limits. On the way it keeps where the members of a
// message's first levels are.
type scanner struct {
	b      []byte
	i      int
	limits Limits
	depth  int
	tokens int
	names  []name // of the objects that are open, innermost last
	// the first fault that does not stop the reading, so that the id can still be found
	first *fault

	envelope [len(envelopeNames)]member
	ids      int // members of the envelope that are called id
	index
}

type name struct {
	text []byte // unescaped
	at   int
}

// level is how deep in a message a value stands, as far as that matters.
type level uint8

const (
	deep   level = iota
	top          // the envelope
	params       // the body of a request or notification
	body         // any other body
	meta         // the body's _meta
)

// few is the number of names in an object up to which each is compared with all before it; the
// names of larger objects are sorted.
const few = 16

func (s *scanner) syntax(at int, reason string) *fault {
	if at >= len(s.b) {
		reason = "unexpected end"
	}
	return &fault{CodeParseError, at, reason}
}

// note remembers a fault of JSON that can be read on.
func (s *scanner) note(at int, reason string) {
	if s.first == nil {
		s.first = &fault{CodeInvalidRequest, at, reason}
	}
}

func (s *scanner) blank() {
	if s.i < len(s.b) && s.b[s.i] <= ' ' {
		s.i = blank(s.b, s.i)
	}
}

// at says whether c is next.
func (s *scanner) at(c byte) bool { return s.i < len(s.b) && s.b[s.i] == c }

func (s *scanner) count() *fault {
	if s.tokens++; s.tokens > s.limits.Tokens {
		return &fault{CodeParseError, s.i, "too many values"}
	}
	return nil
}

func (s *scanner) value(l level) *fault {
	if f := s.count(); f != nil {
		return f
	}
	if s.i >= len(s.b) {
		return s.syntax(s.i, "")
	}
	switch c := s.b[s.i]; c {
	case '"':
		_, f := s.str()
		return f
	case '{':
		return s.object(l)
	case '[':
		return s.array()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return s.number()
		}
		return s.syntax(s.i, "a value expected")
	}
}

func (s *scanner) literal(text string) *fault {
	if !bytes.HasPrefix(s.b[s.i:], []byte(text)) {
		return &fault{CodeParseError, s.i, "a value expected"}
	}
	s.i += len(text)
	return nil
}

func (s *scanner) number() *fault {
	i := s.i
	if s.b[i] == '-' {
		i++
	}
	j := digits(s.b, i)
	if j == i {
		return s.syntax(j, "a digit expected")
	}
	if s.b[i] == '0' && j > i+1 {
		return s.syntax(i, "a number with a leading zero")
	}
	i = j
	if i < len(s.b) && s.b[i] == '.' {
		if j = digits(s.b, i+1); j == i+1 {
			return s.syntax(j, "a digit expected")
		}
		i = j
	}
	if i < len(s.b) && s.b[i]|0x20 == 'e' {
		if i++; i < len(s.b) && (s.b[i] == '+' || s.b[i] == '-') {
			i++
		}
		if j = digits(s.b, i); j == i {
			return s.syntax(j, "a digit expected")
		}
		i = j
	}
	s.i = i
	return nil
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

func (s *scanner) enter() *fault {
	if s.depth++; s.depth > s.limits.Depth {
		return &fault{CodeParseError, s.i, "nested too deep"}
	}
	s.i++
	s.blank()
	return nil
}

func (s *scanner) array() *fault {
	if f := s.enter(); f != nil {
		return f
	}
	if !s.at(']') {
		for {
			if f := s.value(deep); f != nil {
				return f
			}
			s.blank()
			if !s.at(',') {
				break
			}
			s.i++
			s.blank()
		}
		if !s.at(']') {
			return s.syntax(s.i, "a comma or ] expected")
		}
	}
	s.i++
	s.depth--
	return nil
}

func (s *scanner) object(l level) *fault {
	if f := s.enter(); f != nil {
		return f
	}
	base := len(s.names)
	if !s.at('}') {
		for {
			if f := s.member(l, base); f != nil {
				return f
			}
			s.blank()
			if !s.at(',') {
				break
			}
			s.i++
			s.blank()
		}
		if !s.at('}') {
			return s.syntax(s.i, "a comma or } expected")
		}
	}
	if len(s.names)-base > few {
		s.duplicates(s.names[base:])
	}
	s.names = s.names[:base]
	s.i++
	s.depth--
	return nil
}

// member reads one name and value of an object whose names begin at base.
func (s *scanner) member(l level, base int) *fault {
	if !s.at('"') {
		return s.syntax(s.i, "a name in quotes expected")
	}
	if f := s.count(); f != nil {
		return f
	}
	start := s.i
	escaped, f := s.str()
	if f != nil {
		return f
	}
	m := member{name: span{int32(start + 1), int32(s.i - 1)}, escaped: escaped}
	text := m.name.of(s.b)
	if escaped {
		plain, ok := unquote(text)
		if !ok {
			s.note(start, "a name with a lone surrogate")
		}
		text = []byte(plain)
	}
	if len(s.names)-base < few {
		for _, n := range s.names[base:] {
			if string(n.text) == string(text) {
				s.note(start, "duplicate name "+quoteName(text))
				break
			}
		}
	}
	s.names = append(s.names, name{text, start})

	s.blank()
	if !s.at(':') {
		return s.syntax(s.i, "a colon expected")
	}
	s.i++
	s.blank()
	if l == deep {
		return s.value(deep)
	}
	from := s.i
	if l == top {
		s.mark(text, m)
	}
	if f := s.value(s.below(l, text, start)); f != nil {
		return f
	}
	m.value = span{int32(from), int32(s.i)}
	s.keep(l, text, m)
	return nil
}

// below is the level of the value under a name. It refuses a name that other readers may take for
// one that matters here.
func (s *scanner) below(l level, text []byte, at int) level {
	var known nameSet
	next := deep
	switch l {
	case top:
		known = topNames
		switch string(text) {
		case "params":
			next = params
		case "result", "error":
			next = body
		}
	case params, body:
		known = answerNames
		if l == params {
			known = paramsNames
		}
		if string(text) == "_meta" {
			next = meta
		}
	}
	if known == nil {
		return deep
	}
	if like, ok := alike(text, known); ok {
		s.note(at, "name "+quoteName(text)+" can be taken for "+like)
	}
	return next
}

// mark keeps a member of the envelope. It is called before the value is read too: when that is bad,
// it matters what it was to be.
func (s *scanner) mark(text []byte, m member) {
	if i := slices.Index(envelopeNames[:], string(text)); i >= 0 {
		s.envelope[i] = m
		if i == atID && m.value.empty() {
			s.ids++
		}
	}
}

func (s *scanner) keep(l level, text []byte, m member) {
	switch l {
	case top:
		s.mark(text, m)
	case params, body:
		if len(s.top) < maxKept {
			s.top = append(s.top, m)
		}
	case meta:
		if len(s.meta) < maxKept {
			s.meta = append(s.meta, m)
		}
	}
}

// duplicates looks for equal names among many. Sorting keeps its promise whatever the names are; a
// hash table may not.
func (s *scanner) duplicates(names []name) {
	slices.SortFunc(names, func(a, b name) int {
		if c := bytes.Compare(a.text, b.text); c != 0 {
			return c
		}
		return a.at - b.at
	})
	for i := 1; i < len(names); i++ {
		if bytes.Equal(names[i-1].text, names[i].text) {
			s.note(names[i].at, "duplicate name "+quoteName(names[i].text))
		}
	}
}

const (
	ones   = 0x0101010101010101
	highs  = ones << 7
	quotes = ones * '"'
	slants = ones * '\\'
)

// str reads a string, eight bytes at a time and long runs faster. escaped says that it holds a
// backslash.
func (s *scanner) str() (escaped bool, f *fault) {
	b, start := s.b, s.i
	i := start + 1
	var seen uint64 // all bytes or-ed: shows whether one is not ASCII
	quote := 0      // where the next quote is, once it was looked for
	for {
		for run := i; i+8 <= len(b); i += 8 {
			if i-run == longRun || i+longRun < quote {
				var or uint64
				i, quote, or = plain(b, i, quote)
				seen |= or
				break
			}
			// A byte of stop has its high bit set where x has a quote, a backslash or a control
			// character. Borrows make only bytes after the first such one wrong.
			x := binary.LittleEndian.Uint64(b[i:])
			q, e := x^quotes, x^slants
			stop := ((q-ones)&^q | (e-ones)&^e | (x-ones*' ')&^x) & highs
			seen |= x
			if stop != 0 {
				i += bits.TrailingZeros64(stop) / 8
				break
			}
		}
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			seen |= uint64(b[i])
			i++
		}
		if i >= len(b) {
			return false, s.syntax(i, "")
		}
		switch b[i] {
		case '"':
			if seen&highs != 0 && !utf8.Valid(b[start:i]) {
				return false, s.syntax(start+invalid(b[start:i]), "invalid UTF-8")
			}
			s.i = i + 1
			return escaped, nil
		case '\\':
			escaped = true
			n := escape(b[i:])
			if n == 0 {
				return false, s.syntax(i, "invalid escape")
			}
			i += n
		default:
			return false, s.syntax(i, "control character in a string")
		}
	}
}

// longRun is after how many bytes without anything special more of them are expected.
const longRun = 64

// plain goes on from i to what ends a run of plain characters: a quote, a backslash, or the end of
// b; or to a place not far before a control character. quote is where one was found before, if it
// is not behind i: whoever looked for it each time would read a string of n escapes n times. or is
// all bytes of the run or-ed.
func plain(b []byte, i, quote int) (stop, next int, or uint64) {
	if quote < i {
		quote = len(b)
		if n := bytes.IndexByte(b[i:], '"'); n >= 0 {
			quote = i + n
		}
	}
	stop = quote
	if n := bytes.IndexByte(b[i:quote], '\\'); n >= 0 {
		stop = i + n
	}
	const blanks = ones * ' '
	run := b[i:stop]
	for len(run) >= 32 {
		x, y := binary.LittleEndian.Uint64(run), binary.LittleEndian.Uint64(run[8:])
		z, w := binary.LittleEndian.Uint64(run[16:]), binary.LittleEndian.Uint64(run[24:])
		if ((x-blanks)&^x|(y-blanks)&^y|(z-blanks)&^z|(w-blanks)&^w)&highs != 0 {
			return stop - len(run), quote, or
		}
		or |= x | y | z | w
		run = run[32:]
	}
	for len(run) >= 8 {
		x := binary.LittleEndian.Uint64(run)
		if (x-blanks)&^x&highs != 0 {
			break
		}
		or |= x
		run = run[8:]
	}
	return stop - len(run), quote, or
}

// escape is the length of the escape that b begins with; 0 when it is none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if (c < '0' || '9' < c) && (c|0x20 < 'a' || 'f' < c|0x20) {
				return 0
			}
		}
		return 6
	}
	return 0
}

// invalid is the offset of the first byte that is not UTF-8.
func invalid(b []byte) int {
	i := 0
	for i < len(b) {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return i
}
