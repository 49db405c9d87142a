package injection

import (
	"encoding/hex"
	"html"
	"iter"
	"strings"
	"unicode/utf8"

	"gatekit/plugins/sdk/scan"
)

const (
	minHexRun  = 32      // bytes; a shorter run of hexadecimal is not decoded
	maxDecoded = 1 << 20 // bytes of hexadecimal and character references decoded in one text
)

// mayBeEncoded reports whether eachDecoded may find a text in s. Most texts have none.
func mayBeEncoded(s string) bool {
	return strings.IndexByte(s, '%') >= 0 || strings.Contains(s, "&#") ||
		scan.NextBase64(s, 0, minBase64Run).From < len(s) // includes hexadecimal
}

// eachDecoded calls yield for each text that is encoded in t, until yield returns false. The
// encodings are base64 and percent-encoding (see package scan), hexadecimal, and HTML character
// references. whole is true if plain is all of t, including the parts that are not encoded.
func eachDecoded(t scan.Text, yield func(plain string, at scan.Span, whole bool) bool) {
	for at := range encodedRuns(t.Value) {
		run := scan.Text{Leaf: t.Leaf, Value: t.Value[at.From:at.To]}
		more := true
		run.Decoded(func(plain string, in scan.Span) bool {
			more = yield(plain, scan.Span{From: at.From + in.From, To: at.From + in.To}, false)
			return more
		})
		if !more {
			return
		}
	}
	left := maxDecoded
	for i := 0; i+minHexRun <= len(t.Value); {
		// Every run of minHexRun bytes that begins in t.Value[i:i+minHexRun] includes this byte.
		if !isHex(t.Value[i+minHexRun-1]) {
			i += minHexRun
			continue
		}
		from, to := i+minHexRun-1, i+minHexRun
		for from > i && isHex(t.Value[from-1]) {
			from--
		}
		for to < len(t.Value) && isHex(t.Value[to]) {
			to++
		}
		i = to
		if run := t.Value[from : to-(to-from)%2]; len(run) >= minHexRun && len(run)/2 <= left {
			left -= len(run) / 2
			if plain, err := hex.DecodeString(run); err == nil && utf8.Valid(plain) &&
				!yield(string(plain), scan.Span{From: from, To: to}, false) {
				return
			}
		}
	}
	if strings.Count(t.Value, "&#") >= 8 && len(t.Value) <= left {
		if plain := html.UnescapeString(t.Value); plain != t.Value {
			yield(plain, scan.Span{From: 0, To: len(t.Value)}, true)
		}
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// minBase64Run is the length of the shortest run of base64 that is decoded. A shorter run holds no
// sentence.
const minBase64Run = 24

// encodedRuns returns the parts of s that have percent-encoding, or a run of base64 that could hold
// a sentence. Most texts have few such parts, and the rest of a text need not be decoded.
func encodedRuns(s string) iter.Seq[scan.Span] {
	return func(yield func(scan.Span) bool) {
		percent := nextPercent(s, 0)
		for i := 0; ; {
			at := scan.NextBase64(s, i, minBase64Run).From
			if percent < i {
				percent = nextPercent(s, i)
			}
			if at = min(at, percent); at >= len(s) {
				return
			}
			run := scan.Span{From: at, To: at}
			for run.From > i && isURLByte[s[run.From-1]] {
				run.From--
			}
			for run.To < len(s) && isURLByte[s[run.To]] {
				run.To++
			}
			if !yield(run) {
				return
			}
			i = run.To
		}
	}
}

// nextPercent returns the index of the next percent-encoded byte in s from i on, or len(s).
func nextPercent(s string, i int) int {
	for {
		n := strings.IndexByte(s[i:], '%')
		if n < 0 || i+n+2 >= len(s) {
			return len(s)
		}
		if i += n; isHex(s[i+1]) && isHex(s[i+2]) {
			return i
		}
		i++
	}
}

// isURLByte holds the bytes of base64, in both alphabets, and the other bytes of URLs.
var isURLByte = func() (all [256]bool) {
	for c := range 0x80 {
		all[c] = c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' ||
			strings.IndexByte("+/=-_%.~&:?#@!$*;", byte(c)) >= 0
	}
	return all
}()
