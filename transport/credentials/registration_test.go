package credentials_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gatekit/core/upstream"
	"gatekit/transport/credentials"
	"gatekit/transport/tokenstore"

	"github.com/go-json-experiment/json"
)

// registers makes the authorization server register clients. Its answer has the members of answer,
// too. The function returns the requests so far.
func (w *world) registers(answer map[string]any) (requests func() []map[string]any) {
	var got []map[string]any
	w.editAuth = func(m map[string]any) { m["registration_endpoint"] = w.auth.URL + "/register" }
	w.registration = func(rw http.ResponseWriter, r *http.Request) {
		var m map[string]any
		if err := json.UnmarshalRead(r.Body, &m); err != nil {
			w.t.Error(err)
		}
		got = append(got, m)
		a := map[string]any{"client_id": fmt.Sprintf("client-%d", len(got)),
			"redirect_uris": m["redirect_uris"]}
		for k, v := range answer {
			a[k] = v
		}
		writeJSON(rw, 201, a)
	}
	return func() []map[string]any {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Clone(got)
	}
}

func TestGatekitRegistersOnceForEachIssuer(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	requests := w.registers(map[string]any{"client_secret": "secret-of-client",
		"token_endpoint_auth_method": "client_secret_post"})
	o := w.withStore()
	o.Client, o.Register = credentials.Client{}, true
	s := open(t, o)
	logIn(t, s, "token:ann")
	known := ""
	if _, err := open(t, o).BeginLogin(t.Context(), "token:bob", func(k string) (string, error) {
		known = k
		return redirect, nil
	}); err != nil || known != redirect {
		t.Errorf("the second login got %v, and the known redirect URI %q; want that of the first",
			err, known)
	}
	got := requests()
	if len(got) != 1 || got[0]["application_type"] != "native" ||
		got[0]["token_endpoint_auth_method"] != "client_secret_basic" {
		t.Fatalf("got the registrations %v; want one, as a native application", got)
	}
	w.revoke()
	mustCall(t, w, s, "ann") // refreshes
	forms, _, events := w.snapshot()
	for i, f := range forms {
		if f["client_id"] != "client-1" || f["client_secret"] != "secret-of-client" {
			t.Errorf("request %d for a token: got %q, want the registered client", i, f)
		}
	}
	if want := []string{"registered", "token:ann login", "token:ann refreshed"}; !slices.Equal(
		events, want) {
		t.Errorf("got the events %q, want %q", events, want)
	}
}

// TestClientIsChosenInOrder logs in with a configured client, else with Gatekit's own document,
// else with a registration.
func TestClientIsChosenInOrder(t *testing.T) {
	const document, other = "https://gatekit.example/connect/client.json",
		"https://other.example/client.json"
	for _, c := range []struct {
		name             string
		id               string // of the configured client
		register, isRead bool
		want             string
	}{
		{"a configured client", "gatekit", false, true, "gatekit"},
		{"a configured document", other, true, true, other},
		{"the own document", "", false, true, document},
		{"the own document instead of a registration", "", true, true, document},
		{"a registration where no documents are read", "", true, false, "client-1"},
		{"a registration instead of a configured document", other, true, false, "client-1"},
		{"no client", "", false, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.issueRotating()
			requests := w.registers(nil)
			register := w.editAuth
			w.editAuth = func(m map[string]any) {
				register(m)
				m["client_id_metadata_document_supported"] = c.isRead
			}
			o := w.withStore()
			o.Client, o.Register, o.Document = credentials.Client{ID: c.id}, c.register, document
			s := open(t, o)
			if c.want == "" {
				if _, err := s.BeginLogin(t.Context(), "", toRedirect); err == nil ||
					!strings.Contains(err.Error(), "does not read client metadata documents") {
					t.Errorf("got the error %v, want one about documents", err)
				}
				return
			}
			logIn(t, s, "token:ann")
			w.revoke()
			mustCall(t, w, s, "ann") // refreshes
			forms, _, _ := w.snapshot()
			for i, f := range forms {
				if _, hasSecret := f["client_secret"]; f["client_id"] != c.want || hasSecret {
					t.Errorf("request %d for a token: got %q, want the client %s without a "+
						"secret", i, f, c.want)
				}
			}
			want := 0
			if c.want == "client-1" {
				want = 1
			}
			if n := len(requests()); n != want {
				t.Errorf("got %d registrations, want %d", n, want)
			}
		})
	}
}

