package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"

	"gatekit/core/config"
	"gatekit/transport"
	"gatekit/transport/auth"
	"gatekit/transport/credentials"
)

// newAuthenticator returns what authenticates the clients of the HTTP listener. It returns nil if
// the configuration has no [listen.auth]: then every client is the one local user. The function
// keepTokens reports whether principals keep their access tokens; it may be nil.
func newAuthenticator(c *config.Config, revoked *auth.Revocations, keepTokens func() bool,
	log *slog.Logger) (*auth.Authenticator, error) {
	from := c.Listen.Auth
	if from == nil {
		return nil, nil
	}
	o := auth.Options{Resource: c.Listen.Resource(), Path: c.Listen.Path, Scopes: from.Scopes,
		Skew: from.Skew, Anonymous: from.Anonymous, KeepTokens: keepTokens, Revocations: revoked,
		Log: log}
	for _, i := range from.Issuers {
		issuer, err := authIssuer(i)
		if err != nil {
			return nil, err
		}
		o.Issuers = append(o.Issuers, issuer)
	}
	for _, t := range from.Tokens {
		o.Tokens = append(o.Tokens, auth.StaticToken{ID: t.Name, Digest: t.Digest(),
			Subject: t.Subject, Scopes: t.Scopes, Expires: t.Expires})
	}
	if m := from.MTLS; m != nil {
		o.Certificates = &auth.Certificates{Subject: m.Subject, Trust: m.Trust}
	}
	return auth.New(o)
}

// authIssuer returns an issuer as package auth wants it.
func authIssuer(i config.Issuer) (auth.Issuer, error) {
	issuer := auth.Issuer{Issuer: i.Issuer, Audience: i.Audience, Algorithms: i.Algorithms,
		Opaque: i.Tokens == "introspection", Subject: i.Subject, Groups: i.Groups,
		Scope: i.Scope, Clients: i.Clients, ScopePrefix: i.ScopePrefix}
	if n := i.Login; n != nil {
		issuer.Login = &auth.LoginClient{ID: n.ID, Secret: string(n.Secret)}
	}
	for _, n := range i.Networks {
		network, err := netip.ParsePrefix(n)
		if err != nil {
			return issuer, err
		}
		issuer.Networks = append(issuer.Networks, network.Masked())
	}
	if s := i.Introspect; s != nil {
		issuer.Introspect = &auth.Introspect{ID: s.ID, Secret: string(s.Secret), Cache: s.Cache}
	}
	return issuer, nil
}

// listenerTLS returns the TLS configuration of the HTTP listener, or nil without [listen.tls].
func listenerTLS(c *config.Config) (*tls.Config, error) {
	from := c.Listen.TLS
	if from == nil {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(from.Cert, from.Key)
	if err != nil {
		return nil, fmt.Errorf("[listen.tls]: %w", err)
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"http/1.1"}}
	if a := c.Listen.Auth; a != nil && a.MTLS != nil {
		t.ClientAuth, t.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
		t.ClientCAs.AppendCertsFromPEM([]byte(a.MTLS.CA))
	}
	return t, nil
}

// publicDocuments returns the documents that Gatekit serves without authentication: its own client
// metadata document.
func publicDocuments(c *config.Config) ([]transport.Document, error) {
	at := c.Listen.ClientDocumentURL()
	if at == "" {
		return nil, nil
	}
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	body, err := credentials.ClientDocument(at, c.Listen.ConnectCallbackURL())
	// Something before Gatekit may remove the beginning of the path.
	return []transport.Document{{Paths: []string{config.ClientDocument, u.Path}, Body: body}}, err
}

// allowedHosts returns the values of Host that are accepted, with the one of the public URL.
func allowedHosts(c *config.Config) []string {
	list := c.Listen.AllowedHosts
	if u, err := url.Parse(c.Listen.PublicURL); err == nil && u.Host != "" {
		list = append(list[:len(list):len(list)], u.Host)
	}
	return list
}
