package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"

	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/transport/ssrfguard"
)

// LoginClient is an OpenID Connect client of Gatekit at an issuer.
type LoginClient struct{ ID, Secret string }

// UserLogin is an attempt of a user to show who they are, with a login at an issuer (OpenID Connect
// with the authorization code flow). It can be finished once.
type UserLogin struct {
	// URL is the page of the issuer that the user must open. It has no credentials.
	URL string

	issuer   *issuer
	metadata *serverMetadata
	redirect string
	state    string
	nonce    string
	verifier string // of PKCE
}

// HasLogin reports whether users of an issuer can log in with BeginLogin.
func (a *Authenticator) HasLogin(issuer string) bool {
	i := a.issuers[issuer]
	return i != nil && i.o.Login != nil
}

// BeginLogin returns the login of a user at an issuer. The issuer sends the user to the URL
// redirect, and Finish takes the query of that request. Run must be called for the keys.
func (a *Authenticator) BeginLogin(ctx context.Context, issuer, redirect string) (*UserLogin,
	error) {
	l, err := a.newUserLogin(ctx, issuer)
	if err != nil {
		return nil, err
	}
	l.redirect, l.state, l.nonce = redirect, rand.Text(), rand.Text()
	l.verifier = oauth2.GenerateVerifier()
	// Many providers do not say in their metadata that they know PKCE, but ignore what they do not
	// know. The nonce protects the code, too.
	l.URL = l.config().AuthCodeURL(l.state, oauth2.S256ChallengeOption(l.verifier),
		oauth2.SetAuthURLParam("nonce", l.nonce))
	return l, nil
}

// newUserLogin returns a login at an issuer that has not begun.
func (a *Authenticator) newUserLogin(ctx context.Context, issuer string) (*UserLogin, error) {
	if !a.HasLogin(issuer) {
		return nil, fmt.Errorf("users of the issuer %s cannot log in: it has no login client",
			display.Quote(issuer, maxQuoted))
	}
	i := a.issuers[issuer]
	i.mu.Lock()
	m := i.metadata
	i.mu.Unlock()
	if m == nil {
		var err error
		if m, err = i.discover(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", errUnavailable, err)
		}
	}
	if err := m.checkLogin(); err != nil {
		return nil, err
	}
	return &UserLogin{issuer: i, metadata: m}, nil
}

