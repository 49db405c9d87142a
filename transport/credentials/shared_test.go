package credentials_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/transport/credentials"
	"gatekit/transport/tokenstore"
)

// withState returns the options of replicas that share a state.
func (w *world) withState() (credentials.Options, *sharedtest.Faulty) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	o := w.options(credentials.AuthorizationCode)
	o.Store = tokenstore.NewShared(state)
	return o, state
}

var annLogin = tokenstore.ID{Kind: tokenstore.Login, Server: "github", Principal: "token:ann"}

// refreshes returns how many refreshes the token endpoint was asked for.
func (w *world) refreshes() (n int) {
	forms, _, _ := w.snapshot()
	for _, f := range forms {
		if f["grant_type"] == "refresh_token" {
			n++
		}
	}
	return n
}

func TestReplicasRefreshOnce(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	o, _ := w.withState()
	replicas := []*credentials.Server{open(t, o), open(t, o), open(t, o)}
	logIn(t, replicas[0], "token:ann")
	for _, s := range replicas {
		mustCall(t, w, s, "ann")
	}
	w.revoke()
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			got, err := w.call(replicas[i%3], "ann")
			if err != nil || got != `{"token":"token-2"}` {
				t.Errorf("got %s, %v; want the answer for token-2", got, err)
			}
		})
	}
	wg.Wait()
	if n := w.refreshes(); n != 1 {
		t.Errorf("300 calls made %d refreshes, want 1", n)
	}
}

// What one replica has removed, the others stop using.
func TestLogoutReachesOtherReplicas(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	o, _ := w.withState()
	one, two := open(t, o), open(t, o)
	logIn(t, one, "token:ann")
	mustCall(t, w, two, "ann")
	if err := one.Logout(t.Context(), "token:ann"); err != nil {
		t.Fatal(err)
	}
	two.ExpireRechecks()
	if _, err := w.call(two, "ann"); err == nil || !strings.Contains(err.Error(), "not logged in") {
		t.Errorf("got %v, want an error that ann is not logged in", err)
	}
	if got := o.Store.FreshFor(); got > time.Second {
		t.Errorf("a removed login is used for %v", got)
	}
}

// Without the state, tokens in memory are used until they expire. Nothing is refreshed, and nobody
// logs in.
func TestTokensWhileTheStateIsAway(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	o, state := w.withState()
	s, other := open(t, o), open(t, o)
	logIn(t, s, "token:ann")
	mustCall(t, w, s, "ann")
	state.Fail(shared.ErrUnavailable)
	s.ExpireRechecks()
	for range 2 {
		mustCall(t, w, s, "ann")
	}
	_, _, events := w.snapshot()
	if got := strings.Join(events, ", "); strings.Contains(got, "rejected") {
		t.Errorf("calls with a token in memory are recorded as %q", got)
	}
	// another replica has no token in memory
	_, err := w.call(other, "ann")
	if err == nil || !strings.Contains(err.Error(), "shared state is not available") {
		t.Errorf("got %v, want an error that the state is not available", err)
	}
	_, _, events = w.snapshot()
	if last := events[len(events)-1]; last != "token:ann rejected" {
		t.Errorf("the refusal is recorded as %q", last)
	}
	w.revoke() // the server no longer accepts the token
	if _, err := w.call(s, "ann"); err == nil ||
		!strings.Contains(err.Error(), "shared state is not available") {
		t.Errorf("got %v, want an error that the state is not available", err)
	}
	for _, o.Issuer = range []string{"", w.auth.URL} {
		if _, err := open(t, o).BeginLogin(t.Context(), "token:bob", toRedirect); !errors.Is(err,
			shared.ErrUnavailable) {
			t.Errorf("issuer %q: a login begins: %v", o.Issuer, err)
		}
	}
	if n := w.refreshes(); n != 0 {
		t.Errorf("the token was refreshed %d times", n)
	}
}

func TestLoginWithoutTheStateIsRevoked(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	w.editAuth = func(m map[string]any) { m["revocation_endpoint"] = w.auth.URL + "/revoke" }
	o, state := w.withState()
	s := open(t, o)
	login, err := s.BeginLogin(t.Context(), "token:ann", toRedirect)
	if err != nil {
		t.Fatal(err)
	}
	state.Fail(shared.ErrUnavailable)
	if _, err := login.Finish(t.Context(), answer(t, login)); !errors.Is(err,
		shared.ErrUnavailable) {
		t.Errorf("got %v, want shared.ErrUnavailable", err)
	}
	forms, _, events := w.snapshot()
	if got := forms[len(forms)-1]["token"]; got != "refresh-1" {
		t.Errorf("the last request has the token %q, want the revocation of refresh-1", got)
	}
	if last := events[len(events)-1]; last != "token:ann rejected" {
		t.Errorf("the last event is %q, want a rejected login", last)
	}
}

