package secrets

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"

	"gatekit/core/mcp"
)

// placeholderMaker makes the placeholders that replace secrets. The same secret has the same
// placeholder, so that a reader can tell two secrets apart. Without the key, a placeholder reveals
// nothing about its secret.
type placeholderMaker struct{ key [32]byte }

// newPlaceholderMaker returns a placeholderMaker with the key of the configuration. If that key is
// empty, it makes a random key, which is lost when the process ends.
func newPlaceholderMaker(key string) (p placeholderMaker) {
	if key != "" {
		p.key = sha256.Sum256([]byte(key))
		return p
	}
	rand.Read(p.key[:]) // never fails: see its documentation
	return p
}

func (p *placeholderMaker) forSecret(rule, secret string) string {
	mac := hmac.New(sha256.New, p.key[:])
	mac.Write([]byte(secret))
	return "[secret:" + rule + ":" + hex.EncodeToString(mac.Sum(nil)[:4]) + "]"
}

// forSession returns a placeholder that can be restored, for a text that the server of m sent. It
// has 128 bits that nobody can guess without the key, and is the same for the same text, principal,
// session and server.
func (p *placeholderMaker) forSession(rule, text string, m *mcp.Message) string {
	mac := hmac.New(sha256.New, p.key[:])
	for _, part := range []string{"restore", m.Principal.ID(), m.Session, m.Server, text} {
		fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	return "[secret:" + rule + ":" + placeholderDigits.EncodeToString(mac.Sum(nil)[:16]) + "]"
}

// placeholderDigits is base32 in small letters, as [pipeline.IsPlaceholder] requires.
var placeholderDigits = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").
	WithPadding(base32.NoPadding)

func sha256Of(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
