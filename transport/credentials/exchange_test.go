package credentials_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/upstream"
	"gatekit/transport/credentials"
)

const (
	exchangeGrant   = "urn:ietf:params:oauth:grant-type:token-exchange"
	accessTokenType = "urn:ietf:params:oauth:token-type:access_token"
)

// exchanging returns the options for exchanges.
func (w *world) exchanging() credentials.Options {
	o := w.options(credentials.Exchange)
	o.Issuer, o.Audience = w.auth.URL, "box"
	return o
}

// issueExchanged makes the token endpoint issue tokens with the members of change, too. The access
// token names the subject token.
func (w *world) issueExchanged(change map[string]any) {
	w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
		token := fmt.Sprintf("for-%s-%d", form["subject_token"], len(w.forms))
		scopes := strings.Fields(form["scope"])
		answer := map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600,
			"issued_token_type": accessTokenType, "scope": form["scope"]}
		maps.Copy(answer, change)
		if v, ok := answer["access_token"].(string); ok {
			w.tokens[v] = scopes
		}
		writeJSON(rw, 200, answer)
		return true
	}
}

// callAs posts a message as a subject of an issuer, whose access token is "of-" and its id, and
// returns the body of the answer.
func callAs(t *testing.T, w *world, s *credentials.Server, issuer, subject string) (string, error) {
	return callWith(t, w, s, issuer, subject, "of-"+issuer+"#"+subject)
}

// callWith is callAs for a request with another access token.
func callWith(t *testing.T, w *world, s *credentials.Server, issuer, subject,
	token string) (string, error) {
	who, err := identity.New(identity.Attributes{Method: identity.JWT, Issuer: issuer,
		Subject: subject})
	if err != nil {
		t.Error(err)
	}
	response, err := s.Over(plainHTTP{w.url()}).As(who.WithToken(token)).Post(t.Context(), http.Header{
		"Authorization": {"Bearer of-the-client"}}, []byte(`{"jsonrpc":"2.0"}`))
	if err != nil {
		return "", err
	}
	return string(response.Body), nil
}

func TestTokensAreExchangedForEachPrincipal(t *testing.T) {
	w := newWorld(t)
	w.issueExchanged(nil)
	s := open(t, w.exchanging())
	var wg sync.WaitGroup
	for i := range 64 {
		name := fmt.Sprintf("user-%d", i/8) // eight calls of each user at once
		wg.Go(func() {
			got, err := callAs(t, w, s, w.auth.URL, name)
			if want := `{"token":"for-of-` + w.auth.URL + "#" + name + "-"; err != nil ||
				!strings.HasPrefix(got, want) {
				t.Errorf("%s got %s, %v; want the token in exchange for its own", name, got, err)
			}
		})
	}
	wg.Wait()
	forms, seen, events := w.snapshot()
	if len(forms) != 8 || len(events) != 8 {
		t.Fatalf("got %d exchanges and the events %q, want one for each user", len(forms), events)
	}
	for _, f := range forms {
		if f["grant_type"] != exchangeGrant || f["subject_token_type"] != accessTokenType ||
			f["requested_token_type"] != accessTokenType || f["audience"] != "box" ||
			f["resource"] != w.url() || f["client_id"] != "gatekit" {
			t.Errorf("got the exchange %q", f)
		}
	}
	for _, e := range events {
		if !strings.HasSuffix(e, " exchanged") || !strings.HasPrefix(e, w.auth.URL+"#user-") {
			t.Errorf("got the event %q, want that a user's token was exchanged", e)
		}
	}
	if i := slices.IndexFunc(seen, func(h string) bool {
		return !strings.HasPrefix(h, "Bearer for-of-")
	}); i >= 0 {
		t.Errorf("the server got %q", seen[i])
	}

	w.revoke() // the server refuses the tokens
	if got, err := callAs(t, w, s, w.auth.URL, "user-0"); err != nil || !strings.HasSuffix(got,
		`-9"}`) {
		t.Errorf("after a 401, got %s, %v; want another token", got, err)
	}
}

