package secrets

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// placeholderMaker makes the words that stand where a secret stood. They tell two secrets apart, so
// that who reads on can see that two are the same, and tell nothing of them to who does not have
// the key.
type placeholderMaker struct{ key [32]byte }

// newPlaceholderMaker takes the key of the configuration, or, where that is empty, a random one
// that is forgotten with the process.
func newPlaceholderMaker(key string) (r placeholderMaker) {
	if key != "" {
		r.key = sha256.Sum256([]byte(key))
		return r
	}
	rand.Read(r.key[:]) // never fails: see its documentation
	return r
}

func (r *placeholderMaker) forSecret(rule, secret string) string {
	mac := hmac.New(sha256.New, r.key[:])
	mac.Write([]byte(secret))
	return "[secret:" + rule + ":" + hex.EncodeToString(mac.Sum(nil)[:4]) + "]"
}

func sha256Of(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
