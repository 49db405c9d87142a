package auth_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/test/issuertest"
	"gatekit/transport/auth"
)

const (
	resource = "https://gatekit.example/mcp"
	loginA   = "https://a.example/realms/acme"
	loginB   = "https://b.example"
)

// inMemory sends requests to the issuers of a test.
type inMemory map[string]http.Handler

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	h, ok := m[r.URL.Host]
	if !ok {
		return nil, fmt.Errorf("the test has no host %s", r.URL.Host)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// start returns an Authenticator that runs until the test ends, and its two issuers.
func start(t *testing.T, change func(*auth.Options)) (a *auth.Authenticator, ia,
	ib *issuertest.Issuer) {
	t.Helper()
	ia, ib = issuertest.New(loginA), issuertest.New(loginB)
	ia.AddKey("a1", "RS256")
	ia.AddKey("a2", "ES256")
	ib.AddKey("b1", "ES256")
	return startWith(t, ia, ib, change), ia, ib
}

func startWith(t *testing.T, ia, ib *issuertest.Issuer,
	change func(*auth.Options)) *auth.Authenticator {
	t.Helper()
	o := auth.Options{Resource: resource, Path: "/mcp", Skew: 30 * time.Second,
		Scopes: []string{"mcp"}, Issuers: []auth.Issuer{
			{Issuer: loginA, Audience: []string{resource, "api://gatekit"},
				Algorithms: []string{"RS256", "ES256", "EdDSA"}},
			{Issuer: loginB, Audience: []string{resource}, Algorithms: []string{"ES256"}},
		}}
	if change != nil {
		change(&o)
	}
	a, err := auth.New(o)
	if err != nil {
		t.Fatal(err)
	}
	a.UseTransport(inMemory{"a.example": ia, "b.example": ib})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return a
}

// request returns a POST with the values of Authorization.
func request(authorization ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}"))
	for _, v := range authorization {
		r.Header.Add("Authorization", v)
	}
	r.RemoteAddr = "192.0.2.7:1234"
	return r
}

// status returns the status of the refusal of a token, or 200.
func status(a *auth.Authenticator, token string) int {
	if _, refusal := a.Authenticate(request("Bearer " + token)); refusal != nil {
		return refusal.Status
	}
	return http.StatusOK
}

