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

// errToken is the error for every token that does not open: it is invalid, of another principal, or
// for another purpose. A client learns no more.
var errToken = errors.New("invalid or expired token")

// sealer makes the tokens that clients keep for Gatekit. Clients can neither read nor change them,
// and a token that was made for one purpose (principal, method, target) does not open for another.
type sealer struct{ aead cipher.AEAD }

// newSealer uses key, or a random one when key is empty.
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

// seal encrypts v for one purpose. Different purposes never have the same encoding, whatever their
// parts contain.
func (s *sealer) seal(v any, purpose ...string) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain,
		purposeBytes(purpose))), nil
}

// open decrypts a token that seal made for the same purpose. The error is always errToken.
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

// SealCallState makes a token of v for the client that made the call m. OpenCallState opens it only
// for a call of the same principal with the same method, the same name or URI, and equal arguments.
func (p *Proxy) SealCallState(m *mcp.Message, v any) (string, error) {
	purpose, err := callPurpose(m)
	if err != nil {
		return "", err
	}
	return p.seal.seal(v, purpose...)
}

// OpenCallState opens a token for m, which must repeat the call for which SealCallState made the
// token. It returns false for any other token. SealCallState may have run in another process with
// the same key.
func (p *Proxy) OpenCallState(m *mcp.Message, token string, v any) bool {
	purpose, err := callPurpose(m)
	return err == nil && p.seal.open(token, v, purpose...) == nil
}

func callPurpose(m *mcp.Message) ([]string, error) {
	meth, _ := mcp.LookupMethod(m.Method)
	target, _ := m.Text(meth.NamePointer)
	arguments, _ := m.Get("/arguments")
	digest, err := mcp.CanonicalDigest(arguments)
	return []string{"parked", m.Principal, m.Method, target, hex.EncodeToString(digest)}, err
}

func purposeBytes(purpose []string) []byte {
	b, _ := json.Marshal(purpose) // strings always marshal; invalid UTF-8 was refused by the parser
	return b
}
