package auth_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/test/issuertest"
	"gatekit/transport/auth"
)

const pages = "https://gatekit.example/connect/login"

// loginIssuer is an issuer at which users log in. Its fields are set before the first request.
type loginIssuer struct {
	*issuertest.Issuer
	metadata map[string]any // changes of the metadata
	answer   func(form url.Values) (status int, body map[string]any)

	mu    sync.Mutex
	forms []url.Values // of requests for tokens, with the client's authentication
}

func (i *loginIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.Contains(r.URL.Path, "/.well-known/"):
		m := map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/jwks",
			"authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token"}
		for k, v := range i.metadata {
			m[k] = v
		}
		json.NewEncoder(w).Encode(m)
	case strings.HasSuffix(r.URL.Path, "/token"):
		r.ParseForm()
		if id, secret, ok := r.BasicAuth(); ok {
			r.PostForm.Set("basic", id+":"+secret)
		}
		i.mu.Lock()
		i.forms = append(i.forms, r.PostForm)
		i.mu.Unlock()
		status, body := i.answer(r.PostForm)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(body)
	default:
		i.Issuer.ServeHTTP(w, r)
	}
}

// startLogin returns an Authenticator with an issuer of opaque access tokens, at which users log
// in, and with another issuer. The metadata of the first one has the given changes.
func startLogin(t *testing.T, metadata map[string]any,
	change func(*auth.Issuer)) (*auth.Authenticator, *loginIssuer) {
	t.Helper()
	i := &loginIssuer{Issuer: issuertest.New(loginA), metadata: metadata}
	i.AddKey("a1", "ES256")
	ib := issuertest.New(loginB)
	ib.AddKey("b1", "ES256")
	one := auth.Issuer{Issuer: loginA, Audience: []string{resource}, Opaque: true,
		Algorithms: []string{"ES256"}, Introspect: &auth.Introspect{ID: "gatekit", Secret: "s"},
		Login: &auth.LoginClient{ID: "pages", Secret: "s3:cret"}}
	if change != nil {
		change(&one)
	}
	a, err := auth.New(auth.Options{Resource: resource, Path: "/mcp", Skew: 30 * time.Second,
		Issuers: []auth.Issuer{one, {Issuer: loginB, Audience: []string{resource},
			Algorithms: []string{"ES256"}}}})
	if err != nil {
		t.Fatal(err)
	}
	a.UseTransport(inMemory{"a.example": i, "b.example": ib})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return a, i
}

// beginLogin begins a login. The issuer then answers with an ID token for ann with the changes, and
// the header. It returns the query of an honest issuer.
func (i *loginIssuer) beginLogin(t *testing.T, a *auth.Authenticator, header,
	change map[string]any) (*auth.UserLogin, url.Values) {
	t.Helper()
	l, err := a.BeginLogin(t.Context(), loginA, pages)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	all := map[string]any{"nonce": q.Get("nonce"), "client_id": nil, "scope": nil}
	for k, v := range change {
		all[k] = v
	}
	head := map[string]any{"typ": "JWT"}
	for k, v := range header {
		head[k] = v
	}
	token := i.TokenWithHeader("a1", head, i.Claims("pages", all))
	i.answer = func(url.Values) (int, map[string]any) {
		return 200, map[string]any{"access_token": "access-secret", "token_type": "Bearer",
			"id_token": token}
	}
	return l, url.Values{"code": {"code-1"}, "state": {q.Get("state")}}
}