// TestUnreadDocumentKeepsTheLogin refuses the client once, as an authorization server does that
// cannot fetch the document.
func TestUnreadDocumentKeepsTheLogin(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	rotating := w.tokenEndpoint
	w.editAuth = func(m map[string]any) { m["client_id_metadata_document_supported"] = true }
	o := w.withStore()
	o.Client, o.Document = credentials.Client{}, "https://gatekit.example/connect/client.json"
	logIn(t, open(t, o), "token:ann")
	w.revoke()
	w.tokenEndpoint = func(rw http.ResponseWriter, _ map[string]string) bool {
		writeJSON(rw, 401, map[string]any{"error": "invalid_client"})
		return true
	}
	if got, err := w.call(open(t, o), "ann"); err == nil ||
		!strings.Contains(err.Error(), "invalid_client") {
		t.Fatalf("got %s and the error %v, want invalid_client", got, err)
	}
	w.tokenEndpoint = rotating
	mustCall(t, w, open(t, o), "ann")
	o.Document = "https://new.example/connect/client.json"
	if got, err := w.call(open(t, o), "ann"); err == nil ||
		!strings.Contains(err.Error(), "another client id") {
		t.Errorf("got %s and the error %v, want no token of the old document", got, err)
	}
}

func TestClientDocument(t *testing.T) {
	const at = "https://gatekit.example/connect/client.json"
	const callback = "https://gatekit.example/connect/callback"
	for page, redirects := range map[string][]any{
		"":       {"http://127.0.0.1/callback"},
		callback: {"http://127.0.0.1/callback", callback},
	} {
		b, err := credentials.ClientDocument(at, page)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"client_id": at, "client_name": "Gatekit",
			"application_type": "native", "redirect_uris": redirects,
			"grant_types":    []any{"authorization_code", "refresh_token"},
			"response_types": []any{"code"}, "token_endpoint_auth_method": "none"}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// TestPageLoginsHaveARegistrationOfTheirOwn logs in with the command and at the pages of Gatekit,
// whose address changes.
func TestPageLoginsHaveARegistrationOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	requests := w.registers(nil)
	o := w.withStore()
	o.Client, o.Register = credentials.Client{}, true
	if _, err := open(t, o).BeginPageLogin(t.Context(), "token:ann"); err == nil {
		t.Error("a login began at pages that are not there")
	}
	logIn(t, open(t, o), "token:ann")
	for _, callback := range []string{"https://a.example/connect/callback",
		"https://a.example/connect/callback", "http://127.0.0.1:7777/connect/callback"} {
		o.Callback = callback
		login, err := open(t, o).BeginPageLogin(t.Context(), "token:ann")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(login.URL, "redirect_uri="+url.QueryEscape(callback)) {
			t.Errorf("got the URL %s, want the redirect URI %s", login.URL, callback)
		}
		if _, err := login.Finish(t.Context(), answer(t, login)); err != nil {
			t.Fatal(err)
		}
	}
	logIn(t, open(t, o), "token:ann")
	var got []string
	for _, r := range requests() {
		got = append(got, fmt.Sprint(r["application_type"], r["redirect_uris"]))
	}
	if want := []string{"native[" + redirect + "]", "web[https://a.example/connect/callback]",
		"native[http://127.0.0.1:7777/connect/callback]"}; !slices.Equal(got, want) {
		t.Errorf("got the registrations %q, want %q", got, want)
	}
	forms, _, _ := w.snapshot()
	for i, want := range []string{"client-1", "client-2", "client-2", "client-3", "client-1"} {
		if forms[i]["client_id"] != want {
			t.Errorf("login %d: got the client %s, want %s", i, forms[i]["client_id"], want)
		}
	}
}