// TestTokens has the attacks on tokens that a good issuer, another issuer or nobody has signed.
func TestTokens(t *testing.T) {
	a, ia, ib := start(t, nil)
	good := func(change map[string]any) map[string]any { return ia.Claims(resource, change) }
	header := func(members map[string]any) string {
		return ia.TokenWithHeader("a1", members, good(nil))
	}
	signed := func(change map[string]any) string { return ia.Token("a1", good(change)) }
	now := time.Now()
	public, err := x509.MarshalPKIXPublicKey(ia.PublicKey("a1"))
	if err != nil {
		t.Fatal(err)
	}
	hs256 := issuertest.Encode(map[string]any{"alg": "HS256", "kid": "a1", "typ": "at+jwt"})
	none := issuertest.Encode(map[string]any{"alg": "none", "kid": "a1", "typ": "at+jwt"})
	claims := issuertest.Encode(good(nil))
	goodToken := signed(nil)
	parts := strings.Split(goodToken, ".")
	for _, tt := range []struct {
		name, token string
		want        int
	}{
		{"good, RS256", goodToken, 200},
		{"good, ES256", ia.Token("a2", good(nil)), 200},
		{"good, of the other issuer", ib.Token("b1", ib.Claims(resource, nil)), 200},
		{"expired", signed(map[string]any{"exp": now.Add(-time.Minute).Unix()}), 401},
		{"expired within the skew", signed(map[string]any{
			"exp": now.Add(-20 * time.Second).Unix()}), 200},
		{"no expiry", signed(map[string]any{"exp": nil}), 401},
		{"expiry is a text", signed(map[string]any{"exp": "9999999999"}), 401},
		{"expiry beyond all calendars", signed(map[string]any{"exp": 1e30}), 401},
		{"not yet valid", signed(map[string]any{"nbf": now.Add(time.Minute).Unix()}), 401},
		{"not yet valid within the skew", signed(map[string]any{"nbf": now.Add(20 *
			time.Second).Unix()}), 200},
		{"not before is a text", signed(map[string]any{"nbf": "0"}), 401},
		{"wrong audience", signed(map[string]any{"aud": "https://other.example/mcp"}), 401},
		{"audience of another Gatekit", signed(map[string]any{
			"aud": "https://gatekit2.example/mcp"}), 401},
		{"audience without the path", signed(map[string]any{
			"aud": "https://gatekit.example"}), 401},
		{"audience with a slash more", signed(map[string]any{"aud": resource + "/"}), 401},
		{"second accepted audience", signed(map[string]any{"aud": "api://gatekit"}), 200},
		{"list of audiences with the right one", signed(map[string]any{"aud": []string{"x",
			resource}}), 200},
		{"list of audiences without the right one", signed(map[string]any{"aud": []string{"x",
			"y"}}), 401},
		{"empty list of audiences", signed(map[string]any{"aud": []string{}}), 401},
		{"audience is a number", signed(map[string]any{"aud": 1}), 401},
		{"no audience", signed(map[string]any{"aud": nil}), 401},
		{"wrong issuer", signed(map[string]any{"iss": "https://evil.example"}), 401},
		{"no issuer", signed(map[string]any{"iss": nil}), 401},
		{"issuer with a slash more", signed(map[string]any{"iss": loginA + "/"}), 401},
		{"issuer is a list", signed(map[string]any{"iss": []string{loginA}}), 401},
		{"iss of the other issuer with its own key", ib.TokenWithHeader("b1",
			map[string]any{"kid": "a2"}, good(nil)), 401},
		{"iss of the other issuer, key of this one", ib.Token("b1", good(nil)), 401},
		{"accepted audience of the other issuer only", ib.Token("b1", ib.Claims("api://gatekit",
			nil)), 401},
		{"alg none", issuertest.SignedPart(none, claims) + ".", 401},
		{"alg none with a signature", issuertest.SignedPart(none, claims) + "." + parts[2], 401},
		{"HS256 with the public key", issuertest.SignHS256(public, hs256, claims), 401},
		{"HS256 with the public key in PEM", issuertest.SignHS256(pem.EncodeToMemory(&pem.Block{
			Type: "PUBLIC KEY", Bytes: public}), hs256, claims), 401},
		{"alg not listed", ib.TokenWithHeader("b1", map[string]any{"alg": "RS256"},
			ib.Claims(resource, nil)), 401},
		{"alg of another key", ia.TokenWithHeader("a1", map[string]any{"alg": "ES256"}, good(nil)),
			401},
		{"alg in lower case", header(map[string]any{"alg": "rs256"}), 401},
		{"alg is missing", header(map[string]any{"alg": nil}), 401},
		{"kid unknown", header(map[string]any{"kid": "other"}), 401},
		{"kid is a path", header(map[string]any{"kid": "../../../../dev/null"}), 401},
		{"kid is SQL", header(map[string]any{"kid": "x' UNION SELECT 'key'--"}), 401},
		{"kid of a megabyte", header(map[string]any{"kid": strings.Repeat("k", 1<<20)}), 400},
		{"kid is a number", header(map[string]any{"kid": 1}), 401},
		{"no kid, and one key fits", header(map[string]any{"kid": nil}), 200},
		{"jku", header(map[string]any{"jku": "https://evil.example/jwks"}), 200},
		{"jku with another key", ib.TokenWithHeader("b1", map[string]any{
			"jku": loginB + "/jwks"}, good(nil)), 401},
		{"x5u with another key", ib.TokenWithHeader("b1", map[string]any{
			"x5u": loginB + "/cert"}, good(nil)), 401},
		{"jwk with another key", ib.TokenWithHeader("b1", map[string]any{"jwk": ib.JWK("b1"),
			"kid": nil}, good(nil)), 401},
		{"crit", header(map[string]any{"crit": []string{"exp"}}), 401},
		{"crit is empty", header(map[string]any{"crit": []string{}}), 401},
		{"b64", header(map[string]any{"b64": false}), 401},
		{"type JWT", header(map[string]any{"typ": "JWT"}), 200},
		{"no type", header(map[string]any{"typ": nil}), 200},
		{"type of a logout token", header(map[string]any{"typ": "logout+jwt"}), 401},
		{"type of a DPoP proof", header(map[string]any{"typ": "dpop+jwt"}), 401},
		{"ID token with nonce", ia.TokenWithHeader("a1", map[string]any{"typ": "JWT"},
			good(map[string]any{"nonce": "n"})), 401},
		{"ID token with at_hash", ia.TokenWithHeader("a1", map[string]any{"typ": "JWT"},
			good(map[string]any{"at_hash": "h"})), 401},
		{"ID token of Keycloak", ia.TokenWithHeader("a1", map[string]any{"typ": "JWT"},
			good(map[string]any{"typ": "ID"})), 401},
		{"refresh token of Keycloak", ia.TokenWithHeader("a1", map[string]any{"typ": "JWT"},
			good(map[string]any{"typ": "Refresh"})), 401},
		{"access token of Keycloak with nonce", ia.TokenWithHeader("a1", map[string]any{
			"typ": "JWT"}, good(map[string]any{"typ": "Bearer", "nonce": "n"})), 200},
		{"bound to a key of the client", signed(map[string]any{"cnf": map[string]any{
			"jkt": "x"}}), 401},
		{"no subject", signed(map[string]any{"sub": nil}), 401},
		{"subject is a list", signed(map[string]any{"sub": []string{"ann"}}), 401},
		{"subject with a line break", signed(map[string]any{"sub": "ann\nbob"}), 401},
		{"duplicate claim", ia.Sign("a1", issuertest.Encode(map[string]any{"alg": "RS256",
			"kid": "a1"}), []byte(`{"sub":"bob",`+string(claims[1:]))), 401},
		{"duplicate header", ia.Sign("a1", []byte(`{"alg":"RS256","kid":"a1","kid":"a2"}`), claims),
			401},
		{"claims in another case", ia.Sign("a1", []byte(`{"alg":"RS256","kid":"a1"}`),
			[]byte(strings.Replace(string(claims), `"aud"`, `"AUD"`, 1))), 401},
		{"claims are a list", ia.Sign("a1", []byte(`{"alg":"RS256","kid":"a1"}`), []byte(`[]`)),
			401},
		{"claims are null", ia.Sign("a1", []byte(`{"alg":"RS256","kid":"a1"}`), []byte(`null`)),
			401},
		{"payload replaced", parts[0] + "." + base64.RawURLEncoding.EncodeToString(
			issuertest.Encode(good(map[string]any{"sub": "root"}))) + "." + parts[2], 401},
		{"no signature", parts[0] + "." + parts[1] + ".", 401},
		{"two parts", parts[0] + "." + parts[1], 401},
		{"five parts", goodToken + ".x.y", 401},
		{"padding", parts[0] + "=." + parts[1] + "." + parts[2], 400},
		{"not base64", "a.b.c", 401},
		{"too few scopes", signed(map[string]any{"scope": "tools"}), 403},
		{"scope that begins like the right one", signed(map[string]any{"scope": "mcp2"}), 403},
		{"scopes as a list", signed(map[string]any{"scope": nil, "scp": []string{"mcp"}}), 200},
		{"scopes as Entra ID writes them", signed(map[string]any{"scope": nil,
			"scp": "x mcp"}), 200},
		{"no scopes", signed(map[string]any{"scope": nil}), 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, refusal := a.Authenticate(request("Bearer " + tt.token))
			if tt.want == 200 {
				if refusal != nil || p.Subject() != "ann" || p.Client() != "editor" ||
					!p.HasScope("mcp") || p.Method() != identity.JWT {
					t.Fatalf("got %q and refusal %v, want ann", p.ID(), refusal)
				}
				return
			}
			if refusal == nil || refusal.Status != tt.want || p != nil {
				t.Fatalf("got %q and refusal %+v, want status %d", p.ID(), refusal, tt.want)
			}
			checkRefusal(t, refusal, tt.token)
		})
	}
}

