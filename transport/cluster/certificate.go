package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"
)

// CheckCertificate returns when the certificate of a replica expires, or why the other replicas
// would refuse it. c is Options.TLS, and advertise is Options.Advertise.
func CheckCertificate(c *tls.Config, advertise string) (expires time.Time, err error) {
	host, _, err := net.SplitHostPort(advertise)
	if err != nil {
		return time.Time{}, err
	}
	var chain []*x509.Certificate
	for _, der := range c.Certificates[0].Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return time.Time{}, err
		}
		chain = append(chain, cert)
	}
	o := x509.VerifyOptions{DNSName: host, Roots: c.RootCAs, Intermediates: x509.NewCertPool()}
	for _, cert := range chain[1:] {
		o.Intermediates.AddCert(cert)
	}
	for _, use := range []struct {
		usage x509.ExtKeyUsage
		name  string
	}{{x509.ExtKeyUsageServerAuth, "servers"}, {x509.ExtKeyUsageClientAuth, "clients"}} {
		o.KeyUsages = []x509.ExtKeyUsage{use.usage}
		_, err := chain[0].Verify(o)
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok &&
			invalid.Reason == x509.IncompatibleUsage {
			return time.Time{}, fmt.Errorf("the certificate is not for %s (extended key usage)",
				use.name)
		}
		if err != nil {
			return time.Time{}, err
		}
	}
	return chain[0].NotAfter, nil
}
