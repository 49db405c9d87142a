package credentials_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gatekit/core/upstream"
	"gatekit/transport/credentials"
	"gatekit/transport/tokenstore"
)

// withStore returns the options for logins, with a store of its own.
func (w *world) withStore() credentials.Options {
	store, err := tokenstore.Open(filepath.Join(w.t.TempDir(), "tokens"),
		bytes.Repeat([]byte("k"), 32))
	if err != nil {
		w.t.Fatal(err)
	}
	o := w.options(credentials.AuthorizationCode)
	o.Store = store
	return o
}

const redirect = "http://127.0.0.1:1/callback"

func toRedirect(string) (string, error) { return redirect, nil }

// answer returns the query with which an honest authorization server sends the user back.
func answer(t *testing.T, login *credentials.Login) url.Values {
	u, err := url.Parse(login.URL)
	if err != nil {
		t.Fatal(err)
	}
	return url.Values{"code": {"code-1"}, "state": {u.Query().Get("state")}}
}

// issueRotating makes the token endpoint return refresh tokens, each of which can be used once. The
// access token names the code or refresh token that it was issued for.
func (w *world) issueRotating() {
	valid := map[string]string{} // the first code of each refresh token
	w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
		code := form["code"]
		if form["grant_type"] == "refresh_token" {
			code = valid[form["refresh_token"]]
			delete(valid, form["refresh_token"])
		}
		if code == "" {
			writeJSON(rw, 400, map[string]any{"error": "invalid_grant"})
			return true
		}
		refresh := fmt.Sprintf("refresh-%d", len(w.forms))
		valid[refresh] = code
		w.issue(rw, []string{"read"}, map[string]any{"refresh_token": refresh})
		return true
	}
}

// logIn logs a principal in.
func logIn(t *testing.T, s *credentials.Server, principal string) {
	t.Helper()
	login, err := s.BeginLogin(t.Context(), principal, toRedirect)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := login.Finish(t.Context(), answer(t, login)); err != nil {
		t.Fatal(err)
	}
}

func TestLoginNamesResourceAndUsesPKCE(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	s := open(t, w.withStore())
	login, err := s.BeginLogin(t.Context(), "token:ann", toRedirect)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(login.URL)
	q := u.Query()
	if q.Get("resource") != w.url() || q.Get("code_challenge_method") != "S256" ||
		q.Get("code_challenge") == "" || q.Get("scope") != "read" ||
		q.Get("redirect_uri") != redirect {
		t.Errorf("got URL %s; want resource, PKCE, scope and redirect_uri", login.URL)
	}
	if _, err := login.Finish(t.Context(), answer(t, login)); err != nil {
		t.Fatal(err)
	}
	forms, _, events := w.snapshot()
	if forms[0]["resource"] != w.url() || forms[0]["code_verifier"] == "" ||
		forms[0]["redirect_uri"] != redirect {
		t.Errorf("got form %q; want resource, code_verifier and redirect_uri", forms[0])
	}
	if !slices.Equal(events, []string{"token:ann login"}) {
		t.Errorf("got events %q, want the login of token:ann", events)
	}
	if _, err := login.Finish(t.Context(), answer(t, login)); err == nil {
		t.Error("a login was finished twice")
	}
	mustCall(t, w, s, "ann")
}

func TestAnswersOfOthersAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		sends  bool // the authorization server says that it sends iss
		change func(w *world, q url.Values)
	}{
		{"another state", false, func(_ *world, q url.Values) { q.Set("state", "x") }},
		{"no state", false, func(_ *world, q url.Values) { q.Del("state") }},
		{"another issuer", false, func(_ *world, q url.Values) { q.Set("iss", "https://x") }},
		{"another issuer, in an error", true, func(_ *world, q url.Values) {
			q.Set("iss", "https://x")
			q.Set("error", "access_denied")
			q.Set("error_description", "text-of-others")
		}},
		{"the issuer with a slash", true, func(w *world, q url.Values) {
			q.Set("iss", w.auth.URL+"/")
		}},
		{"no issuer", true, func(*world, url.Values) {}},
		{"an error", false, func(_ *world, q url.Values) { q.Set("error", "text-of-others 1") }},
		{"no code", false, func(_ *world, q url.Values) { q.Del("code") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.editAuth = func(m map[string]any) {
				m["authorization_response_iss_parameter_supported"] = c.sends
			}
			s := open(t, w.withStore())
			login, err := s.BeginLogin(t.Context(), "token:ann", toRedirect)
			if err != nil {
				t.Fatal(err)
			}
			q := answer(t, login)
			c.change(w, q)
			if r, err := login.Finish(t.Context(), q); err == nil ||
				strings.Contains(err.Error(), "text-of-others") {
				t.Errorf("got %v, %v; want an error without texts of the query", r, err)
			}
			forms, _, events := w.snapshot()
			if len(forms) != 0 || !slices.Equal(events, []string{"token:ann rejected"}) {
				t.Errorf("got %d requests for tokens, events %q; want none, rejected", len(forms),
					events)
			}
		})
	}
}