// checkRefusal checks that a refusal has a complete challenge, and no part of the credential.
func checkRefusal(t *testing.T, r *auth.Refusal, credential string) {
	t.Helper()
	code := map[int]string{400: "invalid_request", 401: "invalid_token", 403: "insufficient_scope"}
	challenge := r.Header.Get("WWW-Authenticate")
	for _, want := range []string{`Bearer error="` + code[r.Status] + `"`, `scope="mcp"`,
		`resource_metadata="https://gatekit.example/.well-known/oauth-protected-resource/mcp"`} {
		if !strings.Contains(challenge, want) {
			t.Errorf("got the challenge %s, want one with %s", challenge, want)
		}
	}
	if r.Detail == "" || r.Reason == "" || r.Detail == r.Reason {
		t.Errorf("got detail %q and reason %q, want two texts", r.Detail, r.Reason)
	}
	for _, part := range strings.Split(credential, ".") {
		if len(part) > 10 && strings.Contains(fmt.Sprint(r.Status, r.Header, r.Reason, r.Detail,
			r.Error()), part) {
			t.Errorf("the refusal has a part of the credential: %+v", r)
		}
	}
}

func TestMalformedRequests(t *testing.T) {
	a, ia, _ := start(t, nil)
	good := ia.Token("a1", ia.Claims(resource, nil))
	for _, tt := range []struct {
		name    string
		request *http.Request
		want    int
	}{
		{"two headers", request("Bearer "+good, "Bearer x"), 400},
		{"two equal headers", request("Bearer "+good, "Bearer "+good), 400},
		{"two tokens in one header", request("Bearer " + good + ", Bearer x"), 400},
		{"no token", request("Bearer "), 400},
		{"only the scheme", request("Bearer"), 400},
		{"two spaces", request("Bearer  " + good), 400},
		{"basic", request("Basic Z29vZDpzZWNyZXQtd29yZA=="), 401},
		{"DPoP", request("DPoP " + good), 401},
		{"token without scheme", request(good), 401},
		{"lower case scheme", request("bearer " + good), 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, refusal := a.Authenticate(tt.request)
			got := 200
			if refusal != nil {
				got = refusal.Status
			}
			if got != tt.want {
				t.Fatalf("got status %d, want %d", got, tt.want)
			}
			if refusal != nil && strings.Contains(fmt.Sprintf("%+v", refusal), good[:40]) {
				t.Errorf("the refusal has a part of the credential: %+v", refusal)
			}
		})
	}
	for _, query := range []string{"?access_token=" + good, "?a=b&access%5Ftoken=" + good} {
		for _, r := range []*http.Request{request(), request("Bearer " + good)} {
			r.URL.RawQuery = query[1:]
			_, refusal := a.Authenticate(r)
			if refusal == nil || refusal.Status != 400 {
				t.Fatalf("token in the URL: got %+v, want status 400", refusal)
			}
			checkRefusal(t, refusal, good)
		}
	}
}

func TestRequestWithoutCredentialGetsAChallengeWithoutError(t *testing.T) {
	a, _, _ := start(t, nil)
	_, refusal := a.Authenticate(request())
	if refusal == nil || refusal.Status != 401 {
		t.Fatalf("got %+v, want status 401", refusal)
	}
	want := `Bearer scope="mcp", ` +
		`resource_metadata="https://gatekit.example/.well-known/oauth-protected-resource/mcp"`
	if got := refusal.Header.Get("WWW-Authenticate"); got != want {
		t.Errorf("got the challenge %s, want %s", got, want)
	}
}

// The principal has what the token says, with the configured names of claims.
func TestPrincipalHasTheClaims(t *testing.T) {
	a, ia, _ := start(t, func(o *auth.Options) {
		o.Issuers[0].Subject = "oid"
		o.Issuers[0].Groups = "/realm_access/roles"
		o.Issuers[0].Clients = []string{"editor", "agent"}
	})
	claims := ia.Claims(resource, map[string]any{"oid": "0815", "azp": "agent", "client_id": nil,
		"realm_access": map[string]any{"roles": []string{"dev", "ops"}}})
	p, refusal := a.Authenticate(request("Bearer " + ia.Token("a2", claims)))
	if refusal != nil {
		t.Fatal(refusal)
	}
	if p.ID() != loginA+"#0815" || p.Client() != "agent" ||
		!slices.Equal(p.Groups(), []string{"dev", "ops"}) ||
		!slices.Equal(p.Scopes(), []string{"mcp", "tools"}) ||
		string(p.Claims()) != string(issuertest.Encode(claims)) ||
		!p.Expiry().Equal(time.Unix(claims["exp"].(int64), 0).Add(30*time.Second)) {
		t.Errorf("got %+v", p)
	}
	claims["azp"] = "other"
	if got := status(a, ia.Token("a2", claims)); got != 401 {
		t.Errorf("a client that may not: got status %d, want 401", got)
	}
	delete(claims, "azp") // as an ID token of Entra ID, which has the type JWT and no other sign
	idToken := ia.TokenWithHeader("a2", map[string]any{"typ": "JWT"}, claims)
	if got := status(a, idToken); got != 401 {
		t.Errorf("a token that names no client: got status %d, want 401", got)
	}
}

