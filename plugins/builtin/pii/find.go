package pii

import (
	"context"
	"strings"

	"gatekit/core/mcp"
	"gatekit/plugins/sdk/scan"
	"gatekit/plugins/sdk/scan/eight"
)

// kind is a kind of personal data. String returns its name in the configuration.
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
	findingType string // in findings and placeholders: "card", "us-ssn"
	value       string // as it is written in the folded text
}

// finder finds personal data in texts. It is immutable.
type finder struct {
	enabled    [numKinds]bool
	enabledIDs [numIDs]bool
	locales    []string
	examples   bool            // report e-mail addresses at domains for examples
	private    bool            // report IP addresses that are not public
	allow      map[string]bool // canonical values that are not reported
	exclude    []string        // entries of the option email.exclude, in lower case
}

// search is the search of the texts of one message, one after the other. It counts the expensive
// steps over all texts.
type search struct {
	*finder
	text       string
	leaf       mcp.Leaf
	detections []detection
	lastEnd    int // the end of the last detection, or of the last allowed value
	err        error

	current digitGroups // the number that is being examined

	steps        int // calls of checkContext
	phoneLookups int // numbers that the phone library has checked
}

// findAll returns the personal data in s, in the order of s and without overlaps. The name of the
// leaf's member is context for the numbers in s.
func (t *search) findAll(ctx context.Context, s string, leaf mcp.Leaf) ([]detection, error) {
	folded, offsets := fold(s)
	t.text, t.leaf, t.detections, t.lastEnd = folded, leaf, nil, 0
	t.run(ctx)
	for i := range t.detections {
		d := &t.detections[i]
		d.value = folded[d.From:d.To]
		d.Span = offsets.original(d.Span)
	}
	return t.detections, t.err
}

// Classes of bytes.
const (
	digitByte byte = 1 << iota
	letterByte
	triggerByte // personal data may be found at the byte
	hexByte
	spacerByte // may separate the digits of one number
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

// run searches the text from one digit, "@" or ":" to the next. The find methods that it calls
// return the index at which the search goes on.
func (t *search) run(ctx context.Context) {
	s := t.text
	for i := 0; t.err == nil; {
		if i = nextTrigger(s, i); i >= len(s) {
			return
		}
		switch s[i] {
		case '@':
			i = max(i+1, t.findEmail(ctx, i))
		case ':':
			i = max(i+1, t.findIPv6(ctx, i))
		default:
			i = t.scanNumber(ctx, i)
		}
	}
}

// nextTrigger returns the index of the next digit, ":" or "@" from i on, or len(s). No personal
// data is without such a character.
func nextTrigger(s string, i int) int {
	for ; i+8 <= len(s); i += 8 {
		x := eight.Load(s, i)
		if flags := eight.Between(x, '0', ':') | eight.Equal(x, '@'); flags != 0 {
			return i + eight.First(flags)
		}
	}
	for i < len(s) && byteClasses[s[i]]&triggerByte == 0 {
		i++
	}
	return i
}

// scanNumber examines the run of digits at i and returns where the search goes on.
func (t *search) scanNumber(ctx context.Context, i int) int {
	s := t.text
	end := i + 1
	for end < len(s) && isDigit(s[end]) {
		end++
	}
	if i > 0 && isLetter(s[i-1]) && !isEscapeLetter(s, i-1) {
		return max(end, t.findLetterDigits(i, end))
	}
	if end-i < 5 && end < len(s) && s[end] == '.' { // three more octets may follow
		if to, ok := t.findIPv4(ctx, i); ok {
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
	if t.checkContext(ctx); t.err != nil {
		return len(s)
	}
	return max(end, t.findInDigits(ctx, i))
}

// checkContext must be called before each expensive step, so that a search ends when ctx ends.
// Every 64th call sets t.err to the error of ctx.
func (t *search) checkContext(ctx context.Context) {
	if t.steps++; t.steps%64 == 0 {
		t.err = ctx.Err()
	}
}

// report appends a detection, unless its value is allowed, and returns its end.
func (t *search) report(kind kind, findingType string, from, to int) int {
	if from < t.lastEnd {
		return to
	}
	t.lastEnd = to
	if len(t.allow) > 0 && t.allow[canonical(t.text[from:to])] {
		return to
	}
	t.detections = append(t.detections, detection{Span: scan.Span{From: from, To: to}, kind: kind,
		findingType: findingType})
	return to
}

// isWordStart reports whether a word may start at s[i]: s[i-1] does not belong to the same word.
func isWordStart(s string, i int) bool {
	return i == 0 || !isAlnum(s[i-1]) || isEscapeLetter(s, i-1)
}

// isWordEnd reports whether a word may end before s[i]: s[i] does not belong to the same word.
func isWordEnd(s string, i int) bool { return i >= len(s) || !isAlnum(s[i]) }

// isEscapeLetter reports whether s[i] is the letter of an escape such as \n. There are escapes in
// texts that are JSON or source code themselves.
func isEscapeLetter(s string, i int) bool {
	return i > 0 && s[i-1] == '\\' && strings.IndexByte("nrtbf", s[i]) >= 0
}

// canonical returns a value in lower case, and without separators unless it has a "@" or ":". All
// spellings of a value have one canonical form.
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
