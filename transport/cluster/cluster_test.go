package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
)

// authority signs the certificates of replicas.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{certificate, key}
}

// tls returns the configuration of a replica.
func (a authority) tls(t *testing.T) *tls.Config {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	return &tls.Config{RootCAs: roots,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: a.key}}}
}

// newReplica returns a replica that listens on a free port. refused counts what it refuses.
func newReplica(t *testing.T, name string, secure *tls.Config, stateKey string) (r *Replica,
	refused *atomic.Int64) {
	t.Helper()
	refused = new(atomic.Int64)
	const anyPort = "127.0.0.1:0"
	r, err := Listen(Options{Name: name, Listen: anyPort, Advertise: anyPort, TLS: secure,
		StateKey: []byte(strings.Repeat(stateKey, 32)),
		RecordRefusal: func(_ context.Context, _ *http.Request, status int, reason string) {
			refused.Add(1)
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	r.o.Advertise = r.Addr().String()
	return r, refused
}

// echo is a Handler that answers with what it got.
type echo struct{}

func (echo) ServeForwarded(w http.ResponseWriter, r *http.Request, f Forwarded) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s via %s by %s %v %s %s: %s, own body %t", r.Method, r.URL.RequestURI(),
		f.Via, f.Principal.ID(), f.Principal.Scopes(), f.Principal.Claims(), f.Principal.Token(),
		body, f.HasBody(body))
	for _, name := range []string{"Authorization", "Cookie", headerForwarded} {
		if r.Header.Get(name) != "" {
			fmt.Fprintf(w, ", with %s", name)
		}
	}
}

func TestIDsNameTheirOwner(t *testing.T) {
	ca := newAuthority(t)
	a, _ := newReplica(t, "a", ca.tls(t), "k")
	b, _ := newReplica(t, "b", ca.tls(t), "k")
	other, _ := newReplica(t, "other", ca.tls(t), "o")
	id := a.NewID()
	if id == a.NewID() {
		t.Error("two ids are equal")
	}
	if owner, isOther := b.Owner(id); owner != a.o.Advertise || !isOther {
		t.Errorf("b takes %q for the owner (other %t), want a", owner, isOther)
	}
	changed := []byte(id)
	changed[len(changed)-2] ^= 1
	for name, tt := range map[string]struct {
		replica *Replica
		id      string
	}{"its own": {a, id}, "of another cluster": {other, id}, "changed": {b, string(changed)},
		"cut": {b, id[:20]}, "empty": {b, ""}, "of one process": {b, rand.Text()}} {
		if _, isOther := tt.replica.Owner(tt.id); isOther {
			t.Errorf("an id that is %s has another replica as its owner", name)
		}
	}
}

func TestForwardedRequestIsServedAsTheClients(t *testing.T) {
	ca := newAuthority(t)
	a, _ := newReplica(t, "a", ca.tls(t), "k")
	b, _ := newReplica(t, "b", ca.tls(t), "k")
	go a.Serve(t.Context(), echo{})
	user, err := identity.New(identity.Attributes{Method: identity.JWT,
		Issuer: "https://login.example", Subject: "ann", Scopes: []string{"mcp"},
		Claims: []byte(`{"a":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	static, err := identity.New(identity.Attributes{Method: identity.Token, Subject: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		user *identity.Principal
		want string
	}{
		"user": {user.WithToken("t0k"), `POST /mcp?x=1 via b by https://login.example#ann [mcp] ` +
			`{"a":1} t0k: hello, own body true`},
		"user of a static token": {static, `POST /mcp?x=1 via b by token:ci []  : hello, ` +
			`own body true`},
		"local user": {nil, `POST /mcp?x=1 via b by  []  : hello, own body true`},
	} {
		r := httptest.NewRequest(http.MethodPost, "/mcp?x=1", nil)
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("Cookie", "a=b")
		r.Header.Set(headerForwarded, "a client's")
		w := httptest.NewRecorder()
		if err := b.Forward(w, r, a.o.Advertise, []byte("hello"), tt.user); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := w.Body.String(); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// TestEnvelopeIsForOneRequest changes each part of a request, and uses its envelope again.
func TestEnvelopeIsForOneRequest(t *testing.T) {
	ca := newAuthority(t)
	a, _ := newReplica(t, "a", ca.tls(t), "k")
	b, _ := newReplica(t, "b", ca.tls(t), "k")
	c, _ := newReplica(t, "c", ca.tls(t), "k")
	stranger, _ := newReplica(t, "stranger", ca.tls(t), "s")
	request := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/mcp?x=1", nil)
		r.Header.Set("Mcp-Session-Id", "s1")
		return r
	}
	sealed := func(by *Replica) string {
		text, err := by.seal(request(), a.o.Advertise, []byte("body"), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, tt := range []struct {
		name   string
		by, to *Replica
		change func(r *http.Request)
		want   error
	}{
		{"as it was", b, a, func(*http.Request) {}, nil},
		{"no envelope", b, a, func(r *http.Request) { r.Header.Del(headerForwarded) },
			errNoEnvelope},
		{"two envelopes", b, a, func(r *http.Request) { r.Header.Add(headerForwarded, sealed(b)) },
			errNoEnvelope},
		{"changed envelope", b, a, func(r *http.Request) {
			r.Header.Set(headerForwarded, r.Header.Get(headerForwarded)[1:])
		}, errNoEnvelope},
		{"other key", stranger, a, func(*http.Request) {}, errNoEnvelope},
		{"other owner", b, c, func(*http.Request) {}, errOtherRequest},
		{"other method", b, a, func(r *http.Request) { r.Method = "DELETE" }, errOtherRequest},
		{"other query", b, a, func(r *http.Request) { r.URL.RawQuery = "x=2" }, errOtherRequest},
		{"other session", b, a, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "s2") },
			errOtherRequest},
		{"second session", b, a, func(r *http.Request) { r.Header.Add("Mcp-Session-Id", "s2") },
			errOtherRequest},
	} {
		r := request()
		r.Header.Set(headerForwarded, sealed(tt.by))
		tt.change(r)
		e, err := tt.to.open(r)
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: got the error %v, want %v", tt.name, err, tt.want)
			continue
		}
		if err != nil {
			continue
		}
		if !e.hasBody([]byte("body")) || e.hasBody([]byte("bodY")) || e.hasBody(nil) {
			t.Errorf("%s: the envelope is not bound to the body", tt.name)
		}
		if _, err := tt.to.open(r); !errors.Is(err, errUsedEnvelope) {
			t.Errorf("%s, again: got the error %v, want %v", tt.name, err, errUsedEnvelope)
		}
	}
}

func TestEnvelopesExpire(t *testing.T) {
	ca := newAuthority(t)
	a, _ := newReplica(t, "a", ca.tls(t), "k")
	synctest.Test(t, func(t *testing.T) {
		sealed := func() *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/mcp", nil)
			text, err := a.seal(r, a.o.Advertise, nil, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(headerForwarded, text)
			return r
		}
		used, late := sealed(), sealed()
		if _, err := a.open(used); err != nil {
			t.Fatal(err)
		}
		time.Sleep(envelopeLifetime)
		if _, err := a.open(used); !errors.Is(err, errUsedEnvelope) {
			t.Errorf("at the end of its life: got the error %v, want %v", err, errUsedEnvelope)
		}
		time.Sleep(time.Nanosecond)
		if _, err := a.open(late); !errors.Is(err, errExpired) {
			t.Errorf("after its life: got the error %v, want %v", err, errExpired)
		}
		for range 3 { // nonces are forgotten, but only those of expired envelopes
			time.Sleep(2 * envelopeLifetime)
			if _, err := a.open(sealed()); err != nil {
				t.Error(err)
			}
		}
		if n := len(a.nonces.recent) + len(a.nonces.old); n > 2 {
			t.Errorf("%d nonces are kept, want at most 2", n)
		}
	})
}

// TestRequestsOfStrangersAreRefused connects with and without certificates.
func TestRequestsOfStrangersAreRefused(t *testing.T) {
	ca, otherCA := newAuthority(t), newAuthority(t)
	a, refused := newReplica(t, "a", ca.tls(t), "k")
	go a.Serve(t.Context(), echo{})
	trusting := ca.tls(t)
	for _, tt := range []struct {
		name         string
		certificates []tls.Certificate
		isReplica    bool
	}{
		{"without a certificate", nil, false},
		{"with one of another authority", otherCA.tls(t).Certificates, false},
		{"with a certificate and no envelope", trusting.Certificates, true},
	} {
		client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{RootCAs: trusting.RootCAs, Certificates: tt.certificates}}}
		r, err := client.Post("https://"+a.o.Advertise+"/mcp", "application/json", nil)
		switch {
		case tt.isReplica && (err != nil || r.StatusCode != http.StatusForbidden):
			t.Errorf("%s: got %v, %v, want status 403", tt.name, r, err)
		case !tt.isReplica && err == nil:
			t.Errorf("%s: got %s, want no connection", tt.name, r.Status)
		}
		if err == nil {
			r.Body.Close()
		}
	}
	if n := refused.Load(); n != 1 {
		t.Errorf("%d refusals were recorded, want 1", n)
	}
}

