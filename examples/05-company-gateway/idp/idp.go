// Package idp is an identity provider for this example alone: an authorization server that lets
// everybody log in by name, without a password. It has metadata (RFC 8414 and OpenID Connect
// Discovery), the authorization code flow with PKCE, resource indicators (RFC 8707), token exchange
// (RFC 8693) and signed access tokens (RFC 9068).
package idp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Provider is an authorization server. Its fields are set before it serves requests.
type Provider struct {
	Issuer  string              // an http URL with a path, such as http://127.0.0.1:7778/staff
	Users   map[string][]string // the groups of each user
	Clients map[string]Client   // by client id
	Targets map[string]string   // the resource of each audience that tokens are exchanged for

	key *ecdsa.PrivateKey

	mu     sync.Mutex
	codes  map[string]login
	tokens map[string]claims // access tokens that it has issued
}

// Client is a registered OAuth client.
type Client struct {
	Secret    string // empty for a public client
	Redirects []string
	Exchanges bool // may exchange tokens
}

type claims map[string]any

// login is the login that an authorization code was issued for.
type login struct {
	user, client, redirect, resource, scope, nonce, challenge string
	expires                                                   time.Time
}

// Start makes the provider ready to serve.
func (p *Provider) Start() (err error) {
	p.codes, p.tokens = map[string]login{}, map[string]claims{}
	p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return err
}

// Register adds the provider's handlers to a mux of its host.
func (p *Provider) Register(mux *http.ServeMux) error {
	u, err := url.Parse(p.Issuer)
	if err != nil {
		return err
	}
	mux.HandleFunc("GET /.well-known/oauth-authorization-server"+u.Path, p.serveMetadata)
	mux.HandleFunc("GET "+u.Path+"/.well-known/openid-configuration", p.serveMetadata)
	mux.HandleFunc("GET "+u.Path+"/keys", p.serveKeys)
	mux.HandleFunc("GET "+u.Path+"/authorize", p.serveAuthorize)
	mux.HandleFunc("POST "+u.Path+"/authorize", p.serveAuthorize)
	mux.HandleFunc("POST "+u.Path+"/token", p.serveToken)
	return nil
}

// Check returns the user, the client and the end of an access token for a resource.
func (p *Provider) Check(token, resource string) (user, client string, expires time.Time,
	err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.tokens[token]
	if !ok || c["aud"] != resource || time.Now().Unix() > c["exp"].(int64) {
		return "", "", time.Time{}, errors.New("the token is not for this resource, or has expired")
	}
	return c["sub"].(string), c["client_id"].(string), time.Unix(c["exp"].(int64), 0), nil
}

func (p *Provider) serveMetadata(w http.ResponseWriter, _ *http.Request) {
	metadata := map[string]any{
		"issuer":                                p.Issuer,
		"authorization_endpoint":                p.Issuer + "/authorize",
		"token_endpoint":                        p.Issuer + "/token",
		"jwks_uri":                              p.Issuer + "/keys",
		"response_types_supported":              []string{"code"},
		"code_challenge_methods_supported":      []string{"S256"},
		"grant_types_supported":                 []string{"authorization_code", exchangeGrant},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{"ES256"},
	}
	metadata["authorization_response_iss_parameter_supported"] = true
	metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic", "none"}
	writeJSON(w, http.StatusOK, metadata)
}

var encode = base64.RawURLEncoding.EncodeToString

func (p *Provider) serveKeys(w http.ResponseWriter, _ *http.Request) {
	point, err := p.key.PublicKey.Bytes()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{"kty": "EC",
		"crv": "P-256", "alg": "ES256", "use": "sig", "kid": "1", "x": encode(point[1:33]),
		"y": encode(point[33:])}}})
}

var loginPage = template.Must(template.New("").Parse(`<!doctype html><html lang="en">
<title>Log in</title><h1>Log in at {{.Issuer}}</h1><form method="post" action="{{.Action}}">
<label>Name <input name="user" autofocus></label> <button>Log in</button></form></html>
`))

