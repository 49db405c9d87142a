package tokenstore

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/zalando/go-keyring"
)

// The name of the key in the keyring of the operating system.
const (
	keyringService = "gatekit"
	keyringUser    = "tokens"
)

// KeyringKey returns the key that the keyring of the operating system holds for Gatekit. If there
// is none, KeyringKey stores a new random key. On Linux, the keyring is the Secret Service of the
// desktop, which servers and containers do not have.
func KeyringKey() ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("the keyring of this machine cannot be used for the key of the "+
			"tokens: %w\nhint: servers and containers have no keyring; use a file instead: "+
			"[tokens] key = \"${file:tokens.key}\", made with openssl rand -hex 32 > tokens.key",
			err)
	}
	text, err := keyring.Get(keyringService, keyringUser)
	if errors.Is(err, keyring.ErrNotFound) {
		key := make([]byte, 32)
		rand.Read(key)
		if err := keyring.Set(keyringService, keyringUser,
			base64.StdEncoding.EncodeToString(key)); err != nil {
			return fail(err)
		}
		// Another process may have stored its key at the same time.
		text, err = keyring.Get(keyringService, keyringUser)
	}
	if err != nil {
		return fail(err)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) < MinKey {
		return fail(fmt.Errorf("the entry %q of %q does not hold a key of %d bytes", keyringUser,
			keyringService, MinKey))
	}
	return key, nil
}
