package scan

import (
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"gatekit/core/mcp"
	"gatekit/plugins/sdk/scan/eight"
)

// Limits of decoding.
const (
	minBase64 = 16 // least number of characters of a base64 run on one line
	maxDepth  = 3  // greatest number of encodings inside each other
	// sampleBytes is how many decoded bytes decide whether a base64 run is text. It is a multiple
	// of three, so that the base64 of the sample has no padding.
	sampleBytes = 192
	// lenientBytes is the length from which decoded text may have some faults. A fault is a control
	// character or an invalid byte; one fault is allowed for each sixteen bytes.
	lenientBytes = 64
)

// Decoded decodes the runs of the text that are base64 (of either alphabet) or percent-encoded. For
// each run that is text when decoded, it calls yield with the decoded text and the span of the run,
// until yield returns false. A run inside a decoded text is decoded, too, with the span of the
// outermost run. plain is valid UTF-8, with U+FFFD in place of invalid bytes.
func (t Text) Decoded(yield func(plain string, span Span) bool) {
	if t.Kind != mcp.NumberLeaf {
		d := decoder{yield: yield}
		d.decode(t.Value, Span{}, 0)
	}
}

// MayBeEncoded reports whether the text has a run that Decoded may decode. Most texts have none.
func (t Text) MayBeEncoded() bool {
	return t.Kind != mcp.NumberLeaf && (strings.IndexByte(t.Value, '%') >= 0 ||
		NextBase64(t.Value, 0, minBase64).From < len(t.Value))
}

// decoder decodes the runs of one text. In its methods, depth is the number of encodings that were
// decoded already. If depth is not 0, outer is the span of the outermost run in the text.
type decoder struct {
	yield func(plain string, span Span) bool
	done  bool // yield returned false
}

// decode decodes the runs of s.
func (d *decoder) decode(s string, outer Span, depth int) {
	if depth < maxDepth {
		d.decodePercent(s, outer, depth)
		d.decodeBase64(s, outer, depth)
	}
}

// found yields a decoded run, and decodes the runs in the decoded text. span is the position of the
// run in the string that was searched.
func (d *decoder) found(plain string, span, outer Span, depth int) {
	if depth > 0 {
		span = outer
	}
	if d.done = !d.yield(plain, span); !d.done {
		d.decode(plain, span, depth+1)
	}
}

// Classes of the bytes that an encoded run may hold.
const (
	standard   byte = 1 << iota // base64 with "+" and "/"
	urlSafe                     // base64 with "-" and "_"
	anyBase64                   // both alphabets, and "="
	percentRun                  // a URL with percent-encoding
)

// classes has the classes of each byte.
var classes = func() (table [256]byte) {
	set := func(chars string, class byte) {
		for i := range len(chars) {
			table[chars[i]] |= class
		}
	}
	set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
		standard|urlSafe|anyBase64|percentRun)
	set("+/", standard|anyBase64)
	set("-_", urlSafe|anyBase64)
	set("=", anyBase64)
	set("%+/-_=.~&:?#@!$*;,()'", percentRun)
	return table
}()

// decodePercent decodes the percent-encoded runs in s.
func (d *decoder) decodePercent(s string, outer Span, depth int) {
	for i := 0; !d.done; {
		n := strings.IndexByte(s[i:], '%')
		if n < 0 {
			return
		}
		n += i
		if _, ok := escapedByte(s, n); !ok {
			i = n + 1
			continue
		}
		from, to := n, n
		for from > i && classes[s[from-1]]&percentRun != 0 {
			from--
		}
		for to < len(s) && classes[s[to]]&percentRun != 0 {
			to++
		}
		i = to
		d.found(strings.ToValidUTF8(unescape(s[from:to]), "\uFFFD"), Span{from, to}, outer, depth)
	}
}

