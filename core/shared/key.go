package shared

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Join makes one name of several parts. Different parts make different names, whatever they
// contain.
func Join(parts ...string) string {
	var b []byte
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return string(b)
}

// check returns an error if the key cannot be used.
func (k Key) check() error {
	if k.Kind == "" {
		return errors.New("a shared key has no kind")
	}
	if max(len(k.Kind), len(k.Principal), len(k.Name)) > MaxName {
		return fmt.Errorf("%w: the name of a %s has more than %d bytes", ErrFull, k.Kind, MaxName)
	}
	return nil
}

// minStateKey is the least number of bytes of a state key.
const minStateKey = 32

// Ring has the keys by which a store outside of the process hides names and values. They are
// derived from the state key, so that they are the same in all replicas. Its methods may be called
// at the same time.
type Ring struct {
	names  []byte // of an HMAC
	values []byte // of an HMAC that derives the key of each value
}

// NewRing returns the ring of a state key.
func NewRing(stateKey []byte) (*Ring, error) {
	if len(stateKey) < minStateKey {
		return nil, fmt.Errorf("the state key has %d bytes, and needs at least %d", len(stateKey),
			minStateKey)
	}
	names, err := hkdf.Key(sha256.New, stateKey, nil, "gatekit shared names", 32)
	if err != nil {
		return nil, err
	}
	values, err := hkdf.Key(sha256.New, stateKey, nil, "gatekit shared values", 32)
	if err != nil {
		return nil, err
	}
	return &Ring{names, values}, nil
}

// Hidden is a name that tells nothing about what it names. Only a Ring makes it, so that no plain
// name can leave the process by mistake. It has the letters, digits and signs of base64url.
type Hidden struct{ text string }

// String returns the hidden name; "" for the zero Hidden.
func (h Hidden) String() string { return h.text }

// hide returns the hidden name of parts. use separates what parts are for.
func (r *Ring) hide(use string, parts ...string) Hidden {
	return Hidden{base64.RawURLEncoding.EncodeToString(r.hmac(use, parts...)[:18])} // 144 bits
}

func (r *Ring) hmac(use string, parts ...string) []byte {
	mac := hmac.New(sha256.New, r.names)
	mac.Write([]byte(Join(append([]string{use}, parts...)...)))
	return mac.Sum(nil)
}

// Key returns the hidden name of a key.
func (r *Ring) Key(k Key) Hidden {
	listed := ""
	if k.Listed {
		listed = "listed"
	}
	return r.hide("key", k.Kind, k.Principal, k.Name, listed)
}

// Group returns the hidden name of what is kept together with a key: everything of a principal, or
// the listed values of a kind.
func (r *Ring) Group(k Key) Hidden {
	if k.Listed {
		return r.Kind(k.Kind)
	}
	return r.hide("principal", k.Principal)
}

// Kind returns the hidden name of a kind.
func (r *Ring) Kind(kind string) Hidden { return r.hide("kind", kind) }

// Name returns the hidden name of a label, a lease, or something else that belongs to a key. It
// differs for each key.
func (r *Ring) Name(k Key, name string) Hidden {
	return r.hide("name", k.Kind, k.Principal, k.Name, name)
}

// SessionName returns the name that the session of a principal's modern requests has in the audit
// logs of all replicas. The name does not show who the principal is.
func (r *Ring) SessionName(principal string) string {
	name := base32.StdEncoding.EncodeToString(r.hmac("session", principal))
	return principalSession + strings.ToLower(name[:12])
}

const principalSession = "principal-"

// IsSessionName reports whether a session of a replica is that of a principal's modern requests,
// which all replicas serve. The names of other sessions begin otherwise.
func IsSessionName(session string) bool { return strings.HasPrefix(session, principalSession) }

// aead returns the encryption of one hidden name. Each name has its own key, so that the number of
// values that may be encrypted with one key is never reached, and no value can take the place of
// another one.
func (r *Ring) aead(h Hidden) (cipher.AEAD, error) {
	mac := hmac.New(sha256.New, r.values)
	mac.Write([]byte(h.text))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal encrypts a value that is kept under a hidden name.
func (r *Ring) Seal(h Hidden, value []byte) ([]byte, error) {
	aead, err := r.aead(h)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, value, nil), nil
}

// Open decrypts a value that Seal has encrypted for the same hidden name. Every error matches
// ErrUnavailable: the value was changed, belongs to another name, or has another state key.
func (r *Ring) Open(h Hidden, sealed []byte) ([]byte, error) {
	aead, err := r.aead(h)
	if err == nil {
		var value []byte
		if value, err = aead.Open(nil, nil, sealed, nil); err == nil {
			return value, nil
		}
	}
	return nil, fmt.Errorf("%w: a value was changed, or written with another listen.state_key: %w",
		ErrUnavailable, err)
}