// savedUserLogin has what Save saves.
type savedUserLogin struct {
	Redirect string `json:"redirect"`
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

// State returns the parameter state of the answer.
func (l *UserLogin) State() string { return l.state }

// Save returns what ResumeLogin needs, perhaps in another replica. It is a secret.
func (l *UserLogin) Save() ([]byte, error) {
	return json.Marshal(savedUserLogin{l.redirect, l.state, l.nonce, l.verifier})
}

// ResumeLogin returns the login at an issuer that Save has saved. The caller must finish it once at
// most. Its URL is "".
func (a *Authenticator) ResumeLogin(ctx context.Context, issuer string, saved []byte) (*UserLogin,
	error) {
	var s savedUserLogin
	if err := json.Unmarshal(saved, &s); err != nil {
		return nil, err
	}
	l, err := a.newUserLogin(ctx, issuer)
	if err != nil {
		return nil, err
	}
	l.redirect, l.state, l.nonce, l.verifier = s.Redirect, s.State, s.Nonce, s.Verifier
	return l, nil
}

// checkLogin returns an error if users cannot log in at the authorization server.
func (m *serverMetadata) checkLogin() error {
	for name, endpoint := range map[string]string{"authorization_endpoint": m.Authorization,
		"token_endpoint": m.Token} {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || u.User != nil ||
			u.Scheme != "https" && (u.Scheme != "http" || !ssrfguard.IsLoopback(u.Hostname())) {
			return fmt.Errorf("the metadata of the issuer %s has no %s over https", m.Issuer, name)
		}
	}
	return nil
}

func (l *UserLogin) config() *oauth2.Config {
	c := &oauth2.Config{ClientID: l.issuer.o.Login.ID, ClientSecret: l.issuer.o.Login.Secret,
		RedirectURL: l.redirect, Scopes: []string{"openid"}, Endpoint: oauth2.Endpoint{
			AuthURL: l.metadata.Authorization, TokenURL: l.metadata.Token,
			AuthStyle: oauth2.AuthStyleInHeader}}
	if m := l.metadata.TokenMethods; len(m) > 0 && !slices.Contains(m, "client_secret_basic") {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return c
}

// Matches reports whether a query with which a user was sent back belongs to the login. Others
// must not be given to Finish: anybody can make them.
func (l *UserLogin) Matches(query url.Values) bool {
	return l.state != "" &&
		subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(l.state)) == 1
}

// Finish takes the query with which the issuer sent the user back. It checks the ID token of the
// user, and returns the principal, as the issuer's access tokens for the user name it. Its errors
// contain no text of the query and no token.
func (l *UserLogin) Finish(ctx context.Context, query url.Values) (*identity.Principal, error) {
	isOurs := l.Matches(query)
	l.state = "" // once
	iss, hasIss := query.Get("iss"), query.Has("iss")
	switch {
	case !isOurs:
		return nil, errors.New("the answer belongs to no login, or to one that has ended")
	case l.metadata.SendsIssuer && !hasIss, hasIss && iss != l.issuer.o.Issuer:
		return nil, fmt.Errorf("the answer is not of the issuer %s", l.issuer.o.Issuer)
	case query.Get("error") != "":
		return nil, fmt.Errorf("the issuer %s refused the login%s", l.issuer.o.Issuer,
			errorCode(query.Get("error")))
	case query.Get("code") == "":
		return nil, errors.New("the answer has no code")
	}
	token, err := l.config().Exchange(context.WithValue(ctx, oauth2.HTTPClient, l.issuer.client),
		query.Get("code"), oauth2.VerifierOption(l.verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return nil, fmt.Errorf("the issuer %s refused the code (HTTP %d)%s", l.issuer.o.Issuer,
			refused.Response.StatusCode, errorCode(refused.ErrorCode))
	}
	if err != nil {
		return nil, fmt.Errorf("ask the issuer %s for the ID token: %w", l.issuer.o.Issuer, err)
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" || len(raw) > maxTokenBytes {
		return nil, fmt.Errorf("the answer of the issuer %s has no ID token of at most %d bytes",
			l.issuer.o.Issuer, maxTokenBytes)
	}
	return l.issuer.verifyIDToken(ctx, raw, l.nonce)
}

// errorCode returns the code of an error with a separator before it, if it can be shown: others
// wrote it.
func errorCode(code string) string {
	if code == "" || len(code) > 60 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return ""
	}
	return ": " + code
}

// verifyIDToken checks the ID token of a login, and returns the principal whom it names.
func (i *issuer) verifyIDToken(ctx context.Context, raw, nonce string) (*identity.Principal,
	error) {
	t, err := parseToken(raw)
	if err != nil {
		return nil, err
	}
	if iss := text(t.claims.values["iss"]); iss != i.o.Issuer {
		return nil, fmt.Errorf("the ID token is of the issuer %s, not of %s",
			display.Quote(iss, maxQuoted), i.o.Issuer)
	}
	if err := t.checkHeader(i.o.Algorithms); err != nil {
		return nil, err
	}
	k, err := i.keys.find(ctx, t.header.KeyID, t.header.Algorithm)
	if err != nil {
		return nil, err
	}
	if err := t.verifySignature(k); err != nil {
		return nil, err
	}
	return i.o.identify(t, i.o.Login.ID, nonce, i.skew)
}

// CheckIDToken checks an ID token that came straight from the token endpoint of the issuer, and
// returns the principal whom it names. So TLS has shown whose token it is, and the signature is not
// checked (OpenID Connect Core, 3.1.3.7). The token must be for a client, and of the login with a
// nonce. An empty nonce is not checked: an ID token of a refresh may have none. The errors contain
// no part of the token.
func (i Issuer) CheckIDToken(raw, client, nonce string, skew time.Duration) (*identity.Principal,
	error) {
	if len(raw) > maxTokenBytes {
		return nil, fmt.Errorf("the ID token has more than %d bytes", maxTokenBytes)
	}
	t, err := parseToken(raw)
	if err != nil {
		return nil, err
	}
	if iss := text(t.claims.values["iss"]); iss != i.Issuer {
		return nil, fmt.Errorf("the ID token is of the issuer %s, not of %s",
			display.Quote(iss, maxQuoted), i.Issuer)
	}
	if nonce == "" {
		nonce = text(t.claims.values["nonce"])
	}
	return i.withDefaults().identify(t, client, nonce, skew)
}

// identify returns the principal whom an ID token names, after the checks of its claims.
func (i Issuer) identify(t *signedToken, client, nonce string, skew time.Duration) (
	*identity.Principal, error) {
	if err := t.checkIDToken(client, nonce); err != nil {
		return nil, err
	}
	now := time.Now()
	expiry, err := t.claims.checkExpiry(now, skew)
	if err != nil {
		return nil, err
	}
	if err := t.claims.checkNotBefore(now, skew); err != nil {
		return nil, err
	}
	return i.principal(t.claims, identity.Attributes{Method: identity.JWT, Issuer: i.Issuer,
		Expiry: expiry})
}

// checkIDToken checks the type, the audience and the nonce of an ID token for a client.
func (t *signedToken) checkIDToken(client, nonce string) error {
	switch strings.TrimPrefix(strings.ToLower(t.header.Type), "application/") {
	case "", "jwt":
	default:
		return fmt.Errorf("the type %s is not that of an ID token",
			display.Quote(t.header.Type, maxQuoted))
	}
	if kind, ok := t.claims.values["typ"]; ok && !strings.EqualFold(text(kind), "ID") {
		return fmt.Errorf("the claim typ %s is not that of an ID token",
			display.Quote(string(kind), maxQuoted))
	}
	if _, err := t.claims.checkAudience([]string{client}); err != nil {
		return err
	}
	// A token with several audiences was issued to the one that azp names.
	audiences, _ := texts(t.claims.values["aud"])
	party, hasParty := t.claims.values["azp"]
	if hasParty && text(party) != client || !hasParty && len(audiences) > 1 {
		return errors.New("the ID token was not issued to the client of the login (claim azp)")
	}
	if subtle.ConstantTimeCompare([]byte(text(t.claims.values["nonce"])), []byte(nonce)) != 1 {
		return errors.New("the ID token is of another login (claim nonce)")
	}
	return nil
}
