package mcp

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// scanner reads JSON strictly, in one pass from front to back. It accepts RFC 8259 in valid UTF-8
// and within limits. It refuses an object with two members of the same name, and names with a lone
// surrogate where a parser could mistake them: see surrogatenames.go. While it reads, it indexes
// the members of the envelope, of the body and of the body's _meta.
type scanner struct {
	input  []byte
	pos    int
	limits Limits
	depth  int
	values int
	names  []seenName // names of all objects that are being read, those of the innermost last
	// a name with a lone surrogate was read
	hasSurrogateNames bool
	// the first fault that does not stop the scanner; it reads on, because the id may come later
	firstFault *fault

	envelope [len(envelopeNames)]member
	idCount  int // number of members called id in the envelope
	index
}

type seenName struct {
	text         []byte // unescaped, with U+FFFD for each lone surrogate
	at           int
	hasSurrogate bool // the name has a lone surrogate
}

// level is the place of an object in the message. It decides whether the object's members are
// indexed, and which protocol names their names must not resemble.
type level uint8

const (
	levelOther    level = iota // names are not compared with protocol names
	levelEnvelope              // the envelope
	levelParams                // the body of a request or notification
	levelBody                  // the body of a response or error
	levelMeta                  // the body's _meta
	levelInput                 // the body's inputRequests or inputResponses
)

// In an object with at most maxCompared names, each name is compared with all names before it. In a
// larger object, the names are sorted to find duplicates.
const maxCompared = 16

func (s *scanner) syntax(at int, reason string) *fault {
	if at >= len(s.input) {
		reason = "unexpected end"
	}
	return &fault{CodeParseError, at, reason}
}

// noteFault records a fault after which the scanner can read on.
func (s *scanner) noteFault(at int, reason string) {
	if s.firstFault == nil {
		s.firstFault = &fault{CodeInvalidRequest, at, reason}
	}
}

func (s *scanner) skipBlanks() {
	if s.pos < len(s.input) && s.input[s.pos] <= ' ' {
		s.pos = skipBlanks(s.input, s.pos)
	}
}

// nextIs reports whether the next byte is c.
func (s *scanner) nextIs(c byte) bool { return s.pos < len(s.input) && s.input[s.pos] == c }

func (s *scanner) countValue() *fault {
	if s.values++; s.values > s.limits.Tokens {
		return &fault{CodeParseError, s.pos, "too many values"}
	}
	return nil
}

func (s *scanner) scanValue(l level) *fault {
	if f := s.countValue(); f != nil {
		return f
	}
	if s.pos >= len(s.input) {
		return s.syntax(s.pos, "")
	}
	switch c := s.input[s.pos]; c {
	case '"':
		_, f := s.scanString()
		return f
	case '{':
		return s.scanObject(l)
	case '[':
		return s.scanArray()
	case 't':
		return s.scanLiteral("true")
	case 'f':
		return s.scanLiteral("false")
	case 'n':
		return s.scanLiteral("null")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return s.scanNumber()
		}
		return s.syntax(s.pos, "a value expected")
	}
}

func (s *scanner) scanLiteral(text string) *fault {
	if !bytes.HasPrefix(s.input[s.pos:], []byte(text)) {
		return &fault{CodeParseError, s.pos, "a value expected"}
	}
	s.pos += len(text)
	return nil
}

func (s *scanner) scanNumber() *fault {
	i := s.pos
	if s.input[i] == '-' {
		i++
	}
	j := digits(s.input, i)
	if j == i {
		return s.syntax(j, "a digit expected")
	}
	if s.input[i] == '0' && j > i+1 {
		return s.syntax(i, "a number with a leading zero")
	}
	i = j
	if i < len(s.input) && s.input[i] == '.' {
		if j = digits(s.input, i+1); j == i+1 {
			return s.syntax(j, "a digit expected")
		}
		i = j
	}
	if i < len(s.input) && s.input[i]|0x20 == 'e' {
		if i++; i < len(s.input) && (s.input[i] == '+' || s.input[i] == '-') {
			i++
		}
		if j = digits(s.input, i); j == i {
			return s.syntax(j, "a digit expected")
		}
		i = j
	}
	s.pos = i
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
		return &fault{CodeParseError, s.pos, "nested too deep"}
	}
	s.pos++
	s.skipBlanks()
	return nil
}