func TestKeysThatCannotVerifyAreIgnored(t *testing.T) {
	ia, ib := issuertest.New(loginA), issuertest.New(loginB)
	ia.AddKey("a1", "RS256")
	for _, id := range []string{"twice", "encrypts", "wraps"} {
		ia.AddKey(id, "ES256")
		ia.Withdraw(id)
	}
	twice := ia.JWK("twice")
	ia.Publish(twice)
	ib.AddKey("b1", "ES256")
	other := ib.JWK("b1")
	other["kid"] = "twice"
	ia.Publish(other)
	encrypts := ia.JWK("encrypts")
	encrypts["use"] = "enc"
	ia.Publish(encrypts)
	wraps := ia.JWK("wraps")
	delete(wraps, "use")
	wraps["key_ops"] = []string{"wrapKey"}
	ia.Publish(wraps)
	ia.Publish(map[string]any{"kty": "oct", "kid": "secret", "alg": "HS256", "k": "c2VjcmV0"})
	ia.Publish(map[string]any{"kty": "RSA", "kid": "small", "e": "AQAB",
		"n": base64.RawURLEncoding.EncodeToString(append([]byte{0xff}, make([]byte, 127)...))})
	ia.Publish(map[string]any{"kty": "quantum", "kid": "new"})
	a := startWith(t, ia, ib, nil)
	if got := status(a, ia.Token("a1", ia.Claims(resource, nil))); got != 200 {
		t.Fatalf("good key: got status %d, want 200", got)
	}
	for _, id := range []string{"twice", "encrypts", "wraps"} {
		if got := status(a, ia.Token(id, ia.Claims(resource, nil))); got != 401 {
			t.Errorf("key %s: got status %d, want 401", id, got)
		}
	}
	hs256 := issuertest.SignHS256([]byte("secret"), []byte(`{"alg":"HS256","kid":"secret"}`),
		issuertest.Encode(ia.Claims(resource, nil)))
	if got := status(a, hs256); got != 401 {
		t.Errorf("symmetric key: got status %d, want 401", got)
	}
}

func TestExpiryOfARememberedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ia, _ := start(t, nil)
		token := ia.Token("a2", ia.Claims(resource, map[string]any{
			"exp": time.Now().Add(time.Minute).Unix()}))
		for _, tt := range []struct {
			after time.Duration
			want  int
		}{{0, 200}, {89*time.Second + 999*time.Millisecond, 200}, {time.Millisecond, 401}} {
			time.Sleep(tt.after)
			if got := status(a, token); got != tt.want {
				t.Errorf("%s later: got status %d, want %d", tt.after, got, tt.want)
			}
		}
	})
}

func TestKeysAreRotatedAndWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ia, _ := start(t, nil)
		claims := ia.Claims(resource, map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()})
		before := ia.Token("a2", claims)
		if got := status(a, before); got != 200 {
			t.Fatalf("before: got status %d, want 200", got)
		}
		ia.AddKey("a3", "EdDSA")
		ia.Withdraw("a2")
		if got := status(a, ia.Token("a3", claims)); got != 200 {
			t.Errorf("rotated key: got status %d, want 200 after one fetch", got)
		}
		if got := status(a, before); got != 401 {
			t.Errorf("withdrawn key, after a fetch: got status %d, want 401", got)
		}
		after := ia.Token("a3", claims)
		ia.Withdraw("a3")
		if got := status(a, after); got != 200 {
			t.Errorf("withdrawn key, before the next fetch: got status %d, want 200", got)
		}
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if got := status(a, after); got != 401 {
			t.Errorf("withdrawn key, after the scheduled fetch: got status %d, want 401", got)
		}
	})
}

// Nobody notices that a key with the same id is another key, unless its content is compared.
func TestKeyReplacedUnderItsIDIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ia, _ := start(t, nil)
		claims := ia.Claims(resource, map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()})
		before := ia.Token("a2", claims)
		if got := status(a, before); got != 200 {
			t.Fatalf("before: got status %d, want 200", got)
		}
		ia.Withdraw("a2")
		ia.AddKey("a2", "ES256")
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if got := status(a, before); got != 401 {
			t.Errorf("token of the old key: got status %d, want 401", got)
		}
		if got := status(a, ia.Token("a2", claims)); got != 200 {
			t.Errorf("token of the new key: got status %d, want 200", got)
		}
	})
}

func TestIssuerThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ia, ib := issuertest.New(loginA), issuertest.New(loginB)
		ia.AddKey("a1", "ES256")
		ib.AddKey("b1", "ES256")
		ia.SetDown(true)
		a := startWith(t, ia, ib, nil)
		claims := ia.Claims(resource, map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()})
		token := ia.Token("a1", claims)
		_, refusal := a.Authenticate(request("Bearer " + token))
		if refusal == nil || refusal.Status != 503 || refusal.Header.Get("Retry-After") == "" ||
			refusal.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("down at the start: got %+v, want status 503", refusal)
		}
		if got := status(a, ib.Token("b1", ib.Claims(resource, nil))); got != 200 {
			t.Errorf("the other issuer: got status %d, want 200", got)
		}
		ia.SetDown(false)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := status(a, token); got != 200 {
			t.Errorf("up again: got status %d, want 200", got)
		}
		ia.SetDown(true)
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if got := status(a, token); got != 200 {
			t.Errorf("down for 59 minutes: got status %d, want 200", got)
		}
		if got := status(a, ia.Token("a1", ia.Claims(resource, nil))); got != 200 {
			t.Errorf("a new token, down for 59 minutes: got status %d, want 200", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := status(a, token); got != 503 {
			t.Errorf("down for over an hour: got status %d, want 503", got)
		}
	})
}