// escapedByte returns the byte that the percent escape at s[i] stands for. The second result
// reports whether there is one.
func escapedByte(s string, i int) (byte, bool) {
	if i+2 >= len(s) || s[i] != '%' {
		return 0, false
	}
	high, low := hex(s[i+1]), hex(s[i+2])
	return byte(high<<4 | low), high >= 0 && low >= 0
}

// hex returns the value of a hexadecimal digit, or -1.
func hex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// unescape decodes the percent escapes in s, and keeps every other "%".
func unescape(s string) string {
	plain := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c, ok := escapedByte(s, i)
		if ok {
			i += 2
		} else {
			c = s[i]
		}
		plain = append(plain, c)
	}
	return string(plain)
}

// decodeBase64 decodes the base64 runs in s.
func (d *decoder) decodeBase64(s string, outer Span, depth int) {
	joined := 0 // lines before this index were joined before, and were not base64 together
	for i := 0; !d.done; {
		run := NextBase64(s, i, minBase64)
		if run.From == len(s) {
			return
		}
		i, joined = d.decodeLines(s, run.From, run.To, joined, outer, depth)
	}
}

// NextBase64 returns the first run of n or more characters of base64 in s, from index i on. A run
// may have characters of both alphabets, and "=" anywhere. n must be at least 16. If there is no
// such run, NextBase64 returns an empty span at the end of s.
func NextBase64(s string, i, n int) Span {
	// Each run of 16 characters has eight of them that begin at a multiple of eight from start on.
	start := i
	for i+8 <= len(s) {
		x := eight.Load(s, i)
		if eight.Below(x, '+')|eight.NonASCII(x) != 0 || !isBase64(s[i:i+8]) {
			i += 8
			continue
		}
		run := Span{i, endOfRun(s, i+8)}
		for run.From > start && classes[s[run.From-1]]&anyBase64 != 0 {
			run.From--
		}
		if run.To-run.From >= n {
			return run
		}
		start, i = run.To, run.To
	}
	return Span{len(s), len(s)}
}

// isBase64 reports whether all characters of s may be in base64.
func isBase64(s string) bool {
	for i := range len(s) {
		if classes[s[i]]&anyBase64 == 0 {
			return false
		}
	}
	return true
}

// endOfRun returns the end of the base64 run that contains s[i].
func endOfRun(s string, i int) int {
	for i < len(s) && classes[s[i]]&anyBase64 != 0 {
		i++
	}
	return i
}

// decodeLines decodes the run s[from:to] together with the lines that continue the run, and returns
// the end of the last line. If the run and these lines together are not base64 of text, decodeLines
// decodes only s[from:to], and returns to. Lines before joined are not joined again, so that the
// time is linear. decodeLines also returns the new value of joined.
func (d *decoder) decodeLines(s string, from, to, joined int, outer Span,
	depth int) (next, newJoined int) {
	end, more := to, 0 // the end of the last line, and the number of further lines
	isChecked := false
	for start := to; from >= joined && (end-start < minBase64 || s[end-1] != '='); more++ {
		next := nextLine(s, end)
		if next < 0 {
			break
		}
		stop := endOfRun(s, next)
		if stop == next || stop < len(s) && strings.IndexByte("\r\n\"'`<\\", s[stop]) < 0 {
			break // the line begins with a word of other text
		}
		last := stop-next < minBase64
		start, end = next, stop
		if last || s[end-1] == '=' {
			more++
			break
		}
		if !isChecked && end-from >= 2*sampleBytes {
			isChecked = true
			if _, ok := base64Text(joinLines(s[from:end])); !ok {
				more = -1 // the beginning decides, and costs little
			}
		}
		if more < 0 {
			break
		}
	}
	if more > 0 {
		if plain, ok := base64Text(joinLines(s[from:end])); ok {
			d.found(plain, Span{from, end}, outer, depth)
			return end, joined
		}
		if isChecked {
			joined = end
		}
	}
	d.decodeRun(s, from, to, outer, depth)
	return to, joined
}