// TestFailuresOfForwarding tells whether a request may have been run.
func TestFailuresOfForwarding(t *testing.T) {
	ca := newAuthority(t)
	b, _ := newReplica(t, "b", ca.tls(t), "k")
	breaking, _ := newReplica(t, "breaking", ca.tls(t), "k")
	go breaking.Serve(t.Context(), breakingHandler{})
	stranger, _ := newReplica(t, "stranger", newAuthority(t).tls(t), "k")
	go stranger.Serve(t.Context(), echo{})
	gone, _ := newReplica(t, "gone", ca.tls(t), "k")
	gone.o.Advertise = "127.0.0.1:1" // no process listens there
	for owner, want := range map[*Replica]error{breaking: ErrLost, stranger: ErrUnreachable,
		gone: ErrGone} {
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		w := httptest.NewRecorder()
		if err := b.Forward(w, r, owner.o.Advertise, []byte("x"), nil); !errors.Is(err, want) {
			t.Errorf("%s: got the error %v, want %v", owner.o.Name, err, want)
		}
		if w.Body.Len() > 0 {
			t.Errorf("%s: the client got %q, want nothing", owner.o.Name, w.Body)
		}
	}
}

// breakingHandler breaks the connection of each request.
type breakingHandler struct{}

func (breakingHandler) ServeForwarded(http.ResponseWriter, *http.Request, Forwarded) {
	panic(http.ErrAbortHandler)
}
