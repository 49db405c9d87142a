package mcp

import (
	"bytes"
	"crypto/sha256"

	"github.com/go-json-experiment/json/jsontext"
)

// CanonicalDigest returns a digest of a JSON value that does not depend on its encoding: members
// are sorted, blanks removed, and strings decoded. Numbers stay as they are spelt, so that
// different integers beyond 2^53 have different digests. An empty raw counts as the empty object.
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
	return sum[:], nil
}
