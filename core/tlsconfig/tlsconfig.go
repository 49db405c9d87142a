// Package tlsconfig makes the TLS configurations of clients from PEM certificates, for every
// connection that Gatekit opens to a system other than an MCP server: sinks, a collector, services
// of policies.
package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Client returns a configuration that requires TLS 1.2 or later and trusts the certificates in ca,
// which is PEM. If ca is empty, it trusts those that the system trusts.
func Client(ca []byte) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(ca) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("no certificate in PEM format")
		}
	}
	return c, nil
}

// Files are PEM files of a client's configuration. The zero value trusts the certificates that the
// system trusts, and has no client certificate.
type Files struct {
	CA        string // certificates to trust; "" for those that the system trusts
	Cert, Key string // client certificate and its private key; "" for none
}

// Load reads the files and returns the configuration. Later changes of the files have no effect.
func (f Files) Load() (*tls.Config, error) {
	var ca []byte
	if f.CA != "" {
		var err error
		if ca, err = os.ReadFile(f.CA); err != nil {
			return nil, err
		}
		if len(ca) == 0 {
			return nil, fmt.Errorf("%s is empty", f.CA)
		}
	}
	c, err := Client(ca)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.CA, err)
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", f.Cert, f.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
