// Package scan is for stages that look at what messages say: every text in a message's body, also where it is encoded, and the edits that take parts of it out.
//
// # Promises
//
//   - Each string, number and member's name of the body is seen, once, decoded from JSON; what is base64 or percent-encoded inside is seen decoded, too, within bounds.
//   - Redact changes what was cut out and nothing else. What was found in an encoded text is cut out of the text with its encoding.
package scan

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"gatekit/core/mcp"
)

// Text is one string, number or name in a message's body.
type Text struct {
	mcp.Leaf
	S string // decoded from JSON
}

// Span is the part of a Text from byte From up to byte To of its S.
type Span struct{ From, To int }

// Texts calls yield for each text of m's body until it answers false.
func Texts(m *mcp.Message, yield func(Text) bool) {
	m.Leaves(func(l mcp.Leaf) bool { return yield(Text{l, l.Text()}) })
}

// Bounds of decoding.
const (
	shortest     = 16      // characters of an encoded run
	deepest      = 3       // encodings in each other
	maxDecoded   = 8 << 20 // bytes of one text, in all
	maxRuns      = 1000    // of one text
	looksLikeHow = 256     // bytes of a decoded run that must be text
)

// Decoded calls yield for each run of the text that is encoded (base64, with either alphabet, or percent-encoding) and is text when decoded, with where the run stands in the
// text. Runs inside of runs are decoded, too, and stand where the outermost does.
func (t Text) Decoded(yield func(plain string, at Span) bool) {
	if t.Kind == mcp.Number || len(t.S) < shortest && strings.IndexByte(t.S, '%') < 0 {
		return
	}
	d := decoder{yield: yield, left: maxDecoded, runs: maxRuns}
	d.in(t.S, Span{}, 0)
}

type decoder struct {
	yield func(plain string, at Span) bool
	left  int
	runs  int
	over  bool
}

// in decodes the runs of s. at is where s stands in the text, when depth is not 0.
func (d *decoder) in(s string, at Span, depth int) {
	if depth == deepest {
		return
	}
	for i := 0; i < len(s) && !d.over; {
		c := classOf(s[i])
		if c == 0 {
			i++
			continue
		}
		from := i
		percent, all := false, byte(0)
		for i < len(s) && classOf(s[i]) != 0 {
			percent = percent || s[i] == '%'
			all |= classOf(s[i])
			i++
		}
		where := at
		if depth == 0 {
			where = Span{from, i}
		}
		run := s[from:i]
		if percent {
			d.percent(run, where, depth)
		}
		d.base64(run, where, depth, depth == 0)
	}
}

// Classes of the bytes that an encoded run may hold.
const (
	inBase64 byte = 1 << iota
	inURL
)

func classOf(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '+', c == '/', c == '=':
		return inBase64 | inURL
	case c == '%', c == '.', c == '~', c == '&', c == ':', c == '?', c == '#', c == '@', c == '!', c == '$', c == '*', c == ';':
		return inURL
	}
	return 0
}

func (d *decoder) percent(run string, at Span, depth int) {
	plain, err := url.PathUnescape(run)
	if err != nil || plain == run {
		return
	}
	d.found(plain, at, depth)
}

// base64 decodes the parts of a run that are base64.
func (d *decoder) base64(run string, at Span, depth int, outer bool) {
	for i := 0; i < len(run) && !d.over; {
		if classOf(run[i])&inBase64 == 0 {
			i++
			continue
		}
		from := i
		for i < len(run) && classOf(run[i])&inBase64 != 0 {
			i++
		}
		part := run[from:i]
		if len(part) < shortest {
			continue
		}
		where := at
		if outer {
			where = Span{at.From + from, at.From + i}
		}
		if plain, ok := unbase64(part); ok {
			d.found(plain, where, depth)
		}
	}
}

