package connect

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"
)

// sealedPrefix begins the last part of the URL of a link.
const sealedPrefix = "gk1."

// maxSealed bounds the last part of the URL of a link.
const maxSealed = 200

// purpose is authenticated together with what is sealed.
const purpose = "gatekit connect link"

// sealer seals the ids of links, so that only links of this process, or of its replicas, are looked
// up.
type sealer struct{ aead cipher.AEAD }

// newSealer returns a sealer with a key that is derived from secret, or random if secret is nil.
func newSealer(secret []byte) (sealer, error) {
	if secret == nil {
		secret = make([]byte, 32)
		rand.Read(secret)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, purpose, 32)
	if err != nil {
		return sealer{}, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return sealer{aead}, err
}

// seal returns an id with the time at which it expires, as a part of a URL.
func (s sealer) seal(id string, expires time.Time) (string, error) {
	plain, err := binary.Append(nil, binary.BigEndian, expires.UnixNano())
	if err != nil {
		return "", err
	}
	return sealedPrefix + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil,
		append(plain, id...), []byte(purpose))), nil
}

// open returns what seal has sealed.
func (s sealer) open(sealed string) (id string, expires time.Time, ok bool) {
	text, ok := strings.CutPrefix(sealed, sealedPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil {
		return "", time.Time{}, false
	}
	plain, err := s.aead.Open(nil, nil, b, []byte(purpose))
	if err != nil || len(plain) < 8 {
		return "", time.Time{}, false
	}
	return string(plain[8:]), time.Unix(0, int64(binary.BigEndian.Uint64(plain))), true
}

// isSealed reports whether the last part of a path has the form of a link.
func isSealed(part string) bool {
	return strings.HasPrefix(part, sealedPrefix) && len(part) <= maxSealed &&
		!strings.Contains(part, "/")
}