func (s *scanner) scanArray() *fault {
	if f := s.enter(); f != nil {
		return f
	}
	if !s.nextIs(']') {
		for {
			if f := s.scanValue(levelOther); f != nil {
				return f
			}
			s.skipBlanks()
			if !s.nextIs(',') {
				break
			}
			s.pos++
			s.skipBlanks()
		}
		if !s.nextIs(']') {
			return s.syntax(s.pos, "a comma or ] expected")
		}
	}
	s.pos++
	s.depth--
	return nil
}

func (s *scanner) scanObject(l level) *fault {
	if f := s.enter(); f != nil {
		return f
	}
	base := len(s.names)
	if !s.nextIs('}') {
		for {
			if f := s.scanMember(l, base); f != nil {
				return f
			}
			s.skipBlanks()
			if !s.nextIs(',') {
				break
			}
			s.pos++
			s.skipBlanks()
		}
		if !s.nextIs('}') {
			return s.syntax(s.pos, "a comma or } expected")
		}
	}
	if len(s.names)-base > maxCompared {
		s.noteDuplicates(s.names[base:])
	}
	if s.hasSurrogateNames {
		s.noteSurrogateDuplicates(s.names[base:])
	}
	s.names = s.names[:base]
	s.pos++
	s.depth--
	return nil
}

// scanMember reads one member of an object. The names of the object begin at the index base of
// s.names.
func (s *scanner) scanMember(l level, base int) *fault {
	if !s.nextIs('"') {
		return s.syntax(s.pos, "a name in quotes expected")
	}
	if f := s.countValue(); f != nil {
		return f
	}
	start := s.pos
	escaped, f := s.scanString()
	if f != nil {
		return f
	}
	m := member{name: span{int32(start + 1), int32(s.pos - 1)}, escaped: escaped}
	text, hasSurrogate := m.name.bytes(s.input), false
	if escaped {
		plain, ok := decodeUnquoted(text)
		if hasSurrogate = !ok; hasSurrogate {
			plain = decodeLeniently(text)
		}
		text = []byte(plain)
	}
	if hasSurrogate {
		s.checkSurrogateName(l, text, start)
	}
	if len(s.names)-base < maxCompared {
		for _, n := range s.names[base:] {
			if string(n.text) == string(text) {
				s.noteFault(start, "duplicate name "+quoteName(text))
				break
			}
		}
	}
	s.names = append(s.names, seenName{text, start, hasSurrogate})

	s.skipBlanks()
	if !s.nextIs(':') {
		return s.syntax(s.pos, "a colon expected")
	}
	s.pos++
	s.skipBlanks()
	if l == levelOther {
		return s.scanValue(levelOther)
	}
	from := s.pos
	if l == levelEnvelope {
		s.keepEnvelopeMember(text, m)
	}
	if f := s.scanValue(s.valueLevel(l, text, start)); f != nil {
		return f
	}
	m.value = span{int32(from), int32(s.pos)}
	s.keepMember(l, text, m)
	return nil
}

// valueLevel returns the level of a member's value. The parameter text is the name of the member,
// and l is the level of the object. If a careless parser could read the name as a protocol name,
// valueLevel notes a fault.
func (s *scanner) valueLevel(l level, text []byte, at int) level {
	var known nameSet
	next := levelOther
	switch l {
	case levelEnvelope:
		known = envelopeNameSet
		switch string(text) {
		case "params":
			next = levelParams
		case "result", "error":
			next = levelBody
		}
	case levelParams, levelBody:
		known = resultNameSet
		if l == levelParams {
			known = paramsNameSet
		}
		switch string(text) {
		case "_meta":
			next = levelMeta
		case "inputRequests", "inputResponses":
			next = levelInput
		}
	}
	if known == nil {
		return levelOther
	}
	if like, ok := confusableWith(text, known); ok {
		s.noteFault(at, "name "+quoteName(text)+" can be taken for "+like)
	}
	return next
}

// keepEnvelopeMember keeps a member of the envelope. It is called before the member's value is
// read, and again afterwards. So the name determines the kind of the message even if the value is
// invalid.
func (s *scanner) keepEnvelopeMember(text []byte, m member) {
	if i := slices.Index(envelopeNames[:], string(text)); i >= 0 {
		s.envelope[i] = m
		if i == memberID && m.value.isEmpty() {
			s.idCount++
		}
	}
}