// unbase64 is part decoded, if that is text. A data URL, or a path, puts slashes before what is encoded: those are tried without what is before the last.
func unbase64(part string) (string, bool) {
	part = strings.TrimRight(part, "=")
	standard := strings.ContainsAny(part, "+/")
	if standard && strings.ContainsAny(part, "-_") {
		return "", false
	}
	encoding := base64.RawURLEncoding
	if standard {
		encoding = base64.RawStdEncoding
	}
	if len(part)%4 == 1 {
		part = part[:len(part)-1]
	}
	head := part[:min(len(part), looksLikeHow/3*4)]
	if plain, err := encoding.DecodeString(head); err != nil || !isText(plain, len(head) < len(part)) {
		return "", false
	}
	plain, err := encoding.DecodeString(part)
	if err != nil || !utf8.Valid(plain) {
		return "", false
	}
	return string(plain), true
}

// isText says that b is UTF-8 without control characters. cut says that it may end within a character.
func isText(b []byte, cut bool) bool {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return cut && len(b)-i < utf8.UTFMax
		}
		if r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f {
			return false
		}
		i += n
	}
	return true
}

func (d *decoder) found(plain string, at Span, depth int) {
	if d.runs--; d.runs < 0 || d.left < len(plain) {
		d.over = true
		return
	}
	d.left -= len(plain)
	if !d.yield(plain, at) {
		d.over = true
		return
	}
	d.in(plain, at, depth+1)
}

// Cut is a part of a text that is to go, and what is to stand in its place.
type Cut struct {
	Text Text
	Span Span
	With string
}

// Redact answers the edits that make the cuts. Of cuts that overlap, the first one's words stand in the place of all. A number of which a part is cut becomes a string.
func Redact(m *mcp.Message, cuts []Cut) ([]mcp.Edit, error) {
	values, names := map[string][]Cut{}, map[string][]Cut{}
	for _, c := range cuts {
		at := c.Text.Pointer()
		if c.Text.Kind == mcp.Name {
			names[at] = append(names[at], c)
		} else {
			values[at] = append(values[at], c)
		}
	}
	var edits []mcp.Edit
	for at, cuts := range values {
		edits = append(edits, mcp.Set(at, mcp.Quote(without(cuts))))
	}
	slices.SortFunc(edits, func(a, b mcp.Edit) int { return cmp.Compare(a.Pointer, b.Pointer) })
	if len(names) == 0 {
		return edits, nil
	}
	// A name is changed by taking its member out and putting another in: the members below first, and all in a body of its own.
	renamed, err := m.Edit(edits...)
	if err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	places := make([]string, 0, len(names))
	for at := range names {
		places = append(places, at)
	}
	slices.SortFunc(places, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(b, "/"), strings.Count(a, "/")), cmp.Compare(a, b))
	})
	for _, at := range places {
		value, _ := renamed.Get(at)
		parent := at[:strings.LastIndexByte(at, '/')]
		name := without(names[at])
		for n := 2; ; n++ {
			if _, taken := renamed.Get(parent + "/" + mcp.Escape(name)); !taken {
				break
			}
			name = fmt.Sprintf("%s %d", without(names[at]), n)
		}
		if renamed, err = renamed.Edit(mcp.Remove(at), mcp.Set(parent+"/"+mcp.Escape(name), slices.Clone(value))); err != nil {
			return nil, fmt.Errorf("redact a name: %w", err)
		}
	}
	return []mcp.Edit{mcp.Set("", renamed.Body())}, nil
}

// without is the text of the cuts with them made.
func without(cuts []Cut) string {
	slices.SortStableFunc(cuts, func(a, b Cut) int { return cmp.Compare(a.Span.From, b.Span.From) })
	s := cuts[0].Text.S
	var b strings.Builder
	done := 0
	for _, c := range cuts {
		from, to := max(c.Span.From, 0), min(c.Span.To, len(s))
		if to <= done && done > 0 {
			continue
		}
		if from >= done {
			b.WriteString(s[done:from])
			b.WriteString(c.With)
		}
		done = to
	}
	b.WriteString(s[done:])
	return b.String()
}
