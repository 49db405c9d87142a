// Package tlsconfig makes TLS configurations from PEM certificates. Gatekit uses them when it
// connects to sinks, to an OpenTelemetry collector and to OPA bundle servers, but not when it
// connects to MCP servers.
package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"gatekit/core/regularfile"
)

// Client returns a configuration that requires TLS 1.2 or later and trusts the certificates in ca,
// which is PEM. If ca is empty, the configuration trusts the certificates that the system trusts.
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

// Files has the paths of the PEM files from which Load makes a configuration. The zero value trusts
// the certificates that the system trusts, and has no client certificate.
type Files struct {
	CA        string // certificates to trust; "" for the certificates that the system trusts
	Cert, Key string // client certificate and its private key; "" for none
}

// maxFileBytes bounds each PEM file.
const maxFileBytes = 16 << 20

// Load reads the files and returns the configuration. Later changes of the files have no effect.
func (f Files) Load() (*tls.Config, error) {
	var ca []byte
	if f.CA != "" {
		var err error
		if ca, err = regularfile.Read(f.CA, maxFileBytes); err != nil {
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
		pair, err := f.clientCertificate()
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", f.Cert, f.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// clientCertificate reads the client certificate and its private key.
func (f Files) clientCertificate() (tls.Certificate, error) {
	cert, err := regularfile.Read(f.Cert, maxFileBytes)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := regularfile.Read(f.Key, maxFileBytes)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
