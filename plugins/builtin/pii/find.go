package pii

import (
	"context"
	"strings"

	"gatekit/core/mcp"
	"gatekit/plugins/sdk/scan"
)

// kind is a kind of personal data, as the options name them.
type kind uint8

const (
	email kind = iota
	card
	iban
	phone
	ip
	nationalID
	kinds
)

func (k kind) String() string {
	return [...]string{"email", "card", "iban", "phone", "ip", "national_id"}[k]
}

// hit is personal data in a text.
type hit struct {
	scan.Span
	kind  kind
	what  string // as findings and placeholders call it: "card", "us-ssn"
	value string // as it stands in the text
}

// finder finds personal data in texts. It has no state.
type finder struct {
	on        [kinds]bool
	nationals [codes]bool
	locales   []string
	examples  bool
	private   bool
	allow     map[string]bool // by compact
	exclude   []string        // lower case
}

// all answers what is in s, in its order; no two overlap. leaf is where the text is: the name of
// its member may say what a number is.
func (f *finder) all(e *effort, s string, leaf mcp.Leaf) ([]hit, error) {
	plain, places := fold(s)
	t := search{finder: f, effort: e, s: plain, leaf: leaf}
	t.run()
	for i := range t.hits {
		h := &t.hits[i]
		h.value = plain[h.From:h.To]
		h.Span = places.origin(h.Span)
	}
	return t.hits, t.err
}

// effort is what the search of one message has cost. It ends with the message.
type effort struct {
	ctx   context.Context
	steps int
	asked int // phone numbers that the library was asked about
}

// search is the search of one text.
type search struct {
	*finder
	*effort
	s    string
	leaf mcp.Leaf
	hits []hit
	done int // where the last hit ends
	err  error

	numbered number // the one that is looked at
}

// Classes of bytes.
const (
	isDigit byte = 1 << iota
	isLetter
	isTrigger // something may be found at it
	isHex
	isSpacer // may stand between the digits of one number
)

var class = func() (c [256]byte) {
	for b := '0'; b <= '9'; b++ {
		c[b] = isDigit | isTrigger | isHex
	}
	for b := 'a'; b <= 'z'; b++ {
		c[b], c[b-32] = isLetter, isLetter
		if b <= 'f' {
			c[b], c[b-32] = isLetter|isHex, isLetter|isHex
		}
	}
	c['@'], c[':'] = isTrigger, isTrigger
	for _, b := range []byte(" -./()") {
		c[b] |= isSpacer
	}
	return c
}()

func digit(c byte) bool  { return class[c]&isDigit != 0 }
func letter(c byte) bool { return class[c]&isLetter != 0 }
func alnum(c byte) bool  { return class[c]&(isDigit|isLetter) != 0 }

// run goes over the text once, from one digit, "@" or ":" to the next.
func (t *search) run() {
	s := t.s
	for i := 0; i < len(s) && t.err == nil; {
		switch c := s[i]; {
		case class[c]&isTrigger == 0:
			i++
		case c == '@':
			i = max(i+1, t.atSign(i))
		case c == ':':
			i = max(i+1, t.colon(i))
		default:
			i = t.number(i)
		}
	}
}

// number looks at the run of digits at i and answers where to go on.
func (t *search) number(i int) int {
	s := t.s
	end := i + 1
	for end < len(s) && digit(s[end]) {
		end++
	}
	if i > 0 && letter(s[i-1]) && !escaped(s, i-1) {
		return max(end, t.mixed(i, end))
	}
	if end-i < 5 && end < len(s) && s[end] == '.' { // three octets more may follow
		if to, ok := t.quad(i); ok {
			return to
		}
	}
	if to, ok := t.afterLetters(i, end); ok {
		return to
	}
	if end-i < 7 && !(end+1 < len(s) && class[s[end]]&isSpacer != 0 &&
		class[s[end+1]]&(isDigit|isSpacer) != 0) && !corsican(s, i, end) {
		return end // most numbers end here
	}
	if t.slow(); t.err != nil {
		return len(s)
	}
	return max(end, t.digits(i))
}

// slow is called before what costs more than going on. It sees to it that a search ends with its
// context.
func (t *search) slow() {
	if t.steps++; t.steps%64 == 0 {
		t.err = t.ctx.Err()
	}
}

// found notes a hit, unless its value is allowed, and answers where it ends.
func (t *search) found(kind kind, what string, from, to int) int {
	if from < t.done {
		return to
	}
	t.done = to
	if len(t.allow) > 0 && t.allow[compact(t.s[from:to])] {
		return to
	}
	t.hits = append(t.hits, hit{Span: scan.Span{From: from, To: to}, kind: kind, what: what})
	return to
}

// free says whether what begins at i does not continue a word.
func free(s string, i int) bool { return i == 0 || !alnum(s[i-1]) || escaped(s, i-1) }

// ends says whether what ends before i does not go on in a word.
func ends(s string, i int) bool { return i >= len(s) || !alnum(s[i]) }

// escaped says whether s[i] is the letter of an escape like \n, as a text has that is JSON or
// source code itself.
func escaped(s string, i int) bool {
	return i > 0 && s[i-1] == '\\' && strings.IndexByte("nrtbf", s[i]) >= 0
}

// compact is a value without what may be spelt in different ways: case and separators.
func compact(s string) string {
	if strings.IndexByte(s, '@') >= 0 || strings.IndexByte(s, ':') >= 0 {
		return strings.ToLower(s)
	}
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'A' && c <= 'Z':
			b = append(b, c+32)
		case alnum(c) || c >= 0x80:
			b = append(b, c)
		}
	}
	return string(b)
}