// TestUnknownPageClientRegistersAgain has an authorization server that has lost one of two
// registrations.
func TestUnknownPageClientRegistersAgain(t *testing.T) {
	w := newWorld(t)
	requests := w.registers(nil)
	o := w.withStore()
	o.Client, o.Register = credentials.Client{}, true
	o.Callback = "https://a.example/connect/callback"
	s := open(t, o)
	logIn(t, s, "token:ann") // client-1
	isLost := true
	w.tokenEndpoint = func(rw http.ResponseWriter, _ map[string]string) bool {
		if isLost {
			writeJSON(rw, 401, map[string]any{"error": "invalid_client"})
		}
		return isLost
	}
	for range 2 { // client-2, client-3
		login, err := s.BeginPageLogin(t.Context(), "token:ann")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := login.Finish(t.Context(), answer(t, login)); (err != nil) != isLost {
			t.Errorf("got the error %v", err)
		}
		isLost = false
	}
	logIn(t, s, "token:ann") // client-1
	forms, _, _ := w.snapshot()
	if n := len(requests()); n != 3 || forms[3]["client_id"] != "client-1" {
		t.Errorf("got %d registrations and the requests %v, want 3, and client-1 kept", n, forms)
	}
}

func TestUnknownClientRegistersAgain(t *testing.T) {
	w := newWorld(t)
	requests := w.registers(nil)
	w.tokenEndpoint = func(rw http.ResponseWriter, _ map[string]string) bool {
		writeJSON(rw, 401, map[string]any{"error": "invalid_client"})
		return true
	}
	o := w.withStore()
	o.Client, o.Register = credentials.Client{}, true
	s := open(t, o)
	for i := range 2 {
		login, err := s.BeginLogin(t.Context(), "", toRedirect)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := login.Finish(t.Context(), answer(t, login)); err == nil {
			t.Error("the login succeeded")
		}
		if n := len(requests()); n != i+1 {
			t.Errorf("after %d logins: %d registrations", i+1, n)
		}
	}
}

func TestWrongSecretOfARefreshKeepsTheLogin(t *testing.T) {
	for _, code := range []string{"invalid_client", "invalid_request", "unauthorized_client"} {
		w := newWorld(t)
		w.issueRotating()
		rotating, o := w.tokenEndpoint, w.withStore()
		s := open(t, o)
		logIn(t, s, "token:ann")
		w.revoke()
		w.tokenEndpoint = func(rw http.ResponseWriter, _ map[string]string) bool {
			writeJSON(rw, 401, map[string]any{"error": code})
			return true
		}
		if got, err := w.call(s, "ann"); err == nil || !strings.Contains(err.Error(), code) {
			t.Fatalf("got %s and the error %v, want %s", got, err, code)
		}
		w.tokenEndpoint = rotating
		mustCall(t, w, open(t, o), "ann") // the next start has the right secret
	}
}

func TestUnknownClientOfARefreshRegistersAgain(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	requests := w.registers(nil)
	o := w.withStore()
	o.Client, o.Register = credentials.Client{}, true
	s := open(t, o)
	logIn(t, s, "token:ann")
	w.revoke()
	w.tokenEndpoint = func(rw http.ResponseWriter, _ map[string]string) bool {
		writeJSON(rw, 401, map[string]any{"error": "invalid_client"})
		return true
	}
	if got, err := w.call(s, "ann"); err == nil {
		t.Fatalf("got %s, want an error", got)
	}
	w.issueRotating()
	logIn(t, s, "token:ann")
	mustCall(t, w, s, "ann")
	if n := len(requests()); n != 2 {
		t.Errorf("got %d registrations, want another one after the refresh", n)
	}
}

