// Package issuertest is an OAuth authorization server for tests: metadata, keys, signed tokens and
// introspection. It has no login. Tests sign tokens with any header and any claims.
package issuertest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Issuer is an authorization server.
type Issuer struct {
	URL string // the issuer identifier

	mu           sync.Mutex
	order        []string // of published keys
	keys         map[string]crypto.Signer
	extra        []map[string]any // published as they are
	down         bool
	fetches      int
	introspected int
	active       map[string]map[string]any // claims of active opaque tokens
	revoked      map[string]bool
}

// New returns an issuer with the identifier url, which is served by its ServeHTTP.
func New(url string) *Issuer {
	return &Issuer{URL: url, keys: map[string]crypto.Signer{}, active: map[string]map[string]any{},
		revoked: map[string]bool{}}
}

// Start returns an issuer on a loopback address, with the key "first" for ES256.
func Start(t testing.TB) *Issuer {
	i := New("")
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	i.URL = s.URL
	i.AddKey("first", "ES256")
	return i
}

// AddKey publishes a new key for RS256, ES256 or EdDSA.
func (i *Issuer) AddKey(id, algorithm string) {
	var key crypto.Signer
	var err error
	switch algorithm {
	case "RS256":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ES256":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "EdDSA":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		err = fmt.Errorf("issuertest: no keys for %q", algorithm)
	}
	if err != nil {
		panic(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[id] = key
	i.order = append(i.order, id)
}

// Withdraw no longer publishes a key. Tokens can still be signed with it.
func (i *Issuer) Withdraw(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	kept := i.order[:0]
	for _, k := range i.order {
		if k != id {
			kept = append(kept, k)
		}
	}
	i.order = kept
}

// Publish adds a JSON Web Key as it is.
func (i *Issuer) Publish(key map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.extra = append(i.extra, key)
}

// SetDown makes every request fail, or no longer.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Fetches returns how often the keys were asked for, and Introspections how often tokens were.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// Introspections returns how often the issuer was asked about tokens.
func (i *Issuer) Introspections() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.introspected
}

// Opaque returns a token that only introspection can check.
func (i *Issuer) Opaque(claims map[string]any) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	token := "opaque-" + rand.Text()
	i.active[token] = claims
	return token
}

// Revoke makes a token inactive.
func (i *Issuer) Revoke(token string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revoked[token] = true
}

// PublicKey returns the public part of a key.
func (i *Issuer) PublicKey(id string) crypto.PublicKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[id].Public()
}

// Claims returns the claims of a token for ann that is good for an hour. change adds claims, and
// removes those whose value is nil.
func (i *Issuer) Claims(audience any, change map[string]any) map[string]any {
	claims := map[string]any{"iss": i.URL, "sub": "ann", "aud": audience, "client_id": "editor",
		"exp": time.Now().Add(time.Hour).Unix(), "scope": "mcp tools"}
	maps.Copy(claims, change)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// Token returns an access token with the claims, signed with a key.
func (i *Issuer) Token(keyID string, claims map[string]any) string {
	return i.TokenWithHeader(keyID, nil, claims)
}

// TokenWithHeader returns a token whose header has the given members besides alg, kid and typ.
func (i *Issuer) TokenWithHeader(keyID string, header, claims map[string]any) string {
	all := map[string]any{"alg": i.algorithm(keyID), "kid": keyID, "typ": "at+jwt"}
	maps.Copy(all, header)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return i.Sign(keyID, Encode(all), Encode(claims))
}

func (i *Issuer) algorithm(keyID string) string {
	switch i.PublicKey(keyID).(type) {
	case *rsa.PublicKey:
		return "RS256"
	case *ecdsa.PublicKey:
		return "ES256"
	}
	return "EdDSA"
}

// Encode returns v as JSON.
func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// SignedPart returns the header and payload as they are signed.
func SignedPart(header, payload []byte) string {
	return base64.RawURLEncoding.EncodeToString(header) + "." +
		base64.RawURLEncoding.EncodeToString(payload)
}

// Sign returns the header and payload, signed with a key as its own algorithm does.
func (i *Issuer) Sign(keyID string, header, payload []byte) string {
	i.mu.Lock()
	key := i.keys[keyID]
	i.mu.Unlock()
	signed := SignedPart(header, payload)
	digest := sha256.Sum256([]byte(signed))
	var signature []byte
	var err error
	switch key := key.(type) {
	case *rsa.PrivateKey:
		signature, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	case *ecdsa.PrivateKey:
		var r, s *big.Int
		if r, s, err = ecdsa.Sign(rand.Reader, key, digest[:]); err == nil {
			signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
		}
	case ed25519.PrivateKey:
		signature = ed25519.Sign(key, []byte(signed))
	}
	if err != nil {
		panic(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// SignHS256 returns the header and payload, signed with a secret.
func SignHS256(secret, header, payload []byte) string {
	signed := SignedPart(header, payload)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// JWK returns the public part of a key as a JSON Web Key.
func (i *Issuer) JWK(id string) map[string]any {
	encode := base64.RawURLEncoding.EncodeToString
	jwk := map[string]any{"kid": id, "use": "sig", "alg": i.algorithm(id)}
	switch public := i.PublicKey(id).(type) {
	case *rsa.PublicKey:
		jwk["kty"], jwk["n"] = "RSA", encode(public.N.Bytes())
		jwk["e"] = encode(big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := public.Bytes()
		if err != nil {
			panic(err)
		}
		jwk["kty"], jwk["crv"] = "EC", "P-256"
		jwk["x"], jwk["y"] = encode(point[1:33]), encode(point[33:])
	case ed25519.PublicKey:
		jwk["kty"], jwk["crv"], jwk["x"] = "OKP", "Ed25519", encode(public)
	}
	return jwk
}

// ServeHTTP serves metadata, keys and introspection.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	down := i.down
	i.mu.Unlock()
	if down {
		http.Error(w, "down", http.StatusBadGateway)
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		w.Write(Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/jwks",
			"introspection_endpoint": i.URL + "/introspect"}))
	case strings.HasSuffix(r.URL.Path, "/jwks"):
		i.serveKeys(w)
	case strings.HasSuffix(r.URL.Path, "/introspect"):
		i.serveIntrospection(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (i *Issuer) serveKeys(w http.ResponseWriter) {
	i.mu.Lock()
	i.fetches++
	order, keys := append([]string(nil), i.order...), append([]map[string]any{}, i.extra...)
	i.mu.Unlock()
	for _, id := range order {
		keys = append(keys, i.JWK(id))
	}
	w.Write(Encode(map[string]any{"keys": keys}))
}

// serveIntrospection implements RFC 7662. The client is "gatekit" with the secret "s3:cret".
func (i *Issuer) serveIntrospection(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.introspected++
	if id, secret, _ := r.BasicAuth(); id != "gatekit" || secret != "s3%3Acret" {
		http.Error(w, "unknown client", http.StatusUnauthorized)
		return
	}
	token := r.PostFormValue("token")
	claims, opaque := i.active[token]
	if i.revoked[token] || !opaque && strings.Count(token, ".") != 2 {
		w.Write([]byte(`{"active":false}`))
		return
	}
	answer := map[string]any{"active": true}
	maps.Copy(answer, claims)
	w.Write(Encode(answer))
}
