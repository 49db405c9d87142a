package credentials_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/core/upstream"
	"gatekit/transport/credentials"
	"gatekit/transport/tokenstore"
)

const (
	bearerGrant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	idTokenType = "urn:ietf:params:oauth:token-type:id_token"
	idJAGType   = "urn:ietf:params:oauth:token-type:id-jag"
)

// provider is an identity provider. Its ID tokens are idt|USER|NONCE|NUMBER. A code is the name of
// the user. Its fields are set before the first request, or with mu held.
type provider struct {
	server *httptest.Server

	mu       sync.Mutex
	users    map[string]string   // of each refresh token, which can be used once
	forms    []map[string]string // of the requests for tokens
	issued   map[string]bool     // the ID tokens and refresh tokens
	lifetime time.Duration       // of ID tokens
	// the members of answers to exchanges that differ from the usual ones, and of other answers
	exchanged, loggedIn map[string]any
	refusal             string // the error code of exchanges
}

func newProvider(t *testing.T) *provider {
	p := &provider{users: map[string]string{}, issued: map[string]bool{}, lifetime: time.Hour}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	return p
}

func (p *provider) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.Contains(r.URL.Path, "/.well-known/") {
		writeJSON(rw, 200, map[string]any{"issuer": p.server.URL,
			"token_endpoint": p.server.URL + "/token", "scopes_supported": []string{
				"openid", "offline_access"},
			"authorization_endpoint": p.server.URL + "/authorize",
			"revocation_endpoint":    p.server.URL + "/revoke"})
		return
	}
	r.ParseForm()
	form := map[string]string{"path": r.URL.Path}
	for name, values := range r.Form {
		form[name] = strings.Join(values, ",")
	}
	form["client"], form["secret"], _ = r.BasicAuth()
	p.forms = append(p.forms, form)
	number := len(p.forms)
	user := ""
	switch form["grant_type"] {
	case exchangeGrant:
		if p.refusal != "" || !p.issued[form["subject_token"]] {
			writeJSON(rw, 400, map[string]any{"error": p.refusal})
			return
		}
		answer := map[string]any{"access_token": fmt.Sprintf("jag|%s|%d", strings.Split(
			form["subject_token"], "|")[1], number), "token_type": "N_A", "expires_in": 300,
			"issued_token_type": idJAGType}
		maps.Copy(answer, p.exchanged)
		writeJSON(rw, 200, answer)
		return
	case "authorization_code":
		user = form["code"]
	case "refresh_token":
		user = p.users[form["refresh_token"]]
		delete(p.users, form["refresh_token"])
	}
	if r.URL.Path == "/revoke" {
		return
	}
	if user == "" {
		writeJSON(rw, 400, map[string]any{"error": "invalid_grant"})
		return
	}
	name, nonce, _ := strings.Cut(user, "|")
	token, refresh := fmt.Sprintf("idt|%s|%s|%d", name, nonce, number),
		fmt.Sprintf("refresh-idp-%d", number)
	p.issued[token], p.issued[refresh], p.users[refresh] = true, true, name
	answer := map[string]any{"access_token": "at-of-idp", "token_type": "Bearer",
		"id_token": token, "refresh_token": refresh}
	maps.Copy(answer, p.loggedIn)
	writeJSON(rw, 200, answer)
}

// check checks ID tokens, in place of package auth.
func (p *provider) check(idToken, nonce string) (string, time.Time, error) {
	parts := strings.Split(idToken, "|")
	if len(parts) != 4 || nonce != "" && parts[2] != nonce {
		return "", time.Time{}, errors.New("not an ID token of the login")
	}
	return p.server.URL + "#" + parts[1], time.Now().Add(p.lifetime), nil
}

// snapshot returns the requests for tokens so far.
func (p *provider) snapshot() []map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.forms)
}

// withProvider returns the options for assertions of an identity provider. The authorization server
// issues access tokens that name the assertion.
func (w *world) withProvider(p *provider) credentials.Options {
	o := w.withStore()
	o.Grant, o.Issuer = credentials.IDJAG, w.auth.URL
	o.Callback = "https://gatekit.example/connect/callback"
	o.Provider = &credentials.IdentityProvider{Issuer: p.server.URL, HTTP: o.HTTP, Check: p.check,
		Client: credentials.Client{ID: "gatekit-at-idp", Secret: "idp-secret"}}
	w.issueForAssertions(nil)
	return o
}

