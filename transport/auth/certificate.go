package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gatekit/core/display"
	"gatekit/core/identity"
)

// Certificates configures which TLS certificates of clients are accepted. The TLS listener has
// verified their chains.
type Certificates struct {
	// Subject is the kind of subject alternative name that names the client: uri, dns or email. A
	// certificate must have exactly one name of this kind.
	Subject string
	// Trust are the names that are accepted. A URI that ends with a slash stands for all URIs that
	// begin so, ".example.com" for all DNS names below it, "@example.com" for all its mailboxes.
	Trust []string
}

func (c *Certificates) check() error {
	if !slices.Contains([]string{"uri", "dns", "email"}, c.Subject) {
		return fmt.Errorf("certificates: subject %q is not uri, dns or email", c.Subject)
	}
	if len(c.Trust) == 0 || slices.Contains(c.Trust, "") {
		return errors.New("certificates: no names to trust")
	}
	return nil
}

// verify returns the principal of the certificate of a connection.
func (c *Certificates) verify(state *tls.ConnectionState) (*identity.Principal, error) {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil, errors.New("the certificate of the client was not verified")
	}
	leaf := state.VerifiedChains[0][0]
	if time.Now().After(leaf.NotAfter) { // since the connection was made
		return nil, fmt.Errorf("the certificate expired at %s",
			leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	names := c.names(leaf)
	if len(names) != 1 {
		return nil, fmt.Errorf("the certificate has %d names of the kind %s, not one", len(names),
			c.Subject)
	}
	name := names[0]
	if !c.trusts(name) {
		return nil, fmt.Errorf("the name %s of the certificate is not trusted",
			display.Quote(name, maxQuoted))
	}
	return identity.New(identity.Attributes{Method: identity.Certificate, Subject: name,
		Expiry: leaf.NotAfter})
}

func (c *Certificates) names(leaf *x509.Certificate) (names []string) {
	switch c.Subject {
	case "uri":
		for _, u := range leaf.URIs {
			names = append(names, u.String())
		}
	case "dns":
		names = leaf.DNSNames
	case "email":
		names = leaf.EmailAddresses
	}
	return names
}

// trusts reports whether a name is one of those that are trusted.
func (c *Certificates) trusts(name string) bool {
	if c.Subject == "uri" && !isPlainURI(name) {
		return false
	}
	for _, t := range c.Trust {
		switch {
		case t == name,
			c.Subject == "uri" && strings.HasSuffix(t, "/") && strings.HasPrefix(name, t),
			c.Subject == "dns" && strings.HasPrefix(t, ".") && strings.HasSuffix(name, t),
			c.Subject == "email" && strings.HasPrefix(t, "@") && strings.HasSuffix(name, t):
			return true
		}
	}
	return false
}

// isPlainURI reports whether a URI is written in one way only, so that its beginning can be
// compared. SPIFFE has the same rule.
func isPlainURI(uri string) bool {
	_, path, ok := strings.Cut(uri, "://")
	if !ok || strings.ContainsAny(uri, "%?#@\\") {
		return false
	}
	for _, segment := range strings.Split(path, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}
