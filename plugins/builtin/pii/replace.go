package pii

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// placeholderMaker makes placeholders. The same value gets the same placeholder. Without the key, a
// placeholder reveals nothing about its value.
type placeholderMaker struct{ key []byte }

// newPlaceholderMaker returns a placeholderMaker with the key of the configuration. If that key is
// empty, it uses a random key, so that placeholders change when the process is restarted.
func newPlaceholderMaker(key string) placeholderMaker {
	if key != "" {
		return placeholderMaker{[]byte(key)}
	}
	b := make([]byte, sha256.Size)
	rand.Read(b) // never fails: see its documentation
	return placeholderMaker{b}
}

// digitsFor returns the six hexadecimal digits of a value's placeholder. The digits are the same
// for all spellings of the value.
func (p placeholderMaker) digitsFor(findingType, value string) string {
	h := hmac.New(sha256.New, p.key)
	h.Write([]byte(findingType))
	h.Write([]byte{0})
	h.Write([]byte(canonical(value)))
	return hex.EncodeToString(h.Sum(nil)[:3])
}

// replacement returns the text that replaces a detection.
func (s *stage) replacement(d detection) string {
	if s.treatments[d.kind].mask {
		return mask(d)
	}
	return "[" + d.findingType + ":" + s.placeholders.digitsFor(d.findingType, d.value) + "]"
}

// mask returns the value of d with stars in place of most characters. These parts stay visible:
//
//   - the last four letters or digits of a card, account or phone number
//   - the last two letters or digits of a national id
//   - the first character and the domain of an e-mail address
//   - the first half of an IPv4 address
//   - the first quarter of an IPv6 address
func mask(d detection) string {
	v := d.value
	switch d.kind {
	case kindEmail:
		at := strings.LastIndexByte(v, '@')
		_, letterBytes := utf8.DecodeRuneInString(v)
		return v[:min(letterBytes, at)] + "***" + v[at:]
	case kindIP:
		separator, kept := ".", 2
		if strings.IndexByte(v, ':') >= 0 {
			separator = ":"
		}
		parts := strings.Split(v, separator)
		return strings.Join(parts[:min(kept, len(parts))], separator) + separator + "***"
	case kindNationalID:
		return maskAllBut(v, 2)
	}
	return maskAllBut(v, 4)
}

// maskAllBut returns v with a star for each letter and digit except the last n.
func maskAllBut(v string, n int) string {
	b := []byte(v)
	for i := len(b) - 1; i >= 0; i-- {
		if !isAlnum(b[i]) {
			continue
		}
		if n--; n < 0 {
			b[i] = '*'
		}
	}
	return string(b)
}