func TestUnknownKeysAreFetchedOnceIn30Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ia, _ := start(t, nil)
		if got := status(a, ia.Token("a2", ia.Claims(resource, nil))); got != 200 {
			t.Fatalf("got status %d, want 200", got)
		}
		time.Sleep(time.Minute)
		before := ia.Fetches()
		flood := func(n int) {
			for i := range n {
				token := ia.TokenWithHeader("a2", map[string]any{"kid": fmt.Sprint("k", i)},
					ia.Claims(resource, nil))
				if got := status(a, token); got != 401 {
					t.Fatalf("got status %d, want 401", got)
				}
			}
		}
		flood(10_000)
		if n := ia.Fetches() - before; n != 1 {
			t.Errorf("10,000 unknown keys: got %d fetches, want 1", n)
		}
		time.Sleep(30 * time.Second)
		flood(100)
		if n := ia.Fetches() - before; n != 2 {
			t.Errorf("100 more after 30 s: got %d fetches in all, want 2", n)
		}
	})
}

func TestRememberedTokensAreBounded(t *testing.T) {
	a, ia, _ := start(t, nil)
	const size = 50
	a.SetCacheSize(size)
	for i := range 3 * size {
		token := ia.Token("a2", ia.Claims(resource, map[string]any{"jti": i}))
		if got := status(a, token); got != 200 {
			t.Fatalf("got status %d, want 200", got)
		}
	}
	if n := a.Remembered(); n > 2*size || n < size {
		t.Errorf("got %d tokens, want between %d and %d", n, size, 2*size)
	}
}

// Each request's principal has the token of that request, whatever other requests of the same user
// have.
func TestPrincipalKeepsTheTokenOfItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeps := true
		a, ia, _ := start(t, func(o *auth.Options) { o.KeepTokens = func() bool { return keeps } })
		expiry := map[string]any{"exp": time.Now().Add(time.Minute).Unix()}
		first := ia.Token("a2", ia.Claims(resource, nil))
		last := ia.Token("a2", ia.Claims(resource, expiry))
		principals := map[string]*identity.Principal{}
		for _, token := range []string{first, last, first} {
			principals[token], _ = a.Authenticate(request("Bearer " + token))
		}
		if principals[first].Token() != first || principals[last].Token() != last {
			t.Error("a principal does not have the token of its request")
		}
		if text := fmt.Sprintf("%+v %#v", principals[first],
			*principals[first]); strings.Contains(text, first) {
			t.Errorf("the token is in %s", text)
		}
		time.Sleep(91 * time.Second)
		if principals[last].Token() != "" || principals[first].Token() != first {
			t.Error("an expired token is still there, or another one is not")
		}
		keeps = false
		if p, _ := a.Authenticate(request("Bearer " + first)); p.Token() != "" {
			t.Error("a token is kept that nobody needs")
		}
	})
}

func TestMetadataOfAnotherIssuerIsNotUsed(t *testing.T) {
	ia, ib := issuertest.New(loginA+"/other"), issuertest.New(loginB)
	ia.AddKey("a1", "ES256")
	a := startWith(t, ia, ib, nil)
	token := ia.Token("a1", ia.Claims(resource, map[string]any{"iss": loginA}))
	if got := status(a, token); got != 503 {
		t.Errorf("got status %d, want 503", got)
	}
}

func introspecting(o *auth.Options) {
	o.Issuers[0].Opaque = true
	o.Issuers[0].Introspect = &auth.Introspect{ID: "gatekit", Secret: "s3:cret",
		Cache: 10 * time.Second}
}

func TestIntrospection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ia, _ := start(t, introspecting)
		claims := ia.Claims(resource, nil)
		token := ia.Opaque(claims)
		p, refusal := a.Authenticate(request("Bearer " + token))
		if refusal != nil || p.ID() != loginA+"#ann" || p.Method() != identity.Introspection {
			t.Fatalf("got %+v and refusal %v, want ann", p, refusal)
		}
		for range 100 {
			status(a, token)
		}
		if n := ia.Introspections(); n != 1 {
			t.Errorf("100 calls with one token: got %d questions, want 1", n)
		}
		ia.Revoke(token)
		time.Sleep(10 * time.Second)
		if got := status(a, token); got != 401 {
			t.Errorf("revoked, after the cache's time: got status %d, want 401", got)
		}
		for name, change := range map[string]map[string]any{
			"wrong audience":   {"aud": "https://other.example"},
			"no audience":      {"aud": nil},
			"other issuer":     {"iss": loginB},
			"expired":          {"exp": time.Now().Add(-time.Hour).Unix()},
			"no expiry":        {"exp": nil},
			"no subject":       {"sub": nil},
			"not active":       {"active": false},
			"nearly active":    {"active": "true"},
			"bound to a key":   {"cnf": map[string]any{"jkt": "x"}},
			"DPoP":             {"token_type": "DPoP"},
			"refresh token":    {"typ": "Refresh"},
			"a number as type": {"token_type": 1},
		} {
			if got := status(a, ia.Opaque(ia.Claims(resource, change))); got != 401 {
				t.Errorf("%s: got status %d, want 401", name, got)
			}
		}
		for name, change := range map[string]map[string]any{
			"of RFC 7662": {"token_type": "bearer"},
			"of Keycloak": {"token_type": "Bearer", "typ": "Bearer"},
		} {
			if got := status(a, ia.Opaque(ia.Claims(resource, change))); got != 200 {
				t.Errorf("type %s: got status %d, want 200", name, got)
			}
		}
		if got := status(a, "unknown"); got != 401 {
			t.Errorf("unknown token: got status %d, want 401", got)
		}
		if got := status(a, "gk_ci_"+strings.Repeat("0", 64)); got != 401 {
			t.Errorf("static token: got status %d, want 401", got)
		}
		asked := ia.Introspections()
		status(a, "gk_ci_secret")
		if n := ia.Introspections(); n != asked {
			t.Error("the issuer was asked about a static token")
		}
		fresh := ia.Opaque(ia.Claims(resource, nil))
		ia.SetDown(true)
		if got := status(a, fresh); got != 503 {
			t.Errorf("down: got status %d, want 503", got)
		}
	})
}

