package cluster

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// idPrefix marks the ids that replicas make.
const idPrefix = "gr1."

// idRandomBytes is the number of random bytes of an id. Without authentication, only the secrecy of
// its id protects a session.
const idRandomBytes = 16

// keys are the keys of a cluster. They are derived from the state key, so that they are the same in
// all replicas, and each of them has one purpose.
type keys struct {
	ids     cipher.AEAD
	forward cipher.AEAD
}

func deriveKeys(stateKey []byte) (keys, error) {
	var k keys
	aead := func(purpose string) (cipher.AEAD, error) {
		key, err := hkdf.Key(sha256.New, stateKey, nil, "gatekit cluster "+purpose, 32)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		return cipher.NewGCMWithRandomNonce(block)
	}
	var err error
	if k.ids, err = aead("ids"); err != nil {
		return keys{}, err
	}
	if k.forward, err = aead("forward"); err != nil {
		return keys{}, err
	}
	return k, nil
}

// NewID returns an id that names this replica as the owner. It has the letters, digits and signs of
// base64url and a dot, and 128 random bits. Only replicas with the same state key can read it.
func (r *Replica) NewID() string {
	plain := make([]byte, idRandomBytes, idRandomBytes+len(r.o.Advertise))
	rand.Read(plain)
	plain = append(plain, r.o.Advertise...)
	return idPrefix + base64.RawURLEncoding.EncodeToString(r.keys.ids.Seal(nil, nil, plain, nil))
}

// Owner returns the address of the replica that made an id. If this replica made it, or if no
// replica with the same state key did, isOther is false.
func (r *Replica) Owner(id string) (address string, isOther bool) {
	text, ok := strings.CutPrefix(id, idPrefix)
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil {
		return "", false
	}
	plain, err := r.keys.ids.Open(nil, nil, sealed, nil)
	if err != nil || len(plain) < idRandomBytes {
		return "", false
	}
	address = string(plain[idRandomBytes:])
	return address, address != r.o.Advertise
}
