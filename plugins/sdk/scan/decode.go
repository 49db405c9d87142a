package scan

import (
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"gatekit/core/mcp"
)

// Bounds of decoding.
const (
	shortest = 16  // characters of a base64 run in one line
	deepest  = 3   // encodings in each other
	looked   = 192 // bytes at the head of what base64 says that tell whether it is text
	lenient  = 64  // bytes; from here on one in sixteen of them may be no text
)

// Decoded calls yield for each run of the text that is encoded (base64, with either alphabet, or
// percent-encoding) and is text when decoded, with where the run stands in the text, until yield
// answers false. Runs inside of runs are decoded, too, and stand where the outermost does. plain is
// UTF-8; what was not is U+FFFD in it.
func (t Text) Decoded(yield func(plain string, at Span) bool) {
	if t.Kind != mcp.NumberLeaf {
		d := decoder{yield: yield}
		d.in(t.Value, Span{}, 0)
	}
}

type decoder struct {
	yield func(plain string, at Span) bool
	over  bool
}

// in decodes the runs of s. at is where s stands in the text, when depth is not 0.
func (d *decoder) in(s string, at Span, depth int) {
	if depth < deepest {
		d.percents(s, at, depth)
		d.base64s(s, at, depth)
	}
}

func (d *decoder) found(plain string, at, in Span, depth int) {
	if depth > 0 {
		at = in
	}
	if d.over = !d.yield(plain, at); !d.over {
		d.in(plain, at, depth+1)
	}
}

// Classes of the bytes that an encoded run may hold.
const (
	standard  byte = 1 << iota // base64, with "+" and "/"
	urlSafe                    // base64, with "-" and "_"
	padded                     // either, or "="
	unescaped                  // what stands beside percent-encoding, and it
)

var classes = func() (of [256]byte) {
	set := func(chars string, class byte) {
		for i := range len(chars) {
			of[chars[i]] |= class
		}
	}
	set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
		standard|urlSafe|padded|unescaped)
	set("+/", standard|padded)
	set("-_", urlSafe|padded)
	set("=", padded)
	set("%+/-_=.~&:?#@!$*;,()'", unescaped)
	return of
}()

// percents decodes what is percent-encoded in s.
func (d *decoder) percents(s string, in Span, depth int) {
	for i := 0; !d.over; {
		n := strings.IndexByte(s[i:], '%')
		if n < 0 {
			return
		}
		n += i
		if _, ok := escaped(s, n); !ok {
			i = n + 1
			continue
		}
		from, to := n, n
		for from > i && classes[s[from-1]]&unescaped != 0 {
			from--
		}
		for to < len(s) && classes[s[to]]&unescaped != 0 {
			to++
		}
		i = to
		d.found(strings.ToValidUTF8(unescape(s[from:to]), "\uFFFD"), Span{from, to}, in, depth)
	}
}

// escaped is the byte that the escape at i says.
func escaped(s string, i int) (byte, bool) {
	if i+2 >= len(s) || s[i] != '%' {
		return 0, false
	}
	high, low := hex(s[i+1]), hex(s[i+2])
	return byte(high<<4 | low), high >= 0 && low >= 0
}

func hex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// unescape decodes the escapes in s and leaves what only looks like one.
func unescape(s string) string {
	plain := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c, ok := escaped(s, i)
		if ok {
			i += 2
		} else {
			c = s[i]
		}
		plain = append(plain, c)
	}
	return string(plain)
}

// base64s decodes what is base64 in s.
func (d *decoder) base64s(s string, in Span, depth int) {
	for i := 0; i+shortest <= len(s) && !d.over; {
		// every run that is long enough and begins at i or up to j holds the byte at j
		j := i + shortest - 1
		if classes[s[j]]&padded == 0 {
			i = j + 1
			continue
		}
		from := j
		for from > i && classes[s[from-1]]&padded != 0 {
			from--
		}
		to := endOfRun(s, j)
		if to-from >= shortest {
			to = d.lines(s, from, to, in, depth)
		}
		i = to
	}
}

