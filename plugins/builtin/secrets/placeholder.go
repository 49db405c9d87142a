package secrets

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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

func sha256Of(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