func TestUserLogsInAtTheIssuer(t *testing.T) {
	for _, c := range []struct {
		name    string
		methods []string
		change  map[string]any
		// by what Save has saved, as another replica finishes it
		isResumed bool
	}{
		{"usual", nil, nil, false},
		{"the secret in the form", []string{"client_secret_post"}, nil, false},
		{"several audiences", nil, map[string]any{"aud": []string{"other", "pages"},
			"azp": "pages"}, false},
		{"the type of Keycloak", nil, map[string]any{"typ": "ID"}, false},
		{"resumed", nil, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var metadata map[string]any
			if c.methods != nil {
				metadata = map[string]any{"token_endpoint_auth_methods_supported": c.methods}
			}
			a, i := startLogin(t, metadata, nil)
			l, query := i.beginLogin(t, a, nil, c.change)
			u, _ := url.Parse(l.URL)
			q := u.Query()
			if !strings.HasPrefix(l.URL, loginA+"/authorize?") || q.Get("client_id") != "pages" ||
				q.Get("redirect_uri") != pages || q.Get("scope") != "openid" ||
				q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
				len(q.Get("code_challenge")) < 40 || len(q.Get("nonce")) < 20 ||
				len(q.Get("state")) < 20 {
				t.Errorf("got the URL %s", l.URL)
			}
			if l.Matches(url.Values{}) || l.Matches(url.Values{"state": {"x"}}) ||
				!l.Matches(query) {
				t.Error("Matches is true for other queries, or false for its own")
			}
			if c.isResumed {
				state := l.State()
				saved, err := l.Save()
				if err == nil {
					l, err = a.ResumeLogin(t.Context(), loginA, saved)
				}
				if err != nil || l.State() != state {
					t.Fatalf("got the state %q, %v; want %q", l.State(), err, state)
				}
			}
			p, err := l.Finish(t.Context(), query)
			if err != nil || p.ID() != loginA+"#ann" {
				t.Fatalf("got the principal %q, error %v; want ann", p.ID(), err)
			}
			form := i.forms[0]
			withSecret := form.Get("basic") == "pages:s3%3Acret"
			if c.methods != nil {
				withSecret = form.Get("client_id") == "pages" &&
					form.Get("client_secret") == "s3:cret" && form.Get("basic") == ""
			}
			if !withSecret || form.Get("code") != "code-1" || form.Get("redirect_uri") != pages ||
				len(form.Get("code_verifier")) < 40 {
				t.Errorf("got the form %v", form)
			}
			if _, err := l.Finish(t.Context(), query); err == nil || len(i.forms) != 1 {
				t.Error("a login was finished twice")
			}
		})
	}
}

func TestOnlySavedLoginsAreResumed(t *testing.T) {
	a, i := startLogin(t, nil, nil)
	l, _ := i.beginLogin(t, a, nil, nil)
	saved, err := l.Save()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ issuer, saved string }{{loginA, "{"}, {loginA, ""},
		{"https://other.example", string(saved)}} {
		if l, err := a.ResumeLogin(t.Context(), c.issuer, []byte(c.saved)); err == nil {
			t.Errorf("%s %q: got the login %v", c.issuer, c.saved, l)
		}
	}
}

// TestPrincipalOfALoginHasTheConfiguredSubject has an issuer whose users are named by another claim
// than sub.
func TestPrincipalOfALoginHasTheConfiguredSubject(t *testing.T) {
	a, i := startLogin(t, nil, func(one *auth.Issuer) { one.Subject = "oid" })
	l, query := i.beginLogin(t, a, nil, map[string]any{"oid": "4711"})
	if p, err := l.Finish(t.Context(), query); err != nil || p.ID() != loginA+"#4711" {
		t.Errorf("got %q, %v; want the principal 4711", p.ID(), err)
	}
	l, query = i.beginLogin(t, a, nil, nil)
	if p, err := l.Finish(t.Context(), query); err == nil {
		t.Errorf("without the claim oid, got the principal %s", p.ID())
	}
}

