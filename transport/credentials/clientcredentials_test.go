package credentials_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/upstream"
	"gatekit/transport/credentials"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwt"
)

// mustCall calls the server and fails the test on an error.
func mustCall(t *testing.T, w *world, s *credentials.Server, principal string) string {
	t.Helper()
	body, err := w.call(s, principal)
	if err != nil {
		t.Fatalf("%v (%v)", err, errors.Unwrap(err))
	}
	return body
}

func TestTokenIsObtainedWhenTheServerAsksForIt(t *testing.T) {
	w := newWorld(t)
	s := open(t, w.options(credentials.ClientCredentials))
	for range 2 {
		if got := mustCall(t, w, s, "alice"); got != `{"token":"token-1"}` {
			t.Errorf("got %s, want the answer for token-1", got)
		}
	}
	mustCall(t, w, s, "bob") // the token is Gatekit's own
	forms, seen, events := w.snapshot()
	if len(forms) != 1 || forms[0]["grant_type"] != "client_credentials" ||
		forms[0]["resource"] != w.url() || forms[0]["scope"] != "read" ||
		forms[0]["client_id"] != "gatekit" || forms[0]["client_secret"] != "client-secret" {
		t.Errorf("got requests for tokens %q; want one with resource, scope and client", forms)
	}
	want := []string{"", "Bearer token-1", "Bearer token-1", "Bearer token-1"}
	if !slices.Equal(seen, want) {
		t.Errorf("the server saw %q, want %q", seen, want)
	}
	if !slices.Equal(events, []string{"login"}) {
		t.Errorf("got events %q, want login", events)
	}
}

func TestTokenWithoutARecordIsNotUsed(t *testing.T) {
	w := newWorld(t)
	w.eventErr = errors.New("disk full")
	s := open(t, w.options(credentials.ClientCredentials))
	if got, err := w.call(s, "alice"); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %s and the error %v, want that the disk is full", got, err)
	}
	if _, seen, _ := w.snapshot(); slices.ContainsFunc(seen, func(s string) bool {
		return s != ""
	}) {
		t.Errorf("the server saw %q, want no token", seen)
	}
}

func TestConfiguredIssuerNeedsNoChallenge(t *testing.T) {
	w := newWorld(t)
	w.metadataStatus = 404
	o := w.options(credentials.ClientCredentials)
	o.Issuer = w.auth.URL
	mustCall(t, w, open(t, o), "")
	if _, seen, _ := w.snapshot(); !slices.Equal(seen, []string{"Bearer token-1"}) {
		t.Errorf("the server saw %q, want the token at once", seen)
	}
}

func TestPlacesOfMetadata(t *testing.T) {
	const path = "/.well-known/oauth-protected-resource"
	for _, c := range []struct {
		name     string
		change   func(*world)
		want     []string // the paths that are asked for
		resource string   // added to the URL of the server
	}{
		{"the challenge names it", func(*world) {},
			[]string{"/metadata", "/.well-known/oauth-authorization-server"}, "/mcp"},
		{"at the path of the server", func(w *world) {
			w.noChallengeURL, w.metadataPaths = true, []string{path + "/mcp", path}
		}, []string{path + "/mcp", "/.well-known/oauth-authorization-server"}, "/mcp"},
		{"at the root", func(w *world) {
			w.noChallengeURL, w.metadataPaths = true, []string{path}
		}, []string{path + "/mcp", path, "/.well-known/oauth-authorization-server"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.change(w)
			mustCall(t, w, open(t, w.options(credentials.ClientCredentials)), "")
			if !slices.Equal(w.paths, c.want) {
				t.Errorf("asked for %q, want %q", w.paths, c.want)
			}
			if forms, _, _ := w.snapshot(); forms[0]["resource"] != w.server.URL+c.resource {
				t.Errorf("resource is %q, want %q", forms[0]["resource"], w.server.URL+c.resource)
			}
		})
	}
}

