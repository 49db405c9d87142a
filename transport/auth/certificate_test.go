package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/transport/auth"
)

// authority signs the certificates of clients.
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
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true,
		Subject: pkix.Name{CommonName: "clients"}, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
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

// issue returns a certificate of a client, with the names of the template.
func (a authority) issue(t *testing.T, template x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotAfter = big.NewInt(2), time.Now().Add(time.Minute)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestCertificates(t *testing.T) {
	trusted, other := newAuthority(t), newAuthority(t)
	uri := func(list ...string) (names x509.Certificate) {
		for _, s := range list {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			names.URIs = append(names.URIs, u)
		}
		return names
	}
	for _, tt := range []struct {
		name, kind, trust string
		by                authority
		names             x509.Certificate
		want              string // ID; "" if refused
	}{
		{"SPIFFE", "uri", "spiffe://acme.example/", trusted, uri("spiffe://acme.example/build"),
			"cert:spiffe://acme.example/build"},
		{"exactly one SPIFFE id", "uri", "spiffe://acme.example/build", trusted,
			uri("spiffe://acme.example/build"), "cert:spiffe://acme.example/build"},
		{"an id that begins like the trusted one", "uri", "spiffe://acme.example/build", trusted,
			uri("spiffe://acme.example/build2"), ""},
		{"another trust domain", "uri", "spiffe://acme.example/", trusted,
			uri("spiffe://acme.example.evil/build"), ""},
		{"two names", "uri", "spiffe://acme.example/", trusted,
			uri("spiffe://acme.example/build", "spiffe://acme.example/root"), ""},
		{"dots", "uri", "spiffe://acme.example/team/", trusted,
			uri("spiffe://acme.example/team/../root"), ""},
		{"encoded dots", "uri", "spiffe://acme.example/team/", trusted,
			uri("spiffe://acme.example/team/%2e%2e/root"), ""},
		{"empty segment", "uri", "spiffe://acme.example/", trusted,
			uri("spiffe://acme.example//root"), ""},
		{"query", "uri", "spiffe://acme.example/", trusted, uri("spiffe://acme.example/a?b"), ""},
		{"no name of the kind", "uri", "spiffe://acme.example/", trusted,
			x509.Certificate{DNSNames: []string{"acme.example"}}, ""},
		{"only a common name", "dns", "build.acme.example", trusted, x509.Certificate{
			Subject: pkix.Name{CommonName: "build.acme.example"}}, ""},
		{"DNS", "dns", "build.acme.example", trusted, x509.Certificate{
			DNSNames: []string{"build.acme.example"}}, "cert:build.acme.example"},
		{"DNS below", "dns", ".acme.example", trusted, x509.Certificate{
			DNSNames: []string{"build.acme.example"}}, "cert:build.acme.example"},
		{"DNS beside", "dns", ".acme.example", trusted, x509.Certificate{
			DNSNames: []string{"evilacme.example"}}, ""},
		{"email", "email", "@acme.example", trusted, x509.Certificate{
			EmailAddresses: []string{"ann@acme.example"}}, "cert:ann@acme.example"},
		{"email of others", "email", "@acme.example", trusted, x509.Certificate{
			EmailAddresses: []string{"ann@acme.example.evil"}}, ""},
		{"another authority", "uri", "spiffe://acme.example/", other,
			uri("spiffe://acme.example/build"), "refused by TLS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := auth.New(auth.Options{Certificates: &auth.Certificates{Subject: tt.kind,
				Trust: []string{tt.trust}}})
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				p, refusal := a.Authenticate(r)
				if refusal != nil {
					w.WriteHeader(refusal.Status)
				}
				io.WriteString(w, p.ID())
			}))
			roots := x509.NewCertPool()
			roots.AddCert(trusted.certificate)
			s.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots}
			s.Config.ErrorLog = nil
			s.StartTLS()
			defer s.Close()
			client := s.Client()
			client.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(
				*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				c := tt.by.issue(t, tt.names)
				return &c, nil
			}
			r, err := client.Get(s.URL)
			if tt.want == "refused by TLS" {
				if err == nil {
					t.Error("got an answer, want an error of TLS")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			b, err := io.ReadAll(r.Body)
			if err != nil || string(b) != tt.want {
				t.Errorf("got %q and error %v, want %q", b, err, tt.want)
			}
			status := map[bool]int{true: 403, false: 200}[tt.want == ""]
			if r.StatusCode != status {
				t.Errorf("got status %d, want %d", r.StatusCode, status)
			}
			if r.Header.Get("WWW-Authenticate") != "" {
				t.Error("got a challenge where no token is accepted")
			}
		})
	}
}

func TestCertificateOfNoClient(t *testing.T) {
	a, err := auth.New(auth.Options{Certificates: &auth.Certificates{Subject: "uri",
		Trust: []string{"spiffe://acme.example/"}}})
	if err != nil {
		t.Fatal(err)
	}
	r := request()
	if p, refusal := a.Authenticate(r); refusal == nil || refusal.Status != 403 || p != nil {
		t.Errorf("no TLS: got %+v, want status 403", refusal)
	}
	// Where the listener does not verify certificates, they do not count.
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{newAuthority(t).certificate}}
	if p, refusal := a.Authenticate(r); refusal == nil || refusal.Status != 403 || p != nil {
		t.Errorf("not verified: got %+v, want status 403", refusal)
	}
}

// A connection may stay open for longer than the certificate of its client is valid.
func TestCertificateThatExpiresDuringTheConnection(t *testing.T) {
	u, err := url.Parse("spiffe://acme.example/build")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		a, err := auth.New(auth.Options{Certificates: &auth.Certificates{Subject: "uri",
			Trust: []string{"spiffe://acme.example/"}}})
		if err != nil {
			t.Fatal(err)
		}
		r := request()
		leaf := &x509.Certificate{URIs: []*url.URL{u}, NotAfter: time.Now().Add(time.Minute)}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf},
			VerifiedChains: [][]*x509.Certificate{{leaf}}}
		if p, refusal := a.Authenticate(r); refusal != nil || p.ID() != "cert:"+u.String() {
			t.Errorf("valid: got %q and refusal %+v, want the client", p.ID(), refusal)
		}
		time.Sleep(time.Minute + time.Second)
		if p, refusal := a.Authenticate(r); refusal == nil || refusal.Status != 403 || p != nil ||
			!strings.Contains(refusal.Detail, "the certificate expired at") {
			t.Errorf("expired: got %q and refusal %+v, want status 403", p.ID(), refusal)
		}
	})
}