func TestBadRegistrations(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *world)
		want   string
	}{
		{"no endpoint", func(w *world) { w.editAuth = nil }, "does not register clients"},
		{"refused", func(w *world) {
			w.registration = func(rw http.ResponseWriter, _ *http.Request) {
				writeJSON(rw, 400, map[string]any{"error_description": "text-of-others"})
			}
		}, "HTTP 400"},
		{"no client id", func(w *world) { w.registers(map[string]any{"client_id": ""}) },
			"is not a registration"},
		{"no JSON", func(w *world) {
			w.registration = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(201) }
		}, "is not a registration"},
		{"too long", func(w *world) {
			w.registers(map[string]any{"x": strings.Repeat("x", 65<<10)})
		}, "is not a registration"},
		{"another way to authenticate", func(w *world) {
			w.registers(map[string]any{"token_endpoint_auth_method": "tls_client_auth"})
		}, `"tls_client_auth"`},
		{"no record", func(w *world) { w.eventErr = errors.New("disk full") },
			"record the registration: disk full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.registers(nil)
			c.change(w)
			o := w.withStore()
			o.Client, o.Register = credentials.Client{}, true
			if _, err := open(t, o).BeginLogin(t.Context(), "", toRedirect); err == nil ||
				!strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "text-of-others") {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if records, err := tokenstore.All(o.Store); err != nil || len(records) != 0 {
				t.Errorf("the store has %v, %v; want nothing", records, err)
			}
		})
	}
}

func TestFirstLoginPinsTheIssuer(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	s := open(t, w.withStore())
	logIn(t, s, "token:ann")
	other := newWorld(t)
	w.editResource = func(m map[string]any) {
		m["authorization_servers"] = []string{other.auth.URL, other.auth.URL + "/x"}
	}
	for _, principal := range []string{"token:ann", "token:bob"} {
		if _, err := s.BeginLogin(t.Context(), principal, toRedirect); err == nil ||
			!strings.Contains(err.Error(), "which this server has had so far") {
			t.Errorf("%s: got %v, want an error about the other issuer", principal, err)
		}
	}
	if err := s.Logout(t.Context(), "token:ann"); err != nil {
		t.Fatal(err)
	}
	if login, err := s.BeginLogin(t.Context(), "token:bob", toRedirect); err != nil ||
		login.Issuer != other.auth.URL {
		t.Errorf("after the logout: got %v, %v; want a login at the other issuer", login, err)
	}
}

func TestChangesWithoutARecordHaveNoEffect(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	o := w.withStore()
	s := open(t, o)
	logIn(t, s, "token:ann")
	w.eventErr = errors.New("disk full")
	login, err := s.BeginLogin(t.Context(), "token:bob", toRedirect)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := login.Finish(t.Context(), answer(t, login)); err == nil {
		t.Error("a login without a record succeeded")
	}
	if err := s.Logout(t.Context(), "token:ann"); err == nil {
		t.Error("a logout without a record succeeded")
	}
	if _, err := w.call(s, "bob"); err == nil {
		t.Error("bob is logged in")
	}
	mustCall(t, w, s, "ann")
}

func TestLoginAsksForTheScopesThatTheServerWanted(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	w.needs = []string{"read", "write"}
	o := w.withStore()
	s := open(t, o)
	logIn(t, s, "token:o'neil")
	const command = `gatekit auth login github --principal 'token:o'\''neil'`
	if _, err := w.call(s, "o'neil"); err == nil || !strings.Contains(err.Error(),
		"it wants more permissions: run "+command) {
		t.Fatalf("got %v, want an error with the command %s", err, command)
	}
	// The command runs in another process.
	login, err := open(t, o).BeginLogin(t.Context(), "token:o'neil", toRedirect)
	if err != nil || !slices.Equal(login.Scopes, []string{"read", "write"}) {
		t.Fatalf("got %v, %v; want a login for read and write", login, err)
	}
	r, err := o.Store.Load(tokenstore.ID{Kind: tokenstore.Login, Server: "github",
		Principal: "token:o'neil"})
	if err != nil || !slices.Equal(r.Wanted, []string{"read", "write"}) {
		t.Errorf("the store has %v, %v", r, err)
	}
}