func (w *world) issueForAssertions(change map[string]any) {
	w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
		token := fmt.Sprintf("for-%s-%d", strings.ReplaceAll(form["assertion"], "|", "-"),
			len(w.forms))
		answer := map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600,
			"scope": form["scope"]}
		for name, value := range change {
			if text, ok := value.(string); ok && text == "the assertion" {
				value = form["assertion"]
			}
			answer[name] = value
		}
		if v, ok := answer["access_token"].(string); ok {
			w.tokens[v] = strings.Fields(form["scope"])
		}
		writeJSON(rw, 200, answer)
		return true
	}
}

// identify logs a user in at the identity provider, for a principal.
func (p *provider) identify(t *testing.T, s *credentials.Server, principal, user string) error {
	t.Helper()
	login, err := s.BeginLogin(t.Context(), principal, toRedirect)
	if err != nil {
		t.Fatal(err)
	}
	return p.finish(t, login, user)
}

func (p *provider) finish(t *testing.T, login *credentials.Login, user string) error {
	u, err := url.Parse(login.URL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	_, err = login.Finish(t.Context(), url.Values{"state": {q.Get("state")},
		"code": {user + "|" + q.Get("nonce")}})
	return err
}

// of returns a principal of the identity provider.
func (p *provider) of(t *testing.T, user string) *identity.Principal {
	who, err := identity.New(identity.Attributes{Method: identity.JWT, Issuer: p.server.URL,
		Subject: user})
	if err != nil {
		t.Fatal(err)
	}
	return who.WithToken("token-of-the-client")
}

func ask(t *testing.T, w *world, s *credentials.Server, who *identity.Principal) (string, error) {
	response, err := s.Over(plainHTTP{w.url()}).As(who).Post(t.Context(), http.Header{
		"Authorization": {"Bearer token-of-the-client"}}, []byte(`{"jsonrpc":"2.0"}`))
	if err != nil {
		return "", err
	}
	return string(response.Body), nil
}

// wantNoIdentity fails the test if the server or its authorization server got a token of the
// identity provider, other than an assertion, or the token of a client.
func wantNoIdentity(t *testing.T, w *world, p *provider) {
	t.Helper()
	forms, seen, _ := w.snapshot()
	text := fmt.Sprint(forms, seen)
	p.mu.Lock()
	defer p.mu.Unlock()
	for token := range p.issued {
		if strings.Contains(text, token) {
			t.Errorf("the server or its authorization server got %s", token)
		}
	}
	if strings.Contains(text, "idp-secret") || strings.Contains(text, "of-the-client") ||
		strings.Contains(text, "at-of-idp") || strings.Contains(fmt.Sprint(p.forms),
		"client-secret") || strings.Contains(fmt.Sprint(p.forms), "of-the-client") {
		t.Error("a secret or a token went to the wrong side")
	}
}

func TestAssertionsOfAnIdentityProvider(t *testing.T) {
	w, p := newWorld(t), newProvider(t)
	w.metadataPaths = []string{"/.well-known/oauth-protected-resource/mcp", "/metadata"}
	s := open(t, w.withProvider(p))
	users := []string{"ann", "bob"}
	for _, user := range users {
		_, err := ask(t, w, s, p.of(t, user))
		wantLoginNeeded(t, err, "you are not logged in to it")
		if err := p.identify(t, s, p.server.URL+"#"+user, user); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range 32 {
		user := users[i%2]
		wg.Go(func() {
			got, err := ask(t, w, s, p.of(t, user))
			if err != nil || !strings.HasPrefix(got, `{"token":"for-jag-`+user+"-") {
				t.Errorf("%s got %s, %v; want the token for its own assertion", user, got, err)
			}
		})
	}
	wg.Wait()
	exchanges := slices.DeleteFunc(p.snapshot(), func(f map[string]string) bool {
		return f["grant_type"] != exchangeGrant
	})
	forms, _, events := w.snapshot()
	if len(exchanges) != 2 || len(forms) != 2 {
		t.Fatalf("got %d exchanges and %d requests for access tokens, want one for each user",
			len(exchanges), len(forms))
	}
	for _, f := range exchanges {
		if f["requested_token_type"] != idJAGType || f["subject_token_type"] != idTokenType ||
			f["audience"] != w.auth.URL || f["resource"] != w.url() || f["scope"] != "read" ||
			f["client"] != "gatekit-at-idp" || f["secret"] != "idp-secret" {
			t.Errorf("got the exchange %q", f)
		}
	}
	for _, f := range forms {
		if f["grant_type"] != bearerGrant || !strings.HasPrefix(f["assertion"], "jag|") ||
			f["resource"] != w.url() || f["client_id"] != "gatekit" ||
			f["client_secret"] != "client-secret" {
			t.Errorf("got the request for an access token %q", f)
		}
	}
	for _, user := range users {
		for _, action := range []string{" login", " exchanged"} {
			if n := count(events, p.server.URL+"#"+user+action); n != 1 {
				t.Errorf("got %d events%s of %s in %q, want 1", n, action, user, events)
			}
		}
	}
	w.revoke() // the server refuses the tokens
	if got, err := ask(t, w, s, p.of(t, "ann")); err != nil || !strings.HasSuffix(got, `-3"}`) {
		t.Errorf("after a 401, got %s, %v; want another token", got, err)
	}
	wantNoIdentity(t, w, p)
}

func count(list []string, entry string) (n int) {
	for _, e := range list {
		if e == entry {
			n++
		}
	}
	return n
}

func wantLoginNeeded(t *testing.T, err error, want string) {
	t.Helper()
	refused, ok := errors.AsType[*upstream.CredentialsError](err)
	if !ok || !refused.LoginNeeded || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want that a login is needed, with %q", err, want)
	}
}

func TestLoginsAtAnIdentityProvider(t *testing.T) {
	w, p := newWorld(t), newProvider(t)
	s := open(t, w.withProvider(p))
	login, err := s.BeginPageLogin(t.Context(), p.server.URL+"#ann")
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(login.URL)
	q := u.Query()
	if !strings.HasPrefix(login.URL, p.server.URL+"/authorize?") || q.Get("nonce") == "" ||
		q.Get("scope") != "openid offline_access" || q.Has("resource") ||
		q.Get("code_challenge_method") != "S256" || q.Get("client_id") != "gatekit-at-idp" ||
		q.Get("redirect_uri") != "https://gatekit.example/connect/callback" {
		t.Errorf("got the page %s", login.URL)
	}
	if err := p.finish(t, login, "ann"); err != nil {
		t.Fatal(err)
	}
	if f := p.snapshot()[0]; f["resource"] != "" || f["code_verifier"] == "" ||
		f["client"] != "gatekit-at-idp" {
		t.Errorf("got the request for the ID token %q", f)
	}
	if _, err := ask(t, w, s, p.of(t, "ann")); err != nil {
		t.Error(err)
	}
	// The local user may have any account.
	if err := p.identify(t, s, "", "carol"); err != nil {
		t.Error(err)
	}
	if got, err := ask(t, w, s, nil); err != nil || !strings.Contains(got, "for-jag-carol-") {
		t.Errorf("the local user got %s, %v", got, err)
	}
	if err := s.Logout(t.Context(), ""); err != nil {
		t.Error(err)
	}
	last := p.snapshot()
	if f := last[len(last)-1]; f["path"] != "/revoke" || !strings.HasPrefix(f["token"],
		"refresh-idp-") {
		t.Errorf("the logout made the request %q, want that it revokes the refresh token", f)
	}
	_, err = ask(t, w, s, nil)
	wantLoginNeeded(t, err, "you are not logged in")
	wantNoIdentity(t, w, p)
}

func TestLoginsAtAnIdentityProviderAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, user string
		answer     map[string]any
		want       string
	}{
		{"another user than the principal", "bob", nil, "of another user"},
		{"no ID token", "ann", map[string]any{"id_token": nil}, "issued no ID token"},
		{"an ID token of another login", "ann", map[string]any{"id_token": "idt|ann|x|1"},
			"not an ID token of the login"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, p := newWorld(t), newProvider(t)
			p.loggedIn = c.answer
			s := open(t, w.withProvider(p))
			err := p.identify(t, s, p.server.URL+"#ann", c.user)
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "idt|") {
				t.Errorf("got %v, want %q", err, c.want)
			}
			_, err = ask(t, w, s, p.of(t, "ann"))
			wantLoginNeeded(t, err, "you are not logged in")
			_, _, events := w.snapshot()
			if count(events, p.server.URL+"#ann rejected") != 1 {
				t.Errorf("got the events %q, want one rejected", events)
			}
		})
	}
}