// Two clients of one user have tokens with different rights. A request only gets a token in
// exchange for its own, whichever request came before, and whoever waits at the same time.
func TestEachRequestExchangesItsOwnToken(t *testing.T) {
	w := newWorld(t)
	w.issueExchanged(nil)
	s := open(t, w.exchanging())
	var wg sync.WaitGroup
	for i := range 40 {
		token := []string{"of-editor", "of-admin"}[i%2]
		wg.Go(func() {
			got, err := callWith(t, w, s, w.auth.URL, "ann", token)
			if err != nil || !strings.HasPrefix(got, `{"token":"for-`+token+"-") {
				t.Errorf("a request with %s was sent as %s, %v", token, got, err)
			}
		})
	}
	wg.Wait()
	if forms, _, _ := w.snapshot(); len(forms) != 2 {
		t.Errorf("got %d exchanges, want one for each token", len(forms))
	}
	s.Forget(w.auth.URL + "#ann")
	for _, token := range []string{"of-editor", "of-admin"} {
		callWith(t, w, s, w.auth.URL, "ann", token)
	}
	if forms, _, _ := w.snapshot(); len(forms) != 4 {
		t.Errorf("got %d exchanges after all tokens of the user were forgotten, want 4", len(forms))
	}
}

func TestScopesOfAnExchangeAreWidened(t *testing.T) {
	w := newWorld(t)
	w.issueExchanged(nil)
	w.needs = []string{"write"}
	s := open(t, w.exchanging())
	if got, err := callAs(t, w, s, w.auth.URL, "ann"); err != nil {
		t.Errorf("got %s, %v; want a result", got, err)
	}
	if forms, _, _ := w.snapshot(); len(forms) != 2 || forms[1]["scope"] != "write" {
		t.Errorf("got the exchanges %q; want a second one, for more scopes", forms)
	}
}

func TestExchangeIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, issuer string // of the principal; "" for the authorization server
		subject      string // "" for ann; nobody has no token
		change       map[string]any
		edit         func(w *world, o *credentials.Options)
		want         string // the error
		exchanges    int    // requests for a token
		event        string
	}{
		{name: "a principal of another issuer", issuer: "https://other.example",
			want: "no access token of"},
		{name: "a principal of a longer issuer", issuer: "/", want: "no access token of"},
		{name: "no token", subject: "nobody", want: "no access token of"},
		{name: "the token itself", change: map[string]any{"access_token": "of-ISSUER#ann"},
			want: "could not obtain", exchanges: 1, event: "rejected"},
		{name: "an ID token", change: map[string]any{
			"issued_token_type": "urn:ietf:params:oauth:token-type:id_token"},
			want: "could not obtain", exchanges: 1, event: "rejected"},
		{name: "no type", change: map[string]any{"issued_token_type": nil},
			want: "could not obtain", exchanges: 1, event: "rejected"},
		{name: "another type of token", change: map[string]any{"token_type": "DPoP"},
			want: "could not obtain", exchanges: 1, event: "rejected"},
		{name: "no record", edit: func(w *world, _ *credentials.Options) {
			w.eventErr = errors.New("the disk is full")
		}, want: "could not obtain", exchanges: 1, event: "exchanged"},
		{name: "a server of another authorization server", edit: func(w *world,
			_ *credentials.Options) {
			w.metadataPaths = []string{"/.well-known/oauth-protected-resource/mcp"}
			w.editResource = func(m map[string]any) {
				m["authorization_servers"] = []string{"https://evil.example"}
			}
		}, want: "could not obtain", event: "rejected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if token, ok := c.change["access_token"].(string); ok {
				c.change["access_token"] = strings.Replace(token, "ISSUER", w.auth.URL, 1)
			}
			w.issueExchanged(c.change)
			o := w.exchanging()
			if c.edit != nil {
				c.edit(w, &o)
			}
			issuer := c.issuer
			if !strings.HasPrefix(issuer, "https:") {
				issuer = w.auth.URL + issuer
			}
			token := "of-" + issuer + "#ann"
			if c.subject == "nobody" {
				token = ""
			}
			got, err := callWith(t, w, open(t, o), issuer, "ann", token)
			refused, ok := errors.AsType[*upstream.CredentialsError](err)
			if !ok || refused.LoginNeeded || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "of-") {
				t.Errorf("got %s, %v; want an error with %q, and no token", got, err, c.want)
			}
			forms, seen, events := w.snapshot()
			if len(forms) != c.exchanges || slices.ContainsFunc(seen, func(h string) bool {
				return h != ""
			}) {
				t.Errorf("got %d exchanges, want %d; the server got %q", len(forms), c.exchanges,
					seen)
			}
			if c.event != "" && (len(events) == 0 || !strings.HasSuffix(events[0], c.event)) {
				t.Errorf("got the events %q, want %s", events, c.event)
			}
		})
	}
}