func TestOfflineAccessIsAskedForWhereItExists(t *testing.T) {
	for _, c := range []struct {
		max  []string
		want string
	}{
		{nil, "read offline_access"},
		{[]string{"read"}, "read"},
		{[]string{"read", "offline_access"}, "read offline_access"},
	} {
		w := newWorld(t)
		w.editAuth = func(m map[string]any) {
			m["scopes_supported"] = []string{"read", "offline_access"}
		}
		o := w.withStore()
		o.MaxScopes = c.max
		login, err := open(t, o).BeginLogin(t.Context(), "", toRedirect)
		if err != nil || strings.Join(login.Scopes, " ") != c.want {
			t.Errorf("with max_scopes %q: got %v, %v; want %q", c.max, login, err, c.want)
		}
	}
}

func TestLoginPageMustBeOverHTTPS(t *testing.T) {
	for _, page := range []string{"", "http://login.example/", "ftp://login.example/",
		"https://user@login.example/", "javascript:alert(1)", "/login"} {
		w := newWorld(t)
		w.editAuth = func(m map[string]any) { m["authorization_endpoint"] = page }
		if _, err := open(t, w.withStore()).BeginLogin(t.Context(), "", toRedirect); err == nil {
			t.Errorf("%q: got no error", page)
		}
	}
}

// A client id that is the URL of a client metadata document is used where the authorization server
// reads such documents.
func TestClientMetadataDocumentGoesBeforeRegistration(t *testing.T) {
	const document = "https://gatekit.example/client.json"
	for _, isRead := range []bool{true, false} {
		w := newWorld(t)
		w.issueRotating()
		requests := w.registers(nil)
		withEndpoint := w.editAuth
		w.editAuth = func(m map[string]any) {
			withEndpoint(m)
			m["client_id_metadata_document_supported"] = isRead
		}
		o := w.withStore()
		o.Client, o.Register = credentials.Client{ID: document}, true
		s := open(t, o)
		logIn(t, s, "token:ann")
		w.revoke()
		mustCall(t, w, s, "ann") // refreshes
		forms, _, _ := w.snapshot()
		for i, f := range forms {
			if (f["client_id"] == document) != isRead {
				t.Errorf("documents are read: %t; request %d has the client %q", isRead, i,
					f["client_id"])
			}
		}
		if n := len(requests()); len(forms) != 2 || (n == 0) != isRead {
			t.Errorf("documents are read: %t; %d registrations, %d requests for tokens", isRead, n,
				len(forms))
		}
	}
}

func TestServerThatRefusesTheScopesThatItWantedIsNotAskedAgain(t *testing.T) {
	w := newWorld(t)
	w.issueRotating() // tokens for read
	w.needs = []string{"read"}
	s := open(t, w.withStore())
	logIn(t, s, "token:ann")
	mustCall(t, w, s, "ann")
	w.mu.Lock()
	w.always403 = true
	w.mu.Unlock()
	_, err := w.call(s, "ann")
	refused, ok := errors.AsType[*upstream.CredentialsError](err)
	if !ok || refused.LoginNeeded || strings.Contains(err.Error(), "auth login") {
		t.Errorf("got %v; want an error that asks for no login", err)
	}
	if forms, _, _ := w.snapshot(); len(forms) != 1 {
		t.Errorf("got %d requests for tokens, want only the login", len(forms))
	}
}

// Some servers answer a GET without 401.
func TestChallengeOfAServerThatAnswersOnlyPosts(t *testing.T) {
	w := newWorld(t)
	w.getStatus = http.StatusMethodNotAllowed
	login, err := open(t, w.withStore()).BeginLogin(t.Context(), "", toRedirect)
	if err != nil || login.Issuer != w.auth.URL {
		t.Errorf("got %v, %v; want a login with the metadata that the challenge names", login, err)
	}
}