func TestMetadataThatFailsAChecksIsNotUsed(t *testing.T) {
	const path = "/.well-known/oauth-protected-resource"
	set := func(name string, value any) func(map[string]any) {
		return func(m map[string]any) { m[name] = value }
	}
	for _, c := range []struct {
		name   string
		change func(*world)
		want   string
	}{
		{"another resource", func(w *world) {
			w.editResource = set("resource", "https://other.example/mcp")
		}, "describes the resource"},
		{"the resource has a trailing slash", func(w *world) {
			w.editResource = set("resource", w.url()+"/")
		}, "describes the resource"},
		{"no authorization server", func(w *world) {
			w.editResource = set("authorization_servers", []string{})
		}, "names no authorization server"},
		{"another issuer", func(w *world) {
			w.editAuth = set("issuer", "https://other.example")
		}, "is the metadata of the issuer"},
		{"the issuer has a trailing slash", func(w *world) {
			w.editAuth = set("issuer", w.auth.URL+"/")
		}, "is the metadata of the issuer"},
		{"failure of the first place, which hides the second", func(w *world) {
			w.noChallengeURL, w.metadataPaths = true, []string{path}
			w.metadataStatus = 500
		}, "HTTP 500"},
		{"no metadata at all: the root of the server is no authorization server",
			func(w *world) { w.metadataStatus = 404 }, "there is no metadata"},
		{"an issuer that is no URL", func(w *world) {
			w.editResource = set("authorization_servers", []string{"javascript:alert(1)"})
		}, "not the URL of an issuer"},
		{"no token endpoint", func(w *world) {
			w.editAuth = set("token_endpoint", "")
		}, "no token endpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.change(w)
			s := open(t, w.options(credentials.ClientCredentials))
			_, err := w.call(s, "")
			refused, ok := errors.AsType[*upstream.CredentialsError](err)
			if !ok || refused.Err == nil || !strings.Contains(refused.Err.Error(), c.want) {
				t.Fatalf("got %v (%v), want an error with %q", err, errors.Unwrap(err), c.want)
			}
			paths := len(w.paths)
			if _, err := w.call(s, ""); err == nil { // within the pause after a failure
				t.Error("the second call succeeded")
			}
			forms, seen, events := w.snapshot()
			if len(forms) != 0 || len(w.paths) != paths {
				t.Errorf("got %d requests for tokens and %d for metadata, want 0 and %d",
					len(forms), len(w.paths), paths)
			}
			if len(seen) != 1 || seen[0] != "" {
				t.Errorf("the server saw %q, want one request without a token", seen)
			}
			if !slices.Equal(events, []string{"rejected"}) {
				t.Errorf("got events %q, want rejected", events)
			}
		})
	}
}

func TestPinnedIssuerIsKept(t *testing.T) {
	w := newWorld(t)
	w.metadataPaths = []string{"/.well-known/oauth-protected-resource/mcp"}
	o := w.options(credentials.ClientCredentials)
	o.Issuer = "https://other.example"
	_, err := w.call(open(t, o), "")
	if err == nil || !strings.Contains(errors.Unwrap(err).Error(), "which this server has had") {
		t.Errorf("got %v (%v), want an error about the issuer", err, errors.Unwrap(err))
	}
	if forms, _, _ := w.snapshot(); len(forms) != 0 {
		t.Errorf("got %d requests for tokens, want none", len(forms))
	}
}

func TestManyCallsWithAnExpiredTokenGetOneToken(t *testing.T) {
	w := newWorld(t)
	s := open(t, w.options(credentials.ClientCredentials))
	mustCall(t, w, s, "")
	w.revoke()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if got, err := w.call(s, ""); err != nil || got != `{"token":"token-2"}` {
				t.Errorf("got %s, %v; want the answer for token-2", got, err)
			}
		})
	}
	wg.Wait()
	forms, _, events := w.snapshot()
	if len(forms) != 2 || !slices.Equal(events, []string{"login", "refreshed"}) {
		t.Errorf("got %d requests for tokens and events %q; want 2, login and refreshed",
			len(forms), events)
	}
}

func TestTokenIsReplacedBeforeItExpires(t *testing.T) {
	w := newWorld(t)
	w.lifetime = 1
	s := open(t, w.options(credentials.ClientCredentials))
	first := mustCall(t, w, s, "")
	began := time.Now()
	for mustCall(t, w, s, "") == first {
		if time.Since(began) > time.Second {
			t.Fatal("a token was used after its time")
		}
	}
}

func TestTokenOfAShortTimeIsUsedMoreThanOnce(t *testing.T) {
	w := newWorld(t)
	w.lifetime = 20
	s := open(t, w.options(credentials.ClientCredentials))
	first := mustCall(t, w, s, "")
	if got := mustCall(t, w, s, ""); got != first {
		t.Errorf("got %s, want %s as before", got, first)
	}
}

func TestScopesThatTheServerAsksFor(t *testing.T) {
	for _, c := range []struct {
		name      string
		max       []string
		wantScope string
		wantErr   string
	}{
		{"are added to the scopes of the token", nil, "admin read write", ""},
		{"are added if max_scopes allows them", []string{"admin", "read", "write"},
			"admin read write", ""},
		{"are refused if max_scopes does not allow them", []string{"read", "write"}, "read",
			"max_scopes does not allow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.needs = []string{"admin", "write"}
			o := w.options(credentials.ClientCredentials)
			o.MaxScopes = c.max
			s := open(t, o)
			_, err := w.call(s, "")
			switch {
			case c.wantErr == "" && err != nil:
				t.Fatal(err)
			case c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)):
				t.Fatalf("got %v, want an error with %q", err, c.wantErr)
			}
			forms, _, _ := w.snapshot()
			if got := forms[len(forms)-1]["scope"]; got != c.wantScope {
				t.Errorf("asked for %q, want %q", got, c.wantScope)
			}
		})
	}
}

