package sink

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLS selects the trusted authorities and the client certificate. The zero value trusts the
// system's authorities, and has no certificate.
type TLS struct {
	CA        string // PEM file of certificate authorities; "" for the system's
	Cert, Key string // PEM files of the client certificate
}

// config loads the files once: a renewed certificate needs a restart.
func (t TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s does not hold a PEM certificate", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