// With introspection, a signed token must have a valid signature and be active.
func TestIntrospectionOfSignedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ia, ib := start(t, func(o *auth.Options) {
			introspecting(o)
			o.Issuers[0].Opaque = false
		})
		token := ia.Token("a2", ia.Claims(resource, nil))
		if got := status(a, token); got != 200 {
			t.Errorf("good: got status %d, want 200", got)
		}
		if got := status(a, ib.Token("b1", ia.Claims(resource, nil))); got != 401 {
			t.Errorf("wrong key: got status %d, want 401", got)
		}
		if n := ia.Introspections(); n != 1 {
			t.Errorf("got %d questions, want 1: none about a token with a wrong signature", n)
		}
		ia.Revoke(token)
		time.Sleep(10 * time.Second)
		if got := status(a, token); got != 401 {
			t.Errorf("revoked: got status %d, want 401", got)
		}
	})
}

func TestStaticTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ci, ciDigest := auth.NewStaticToken("ci")
		old, oldDigest := auth.NewStaticToken("old")
		weak, weakDigest := auth.NewStaticToken("weak")
		a, _, _ := start(t, func(o *auth.Options) {
			o.Tokens = []auth.StaticToken{
				{ID: "ci", Digest: ciDigest, Subject: "build", Scopes: []string{"mcp"}},
				{ID: "old", Digest: oldDigest, Subject: "build", Scopes: []string{"mcp"},
					Expires: time.Now().Add(time.Minute)},
				{ID: "weak", Digest: weakDigest, Subject: "weak"},
			}
		})
		p, refusal := a.Authenticate(request("Bearer " + ci))
		if refusal != nil || p.ID() != "token:build" || p.Method() != identity.Token {
			t.Errorf("got %q and refusal %v, want token:build", p.ID(), refusal)
		}
		for _, tt := range []struct {
			name, token string
			want        int
		}{
			{"before the end", old, 200},
			{"too few scopes", weak, 403},
			{"secret of another token", "gk_ci_" + strings.TrimPrefix(old, "gk_old_"), 401},
			{"secret in upper case", "gk_ci_" + strings.ToUpper(strings.TrimPrefix(ci, "gk_ci_")),
				401},
			{"no secret", "gk_ci_", 401},
			{"no id", "gk_" + strings.TrimPrefix(ci, "gk_ci_"), 401},
			{"digest as the secret", "gk_ci_" + fmt.Sprintf("%x", ciDigest), 401},
			{"unknown id", "gk_x_" + strings.TrimPrefix(ci, "gk_ci_"), 401},
		} {
			_, refusal := a.Authenticate(request("Bearer " + tt.token))
			if got := refusalStatusOrOK(refusal); got != tt.want {
				t.Errorf("%s: got status %d, want %d", tt.name, got, tt.want)
			}
			_, secret, found := strings.Cut(strings.TrimPrefix(tt.token, "gk_"), "_")
			if !found {
				secret = strings.TrimPrefix(tt.token, "gk_")
			}
			if refusal != nil && secret != "" &&
				strings.Contains(fmt.Sprintf("%+v", refusal), secret) {
				t.Errorf("%s: the refusal has the secret: %+v", tt.name, refusal)
			}
		}
		time.Sleep(time.Minute)
		if got := status(a, old); got != 401 {
			t.Errorf("after the end: got status %d, want 401", got)
		}
	})
}

func refusalStatusOrOK(r *auth.Refusal) int {
	if r == nil {
		return 200
	}
	return r.Status
}

func TestAnonymousIsLocalOnly(t *testing.T) {
	a, ia, _ := start(t, func(o *auth.Options) { o.Anonymous = true })
	for _, tt := range []struct {
		name, from string
		header     map[string]string
		want       int
	}{
		{"loopback", "127.0.0.1:5", nil, 200},
		{"loopback v6", "[::1]:5", nil, 200},
		{"another machine", "192.0.2.1:5", nil, 401},
		{"no address", "@", nil, 401},
		{"behind a proxy", "127.0.0.1:5", map[string]string{"X-Forwarded-For": "192.0.2.1"}, 401},
		{"behind a proxy of RFC 7239", "127.0.0.1:5", map[string]string{"Forwarded": "for=x"}, 401},
		{"with a bad token", "127.0.0.1:5", map[string]string{"Authorization": "Bearer x"}, 401},
		{"with another scheme", "127.0.0.1:5", map[string]string{"Authorization": "Basic x"}, 401},
		{"with a good token", "127.0.0.1:5", map[string]string{"Authorization": "Bearer " +
			ia.Token("a2", ia.Claims(resource, nil))}, 200},
	} {
		r := request()
		r.RemoteAddr = tt.from
		for name, value := range tt.header {
			r.Header.Set(name, value)
		}
		p, refusal := a.Authenticate(r)
		if got := refusalStatusOrOK(refusal); got != tt.want {
			t.Errorf("%s: got status %d, want %d", tt.name, got, tt.want)
		}
		want := "local:anonymous"
		if tt.header["Authorization"] != "" {
			want = loginA + "#ann"
		}
		if tt.want == 200 && p.ID() != want {
			t.Errorf("%s: got %q, want %s", tt.name, p.ID(), want)
		}
	}
}