func TestAssertionsAreRefused(t *testing.T) {
	const failed = "could not obtain a token"
	for _, c := range []struct {
		name      string
		exchanged map[string]any // the answer of the identity provider
		refusal   string         // of the identity provider
		token     map[string]any // the answer of the authorization server
		edit      func(w *world)
		want      string
		isLogin   bool // a login is needed
		requests  int  // to the authorization server
		event     string
	}{
		{name: "the policy of the identity provider", refusal: "access_denied", want: failed,
			event: "rejected"},
		{name: "an ID token that is no longer accepted", refusal: "invalid_grant",
			want: "no longer accepts your login", isLogin: true, event: "rejected"},
		{name: "an access token", exchanged: map[string]any{"issued_token_type": accessTokenType},
			want: failed, event: "rejected"},
		{name: "no type", exchanged: map[string]any{"issued_token_type": nil}, want: failed,
			event: "rejected"},
		{name: "the ID token itself", exchanged: map[string]any{"access_token": "the ID token"},
			want: failed, event: "rejected"},
		{name: "no token", exchanged: map[string]any{"access_token": nil}, want: failed,
			event: "rejected"},
		{name: "the assertion as the access token",
			token: map[string]any{"access_token": "the assertion"}, want: failed, requests: 1,
			event: "rejected"},
		{name: "another type of token", token: map[string]any{"token_type": "DPoP"}, want: failed,
			requests: 1, event: "rejected"},
		{name: "no access token", token: map[string]any{"access_token": nil}, want: failed,
			requests: 1, event: "rejected"},
		{name: "no record", edit: func(w *world) { w.eventErr = errors.New("the disk is full") },
			want: failed, requests: 1, event: "exchanged"},
		{name: "a server of another authorization server", edit: func(w *world) {
			w.metadataPaths = []string{"/.well-known/oauth-protected-resource/mcp"}
			w.editResource = func(m map[string]any) {
				m["authorization_servers"] = []string{"https://evil.example"}
			}
		}, want: failed, event: "rejected"},
		{name: "metadata of another server", edit: func(w *world) {
			w.metadataPaths = []string{"/.well-known/oauth-protected-resource/mcp"}
			w.editResource = func(m map[string]any) { m["resource"] = "https://evil.example" }
		}, want: failed, event: "rejected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, p := newWorld(t), newProvider(t)
			o := w.withProvider(p)
			w.issueForAssertions(c.token)
			p.refusal, p.exchanged = c.refusal, c.exchanged
			s := open(t, o)
			if err := p.identify(t, s, p.server.URL+"#ann", "ann"); err != nil {
				t.Fatal(err)
			}
			if text, _ := c.exchanged["access_token"].(string); text != "" {
				for token := range p.issued {
					if strings.HasPrefix(token, "idt|") {
						p.exchanged = map[string]any{"access_token": token}
					}
				}
			}
			if c.edit != nil {
				c.edit(w)
			}
			got, err := ask(t, w, s, p.of(t, "ann"))
			refused, ok := errors.AsType[*upstream.CredentialsError](err)
			if !ok || refused.LoginNeeded != c.isLogin || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "|") {
				t.Errorf("got %s, %v; want an error with %q, and no token", got, err, c.want)
			}
			forms, seen, events := w.snapshot()
			if len(forms) != c.requests || len(seen) != 0 {
				t.Errorf("got %d requests for access tokens, want %d; the server got %q",
					len(forms), c.requests, seen)
			}
			if len(events) < 2 || !strings.HasSuffix(events[1], " "+c.event) {
				t.Errorf("got the events %q, want login and %s", events, c.event)
			}
			wantNoIdentity(t, w, p)
		})
	}
}

