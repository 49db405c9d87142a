package sink

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLS says whom to trust and who we are. The zero value trusts whom the system trusts, and is
// nobody.
type TLS struct {
	CA        string // a PEM file of authorities, instead of the system's
	Cert, Key string // PEM files of our own certificate
}

// config reads the files, once: a certificate that is renewed needs a restart.
func (t TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no PEM certificate", t.CA)
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
