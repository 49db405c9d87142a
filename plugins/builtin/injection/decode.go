package injection

import (
	"encoding/hex"
	"html"
	"strings"
	"unicode/utf8"

	"gatekit/plugins/sdk/scan"
)

const (
	shortestHex = 32
	maxDecoded  = 1 << 20 // of hexadecimal and of character references, in one text
)

// decoded calls yield for what is written in other writings in t: base64 and percent-encoding (package scan), hexadecimal, HTML's character references. whole says that plain is
// all of the text, with what was not encoded.
func decoded(t scan.Text, yield func(plain string, at scan.Span, whole bool) bool) {
	if encodedRun(t.S) {
		t.Decoded(func(plain string, at scan.Span) bool { return yield(plain, at, false) })
	}
	left := maxDecoded
	for i := 0; i+shortestHex <= len(t.S); {
		if !isHex(t.S[i+shortestHex-1]) { // a run of that length would hold it
			i += shortestHex
			continue
		}
		from, to := i+shortestHex-1, i+shortestHex
		for from > i && isHex(t.S[from-1]) {
			from--
		}
		for to < len(t.S) && isHex(t.S[to]) {
			to++
		}
		i = to
		if run := t.S[from : to-(to-from)%2]; len(run) >= shortestHex && len(run)/2 <= left {
			left -= len(run) / 2
			if plain, err := hex.DecodeString(run); err == nil && utf8.Valid(plain) && !yield(string(plain), scan.Span{From: from, To: to}, false) {
				return
			}
		}
	}
	if strings.Count(t.S, "&#") >= 8 && len(t.S) <= left {
		if plain := html.UnescapeString(t.S); plain != t.S {
			yield(plain, scan.Span{From: 0, To: len(t.S)}, true)
		}
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// shortestRun is the shortest run of base64 that is read: what is shorter holds no sentence.
const shortestRun = 24

// encodedRun says whether s has percent signs, or a run of base64 that could hold a sentence: most texts have none, and need not be decoded.
func encodedRun(s string) bool {
	if strings.IndexByte(s, '%') >= 0 {
		return true
	}
	for i := shortestRun - 1; i < len(s); {
		from := i
		for from > i-shortestRun && inBase64[s[from]] {
			from--
		}
		if from == i-shortestRun {
			return true
		}
		i = from + shortestRun
	}
	return false
}

// inBase64 are the bytes of base64, but for those of paths and of names with dashes: a run without them is none of these.
var inBase64 = func() (t [256]bool) {
	for c := range 256 {
		t[c] = c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '=' || c == '-' || c == '_'
	}
	return t
}()