func TestAuthorizationServerWithoutPKCEIsRefused(t *testing.T) {
	for _, methods := range [][]string{nil, {"plain"}} {
		w := newWorld(t)
		w.editAuth = func(m map[string]any) { m["code_challenge_methods_supported"] = methods }
		if _, err := open(t, w.withStore()).BeginLogin(t.Context(), "", toRedirect); err == nil ||
			!strings.Contains(err.Error(), "PKCE") {
			t.Errorf("with methods %q: got %v, want an error about PKCE", methods, err)
		}
	}
}

// TestAuthorizationServerWithoutMetadata has servers of the revision 2025-03-26. Only where neither
// the server nor the configured issuer has metadata, the endpoints of that revision are used, and
// only if the operator allows this.
func TestAuthorizationServerWithoutMetadata(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*world, *credentials.Options)
		want   string // a part of the error; "" for a login at the endpoints of the revision
	}{
		{"no metadata", func(*world, *credentials.Options) {}, ""},
		{"not allowed", func(_ *world, o *credentials.Options) { o.WithoutMetadata = false },
			"there is no metadata"},
		{"no configured issuer", func(_ *world, o *credentials.Options) { o.Issuer = "" },
			"there is no metadata"},
		{"the challenge names metadata", func(w *world, _ *credentials.Options) {
			w.noChallengeURL = false
		}, "there is no metadata"},
		{"the server has metadata", func(w *world, _ *credentials.Options) {
			w.metadataStatus, w.noChallengeURL = 0, false
		}, "there is no metadata"},
		{"a failure", func(w *world, _ *credentials.Options) { w.authStatus = 500 }, "HTTP 500"},
		{"metadata without PKCE", func(w *world, _ *credentials.Options) {
			w.authStatus = 0
			w.editAuth = func(m map[string]any) { delete(m, "code_challenge_methods_supported") }
		}, "PKCE"},
		{"metadata of another issuer", func(w *world, _ *credentials.Options) {
			w.authStatus = 0
			w.editAuth = func(m map[string]any) { m["issuer"] = "https://other.example" }
		}, "is the metadata of the issuer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.metadataStatus, w.authStatus, w.noChallengeURL = 404, 404, true
			w.issueRotating()
			o := w.withStore()
			o.Issuer, o.WithoutMetadata = w.auth.URL, true
			c.change(w, &o)
			s := open(t, o)
			login, err := s.BeginLogin(t.Context(), "", toRedirect)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want an error with %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(login.URL)
			if err != nil {
				t.Fatal(err)
			}
			if at := u.Scheme + "://" + u.Host + u.Path; at != w.auth.URL+"/authorize" ||
				u.Query().Get("code_challenge_method") != "S256" ||
				u.Query().Get("code_challenge") == "" {
				t.Errorf("got the URL %s, want /authorize of the issuer, with PKCE", login.URL)
			}
			if _, err := login.Finish(t.Context(), answer(t, login)); err != nil {
				t.Fatal(err)
			}
			mustCall(t, w, s, "")
			if forms, _, _ := w.snapshot(); forms[0]["code_verifier"] == "" {
				t.Errorf("got the form %q, want a code_verifier", forms[0])
			}
		})
	}
}

func TestTokenOfAPrincipalIsOnlySentForThatPrincipal(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	s := open(t, w.withStore())
	want := map[string]string{}
	for i := range 64 {
		name := fmt.Sprintf("user-%d", i)
		logIn(t, s, "token:"+name)
		want[name] = fmt.Sprintf(`{"token":"token-%d"}`, i+1)
	}
	var wg sync.WaitGroup
	for name, want := range want {
		wg.Go(func() {
			for range 5 {
				if got, err := w.call(s, name); err != nil || got != want {
					t.Errorf("%s got %s, %v; want %s", name, got, err, want)
				}
			}
		})
	}
	wg.Wait()
	_, err := w.call(s, "stranger")
	refused, ok := errors.AsType[*upstream.CredentialsError](err)
	if !ok || !refused.LoginNeeded ||
		!strings.Contains(err.Error(), "gatekit auth login github") {
		t.Errorf("a principal without login got %v; want the command to log in", err)
	}
}

func TestManyCallsWithAnExpiredLoginRefreshOnce(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	o := w.withStore()
	first, second := open(t, o), open(t, o) // two processes with one store
	logIn(t, first, "token:ann")
	mustCall(t, w, first, "ann")
	mustCall(t, w, second, "ann")
	w.revoke()
	var wg sync.WaitGroup
	for i := range 64 {
		s := first
		if i%2 == 0 {
			s = second
		}
		wg.Go(func() {
			if got, err := w.call(s, "ann"); err != nil || got != `{"token":"token-2"}` {
				t.Errorf("got %s, %v; want the answer for token-2", got, err)
			}
		})
	}
	wg.Wait()
	forms, _, _ := w.snapshot()
	if len(forms) != 2 || forms[1]["grant_type"] != "refresh_token" ||
		forms[1]["resource"] != w.url() {
		t.Errorf("got requests for tokens %q; want one refresh, with the resource", forms)
	}
}

