package policies

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// hiddenTraversal says why a path is not what it looks like: in one reading of it, it climbs more than it
// says, ends early, or is no text. A URL of the web is no path.
func hiddenTraversal(text string) string {
	if !hasSpecialCharacters(text) {
		return ""
	}
	text = strings.TrimSpace(text)
	switch {
	case webURL.MatchString(text):
		return ""
	case len(text) > maxTextBytes && (ambiguousPath.MatchString(text) || lookAlikes.Replace(text) != text):
		return "the path is too long"
	case len(text) > maxTextBytes: // an image as a data: URI, a file's content
		return ""
	}
	said := -1
	return forEachDecoding(text, func(reading string) string {
		n := countParents(reading)
		if said < 0 {
			said = max(n, countParents(trimQuotes(reading)))
		}
		switch {
		case strings.Contains(reading, "\x00"):
			return "the path contains a NUL character"
		case n > said:
			return "the path hides `../` in an encoded form"
		}
		return ""
	})
}

// countParents is how many of a path's steps lead up.
func countParents(path string) (n int) {
	for s := range strings.SplitSeq(path, "/") {
		if parentSegment.MatchString(s) {
			n++
		}
	}
	return n
}

// mayHideTraversal is a quick look at a text that may be no path at all: where it has lines, or is
// long, it says so sooner than disguised, and never says no where that has a fault.
func mayHideTraversal(text string) bool {
	switch {
	case !hasSpecialCharacters(text), !strings.Contains(text, "..") && !strings.ContainsAny(text,
		"%\x00") && strings.IndexFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }) < 0:
		return false
	case len(text) > maxPathBytes, strings.ContainsAny(text, "\n\r"):
		return true
	}
	return hiddenTraversal(text) != ""
}

// anyTextMayHideTraversal says whether a text in a value, or a name, may not be what it looks like.
func anyTextMayHideTraversal(t *ast.Term) bool {
	switch v := t.Value.(type) {
	case ast.String:
		return mayHideTraversal(string(v))
	case *ast.Array:
		return v.Until(anyTextMayHideTraversal)
	case ast.Object:
		return v.Until(func(name, value *ast.Term) bool {
			return anyTextMayHideTraversal(name) || anyTextMayHideTraversal(value)
		})
	case ast.Set:
		return v.Until(anyTextMayHideTraversal)
	}
	return false
}

// hasSpecialCharacters says whether anything in a text can be read in more than one way; it is asked of
// every text, so it is quick.
func hasSpecialCharacters(text string) bool {
	return strings.ContainsAny(text, "%\\;:\x00") || strings.Contains(text, "../") ||
		strings.IndexFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }) >= 0
}

// jsonMayHideTraversal is anyDisguised of JSON, which is not made a value of where a look at its bytes is
// enough.
func jsonMayHideTraversal(raw []byte) bool {
	return !isPlainJSON(raw) && anyTextMayHideTraversal(ast.NewTerm(valueOf(raw, nil)))
}

// isPlainJSON says that no text in JSON can be disguised: it is ASCII, and has neither a percent sign nor
// two dots, nor an escape that may stand for one of them, a backslash or NUL.
func isPlainJSON(raw []byte) bool {
	if bytes.IndexByte(raw, '%') >= 0 || bytes.Contains(raw, []byte("..")) || bytes.Contains(raw,
		[]byte(`\\`)) || bytes.Contains(raw, []byte(`\u`)) {
		return false
	}
	const high = 0x8080808080808080 // of eight bytes
	var seen uint64
	for ; len(raw) >= 8; raw = raw[8:] {
		seen |= binary.NativeEndian.Uint64(raw)
	}
	for _, c := range raw {
		seen |= uint64(c)
	}
	return seen&high == 0
}
