package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/lestrrat-go/jwx/v3/jws/jwsbb"

	"gatekit/core/display"
)

// maxQuoted is the maximum number of bytes of a token's text that a detail quotes.
const maxQuoted = 100

// signedToken is a JSON Web Token in the compact form of JWS, of which nothing is verified yet.
type signedToken struct {
	header    tokenHeader
	claims    claims
	signed    string // the bytes that the signature is for
	signature []byte
}

// tokenHeader has the parameters of a token's header that are read. Others, such as jku, x5u, jwk
// and x5c, name keys and are ignored: only the issuer's keys count.
type tokenHeader struct {
	Algorithm string         `json:"alg"`
	KeyID     string         `json:"kid"`
	Type      string         `json:"typ"`
	Critical  jsontext.Value `json:"crit"`
	Unencoded jsontext.Value `json:"b64"`
	Encrypted jsontext.Value `json:"enc"`
}

// parseToken reads a token. Its errors contain no part of the token.
func parseToken(token string) (*signedToken, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errors.New("the token is not a signed JSON Web Token")
	}
	var decoded [3][]byte
	for i, part := range parts {
		if strings.ContainsAny(part, "\r\n") { // which base64 would skip
			return nil, errors.New("the token is not in base64url")
		}
		var err error
		if decoded[i], err = base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return nil, errors.New("the token is not in base64url")
		}
	}
	t := &signedToken{signed: token[:len(parts[0])+1+len(parts[1])], signature: decoded[2]}
	if err := json.Unmarshal(decoded[0], &t.header); err != nil {
		return nil, errors.New("the header of the token is not a valid JSON object")
	}
	var err error
	if t.claims, err = parseClaims(decoded[1]); err != nil {
		return nil, err
	}
	return t, nil
}

// verifySignature checks the signature with a key that fits the token's algorithm.
func (t *signedToken) verifySignature(k *key) error {
	err := jwsbb.Verify(k.public, t.header.Algorithm, []byte(t.signed), t.signature)
	if err != nil {
		return errors.New("the signature is not valid")
	}
	return nil
}

// checkType refuses tokens that are not access tokens. RFC 9068 has the type at+jwt, but most
// issuers still use JWT. Then the token must not have the claims that only ID tokens have, unless
// it names itself in the claim typ, as those of Keycloak do.
func (t *signedToken) checkType() error {
	isAccessToken := false
	switch strings.TrimPrefix(strings.ToLower(t.header.Type), "application/") {
	case "", "jwt":
	case "at+jwt", "okta-internal-at+jwt":
		isAccessToken = true
	default:
		return fmt.Errorf("the type %s is not that of an access token",
			display.Quote(t.header.Type, maxQuoted))
	}
	if kind, ok := t.claims.values["typ"]; ok {
		if !strings.EqualFold(text(kind), "Bearer") {
			return fmt.Errorf("the claim typ %s is not that of an access token",
				display.Quote(string(kind), maxQuoted))
		}
		isAccessToken = true
	}
	for _, name := range []string{"nonce", "at_hash", "c_hash"} {
		if _, ok := t.claims.values[name]; ok && !isAccessToken {
			return fmt.Errorf("the token is an ID token (it has the claim %s)", name)
		}
	}
	return t.claims.checkUnbound()
}

// checkUnbound refuses tokens that only the holder of a key may use.
func (c claims) checkUnbound() error {
	if _, ok := c.values["cnf"]; ok {
		return errors.New("the token is bound to a key of the client (claim cnf), " +
			"which Gatekit cannot check")
	}
	return nil
}

// checkHeader refuses what would change how the signature is read.
func (t *signedToken) checkHeader(algorithms []string) error {
	h := t.header
	switch {
	case !slices.Contains(algorithms, h.Algorithm):
		return fmt.Errorf("the algorithm %s is not one of %s", display.Quote(h.Algorithm,
			maxQuoted), strings.Join(algorithms, ", "))
	case h.Critical != nil, h.Unencoded != nil, h.Encrypted != nil:
		return errors.New("the header has extensions (crit, b64 or enc) that Gatekit does not have")
	}
	return nil
}

// claims are the members of a JSON object that an issuer has written.
type claims struct {
	raw    []byte
	values map[string]jsontext.Value
}

