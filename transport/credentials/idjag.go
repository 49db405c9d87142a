package credentials

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"gatekit/transport/tokenstore"

	"golang.org/x/oauth2"
)

// Types of tokens in an exchange at an identity provider.
const (
	idTokenType = "urn:ietf:params:oauth:token-type:id_token"
	idJAGType   = "urn:ietf:params:oauth:token-type:id-jag"
)

// IdentityProvider is where users log in, for IDJAG. It issues ID tokens, which never reach the
// server or its authorization server.
type IdentityProvider struct {
	Issuer string // issuer identifier
	Client Client // Gatekit's registration there, with a secret or a key
	HTTP   *http.Client
	// Check checks an ID token of a login with a nonce, or of a refresh, without one. It returns
	// the principal whom the token names, and when the token expires. The token came straight from
	// the token endpoint, so its signature need not be checked (OpenID Connect Core, 3.1.3.7).
	Check func(idToken, nonce string) (principal string, expiry time.Time, err error)
}

// issued is the access token that an authorization server issued for an ID-JAG.
type issued struct {
	record *tokenstore.Record
	// digest of the ID token that it came from: the times of records have whole seconds
	idToken [sha256.Size]byte
}

// newProvider returns the logins of the identity provider. They are those of a server with an
// authorization server, with three differences: what is kept is the ID token, there is no metadata
// of a resource, and requests name no resource.
func newProvider(o Options) *Server {
	p := o.Provider
	// The records are for the issuer. As a login at the server, an ID token could reach the server.
	return New(Options{Name: o.Name, URL: p.Issuer, Grant: identityLogin, Client: p.Client,
		Callback: o.Callback, Issuer: p.Issuer, Scopes: []string{"openid"}, HTTP: p.HTTP,
		Store: o.Store, Event: o.Event, Provider: p})
}

// discoverProvider returns the endpoints of the identity provider.
func (s *Server) discoverProvider(ctx context.Context) (*endpoints, error) {
	as, err := s.authServerMetadata(ctx, s.o.Issuer)
	if err != nil {
		return nil, fmt.Errorf("read the metadata of the identity provider %q: %w", s.o.Issuer, err)
	}
	return &endpoints{resource: s.o.URL, as: as}, nil
}

// identityToken returns the token to keep of an answer to a login with a nonce, or to a refresh: of
// an identity provider, the ID token. If the answer has none, or another user's, that is an error.
func (s *Server) identityToken(t *oauth2.Token, key, nonce string) (*oauth2.Token, error) {
	if s.o.Grant != identityLogin {
		return t, nil
	}
	raw, _ := t.Extra("id_token").(string)
	if raw == "" {
		return nil, errors.New("the identity provider issued no ID token")
	}
	principal, expiry, err := s.o.Provider.Check(raw, nonce)
	if err != nil {
		return nil, err
	}
	// A principal of the identity provider uses nobody else's account.
	if strings.HasPrefix(key, s.o.Issuer+"#") && key != principal {
		return nil, errors.New("the ID token is of another user than the principal")
	}
	kept := &oauth2.Token{AccessToken: raw, RefreshToken: t.RefreshToken, Expiry: expiry}
	return kept.WithExtra(map[string]any{"scope": t.Extra("scope")}), nil
}

// idJAG gets an access token for the server by the login of a principal at the identity provider
// (Identity Assertion JWT Authorization Grant): the ID token is exchanged for an assertion (RFC
// 8693), and that for the access token, at the server's authorization server (RFC 7523).
func (s *Server) idJAG(ctx context.Context, l *login, wanted []string,
	stale string) (*tokenstore.Record, error) {
	if r := s.reissued(l, wanted, stale); r != nil {
		return r, nil
	}
	identity, err := s.provider.stored(ctx, l.key, nil, "")
	if err != nil {
		return nil, err
	}
	e, err := s.discovered(ctx)
	if err != nil {
		return nil, err
	}
	scopes, err := s.scopes(e, wanted)
	if err != nil {
		return nil, err
	}
	assertion, err := s.provider.assertion(ctx, e, identity, scopes)
	if err != nil {
		s.provider.forgetEndpoints()
		return nil, err
	}
	t, err := s.requestToken(ctx, e, s.o.Client, grantJWTBearer, scopes,
		url.Values{"assertion": {assertion}})
	if err == nil && (t.AccessToken == assertion || t.AccessToken == identity.Secrets.Access) {
		err = errors.New("the authorization server returned the token that it was to exchange")
	}
	if err != nil {
		s.forgetEndpoints()
		return nil, err
	}
	t.RefreshToken = "" // the identity provider decides about each further token
	r := s.newRecord(l.key, e, s.o.Client, scopes, t)
	if err := s.event(l.key, ActionExchanged, describe(r), nil); err != nil {
		return nil, fmt.Errorf("record the token: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.issued = issued{r, sha256.Sum256([]byte(identity.Secrets.Access))}
	return r, nil
}

// reissued returns the access token that a login has, if it can still be used, or nil. Another
// process may have logged the principal out, or in with another account.
func (s *Server) reissued(l *login, wanted []string, stale string) *tokenstore.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.issued.record
	if r == nil || !s.isUsable(r, wanted, stale) {
		return nil
	}
	current, err := s.o.Store.Load(s.id(l.key))
	if err != nil || sha256.Sum256([]byte(current.Secrets.Access)) != l.issued.idToken {
		return nil
	}
	return r
}

// assertion exchanges the ID token of a login for an assertion (ID-JAG) about its user, which is
// for the authorization server of e. s holds the logins of the identity provider.
func (s *Server) assertion(ctx context.Context, e *endpoints, identity *tokenstore.Record,
	scopes []string) (string, error) {
	idp, err := s.discovered(ctx)
	if err != nil {
		return "", err
	}
	t, err := s.requestAnyToken(ctx, idp, s.o.Client, grantExchange, scopes, url.Values{
		"requested_token_type": {idJAGType}, "audience": {e.as.Issuer}, "resource": {e.resource},
		"subject_token": {identity.Secrets.Access}, "subject_token_type": {idTokenType}})
	if refused, ok := errors.AsType[*tokenError](err); ok && refused.code == "invalid_grant" {
		s.event(identity.Principal, ActionRejected, "exchange at "+s.o.Issuer, err)
		return "", s.loginNeeded("the identity provider no longer accepts your login",
			identity.Principal, nil, refused)
	}
	if err != nil {
		return "", fmt.Errorf("exchange the ID token at the identity provider %q: %w", s.o.Issuer,
			err)
	}
	if kind, _ := t.Extra("issued_token_type").(string); kind != idJAGType ||
		t.AccessToken == identity.Secrets.Access {
		return "", fmt.Errorf("the identity provider %q issued no ID-JAG (issued_token_type)",
			s.o.Issuer)
	}
	return t.AccessToken, nil
}

// keepWithoutIDToken stores the record of a refresh whose answer has no ID token that can be used,
// and returns the error for its principal. The refresh token is kept for a logout, which revokes
// it, and not for another refresh.
func (s *Server) keepWithoutIDToken(r *tokenstore.Record, t *oauth2.Token, err error) error {
	s.event(r.Principal, ActionRejected, "refresh at "+s.o.Issuer, err)
	next := *r
	next.Secrets.Access, next.Secrets.Refresh = "", cmp.Or(t.RefreshToken, r.Secrets.Refresh)
	if err := s.o.Store.Replace(r, &next); err != nil {
		return err
	}
	return s.loginNeeded("the identity provider issues no new ID token without a login",
		r.Principal, nil, err)
}
