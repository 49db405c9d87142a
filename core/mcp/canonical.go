package mcp

import (
	"bytes"
	"crypto/sha256"

	"github.com/go-json-experiment/json/jsontext"
)

// CanonicalDigest returns a digest of a JSON value that does not depend on its encoding: the order
// of members, white space and escapes make no difference. The spelling of numbers does make a
// difference, so different integers beyond 2^53 have different digests. If raw is empty, the result
// is the digest of the empty object.
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