func TestMetadata(t *testing.T) {
	a, _, _ := start(t, nil)
	m := a.Metadata()
	want := []string{"/.well-known/oauth-protected-resource",
		"/.well-known/oauth-protected-resource/mcp"}
	if !slices.Equal(m.Paths(), want) {
		t.Errorf("got the paths %q, want %q", m.Paths(), want)
	}
	get := func(method string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(method, m.Paths()[0], nil))
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != "*" {
			t.Errorf("%s: got Access-Control-Allow-Origin %q, want *", method, got)
		}
		return w
	}
	w := get(http.MethodGet)
	var document map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" ||
		document["resource"] != resource ||
		fmt.Sprint(document["authorization_servers"]) != "["+loginA+" "+loginB+"]" ||
		fmt.Sprint(document["scopes_supported"]) != "[mcp]" ||
		fmt.Sprint(document["bearer_methods_supported"]) != "[header]" {
		t.Errorf("got status %d and %s", w.Code, w.Body)
	}
	if w := get(http.MethodOptions); w.Code != 204 ||
		w.Header().Get("Access-Control-Allow-Methods") != "GET" {
		t.Errorf("OPTIONS: got status %d and %v", w.Code, w.Header())
	}
	if w := get(http.MethodPost); w.Code != 405 {
		t.Errorf("POST: got status %d, want 405", w.Code)
	}
	b, err := auth.New(auth.Options{Resource: "https://x.example/team/mcp", Path: "/mcp",
		Issuers: []auth.Issuer{{Issuer: loginA, Audience: []string{"x"},
			Algorithms: []string{"ES256"}}}})
	if err != nil {
		t.Fatal(err)
	}
	want = []string{"/.well-known/oauth-protected-resource",
		"/.well-known/oauth-protected-resource/team/mcp",
		"/.well-known/oauth-protected-resource/mcp"}
	if !slices.Equal(b.Metadata().Paths(), want) {
		t.Errorf("got the paths %q, want %q", b.Metadata().Paths(), want)
	}
}