// keepMember keeps a member of the envelope, and indexes a member of the body or of _meta. l is the
// level of the object with the member.
func (s *scanner) keepMember(l level, text []byte, m member) {
	switch l {
	case levelEnvelope:
		s.keepEnvelopeMember(text, m)
	case levelParams, levelBody:
		if len(s.bodyMembers) < maxIndexed {
			s.bodyMembers = append(s.bodyMembers, m)
		}
	case levelMeta:
		if len(s.metaMembers) < maxIndexed {
			s.metaMembers = append(s.metaMembers, m)
		}
	}
}

// noteDuplicates notes a fault if two names are equal. It sorts the names, because an attacker
// could choose names that make a hash table slow.
func (s *scanner) noteDuplicates(names []seenName) {
	slices.SortFunc(names, func(a, b seenName) int {
		if c := bytes.Compare(a.text, b.text); c != 0 {
			return c
		}
		return a.at - b.at
	})
	for i := 1; i < len(names); i++ {
		if bytes.Equal(names[i-1].text, names[i].text) {
			s.noteFault(names[i].at, "duplicate name "+quoteName(names[i].text))
		}
	}
}

const (
	lowBits     = 0x0101010101010101
	highBits    = lowBits << 7
	quotes      = lowBits * '"'
	backslashes = lowBits * '\\'
)

// scanString reads a string, eight bytes at a time. Long runs of plain characters are read faster.
// escaped is true if the string contains a backslash.
func (s *scanner) scanString() (escaped bool, f *fault) {
	b, start := s.input, s.pos
	i := start + 1
	var seen uint64 // bitwise OR of all bytes: a high bit shows that some byte is not ASCII
	quote := 0      // offset of the next quote; 0 if it has not been searched for yet
	for {
		for run := i; i+8 <= len(b); i += 8 {
			if i-run == longRun || i+longRun < quote {
				var skipped uint64
				i, quote, skipped = skipPlainRun(b, i, quote)
				seen |= skipped
				break
			}
			// A byte of stop has its high bit set where x has a quote, a backslash or a control
			// character. Only the first such byte is reliable: a borrow may set bits after it.
			x := binary.LittleEndian.Uint64(b[i:])
			q, e := x^quotes, x^backslashes
			stop := ((q-lowBits)&^q | (e-lowBits)&^e | (x-lowBits*' ')&^x) & highBits
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
			if seen&highBits != 0 && !utf8.Valid(b[start:i]) {
				return false, s.syntax(start+invalidUTF8(b[start:i]), "invalid UTF-8")
			}
			s.pos = i + 1
			return escaped, nil
		case '\\':
			escaped = true
			n := escapeLength(b[i:])
			if n == 0 {
				return false, s.syntax(i, "invalid escape")
			}
			i += n
		default:
			return false, s.syntax(i, "control character in a string")
		}
	}
}

// longRun is the number of plain bytes after which scanString calls skipPlainRun.
const longRun = 64

// skipPlainRun skips the run of plain characters that begins at i, up to the result stop. A quote,
// a backslash, a control character or the end of b comes within 32 bytes after stop. The parameter
// quote is the offset of the next quote, or less than i if it is not known. The result nextQuote is
// the offset of the next quote, for the next call. Without nextQuote, a string with n escapes would
// be searched for its end n times. The result seen is the bitwise OR of all skipped bytes.
func skipPlainRun(b []byte, i, quote int) (stop, nextQuote int, seen uint64) {
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
	const blanks = lowBits * ' '
	run := b[i:stop]
	for len(run) >= 32 {
		x, y := binary.LittleEndian.Uint64(run), binary.LittleEndian.Uint64(run[8:])
		z, w := binary.LittleEndian.Uint64(run[16:]), binary.LittleEndian.Uint64(run[24:])
		if ((x-blanks)&^x|(y-blanks)&^y|(z-blanks)&^z|(w-blanks)&^w)&highBits != 0 {
			return stop - len(run), quote, seen
		}
		seen |= x | y | z | w
		run = run[32:]
	}
	for len(run) >= 8 {
		x := binary.LittleEndian.Uint64(run)
		if (x-blanks)&^x&highBits != 0 {
			break
		}
		seen |= x
		run = run[8:]
	}
	return stop - len(run), quote, seen
}

// escapeLength returns the length of the escape with which b begins, or 0 if the escape is invalid.
func escapeLength(b []byte) int {
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

// invalidUTF8 returns the offset of the first byte that is not UTF-8.
func invalidUTF8(b []byte) int {
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