// joinLines returns the text of lines without their ends and indentation.
func joinLines(s string) string {
	joined := make([]byte, 0, len(s))
	for i := range len(s) {
		if classes[s[i]]&anyBase64 != 0 {
			joined = append(joined, s[i])
		}
	}
	return string(joined)
}

// nextLine returns where the text of the next line begins, after the indentation. It returns -1 if
// no line ends at i.
func nextLine(s string, i int) int {
	if i < len(s) && s[i] == '\r' {
		i++
	}
	if i >= len(s) || s[i] != '\n' {
		return -1
	}
	for i++; i < len(s) && (s[i] == ' ' || s[i] == '\t'); i++ {
	}
	return i
}

// decodeRun decodes the run s[from:to]. A run may begin with a path, or with a name and "=". If the
// whole run is not base64 of text, decodeRun therefore decodes its parts that are of one alphabet.
// If two parts overlap, it decodes only the longer part.
func (d *decoder) decodeRun(s string, from, to int, outer Span, depth int) {
	if plain, ok := base64Text(s[from:to]); ok {
		d.found(plain, Span{from, to}, outer, depth)
		return
	}
	type part struct {
		Span
		plain string
	}
	var parts []part
	for _, alphabet := range []byte{standard, urlSafe, standard | urlSafe} {
		for i := from; i < to; i++ {
			begin := i
			for i < to && classes[s[i]]&alphabet == alphabet {
				i++
			}
			if i-begin < minBase64 || i-begin == to-from {
				continue
			}
			if plain, ok := base64Text(s[begin:i]); ok {
				for i < to && s[i] == '=' {
					i++
				}
				parts = append(parts, part{Span{begin, i}, plain})
			}
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return (b.To - b.From) - (a.To - a.From) })
	var decoded []Span // sorted
	for _, p := range parts {
		n, _ := slices.BinarySearchFunc(decoded, p.From, func(s Span, from int) int {
			return s.From - from
		})
		if n > 0 && decoded[n-1].To > p.From || n < len(decoded) && decoded[n].From < p.To {
			continue
		}
		decoded = slices.Insert(decoded, n, p.Span)
		if d.found(p.plain, p.Span, outer, depth); d.done {
			return
		}
	}
}

// base64Text decodes a run of base64. ok reports whether the run is base64 of text.
func base64Text(run string) (text string, ok bool) {
	run = strings.TrimRight(run, "=")
	alphabets := standard | urlSafe // the alphabets that all characters belong to
	for i := range len(run) {
		alphabets &= classes[run[i]]
	}
	encoding := base64.RawURLEncoding
	switch {
	case alphabets&(standard|urlSafe) == 0:
		return "", false // mixed alphabets, or "=" inside
	case alphabets&urlSafe == 0:
		encoding = base64.RawStdEncoding
	}
	if len(run)%4 == 1 { // probably truncated
		run = run[:len(run)-1]
	}
	var head [sampleBytes / 3 * 4]byte
	var sample [sampleBytes]byte
	h := copy(head[:], run)
	n, err := encoding.Decode(sample[:], head[:h])
	if err != nil || n == 0 || !isText(sample[:n], h < len(run)) {
		return "", false
	}
	if h == len(run) {
		return strings.ToValidUTF8(string(sample[:n]), "\uFFFD"), true
	}
	plain, err := encoding.DecodeString(run)
	if err != nil {
		return "", false
	}
	return strings.ToValidUTF8(string(plain), "\uFFFD"), true
}

// isText reports whether b is UTF-8 without control characters. If b has at least lenientBytes, it
// may have a few faults. If truncated is set, b may end within a character.
func isText(b []byte, truncated bool) bool {
	bad := 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == utf8.RuneError && n == 1 && truncated && len(b)-i < utf8.UTFMax:
		case r == utf8.RuneError && n == 1, r < ' ' && r != '\n' && r != '\r' && r != '\t',
			r == 0x7f:
			bad++
		}
		i += n
	}
	return bad == 0 || len(b) >= lenientBytes && bad <= len(b)/16
}