func TestChallengeNamesAllScopes(t *testing.T) {
	a, _, _ := start(t, func(o *auth.Options) { o.Scopes = []string{"mcp"} })
	user, err := identity.New(identity.Attributes{Method: identity.JWT, Issuer: loginA,
		Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	scopes := []string{"issues:write", "mcp", "issues:read"}
	got := a.Challenge(user, scopes).Get("WWW-Authenticate")
	if !strings.Contains(got, `error="insufficient_scope"`) ||
		!strings.Contains(got, `scope="mcp issues:write issues:read"`) ||
		!strings.Contains(got, "resource_metadata=") {
		t.Errorf("got the challenge %s", got)
	}
	for _, p := range []*identity.Principal{nil, identity.FromID("token:ci")} {
		if got := a.Challenge(p, scopes); got != nil {
			t.Errorf("principal %q got the challenge %v, want none: it cannot get scopes", p.ID(),
				got)
		}
	}
}

// Entra ID is asked for scopes by names that its tokens do not have.
func TestScopesWithAPrefix(t *testing.T) {
	const prefix = "api://app/"
	a, ia, _ := start(t, func(o *auth.Options) {
		o.Scopes, o.Issuers[0].ScopePrefix = []string{"mcp"}, prefix
	})
	want := func(when, got, scopes string) {
		t.Helper()
		if !strings.Contains(got, `scope="`+scopes+`"`) {
			t.Errorf("%s: got the challenge %s, want the scopes %q", when, got, scopes)
		}
	}
	ask := func(token string) (*identity.Principal, *auth.Refusal) {
		r := httptest.NewRequest("POST", "/mcp", nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return a.Authenticate(r)
	}
	_, refused := ask("")
	want("no token", refused.Header.Get("WWW-Authenticate"), prefix+"mcp")
	_, refused = ask(ia.Token("a2", ia.Claims(resource, map[string]any{"scope": prefix + "mcp"})))
	want("too few scopes", refused.Header.Get("WWW-Authenticate"), prefix+"mcp")
	user, refused := ask(ia.Token("a2", ia.Claims(resource, map[string]any{"scope": nil,
		"scp": "mcp"})))
	if refused != nil {
		t.Fatal(refused)
	}
	want("the scopes of a policy", a.Challenge(user, []string{"write"}).Get("WWW-Authenticate"),
		prefix+"mcp "+prefix+"write")
	other, err := identity.New(identity.Attributes{Method: identity.JWT, Issuer: loginB,
		Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	want("another issuer", a.Challenge(other, []string{"write"}).Get("WWW-Authenticate"),
		"mcp write")
	w := httptest.NewRecorder()
	a.Metadata().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if !strings.Contains(w.Body.String(), `"`+prefix+`mcp"`) {
		t.Errorf("got the metadata %s, want the scope with the prefix", w.Body)
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	good := func() auth.Options {
		return auth.Options{Resource: resource, Issuers: []auth.Issuer{{Issuer: loginA,
			Audience: []string{resource}, Algorithms: []string{"RS256"}}}}
	}
	if _, err := auth.New(good()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*auth.Options){
		"no resource":       func(o *auth.Options) { o.Resource = "" },
		"no audience":       func(o *auth.Options) { o.Issuers[0].Audience = nil },
		"empty audience":    func(o *auth.Options) { o.Issuers[0].Audience = []string{""} },
		"no algorithms":     func(o *auth.Options) { o.Issuers[0].Algorithms = nil },
		"none":              func(o *auth.Options) { o.Issuers[0].Algorithms = []string{"none"} },
		"HS256":             func(o *auth.Options) { o.Issuers[0].Algorithms = []string{"HS256"} },
		"same issuer":       func(o *auth.Options) { o.Issuers = append(o.Issuers, o.Issuers[0]) },
		"no URL":            func(o *auth.Options) { o.Issuers[0].Issuer = "acme" },
		"opaque, no asking": func(o *auth.Options) { o.Issuers[0].Opaque = true },
		"two opaque": func(o *auth.Options) {
			introspecting(o)
			o.Issuers = append(o.Issuers, o.Issuers[0])
			o.Issuers[1].Issuer = loginB
		},
		"token without subject": func(o *auth.Options) { o.Tokens = []auth.StaticToken{{ID: "a"}} },
		"token with _": func(o *auth.Options) {
			o.Tokens = []auth.StaticToken{{ID: "a_b", Subject: "x"}}
		},
		"certificates without names": func(o *auth.Options) {
			o.Certificates = &auth.Certificates{Subject: "uri"}
		},
		"certificates without kind": func(o *auth.Options) {
			o.Certificates = &auth.Certificates{Trust: []string{"x"}}
		},
	} {
		o := good()
		change(&o)
		if _, err := auth.New(o); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestExplain(t *testing.T) {
	ia, ib := issuertest.New(loginA), issuertest.New(loginB)
	ia.AddKey("a1", "ES256")
	a, err := auth.New(auth.Options{Resource: resource, Scopes: []string{"mcp"},
		Issuers: []auth.Issuer{{Issuer: loginA, Audience: []string{resource},
			Algorithms: []string{"ES256"}}}})
	if err != nil {
		t.Fatal(err)
	}
	a.UseTransport(inMemory{"a.example": ia, "b.example": ib})
	checks, ok := a.Explain(t.Context(), ia.Token("a1", ia.Claims(resource, nil)))
	if !ok || len(checks) != 13 {
		t.Errorf("good token: got %v and %t, want 13 checks that passed", checks, ok)
	}
	checks, ok = a.Explain(t.Context(), ia.TokenWithHeader("a1", map[string]any{"kid": "x"},
		ia.Claims("https://other.example", map[string]any{"exp": 1, "scope": "x"})))
	var failed []string
	for _, c := range checks {
		if c.Err != nil {
			failed = append(failed, c.Name)
		}
	}
	if want := []string{"key", "signature", "audience", "expiry"}; ok ||
		!slices.Equal(failed, want) {
		t.Errorf("bad token: got the failed checks %q, want %q", failed, want)
	}
}

func BenchmarkRememberedToken(b *testing.B) {
	ia := issuertest.New(loginA)
	ia.AddKey("a1", "RS256")
	a, err := auth.New(auth.Options{Resource: resource, Issuers: []auth.Issuer{{Issuer: loginA,
		Audience: []string{resource}, Algorithms: []string{"RS256"}}}})
	if err != nil {
		b.Fatal(err)
	}
	a.UseTransport(inMemory{"a.example": ia})
	go a.Run(b.Context())
	r := request("Bearer " + ia.Token("a1", ia.Claims(resource, map[string]any{
		"padding": strings.Repeat("x", 500)})))
	if _, refusal := a.Authenticate(r); refusal != nil {
		b.Fatal(refusal)
	}
	for b.Loop() {
		a.Authenticate(r)
	}
}

func FuzzToken(f *testing.F) {
	ia := issuertest.New(loginA)
	ia.AddKey("a1", "ES256")
	f.Add(issuertest.Encode(map[string]any{"alg": "ES256", "kid": "a1"}),
		issuertest.Encode(ia.Claims(resource, nil)))
	f.Add([]byte(`{"alg":"none"}`), []byte(`{"iss":"a","iss":"b"}`))
	f.Add([]byte(`{}`), []byte(`{"iss":"a","scope":"a  b","client_id":"c"}`))
	f.Add([]byte(`{"kid":"\ud800"}`), []byte(`{"iss":"\u0061","scp":["x"],"azp":1}`))
	f.Fuzz(func(t *testing.T, header, payload []byte) {
		issuer, client, scopes, ok := auth.Fuzzed(issuertest.SignedPart(header, payload) + ".c2ln")
		// A token that is read has claims that encoding/json reads in the same way.
		var want map[string]any
		if err := json.Unmarshal(payload, &want); err != nil && ok {
			t.Fatalf("read claims that are not valid JSON: %q", payload)
		}
		if !ok {
			return
		}
		if s, _ := want["iss"].(string); s != issuer {
			t.Errorf("got the issuer %q, want %q", issuer, s)
		}
		if s, ok := want["client_id"].(string); ok && s != "" && s != client {
			t.Errorf("got the client %q, want %q", client, s)
		}
		if s, ok := want["scope"].(string); ok && !slices.Equal(scopes, strings.Fields(s)) {
			t.Errorf("got the scopes %q, want %q", scopes, strings.Fields(s))
		}
	})
}