// A call that needs a scope that cannot be had fails alone.
func TestScopesThatCannotBeHadDoNotAffectOtherCalls(t *testing.T) {
	for _, c := range []struct {
		name   string
		max    []string
		change func(*world)
	}{
		{"max_scopes does not allow them", []string{"read"}, func(*world) {}},
		{"the authorization server refuses them", nil, func(w *world) {
			w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
				refused := strings.Contains(form["scope"], "admin")
				if refused {
					writeJSON(rw, 400, map[string]any{"error": "invalid_scope"})
				}
				return refused
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.change(w)
			o := w.options(credentials.ClientCredentials)
			o.MaxScopes = c.max
			s := open(t, o)
			need := func(scopes ...string) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.needs = scopes
			}
			mustCall(t, w, s, "alice")
			need("admin")
			if got, err := w.call(s, "bob"); err == nil {
				t.Fatalf("got %s for bob, want an error", got)
			}
			need()
			if got := mustCall(t, w, s, "alice"); got != `{"token":"token-1"}` {
				t.Errorf("got %s, want the answer for the old token", got)
			}
			w.revoke() // another token can be obtained too
			if got := mustCall(t, w, s, "alice"); got == `{"token":"token-1"}` {
				t.Errorf("got %s, want the answer for another token", got)
			}
		})
	}
}

func TestServerThatRejectsEveryTokenIsAskedTwice(t *testing.T) {
	w := newWorld(t)
	w.tokenEndpoint = func(rw http.ResponseWriter, _ map[string]string) bool {
		writeJSON(rw, 200, map[string]any{"access_token": "token-unknown", "token_type": "bearer"})
		return true
	}
	s := open(t, w.options(credentials.ClientCredentials))
	_, err := w.call(s, "")
	refused, ok := errors.AsType[*upstream.CredentialsError](err)
	if !ok || !strings.Contains(refused.Reason, "HTTP 401") {
		t.Fatalf("got %v, want a CredentialsError with HTTP 401", err)
	}
	if strings.Contains(err.Error(), "relayed-secret") {
		t.Errorf("the error contains the answer of the server: %v", err)
	}
	_, seen, events := w.snapshot()
	if len(seen) != 2 || !slices.Equal(events, []string{"login", "rejected"}) {
		t.Errorf("the server saw %q, events %q; want 2 requests, login and rejected", seen, events)
	}
}

func TestRefusalsOfTheAuthorizationServer(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer map[string]any
		status int
		want   string
	}{
		{"an error code", map[string]any{"error": "invalid_client",
			"error_description": "token-secret"}, 401, "invalid_client"},
		{"an error code that is a text", map[string]any{"error": "call 555-1234!"}, 400,
			"HTTP 400"},
		{"another type of token", map[string]any{"access_token": "token-x", "token_type": "DPoP"},
			200, "Gatekit only knows Bearer"},
		{"a token that breaks the header", map[string]any{"access_token": "a\r\nX-Evil: 1",
			"token_type": "Bearer"}, 200, "no header can have"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.tokenEndpoint = func(rw http.ResponseWriter, _ map[string]string) bool {
				writeJSON(rw, c.status, c.answer)
				return true
			}
			_, err := w.call(open(t, w.options(credentials.ClientCredentials)), "")
			refused, ok := errors.AsType[*upstream.CredentialsError](err)
			if !ok || refused.Err == nil || !strings.Contains(refused.Err.Error(), c.want) ||
				strings.Contains(refused.Err.Error(), "token-") {
				t.Errorf("got %v (%v), want an error with %q", err, errors.Unwrap(err), c.want)
			}
			if forms, _, _ := w.snapshot(); len(forms) != 1 {
				t.Errorf("got %d requests for tokens, want 1", len(forms))
			}
		})
	}
}

func TestPrivateKeySignsAssertions(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	o := w.options(credentials.ClientCredentials)
	o.Client = credentials.Client{ID: "gatekit",
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}
	s := open(t, o)
	mustCall(t, w, s, "")
	w.revoke()
	mustCall(t, w, s, "")
	forms, _, _ := w.snapshot()
	ids := map[string]bool{}
	for _, form := range forms {
		token, err := jwt.Parse([]byte(form["client_assertion"]),
			jwt.WithKey(jwa.ES256(), key.Public()), jwt.WithAudience(w.auth.URL),
			jwt.WithIssuer("gatekit"), jwt.WithSubject("gatekit"))
		if err != nil {
			t.Fatal(err)
		}
		id, _ := token.JwtID()
		ids[id] = true
		if form["client_secret"] != "" || form["client_id"] != "gatekit" {
			t.Errorf("got form %q, want no secret", form)
		}
	}
	if len(ids) != 2 {
		t.Errorf("the assertions have ids %v, want two", ids)
	}
	if err := credentials.CheckKey([]byte("secret of mine")); err == nil ||
		strings.Contains(err.Error(), "secret of mine") {
		t.Errorf("CheckKey of no key: %v; want an error that does not quote it", err)
	}
}