func TestScopesOfAnAssertionAreWidened(t *testing.T) {
	w, p := newWorld(t), newProvider(t)
	w.needs = []string{"write"}
	o := w.withProvider(p)
	s := open(t, o)
	if err := p.identify(t, s, "", "ann"); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t, w, s, nil); err != nil {
		t.Errorf("got %s, %v; want a result", got, err)
	}
	forms := p.snapshot()
	if f := forms[len(forms)-1]; !strings.Contains(f["scope"], "write") {
		t.Errorf("got the exchange %q, want the wanted scope", f)
	}
	o.MaxScopes = []string{"read"}
	if got, err := ask(t, w, open(t, o), nil); err == nil || !strings.Contains(err.Error(),
		"max_scopes") {
		t.Errorf("got %s, %v; want that max_scopes does not allow it", got, err)
	}
}

// The ID token expires earlier than the login. It is refreshed for the next assertion, and the new
// refresh token is kept, whatever else is in the answer.
func TestExpiredIDTokenIsRefreshed(t *testing.T) {
	w, p := newWorld(t), newProvider(t)
	p.lifetime = -time.Second
	o := w.withProvider(p)
	if err := p.identify(t, open(t, o), "", "ann"); err != nil {
		t.Fatal(err)
	}
	p.lifetime = time.Hour
	if got, err := ask(t, w, open(t, o), nil); err != nil || !strings.Contains(got,
		"for-jag-ann-") {
		t.Errorf("got %s, %v; want a token", got, err)
	}
	_, _, events := w.snapshot()
	if count(events, "refreshed") != 1 {
		t.Errorf("got the events %q, want one refresh", events)
	}

	p.lifetime = -time.Second
	if err := p.identify(t, open(t, o), "", "ann"); err != nil {
		t.Fatal(err)
	}
	p.loggedIn = map[string]any{"id_token": nil}
	s := open(t, o)
	for range 3 {
		_, err := ask(t, w, s, nil)
		wantLoginNeeded(t, err, "")
	}
	forms := p.snapshot()
	refreshes := slices.DeleteFunc(forms, func(f map[string]string) bool {
		return f["grant_type"] != "refresh_token"
	})
	if len(refreshes) != 2 {
		t.Errorf("got %d refreshes, want one for each login", len(refreshes))
	}
	r, err := o.Store.Load(tokenstore.ID{Kind: tokenstore.Login, Server: o.Name})
	if err != nil || p.users[r.Secrets.Refresh] != "ann" || r.Secrets.Access != "" {
		t.Errorf("got the record %+v, %v; want the refresh token that is valid", r, err)
	}
	wantNoIdentity(t, w, p)
}