// serveAuthorize shows the login page, and sends the browser back with a code.
func (p *Provider) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	client, ok := p.Clients[q.Get("client_id")]
	if !ok || !allowed(client, q.Get("redirect_uri")) {
		http.Error(w, "unknown client or redirect_uri", http.StatusBadRequest)
		return
	}
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "only the code flow with PKCE is supported", http.StatusBadRequest)
		return
	}
	user := r.PostFormValue("user")
	if _, known := p.Users[user]; r.Method == http.MethodGet || !known {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		loginPage.Execute(w, map[string]string{"Issuer": p.Issuer, "Action": r.URL.RequestURI()})
		return
	}
	code := rand.Text()
	p.mu.Lock()
	p.codes[code] = login{user, q.Get("client_id"), q.Get("redirect_uri"), q.Get("resource"),
		q.Get("scope"), q.Get("nonce"), q.Get("code_challenge"), time.Now().Add(time.Minute)}
	p.mu.Unlock()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil {
		http.Error(w, "malformed redirect_uri", http.StatusBadRequest)
		return
	}
	answer := back.Query()
	answer.Set("code", code)
	answer.Set("state", q.Get("state"))
	answer.Set("iss", p.Issuer)
	back.RawQuery = answer.Encode()
	http.Redirect(w, r, back.String(), http.StatusSeeOther)
}

// allowed reports whether a redirect URI is registered. The port of a loopback address may be any
// (RFC 8252).
func allowed(c Client, redirect string) bool {
	u, err := url.Parse(redirect)
	if err != nil {
		return false
	}
	withoutPort := *u
	withoutPort.Host = u.Hostname()
	return slices.Contains(c.Redirects, redirect) || u.Hostname() == "127.0.0.1" &&
		slices.Contains(c.Redirects, withoutPort.String())
}

const exchangeGrant = "urn:ietf:params:oauth:grant-type:token-exchange"

func (p *Provider) serveToken(w http.ResponseWriter, r *http.Request) {
	id, secret, basic := r.BasicAuth()
	if !basic {
		id = r.PostFormValue("client_id")
	}
	client, ok := p.Clients[id]
	if !ok || subtle.ConstantTimeCompare([]byte(secret), []byte(client.Secret)) == 0 {
		writeJSON(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	var l login
	switch r.PostFormValue("grant_type") {
	case "authorization_code":
		l, ok = p.redeem(r, id)
	case exchangeGrant:
		l, ok = p.exchange(r, id, client)
	default:
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "unsupported_grant_type"})
		return
	}
	if !ok {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	answer, err := p.issue(l)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if l.challenge == "" {
		answer["issued_token_type"] = "urn:ietf:params:oauth:token-type:access_token"
	}
	writeJSON(w, http.StatusOK, answer)
}

// redeem returns the login of a code. A code counts once.
func (p *Provider) redeem(r *http.Request, client string) (login, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	code := r.PostFormValue("code")
	l, ok := p.codes[code]
	delete(p.codes, code)
	digest := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	return l, ok && l.client == client && l.redirect == r.PostFormValue("redirect_uri") &&
		time.Now().Before(l.expires) && encode(digest[:]) == l.challenge &&
		l.resource == r.PostFormValue("resource")
}

// exchange returns a login for the user of another token of this provider.
func (p *Provider) exchange(r *http.Request, id string, client Client) (login, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	subject, known := p.tokens[r.PostFormValue("subject_token")]
	resource, target := p.Targets[r.PostFormValue("audience")]
	if !client.Exchanges || !known || !target || time.Now().Unix() > subject["exp"].(int64) ||
		r.PostFormValue("resource") != resource {
		return login{}, false
	}
	return login{user: subject["sub"].(string), client: id, resource: resource}, true
}

// issue returns the answer of the token endpoint, with tokens that are valid for an hour.
func (p *Provider) issue(l login) (map[string]any, error) {
	now := time.Now()
	access := claims{"iss": p.Issuer, "sub": l.user, "aud": l.resource, "client_id": l.client,
		"groups": p.Users[l.user], "scope": l.scope, "iat": now.Unix(),
		"exp": now.Add(time.Hour).Unix(), "jti": rand.Text()}
	token, err := p.sign("at+jwt", access)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.tokens[token] = access
	p.mu.Unlock()
	answer := map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600,
		"scope": l.scope}
	if slices.Contains(strings.Fields(l.scope), "openid") {
		answer["id_token"], err = p.sign("JWT", claims{"iss": p.Issuer, "sub": l.user,
			"aud": l.client, "nonce": l.nonce, "iat": now.Unix(), "exp": access["exp"]})
	}
	return answer, err
}

// sign returns a JWT, signed with ES256.
func (p *Provider) sign(typ string, c claims) (string, error) {
	header, err := json.Marshal(claims{"alg": "ES256", "kid": "1", "typ": typ})
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	signed := encode(header) + "." + encode(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, digest[:])
	if err != nil {
		return "", err
	}
	return signed + "." + encode(append(r.FillBytes(make([]byte, 32)),
		s.FillBytes(make([]byte, 32))...)), nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
