package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"gatekit/core/display"
	"gatekit/core/identity"
)

// StaticToken configures a token that is in no authorization server. It is written gk_ID_SECRET.
type StaticToken struct {
	ID      string            // without "_"
	Digest  [sha256.Size]byte // SHA-256 of the text SECRET
	Subject string
	Scopes  []string
	Expires time.Time // the zero time means never
}

// staticPrefix begins every static token. No issuer is asked about a token that begins so.
const staticPrefix = "gk_"

// NewStaticToken returns a new token with the id, and the digest of its secret half.
func NewStaticToken(id string) (token string, digest [sha256.Size]byte) {
	var random [32]byte
	rand.Read(random[:]) // never fails
	secret := hex.EncodeToString(random[:])
	return staticPrefix + id + "_" + secret, sha256.Sum256([]byte(secret))
}

// staticTokens checks static tokens.
type staticTokens map[string]staticToken

type staticToken struct {
	digest    [sha256.Size]byte
	principal *identity.Principal
}

func newStaticTokens(list []StaticToken) (staticTokens, error) {
	tokens := staticTokens{}
	for _, o := range list {
		if o.ID == "" || strings.Contains(o.ID, "_") || tokens[o.ID].principal != nil {
			return nil, fmt.Errorf("static token %q: the id is empty, has _ or is not unique", o.ID)
		}
		p, err := identity.New(identity.Attributes{Method: identity.Token, Subject: o.Subject,
			Scopes: o.Scopes, Expiry: o.Expires})
		if err != nil {
			return nil, fmt.Errorf("static token %q: %w", o.ID, err)
		}
		tokens[o.ID] = staticToken{o.Digest, p}
	}
	return tokens, nil
}

// verify checks a token that begins with staticPrefix.
func (s staticTokens) verify(token string) (*identity.Principal, error) {
	id, secret, ok := strings.Cut(strings.TrimPrefix(token, staticPrefix), "_")
	if !ok { // what it has may be a secret
		return nil, errors.New("the static token is malformed: it is not gk_ID_SECRET")
	}
	t, ok := s[id]
	digest := sha256.Sum256([]byte(secret))
	if !ok {
		return nil, fmt.Errorf("there is no static token %s", display.Quote(id, maxQuoted))
	}
	if subtle.ConstantTimeCompare(digest[:], t.digest[:]) != 1 {
		return nil, fmt.Errorf("the secret of the static token %q is wrong", id)
	}
	if end := t.principal.Expiry(); !end.IsZero() && !time.Now().Before(end) {
		return nil, fmt.Errorf("the static token %q expired at %s", id,
			end.UTC().Format(time.RFC3339))
	}
	return t.principal, nil
}
