package policies

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"gatekit/core/uris"

	"github.com/open-policy-agent/opa/v1/ast"
)

// hiddenTraversal returns what is wrong with a path that hides a traversal. A path hides a
// traversal if one of its decodings contains more `../` than the path itself, or a NUL character.
// hiddenTraversal returns "" for all other paths, and for an http(s) URL, which is not a path.
func hiddenTraversal(text string) string {
	if !hasSpecialCharacters(text) || !canDecodeToTraversal([]byte(text), false) {
		return ""
	}
	return searchTraversal(text)
}

// searchTraversal is hiddenTraversal without the quick checks.
func searchTraversal(text string) string {
	text = strings.TrimSpace(text)
	switch {
	case webURL.MatchString(text):
		return ""
	case len(text) > maxTextBytes && (ambiguousPath.MatchString(text) ||
		lookAlikes.Replace(text) != text):
		return "the path is too long"
	case len(text) > maxTextBytes: // not a path: a data: URI, or a file's content
		return ""
	}
	// the number of `../` in the text itself, which is the first decoding; -1 before this decoding
	plainParents := -1
	return forEachDecoding(text, func(decoding string) string {
		n := countParents(decoding)
		if plainParents < 0 {
			plainParents = max(n, countParents(trimQuotes(decoding)))
			if isWindowsPath(decoding) {
				plainParents = max(n, countParents(strings.ReplaceAll(decoding, `\`, "/")))
			}
		}
		switch {
		case uris.IsParent(decoding): // a name such as %2e%2e leads nowhere
		case strings.Contains(decoding, "\x00"):
			return "the path contains a NUL character"
		case n > plainParents:
			return "the path hides `../` in an encoded form"
		}
		return ""
	})
}

var (
	drivePath     = regexp.MustCompile(`^[A-Za-z]:[\\/][^\x00-\x1f"<>|]*$`)
	backslashPath = regexp.MustCompile(`^[\w.~ -]+(?:\\[\w.~ -]+)*\\?$`)
)

// isWindowsPath reports whether a path has a drive, or has only backslashes as separators and does
// not lead above its start. Elsewhere, a backslash may be an encoded slash.
func isWindowsPath(path string) bool {
	return drivePath.MatchString(path) || backslashPath.MatchString(path) &&
		!leavesStart(strings.ReplaceAll(path, `\`, "/"))
}

// countParents returns the number of segments of a path that lead to the parent folder.
func countParents(path string) (n int) {
	for s := range strings.SplitSeq(path, "/") {
		if uris.IsParent(s) {
			n++
		}
	}
	return n
}

// mayHideTraversal reports whether a text may hide a traversal. The text need not be a path.
// mayHideTraversal returns true for every text in which hiddenTraversal finds a problem, but is
// faster. It can also return true for a harmless text that is long or has line breaks.
func mayHideTraversal(text string) bool {
	switch {
	case !canDecodeToTraversal([]byte(text), false), !hasSpecialCharacters(text):
		return false
	case len(text) > maxPathBytes, strings.ContainsAny(text, "\n\r"):
		return true
	}
	return hiddenTraversal(text) != ""
}

// anyTextMayHideTraversal reports whether mayHideTraversal returns true for any string or member
// name in a value.
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

// hasSpecialCharacters reports whether a text contains characters that can be decoded in more than
// one way. It must be fast, because it is called for every string.
func hasSpecialCharacters(text string) bool {
	return strings.ContainsAny(text, "%\\;:\x00") || strings.Contains(text, "../") ||
		strings.IndexFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }) >= 0
}

// jsonMayHideTraversal is anyTextMayHideTraversal for JSON. It decodes the JSON only when its bytes
// contain something suspicious.
func jsonMayHideTraversal(raw []byte) bool {
	return canDecodeToTraversal(raw, true) && anyTextMayHideTraversal(ast.NewTerm(valueOf(raw,
		nil)))
}
