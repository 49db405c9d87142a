package proxy

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// tokenPrefix marks the tokens that clients keep for us: cursors and requestStates.
const tokenPrefix = "gk1."

// errToken is all that a client is told about a token that is not ours, not its, or not for this.
var errToken = errors.New("invalid or expired token")

// sealer makes the tokens that clients keep for us. They can neither read nor change them, and a token that
// was made for one purpose (principal, method, target) does not open for another.
type sealer struct{ aead cipher.AEAD }

// newSealer uses key, or a random one when it is empty.
func newSealer(key []byte) (*sealer, error) {
	if len(key) == 0 {
		key = make([]byte, 32)
		rand.Read(key)
	}
	sum := sha256.Sum256(append([]byte("gatekit state\x00"), key...))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &sealer{aead}, nil
}

// seal encrypts v for one purpose. The words of the purpose are bound as they are, whatever they contain.
func (s *sealer) seal(v any, purpose ...string) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, bind(purpose))), nil
}

// open is the reverse of seal. The error is always errToken.
func (s *sealer) open(token string, v any, purpose ...string) error {
	body, ours := strings.CutPrefix(token, tokenPrefix)
	sealed, err := base64.RawURLEncoding.DecodeString(body)
	if !ours || err != nil {
		return errToken
	}
	plain, err := s.aead.Open(nil, nil, sealed, bind(purpose))
	if err != nil || json.Unmarshal(plain, v) != nil {
		return errToken
	}
	return nil
}

func bind(purpose []string) []byte {
	b, _ := json.Marshal(purpose) // strings always marshal; invalid UTF-8 was refused by the parser
	return b
}

// meaning is a digest of a JSON value that survives re-encoding: members sorted, no blanks, strings by what they spell. Numbers
// count as they are spelt, so that two integers beyond 2^53 never look alike.
func meaning(raw []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(raw))
	if len(v) == 0 {
		v = jsontext.Value("{}")
	}
	err := v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false),
		jsontext.AllowInvalidUTF8(true), jsontext.Multiline(false), jsontext.SpaceAfterColon(false), jsontext.SpaceAfterComma(false))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(v)
	return sum[:], nil
}