// If the state goes away while a refresh is under way, the new refresh token is stored as soon as
// the state is back. It is neither lost, nor is the old one used again.
func TestNewRefreshTokenSurvivesAnOutage(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	o, state := w.withState()
	s, other := open(t, o), open(t, o)
	logIn(t, s, "token:ann")
	w.revoke()
	rotating := w.tokenEndpoint
	w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
		state.Fail(shared.ErrUnavailable)
		return rotating(rw, form)
	}
	if _, err := w.call(s, "ann"); err == nil ||
		!strings.Contains(err.Error(), "shared state is not available") {
		t.Errorf("got %v, want an error that the state is not available", err)
	}
	w.mu.Lock()
	w.tokenEndpoint = rotating
	w.mu.Unlock()
	state.Fail(nil)
	// The lock ends when the tokens are stored, and not only with its time.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	_, unlock, err := o.Store.Lock(ctx, annLogin)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if got, err := w.call(other, "ann"); err != nil || got != `{"token":"token-2"}` {
		t.Errorf("another replica got %s, %v; want the answer for token-2", got, err)
	}
	r, err := o.Store.Load(annLogin)
	if err != nil || r.Secrets.Refresh != "refresh-2" {
		t.Errorf("the state has %v, %v; want refresh-2", r, err)
	}
	if n := w.refreshes(); n != 1 {
		t.Errorf("there were %d refreshes, want 1", n)
	}
}

// A replica that ends while the state is away records that the tokens are gone.
func TestReplicaEndsDuringAnOutage(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	o, state := w.withState()
	s := open(t, o)
	logIn(t, s, "token:ann")
	w.revoke()
	rotating := w.tokenEndpoint
	w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
		state.Fail(shared.ErrUnavailable)
		return rotating(rw, form)
	}
	if _, err := w.call(s, "ann"); err == nil {
		t.Error("the call has a result")
	}
	_, _, before := w.snapshot()
	s.Close()
	_, _, events := w.snapshot()
	if got := fmt.Sprint(events[len(before):]); got != "[token:ann rejected]" {
		t.Errorf("the end is recorded as %s", got)
	}
}

// Whoever logs out during a refresh is logged out: the new tokens are revoked.
func TestLogoutDuringARefresh(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	w.editAuth = func(m map[string]any) { m["revocation_endpoint"] = w.auth.URL + "/revoke" }
	o, _ := w.withState()
	s := open(t, o)
	logIn(t, s, "token:ann")
	w.revoke()
	rotating := w.tokenEndpoint
	var once sync.Once
	w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
		// as another replica does whose lock this one has lost
		once.Do(func() {
			if err := o.Store.Delete(annLogin); err != nil {
				t.Error(err)
			}
		})
		return rotating(rw, form)
	}
	if _, err := w.call(s, "ann"); err == nil {
		t.Error("the call has a result")
	}
	if _, err := o.Store.Load(annLogin); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the login is back: %v", err)
	}
	forms, _, _ := w.snapshot()
	if got := forms[len(forms)-1]["token"]; got != "refresh-2" {
		t.Errorf("the last request has the token %q, want the revocation of refresh-2", got)
	}
}

// If another replica has refreshed the token meanwhile, its tokens are used, and the login is kept.
func TestRefreshOfAnotherReplicaIsUsed(t *testing.T) {
	for _, refused := range []bool{false, true} {
		w := newWorld(t)
		w.issueRotating()
		o, _ := w.withState()
		s := open(t, o)
		logIn(t, s, "token:ann")
		w.revoke()
		rotating := w.tokenEndpoint
		w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
			r, err := o.Store.Load(annLogin)
			if err != nil {
				t.Error(err)
				return false
			}
			r.Secrets = tokenstore.Secrets{Access: "token-other", Refresh: "refresh-other"}
			w.tokens["token-other"] = []string{"read"}
			if err := o.Store.Save(r); err != nil {
				t.Error(err)
			}
			if refused {
				form["refresh_token"] = "used"
			}
			return rotating(rw, form)
		}
		if got, err := w.call(s, "ann"); err != nil || got != `{"token":"token-other"}` {
			t.Errorf("refused %t: got %s, %v; want the answer for token-other", refused, got, err)
		}
		if r, err := o.Store.Load(annLogin); err != nil || r.Secrets.Refresh != "refresh-other" {
			t.Errorf("refused %t: the state has %v, %v", refused, r, err)
		}
	}
}