// After a change of the settings, the ID token of a login is not a token for the server.
func TestIDTokenIsNoAccessToken(t *testing.T) {
	w, p := newWorld(t), newProvider(t)
	o := w.withProvider(p)
	if err := p.identify(t, open(t, o), "", "ann"); err != nil {
		t.Fatal(err)
	}
	o.Grant, o.Issuer, o.Client, o.Provider = credentials.AuthorizationCode, "",
		o.Provider.Client, nil
	_, err := ask(t, w, open(t, o), nil)
	wantLoginNeeded(t, err, "its login is for another URL")
	wantNoIdentity(t, w, p)
}

// Another process logs the user out, or in with another account.
func TestLogoutOfAnotherProcessEndsAssertions(t *testing.T) {
	w, p := newWorld(t), newProvider(t)
	o := w.withProvider(p)
	s := open(t, o)
	if err := p.identify(t, s, "", "ann"); err != nil {
		t.Fatal(err)
	}
	before, err := ask(t, w, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.ExpireRechecks()
	if got, err := ask(t, w, s, nil); err != nil || got != before {
		t.Errorf("got %s, %v; want the same token as before", got, err)
	}
	if err := p.identify(t, open(t, o), "", "bob"); err != nil {
		t.Fatal(err)
	}
	s.ExpireRechecks()
	if got, err := ask(t, w, s, nil); err != nil || !strings.Contains(got, "for-jag-bob-") {
		t.Errorf("got %s, %v; want a token of bob", got, err)
	}
	if err := open(t, o).Logout(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	s.ExpireRechecks()
	_, err = ask(t, w, s, nil)
	wantLoginNeeded(t, err, "you are not logged in")
}