func TestLoginsOfOthersAreRefused(t *testing.T) {
	hour := time.Now().Add(-time.Hour).Unix()
	for _, c := range []struct {
		name           string
		header, claims map[string]any
		query          url.Values // changes; a nil value removes
		answer         func(url.Values) (int, map[string]any)
		want           string
	}{
		{name: "another state", query: url.Values{"state": {"x"}}, want: "belongs to no login"},
		{name: "no state", query: url.Values{"state": nil}, want: "belongs to no login"},
		{name: "another issuer", query: url.Values{"iss": {loginB}}, want: "not of the issuer"},
		{name: "another issuer, in an error", query: url.Values{"iss": {loginB}, "error": {"x"},
			"error_description": {"text-of-others"}}, want: "not of the issuer"},
		{name: "the issuer with a slash", query: url.Values{"iss": {loginA + "/"}},
			want: "not of the issuer"},
		{name: "an error", query: url.Values{"error": {"access_denied"},
			"error_description": {"text-of-others"}}, want: "refused the login: access_denied"},
		{name: "an error that is a text", query: url.Values{"error": {"text-of-others 1"}},
			want: "refused the login"},
		{name: "no code", query: url.Values{"code": nil}, want: "has no code"},
		{name: "a code that the issuer refuses",
			answer: func(url.Values) (int, map[string]any) {
				return 400, map[string]any{"error": "invalid_grant",
					"error_description": "text-of-others"}
			}, want: "refused the code (HTTP 400): invalid_grant"},
		{name: "no ID token", answer: func(url.Values) (int, map[string]any) {
			return 200, map[string]any{"access_token": "access-secret", "token_type": "Bearer"}
		}, want: "has no ID token"},
		{name: "another nonce", claims: map[string]any{"nonce": "x"}, want: "claim nonce"},
		{name: "no nonce", claims: map[string]any{"nonce": nil}, want: "claim nonce"},
		{name: "another client", claims: map[string]any{"aud": "editor"}, want: "audience"},
		{name: "an access token of the resource", header: map[string]any{"typ": "at+jwt"},
			want: "not that of an ID token"},
		{name: "a claim of another type", claims: map[string]any{"typ": "Bearer"},
			want: "claim typ"},
		{name: "two audiences without azp",
			claims: map[string]any{"aud": []string{"editor", "pages"}}, want: "claim azp"},
		{name: "issued to another client", claims: map[string]any{"azp": "editor"},
			want: "claim azp"},
		{name: "another issuer's ID token", claims: map[string]any{"iss": loginB},
			want: "is of the issuer"},
		{name: "expired", claims: map[string]any{"exp": hour}, want: "expired"},
		{name: "without expiry", claims: map[string]any{"exp": nil}, want: "no expiry"},
		{name: "not valid yet", claims: map[string]any{"nbf": hour + 7200}, want: "not valid"},
		{name: "without subject", claims: map[string]any{"sub": nil}, want: "claim sub"},
		{name: "the algorithm none", header: map[string]any{"alg": "none"}, want: "algorithm"},
		{name: "an algorithm with a shared secret", header: map[string]any{"alg": "HS256"},
			want: "algorithm"},
		{name: "an extension", header: map[string]any{"crit": []string{"x"}}, want: "extensions"},
		{name: "an unknown key", header: map[string]any{"kid": "x"}, want: "no key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, i := startLogin(t, nil, nil)
			l, query := i.beginLogin(t, a, c.header, c.claims)
			for k, v := range c.query {
				query[k] = v
			}
			if c.answer != nil {
				i.answer = c.answer
			}
			p, err := l.Finish(t.Context(), query)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got the principal %q, error %v; want an error with %q", p.ID(), err,
					c.want)
			}
			for _, secret := range []string{"text-of-others", "access-secret", "code-1",
				"s3:cret"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows %s: %v", secret, err)
				}
			}
		})
	}
}

// TestIDTokenNeedsASignatureOfTheIssuer has a token that another issuer's key has signed.
func TestIDTokenNeedsASignatureOfTheIssuer(t *testing.T) {
	a, i := startLogin(t, nil, nil)
	l, query := i.beginLogin(t, a, nil, nil)
	u, _ := url.Parse(l.URL)
	other := issuertest.New(loginA)
	other.AddKey("a1", "ES256")
	token := other.TokenWithHeader("a1", map[string]any{"typ": "JWT"},
		other.Claims("pages", map[string]any{"nonce": u.Query().Get("nonce")}))
	i.answer = func(url.Values) (int, map[string]any) {
		return 200, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": token}
	}
	if p, err := l.Finish(t.Context(), query); err == nil ||
		!strings.Contains(err.Error(), "signature") {
		t.Errorf("got the principal %q, error %v; want an error about the signature", p.ID(), err)
	}
}

