package pii

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// placeholderMaker make placeholders: the same for the same value, and nothing that leads back to
// it for who does not have the key.
type placeholderMaker struct{ key []byte }

func newPlaceholderMaker(key string) placeholderMaker {
	if key != "" {
		return placeholderMaker{[]byte(key)}
	}
	b := make([]byte, sha256.Size)
	rand.Read(b) // never fails
	return placeholderMaker{b}
}

// digitsFor is the name of a value, however it is spelt: six hexadecimal digits.
func (n placeholderMaker) digitsFor(what, value string) string {
	h := hmac.New(sha256.New, n.key)
	h.Write([]byte(what))
	h.Write([]byte{0})
	h.Write([]byte(canonical(value)))
	return hex.EncodeToString(h.Sum(nil)[:3])
}

// replacement is what is written in the place of a hit.
func (s *stage) replacement(h detection) string {
	if s.treatments[h.kind].mask {
		return mask(h)
	}
	return "[" + h.findingType + ":" + s.placeholders.digitsFor(h.findingType, h.value) + "]"
}

// mask is a value of which a part can still be read: the last four digits of a card, an account and
// a phone number, the last two characters of a national id, the first letter and the domain of an
// e-mail address, the first half of an IPv4 address and the first quarter of an IPv6 address.
func mask(h detection) string {
	v := h.value
	switch h.kind {
	case kindEmail:
		at := strings.LastIndexByte(v, '@')
		_, n := utf8.DecodeRuneInString(v)
		return v[:min(n, at)] + "***" + v[at:]
	case kindIP:
		sep, n := ".", 2
		if strings.IndexByte(v, ':') >= 0 {
			sep = ":"
		}
		parts := strings.Split(v, sep)
		return strings.Join(parts[:min(n, len(parts))], sep) + sep + "***"
	case kindNationalID:
		return maskAllBut(v, 2)
	}
	return maskAllBut(v, 4)
}

// maskAllBut is v with all letters and digits but the last few as stars.
func maskAllBut(v string, few int) string {
	b := []byte(v)
	for i := len(b) - 1; i >= 0; i-- {
		if !isAlnum(b[i]) {
			continue
		}
		if few--; few < 0 {
			b[i] = '*'
		}
	}
	return string(b)
}
