package mcp

import (
	"bytes"
	"crypto/sha256"
	"regexp"

	"github.com/go-json-experiment/json/jsontext"
)

// CanonicalDigest returns a digest of a JSON value that does not depend on its encoding: the order
// of members, white space and escapes make no difference. The spelling of numbers does make a
// difference, so different integers beyond 2^53 have different digests. A value with a lone
// surrogate has an encoding of its own: its digest depends on every byte. If raw is empty, the
// result is the digest of the empty object.
func CanonicalDigest(raw []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(raw))
	if len(v) == 0 {
		v = jsontext.Value("{}")
	}
	err := v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false),
		jsontext.CanonicalizeRawFloats(false),
		jsontext.AllowInvalidUTF8(true), jsontext.Multiline(false), jsontext.SpaceAfterColon(false),
		jsontext.SpaceAfterComma(false))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(v)
	if hasSurrogateEscape(raw) && !jsontext.Value(raw).IsValid() {
		// Format has put U+FFFD in place of every lone surrogate
		sum = sha256.Sum256(append(sum[:], raw...))
	}
	return sum[:], nil
}

// traceparent is a trace parent of W3C Trace Context.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// RetryDigest returns the CanonicalDigest of the params of a request. It does not cover the
// progress token and the trace parent in _meta, because a client sends new ones when it makes the
// same request again.
func RetryDigest(m *Message) ([]byte, error) {
	var edits []Edit
	othersRemain := false
	m.Members("/_meta", func(name string, raw []byte) bool {
		text, _ := NewNotification("", raw).Text("")
		if name == "progressToken" || name == "traceparent" && traceparent.MatchString(text) {
			edits = append(edits, Remove("/_meta/"+name))
		} else {
			othersRemain = true
		}
		return true
	})
	if raw, ok := m.Get("/_meta"); ok && !othersRemain && raw[0] == '{' {
		edits = []Edit{Remove("/_meta")}
	}
	bound, err := m.Edit(edits...)
	if err != nil {
		return nil, err
	}
	return CanonicalDigest(bound.Body())
}