// TestIssuerThatSendsItselfMustDoSo has metadata that promises answers with iss (RFC 9207).
func TestIssuerThatSendsItselfMustDoSo(t *testing.T) {
	a, i := startLogin(t, map[string]any{
		"authorization_response_iss_parameter_supported": true}, nil)
	l, query := i.beginLogin(t, a, nil, nil)
	if _, err := l.Finish(t.Context(), query); err == nil ||
		!strings.Contains(err.Error(), "not of the issuer") {
		t.Errorf("without iss, got the error %v", err)
	}
	l, query = i.beginLogin(t, a, nil, nil)
	query.Set("iss", loginA)
	if _, err := l.Finish(t.Context(), query); err != nil {
		t.Error(err)
	}
}

func TestLoginsNeedAClientAndEndpoints(t *testing.T) {
	a, _ := startLogin(t, nil, nil)
	for _, issuer := range []string{loginB, "https://c.example", ""} {
		if a.HasLogin(issuer) {
			t.Errorf("users of %q can log in", issuer)
		}
		if l, err := a.BeginLogin(t.Context(), issuer, pages); err == nil {
			t.Errorf("users of %q log in at %s", issuer, l.URL)
		}
	}
	if !a.HasLogin(loginA) {
		t.Error("users of the issuer with a login client cannot log in")
	}
	for _, endpoint := range []string{"authorization_endpoint", "token_endpoint"} {
		for _, value := range []string{"", "http://a.example/x", "javascript:alert(1)",
			"https://ann@a.example/x"} {
			a, _ := startLogin(t, map[string]any{endpoint: value}, nil)
			if l, err := a.BeginLogin(t.Context(), loginA, pages); err == nil ||
				!strings.Contains(err.Error(), endpoint) {
				t.Errorf("%s = %q: got %v, error %v", endpoint, value, l, err)
			}
		}
	}
	for _, c := range []auth.LoginClient{{ID: "pages"}, {Secret: "s"}} {
		if _, err := auth.New(auth.Options{Resource: resource, Issuers: []auth.Issuer{{
			Issuer: loginA, Audience: []string{resource}, Algorithms: []string{"ES256"},
			Login: &c}}}); err == nil {
			t.Errorf("an issuer with the login client %v was accepted", c)
		}
	}
}

// TestProbeFindsIssuersWithoutLogins probes an issuer of opaque tokens on a loopback address.
func TestProbeFindsIssuersWithoutLogins(t *testing.T) {
	i := &loginIssuer{Issuer: issuertest.New(""), metadata: map[string]any{}}
	i.AddKey("a1", "ES256")
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	i.URL = s.URL
	i.metadata["introspection_endpoint"] = s.URL + "/introspect"
	o := auth.Issuer{Issuer: s.URL, Audience: []string{resource}, Opaque: true,
		Algorithms: []string{"ES256"}, Introspect: &auth.Introspect{ID: "gatekit", Secret: "s"},
		Login: &auth.LoginClient{ID: "pages", Secret: "s3:cret"}}
	if keys, err := auth.Probe(t.Context(), o); err != nil || keys != 1 {
		t.Errorf("got %d keys, error %v; want the key of the ID tokens", keys, err)
	}
	i.metadata["authorization_endpoint"] = ""
	if _, err := auth.Probe(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(), "authorization_endpoint") {
		t.Errorf("got the error %v, want one about the authorization_endpoint", err)
	}
	o.Login = nil
	if _, err := auth.Probe(t.Context(), o); err != nil {
		t.Errorf("without a login client, got the error %v", err)
	}
}
