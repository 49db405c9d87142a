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
	kindEmail kind = iota
	kindCard
	kindIBAN
	kindPhone
	kindIP
	kindNationalID
	numKinds
)

func (k kind) String() string {
	return [...]string{"email", "card", "iban", "phone", "ip", "national_id"}[k]
}

// detection is personal data in a text.
type detection struct {
	scan.Span
	kind        kind
	findingType string // as findings and placeholders call it: "card", "us-ssn"
	value       string // as it stands in the text
}

// finder finds personal data in texts. It has no state.
type finder struct {
	enabled    [numKinds]bool
	enabledIDs [numIDs]bool
	locales    []string
	examples   bool
	private    bool
	allow      map[string]bool // by compact
	exclude    []string        // lower case
}

// findAll answers what is in s, in its order; no two overlap. leaf is where the text is: the name
// of its member may say what a number is.
func (f *finder) findAll(e *messageCost, s string, leaf mcp.Leaf) ([]detection, error) {
	plain, places := fold(s)
	t := search{finder: f, messageCost: e, text: plain, leaf: leaf}
	t.run()
	for i := range t.detections {
		h := &t.detections[i]
		h.value = plain[h.From:h.To]
		h.Span = places.original(h.Span)
	}
	return t.detections, t.err
}

// messageCost is what the search of one message has cost. It ends with the message.
type messageCost struct {
	ctx          context.Context
	steps        int
	phoneLookups int // phone numbers that the library was asked about
}

// search is the search of one text.
type search struct {
	*finder
	*messageCost
	text       string
	leaf       mcp.Leaf
	detections []detection
	lastEnd    int // where the last hit ends
	err        error

	current digitGroups // the one that is looked at
}

// Classes of bytes.
const (
	digitByte byte = 1 << iota
	letterByte
	triggerByte // something may be found at it
	hexByte
	spacerByte // may stand between the digits of one number
)

var byteClasses = func() (c [256]byte) {
	for b := '0'; b <= '9'; b++ {
		c[b] = digitByte | triggerByte | hexByte
	}
	for b := 'a'; b <= 'z'; b++ {
		c[b], c[b-32] = letterByte, letterByte
		if b <= 'f' {
			c[b], c[b-32] = letterByte|hexByte, letterByte|hexByte
		}
	}
	c['@'], c[':'] = triggerByte, triggerByte
	for _, b := range []byte(" -./()") {
		c[b] |= spacerByte
	}
	return c
}()

func isDigit(c byte) bool  { return byteClasses[c]&digitByte != 0 }
func isLetter(c byte) bool { return byteClasses[c]&letterByte != 0 }
func isAlnum(c byte) bool  { return byteClasses[c]&(digitByte|letterByte) != 0 }

// run goes over the text once, from one digit, "@" or ":" to the next.
func (t *search) run() {
	s := t.text
	for i := 0; i < len(s) && t.err == nil; {
		switch c := s[i]; {
		case byteClasses[c]&triggerByte == 0:
			i++
		case c == '@':
			i = max(i+1, t.findEmail(i))
		case c == ':':
			i = max(i+1, t.findIPv6(i))
		default:
			i = t.scanNumber(i)
		}
	}
}

// scanNumber looks at the run of digits at i and answers where to go on.
func (t *search) scanNumber(i int) int {
	s := t.text
	end := i + 1
	for end < len(s) && isDigit(s[end]) {
		end++
	}
	if i > 0 && isLetter(s[i-1]) && !isEscapeLetter(s, i-1) {
		return max(end, t.findLetterDigits(i, end))
	}
	if end-i < 5 && end < len(s) && s[end] == '.' { // three octets more may follow
		if to, ok := t.findIPv4(i); ok {
			return to
		}
	}
	if to, ok := t.findSpacedLetterDigits(i, end); ok {
		return to
	}
	if end-i < 7 && !(end+1 < len(s) && byteClasses[s[end]]&spacerByte != 0 &&
		byteClasses[s[end+1]]&(digitByte|spacerByte) != 0) && !mayBeCorsican(s, i, end) {
		return end // most numbers end here
	}
	if t.checkContext(); t.err != nil {
		return len(s)
	}
	return max(end, t.findInDigits(i))
}

// checkContext is called before what costs more than going on. It sees to it that a search ends
// with its context.
func (t *search) checkContext() {
	if t.steps++; t.steps%64 == 0 {
		t.err = t.ctx.Err()
	}
}

// report notes a hit, unless its value is allowed, and answers where it ends.
func (t *search) report(kind kind, what string, from, to int) int {
	if from < t.lastEnd {
		return to
	}
	t.lastEnd = to
	if len(t.allow) > 0 && t.allow[canonical(t.text[from:to])] {
		return to
	}
	t.detections = append(t.detections, detection{Span: scan.Span{From: from, To: to}, kind: kind,
		findingType: what})
	return to
}

// isWordStart says whether what begins at i does not continue a word.
func isWordStart(s string, i int) bool {
	return i == 0 || !isAlnum(s[i-1]) || isEscapeLetter(s, i-1)
}

// isWordEnd says whether what ends before i does not go on in a word.
func isWordEnd(s string, i int) bool { return i >= len(s) || !isAlnum(s[i]) }

// isEscapeLetter says whether s[i] is the letter of an escape like \n, as a text has that is JSON
// or source code itself.
func isEscapeLetter(s string, i int) bool {
	return i > 0 && s[i-1] == '\\' && strings.IndexByte("nrtbf", s[i]) >= 0
}

// canonical is a value without what may be spelt in different ways: case and separators.
func canonical(s string) string {
	if strings.IndexByte(s, '@') >= 0 || strings.IndexByte(s, ':') >= 0 {
		return strings.ToLower(s)
	}
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'A' && c <= 'Z':
			b = append(b, c+32)
		case isAlnum(c) || c >= 0x80:
			b = append(b, c)
		}
	}
	return string(b)
}
