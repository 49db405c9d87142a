package proxy

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	"gatekit/core/mcp"

	"github.com/go-json-experiment/json"
)

// tokenPrefix marks the tokens that clients keep for Gatekit: cursors and requestStates.
const tokenPrefix = "gk1."

// errToken is the error for every token that cannot be opened. It does not tell the client whether
// the token is invalid, of another principal or for another purpose.
var errToken = errors.New("invalid or expired token")

// sealer makes the tokens that clients keep for Gatekit. Clients can neither read nor change them,
// and a token that was made for one purpose cannot be opened for another purpose. A purpose has
// several parts, for example the principal, the method and the target.
type sealer struct{ aead cipher.AEAD }

// newSealer returns a sealer that uses key, or a random key if key is empty.
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

// seal encrypts v for one purpose, and returns the token.
func (s *sealer) seal(v any, purpose ...string) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain,
		purposeBytes(purpose))), nil
}

// open decrypts a token that seal made for the same purpose, and stores the value in v. The only
// possible error is errToken.
func (s *sealer) open(token string, v any, purpose ...string) error {
	body, ours := strings.CutPrefix(token, tokenPrefix)
	sealed, err := base64.RawURLEncoding.DecodeString(body)
	if !ours || err != nil {
		return errToken
	}
	plain, err := s.aead.Open(nil, nil, sealed, purposeBytes(purpose))
	if err != nil || json.Unmarshal(plain, v) != nil {
		return errToken
	}
	return nil
}

// SealCallState makes a token that contains v, for the client that made the call m. OpenCallState
// opens the token only for a call of the same principal with the same method, the same name or URI,
// and equal arguments.
func (p *Proxy) SealCallState(m *mcp.Message, v any) (string, error) {
	purpose, err := callPurpose(m)
	if err != nil {
		return "", err
	}
	return p.seal.seal(v, purpose...)
}

// OpenCallState opens a token for m and stores the value in v. m must repeat the call for which
// SealCallState made the token. For any other token, OpenCallState returns false. SealCallState may
// have run in another process with the same key.
func (p *Proxy) OpenCallState(m *mcp.Message, token string, v any) bool {
	purpose, err := callPurpose(m)
	return err == nil && p.seal.open(token, v, purpose...) == nil
}

func callPurpose(m *mcp.Message) ([]string, error) {
	meth, _ := mcp.LookupMethod(m.Method)
	target, _ := m.Text(meth.NamePointer)
	arguments, _ := m.Get("/arguments")
	digest, err := mcp.CanonicalDigest(arguments)
	return []string{"parked", m.Principal.ID(), m.Method, target, hex.EncodeToString(digest)}, err
}

// purposeBytes encodes a purpose. Different purposes have different bytes, whatever their parts
// contain.
func purposeBytes(purpose []string) []byte {
	b, _ := json.Marshal(purpose) // strings always marshal; invalid UTF-8 was refused by the parser
	return b
}
