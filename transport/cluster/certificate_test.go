package cluster_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"strings"
	"testing"
	"time"

	"gatekit/transport/cluster"
)

// signer signs certificates.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// sign returns a certificate that by has signed, or that signs itself.
func sign(t *testing.T, template *x509.Certificate, by *signer) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	if by == nil {
		by = &signer{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{cert, key}
}

// A certificate is checked as the other replicas check it.
func TestCertificateOfTheReplicaIsChecked(t *testing.T) {
	now := time.Now()
	authority := func(by *signer) *signer {
		return sign(t, &x509.Certificate{NotAfter: now.Add(time.Hour), IsCA: true,
			BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, by)
	}
	ca := authority(nil)
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, tt := range []struct {
		name          string
		by            *signer
		from, through time.Time
		usage         []x509.ExtKeyUsage
		advertise     string
		want          string // in the error; "" for none
	}{
		{"valid", ca, now.Add(-time.Hour), now.Add(time.Hour), both, "gatekit-0.gk:7443", ""},
		{"for any use", ca, now.Add(-time.Hour), now.Add(time.Hour), nil, "gatekit-0.gk:7443", ""},
		{"of another name", ca, now.Add(-time.Hour), now.Add(time.Hour), both, "gatekit-1.gk:7443",
			"valid for gatekit-0.gk, not gatekit-1.gk"},
		{"of another authority", authority(nil), now.Add(-time.Hour), now.Add(time.Hour), both,
			"gatekit-0.gk:7443", "unknown authority"},
		{"expired", ca, now.Add(-time.Hour), now.Add(-time.Minute), both, "gatekit-0.gk:7443",
			"has expired"},
		{"not for servers", ca, now.Add(-time.Hour), now.Add(time.Hour), both[1:],
			"gatekit-0.gk:7443", "the certificate is not for servers"},
		{"not for clients", ca, now.Add(-time.Hour), now.Add(time.Hour), both[:1],
			"gatekit-0.gk:7443", "the certificate is not for clients"},
		{"of an intermediate authority", authority(ca), now.Add(-time.Hour), now.Add(time.Hour),
			both, "gatekit-0.gk:7443", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			replica := sign(t, &x509.Certificate{DNSNames: []string{"gatekit-0.gk"},
				NotBefore: tt.from, NotAfter: tt.through, ExtKeyUsage: tt.usage}, tt.by)
			c := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{{
				Certificate: [][]byte{replica.cert.Raw, tt.by.cert.Raw}}}}
			c.RootCAs.AddCert(ca.cert)
			expires, err := cluster.CheckCertificate(c, tt.advertise)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q in it", err, tt.want)
				}
				return
			}
			if err != nil || !expires.Equal(replica.cert.NotAfter) {
				t.Errorf("expires at %v (%v), want %v", expires, err, replica.cert.NotAfter)
			}
		})
	}
}