func TestNewRefreshTokenIsSavedBeforeTheAccessTokenIsUsed(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	o := w.withStore()
	s := open(t, o)
	logIn(t, s, "token:ann")
	w.revoke()
	mustCall(t, w, s, "ann")
	r, err := o.Store.Load(tokenstore.ID{Kind: tokenstore.Login, Server: "github",
		Principal: "token:ann"})
	if err != nil || r.Secrets.Refresh != "refresh-2" || r.Secrets.Access != "token-2" {
		t.Errorf("the store has %v, %v; want the new tokens", r, err)
	}
}

func TestLostAnswerToARefreshIsAskedForOnceMore(t *testing.T) {
	for _, c := range []struct {
		name string
		lost int // how many answers are lost
		want string
	}{
		{"one", 1, ""},
		{"all", 100, "could not obtain a token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.issueRotating()
			o := w.withStore()
			s := open(t, o)
			logIn(t, s, "token:ann")
			w.revoke()
			rotating, lost := w.tokenEndpoint, 0
			w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
				if lost++; lost <= c.lost {
					panic(http.ErrAbortHandler) // the connection breaks
				}
				return rotating(rw, form)
			}
			_, err := w.call(s, "ann")
			if c.want == "" && err != nil || c.want != "" && (err == nil ||
				!strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			// the login is kept in both cases
			if _, err := o.Store.Load(tokenstore.ID{Kind: tokenstore.Login, Server: "github",
				Principal: "token:ann"}); err != nil {
				t.Errorf("the login is gone: %v", err)
			}
		})
	}
}

func TestLoginThatHasEndedIsAskedForAgain(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	s := open(t, w.withStore())
	logIn(t, s, "token:ann")
	mustCall(t, w, s, "ann")
	w.revoke()
	w.tokenEndpoint = func(rw http.ResponseWriter, _ map[string]string) bool {
		writeJSON(rw, 400, map[string]any{"error": "invalid_grant"})
		return true
	}
	for range 2 {
		_, err := w.call(s, "ann")
		if refused, ok := errors.AsType[*upstream.CredentialsError](err); !ok ||
			!refused.LoginNeeded {
			t.Fatalf("got %v, want an error that a login is needed", err)
		}
	}
	if forms, _, _ := w.snapshot(); len(forms) != 2 {
		t.Errorf("got %d requests for tokens, want the login and one refresh", len(forms))
	}
	w.issueRotating()
	logIn(t, s, "token:ann")
	mustCall(t, w, s, "ann")
}

func TestLoginOfAnotherServerOrClientIsNotUsed(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *world, o *credentials.Options)
	}{
		{"another client", func(_ *world, o *credentials.Options) { o.Client.ID = "other" }},
		{"another issuer", func(_ *world, o *credentials.Options) { o.Issuer = "https://x" }},
		{"another URL", func(w *world, o *credentials.Options) {
			o.URL = newWorld(w.t).url()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.issueRotating()
			o := w.withStore()
			logIn(t, open(t, o), "token:ann")
			c.change(w, &o)
			if got, err := w.call(open(t, o), "ann"); err == nil {
				t.Errorf("got %s, want an error", got)
			}
			if forms, _, _ := w.snapshot(); len(forms) != 1 {
				t.Errorf("got %d requests for tokens, want only the login", len(forms))
			}
		})
	}
}

func TestLogoutRevokesAndRemoves(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	w.editAuth = func(m map[string]any) { m["revocation_endpoint"] = w.auth.URL + "/revoke" }
	s := open(t, w.withStore())
	logIn(t, s, "token:ann")
	mustCall(t, w, s, "ann")
	w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
		rw.WriteHeader(200)
		return true
	}
	if err := s.Logout(t.Context(), "token:ann"); err != nil {
		t.Fatal(err)
	}
	forms, _, events := w.snapshot()
	if got := forms[len(forms)-1]; got["token"] != "refresh-1" || got["client_id"] != "gatekit" {
		t.Errorf("got form %q; want the refresh token and the client", got)
	}
	if !slices.Equal(events, []string{"token:ann login", "token:ann logout"}) {
		t.Errorf("got events %q", events)
	}
	if _, err := w.call(s, "ann"); err == nil {
		t.Error("a call after the logout succeeded")
	}
}

func TestLogoutSendsNoSecretToAnotherIssuer(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	w.editAuth = func(m map[string]any) { m["revocation_endpoint"] = w.auth.URL + "/revoke" }
	o := w.withStore()
	logIn(t, open(t, o), "token:ann")
	o.Issuer, o.Client.Secret = "https://other.example", "secret-for-other"
	if err := open(t, o).Logout(t.Context(), "token:ann"); err == nil ||
		!strings.Contains(err.Error(), "not revoked") {
		t.Errorf("got %v, want an error that the tokens were not revoked", err)
	}
	if forms, _, _ := w.snapshot(); len(forms) != 1 {
		t.Errorf("the earlier issuer got %q", forms[1:])
	}
	if records, err := tokenstore.All(o.Store); err != nil || len(records) != 0 {
		t.Errorf("got the records %v, %v; want none", records, err)
	}
}
