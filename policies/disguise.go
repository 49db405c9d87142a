package policies

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// disguised says why a path is not what it looks like: in one reading of it, it climbs more than it
// says, ends early, or is no text. A URL of the web is no path.
func disguised(text string) string {
	if !readOtherwise(text) {
		return ""
	}
	text = strings.TrimSpace(text)
	switch {
	case webURL.MatchString(text):
		return ""
	case len(text) > maxJudged && (twofold.MatchString(text) || alike.Replace(text) != text):
		return "the path is too long"
	case len(text) > maxJudged: // an image as a data: URI, a file's content
		return ""
	}
	said := -1
	return eachReading(text, func(reading string) string {
		n := parents(reading)
		if said < 0 {
			said = max(n, parents(unquoted(reading)))
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

// parents is how many of a path's steps lead up.
func parents(path string) (n int) {
	for s := range strings.SplitSeq(path, "/") {
		if parent.MatchString(s) {
			n++
		}
	}
	return n
}

// mayBeDisguised is a quick look at a text that may be no path at all: where it has lines, or is
// long, it says so sooner than disguised, and never says no where that has a fault.
func mayBeDisguised(text string) bool {
	switch {
	case !readOtherwise(text), !strings.Contains(text, "..") && !strings.ContainsAny(text,
		"%\x00") && strings.IndexFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }) < 0:
		return false
	case len(text) > maxPath, strings.ContainsAny(text, "\n\r"):
		return true
	}
	return disguised(text) != ""
}

// anyDisguised says whether a text in a value, or a name, may not be what it looks like.
func anyDisguised(t *ast.Term) bool {
	switch v := t.Value.(type) {
	case ast.String:
		return mayBeDisguised(string(v))
	case *ast.Array:
		return v.Until(anyDisguised)
	case ast.Object:
		return v.Until(func(name, value *ast.Term) bool {
			return anyDisguised(name) || anyDisguised(value)
		})
	case ast.Set:
		return v.Until(anyDisguised)
	}
	return false
}

// readOtherwise says whether anything in a text can be read in more than one way; it is asked of
// every text, so it is quick.
func readOtherwise(text string) bool {
	return strings.ContainsAny(text, "%\\;:\x00") || strings.Contains(text, "../") ||
		strings.IndexFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }) >= 0
}

// disguisedIn is anyDisguised of JSON, which is not made a value of where a look at its bytes is
// enough.
func disguisedIn(raw []byte) bool {
	return !plain(raw) && anyDisguised(ast.NewTerm(valueOf(raw, nil)))
}

// plain says that no text in JSON can be disguised: it is ASCII, and has neither a percent sign nor
// two dots, nor an escape that may stand for one of them, a backslash or NUL.
func plain(raw []byte) bool {
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