// A failed refresh leaves nothing for which the next replica would wait.
func TestFailedRefreshDelaysNobody(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	o, _ := w.withState()
	s := open(t, o)
	logIn(t, s, "token:ann")
	w.revoke()
	w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
		writeJSON(rw, 503, map[string]any{})
		return true
	}
	if _, err := w.call(s, "ann"); err == nil {
		t.Error("the call has a result")
	}
	began := time.Now()
	_, unlock, err := o.Store.Lock(t.Context(), annLogin)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if took := time.Since(began); took > 10*time.Second { // the lock is held for 20 s
		t.Errorf("the next replica waits for %v", took)
	}
}

// A login that one replica has begun is finished by another one.
func TestLoginIsFinishedByAnotherReplica(t *testing.T) {
	for name, register := range map[string]bool{"configured client": false,
		"registered client": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.issueRotating()
			o, _ := w.withState()
			if register {
				w.registers(map[string]any{"client_secret": "secret-of-client",
					"token_endpoint_auth_method": "client_secret_post"})
				o.Client, o.Register = credentials.Client{}, true
			}
			o.Callback = redirect
			login, err := open(t, o).BeginPageLogin(t.Context(), "token:ann")
			if err != nil {
				t.Fatal(err)
			}
			query := answer(t, login)
			saved, err := login.Save()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(saved), "client-secret") {
				t.Error("the secret of the configuration is saved")
			}
			other := open(t, o)
			resumed, err := other.ResumeLogin(saved)
			if err != nil || resumed.State() != login.State() || resumed.Issuer != w.auth.URL {
				t.Fatalf("got the login %+v, %v", resumed, err)
			}
			if _, err := resumed.Finish(t.Context(), query); err != nil {
				t.Fatal(err)
			}
			mustCall(t, w, other, "ann")
			mustCall(t, w, open(t, o), "ann")
			if _, err := w.call(other, "bob"); err == nil {
				t.Error("bob uses the login of ann")
			}
			forms, _, _ := w.snapshot()
			want := map[string]string{"client_id": "gatekit", "client_secret": "client-secret"}
			if register {
				want = map[string]string{"client_id": "client-1",
					"client_secret": "secret-of-client"}
			}
			want["resource"], want["redirect_uri"] = w.url(), redirect
			for k, v := range want {
				if forms[0][k] != v {
					t.Errorf("the code comes with the %s %q, want %q", k, forms[0][k], v)
				}
			}
			if forms[0]["code_verifier"] == "" {
				t.Error("the code comes without its verifier")
			}
		})
	}
}

// A replica with another configuration does not finish a login.
func TestLoginOfAnotherConfigurationIsNotFinished(t *testing.T) {
	w := newWorld(t)
	o, _ := w.withState()
	login, err := open(t, o).BeginLogin(t.Context(), "token:ann", toRedirect)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := login.Save()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*credentials.Options){
		"issuer": func(o *credentials.Options) { o.Issuer = "https://other.example" },
		"client": func(o *credentials.Options) { o.Client.ID = "other" },
	} {
		other := o
		change(&other)
		if n, err := open(t, other).ResumeLogin(saved); err == nil {
			t.Errorf("another %s: got the login %+v", name, n)
		}
	}
	for _, text := range []string{"", "{", "{}"} {
		if n, err := open(t, o).ResumeLogin([]byte(text)); err == nil {
			t.Errorf("%q: got the login %+v", text, n)
		}
	}
}

// The same holds for a login at an identity provider.
func TestIdentityLoginIsFinishedByAnotherReplica(t *testing.T) {
	w, p := newWorld(t), newProvider(t)
	o := w.withProvider(p)
	o.Store = tokenstore.NewShared(&shared.Memory{})
	first, second := open(t, o), open(t, o)
	ann := p.of(t, "ann")
	login, err := first.BeginLogin(t.Context(), ann.ID(), toRedirect)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := login.Save()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(saved), "idp-secret") {
		t.Error("the secret of the configuration is saved")
	}
	resumed, err := second.ResumeLogin(saved)
	if err != nil {
		t.Fatal(err)
	}
	resumed.URL = login.URL // of which the provider of the test makes the answer
	if err := p.finish(t, resumed, "ann"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*credentials.Server{first, second} {
		if _, err := ask(t, w, s, ann); err != nil {
			t.Error(err)
		}
	}
	wantNoIdentity(t, w, p)
}