// parseClaims reads a JSON object without duplicate names.
func parseClaims(b []byte) (claims, error) {
	c := claims{raw: b}
	if err := json.Unmarshal(b, &c.values); err != nil || c.values == nil {
		return c, errors.New("the claims of the token are not a valid JSON object")
	}
	return c, nil
}

// find returns the value of a claim. The name is that of a member, or a JSON pointer.
func (c claims) find(name string) (jsontext.Value, bool) {
	if !strings.HasPrefix(name, "/") {
		v, ok := c.values[name]
		return v, ok
	}
	values := c.values
	pointer := jsontext.Pointer(name)
	var v jsontext.Value
	for token := range pointer.Tokens() {
		var ok bool
		if v, ok = values[token]; !ok {
			return nil, false
		}
		values = nil
		if v.Kind() == '{' {
			_ = json.Unmarshal(v, &values) // it was read before
		}
	}
	return v, v != nil
}

// text returns the string that v is, or "".
func text(v jsontext.Value) string {
	var s string
	if v.Kind() != '"' || json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// texts returns the strings of the array that v is, or the one string that v is. ok is false if v
// is anything else.
func texts(v jsontext.Value) (list []string, ok bool) {
	switch v.Kind() {
	case '"':
		return []string{text(v)}, true
	case '[':
		return list, json.Unmarshal(v, &list) == nil
	}
	return nil, false
}

// instant returns the time of a claim that is a NumericDate. It is false if there is no such claim.
func (c claims) instant(name string) (at time.Time, ok bool, err error) {
	v, ok := c.values[name]
	if !ok {
		return at, false, nil
	}
	var seconds float64
	const maxSeconds = 253402300799 // the end of the year 9999
	if v.Kind() != '0' || json.Unmarshal(v, &seconds) != nil || seconds < 0 ||
		seconds > maxSeconds {
		return at, true, fmt.Errorf("the claim %s is not a time", name)
	}
	return time.Unix(int64(seconds), 0), true, nil
}

// checkExpiry returns when the token ends, with the skew. A token without an end is refused.
func (c claims) checkExpiry(now time.Time, skew time.Duration) (time.Time, error) {
	at, ok, err := c.instant("exp")
	switch {
	case err != nil:
		return at, err
	case !ok:
		return at, errors.New("the token has no expiry (claim exp)")
	}
	if at = at.Add(skew); !now.Before(at) {
		return at, fmt.Errorf("the token expired at %s", at.Add(-skew).UTC().Format(time.RFC3339))
	}
	return at, nil
}

// checkNotBefore refuses a token that is not valid yet.
func (c claims) checkNotBefore(now time.Time, skew time.Duration) error {
	at, ok, err := c.instant("nbf")
	if err == nil && ok && now.Before(at.Add(-skew)) {
		err = fmt.Errorf("the token is not valid before %s", at.UTC().Format(time.RFC3339))
	}
	return err
}

// issued returns the time at which the token was issued, or the zero time if it has none.
func (c claims) issued() time.Time {
	at, _, err := c.instant("iat")
	if err != nil {
		return time.Time{}
	}
	return at
}

// checkAudience returns the audience of the token that is accepted.
func (c claims) checkAudience(accepted []string) (string, error) {
	v, ok := c.values["aud"]
	if !ok {
		return "", errors.New("the token has no audience (claim aud)")
	}
	list, ok := texts(v)
	if !ok {
		return "", errors.New("the claim aud is neither a string nor a list of strings")
	}
	for _, a := range list {
		if slices.Contains(accepted, a) {
			return a, nil
		}
	}
	return "", fmt.Errorf("the audience %s is not one of %s", display.Quote(string(v), maxQuoted),
		strings.Join(accepted, ", "))
}

// client returns the OAuth client of the token, under the names that issuers give it.
func (c claims) client() string {
	for _, name := range []string{"client_id", "azp", "cid", "appid"} {
		if s := text(c.values[name]); s != "" {
			return s
		}
	}
	return ""
}

// scopes returns the scopes of the token. The claim is a list, or a string with spaces.
func (c claims) scopes(name string) []string {
	names := []string{name}
	if name == "" {
		names = []string{"scope", "scp"}
	}
	for _, name := range names {
		if v, ok := c.find(name); ok {
			list, _ := texts(v)
			if v.Kind() == '"' {
				list = strings.Fields(list[0])
			}
			return list
		}
	}
	return nil
}