func endOfRun(s string, i int) int {
	for i < len(s) && classes[s[i]]&padded != 0 {
		i++
	}
	return i
}

// lines decodes the run at from, with the lines that go on with it, and answers where that ends.
func (d *decoder) lines(s string, from, to int, in Span, depth int) int {
	end, more := to, 0
	for start := to; end-start < shortest || s[end-1] != '='; more++ {
		next := nextLine(s, end)
		if next < 0 {
			break
		}
		stop := endOfRun(s, next)
		if stop == next || stop < len(s) && strings.IndexByte("\r\n\"'`<\\", s[stop]) < 0 {
			break // a word of what comes after
		}
		last := stop-next < shortest
		start, end = next, stop
		if last || s[end-1] == '=' {
			more++
			break
		}
	}
	if more > 0 {
		whole := strings.NewReplacer("\r", "", "\n", "", " ", "", "\t", "").Replace(s[from:end])
		if plain, ok := unbase64(whole); ok {
			d.found(plain, Span{from, end}, in, depth)
			return end
		}
	}
	d.run(s, from, to, in, depth)
	return to
}

// nextLine is where the text of the line after the one that ends at i begins; -1 when there is
// none.
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

// run decodes the run s[from:to]: as it is, or else the parts of it that are of one alphabet, since
// a path, a name and "=" may stand before what is encoded. Where two alphabets read the same, the
// one that reads more is right.
func (d *decoder) run(s string, from, to int, in Span, depth int) {
	if plain, ok := unbase64(s[from:to]); ok {
		d.found(plain, Span{from, to}, in, depth)
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
			if i-begin < shortest || i-begin == to-from {
				continue
			}
			if plain, ok := unbase64(s[begin:i]); ok {
				for i < to && s[i] == '=' {
					i++
				}
				parts = append(parts, part{Span{begin, i}, plain})
			}
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return (b.To - b.From) - (a.To - a.From) })
	var read []Span // in order
	for _, p := range parts {
		n, _ := slices.BinarySearchFunc(read, p.From, func(s Span, from int) int {
			return s.From - from
		})
		if n > 0 && read[n-1].To > p.From || n < len(read) && read[n].From < p.To {
			continue
		}
		read = slices.Insert(read, n, p.Span)
		if d.found(p.plain, p.Span, in, depth); d.over {
			return
		}
	}
}

// unbase64 is the run decoded, if that is text.
func unbase64(run string) (string, bool) {
	run = strings.TrimRight(run, "=")
	all := standard | urlSafe
	for i := range len(run) {
		all &= classes[run[i]]
	}
	encoding := base64.RawURLEncoding
	switch {
	case all&(standard|urlSafe) == 0:
		return "", false // of both alphabets, or with "=" inside
	case all&urlSafe == 0:
		encoding = base64.RawStdEncoding
	}
	if len(run)%4 == 1 { // cut off, it seems
		run = run[:len(run)-1]
	}
	var head [looked / 3 * 4]byte
	var text [looked]byte
	h := copy(head[:], run)
	n, err := encoding.Decode(text[:], head[:h])
	if err != nil || n == 0 || !isText(text[:n], h < len(run)) {
		return "", false
	}
	if h == len(run) {
		return strings.ToValidUTF8(string(text[:n]), "\uFFFD"), true
	}
	plain, err := encoding.DecodeString(run)
	if err != nil {
		return "", false
	}
	return strings.ToValidUTF8(string(plain), "\uFFFD"), true
}

// isText says that b is UTF-8 without control characters, or nearly. cut says that it may end
// within a character.
func isText(b []byte, cut bool) bool {
	bad := 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == utf8.RuneError && n == 1 && cut && len(b)-i < utf8.UTFMax:
		case r == utf8.RuneError && n == 1, r < ' ' && r != '\n' && r != '\r' && r != '\t',
			r == 0x7f:
			bad++
		}
		i += n
	}
	return bad == 0 || len(b) >= lenient && bad <= len(b)/16
}
