package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// storage keeps the state of the library, in memory.
type storage struct {
	first, refreshed time.Duration // how long access tokens of a login and refreshed ones are valid
	clients          map[string]*client

	mu      sync.Mutex
	key     signingKey
	logins  map[string]*login                       // by id
	codes   map[string]string                       // ids of logins, by code
	devices map[string]*op.DeviceAuthorizationState // by device code
	users   map[string]string                       // device codes, by user code
	tokens  map[string]*token                       // by id
	grants  map[string]*grant                       // by refresh token, used ones too
}

// login is a request for an authorization code.
type login struct {
	*oidc.AuthRequest
	id, user string
	audience []string
	done     bool
	at       time.Time
}

// token is an access token, and grant what all refreshed tokens of a login share.
type token struct {
	client, user     string
	audience, scopes []string
	expires          time.Time
}

type grant struct {
	token
	at      time.Time
	refresh string   // the refresh token that counts
	issued  []string // ids of access tokens
}

type signingKey struct {
	id  string
	key *rsa.PrivateKey
}

func newStorage(first, refreshed time.Duration, connect string, jwts bool) *storage {
	s := &storage{first: first, refreshed: refreshed, clients: clients(connect, jwts),
		logins: map[string]*login{}, codes: map[string]string{},
		devices: map[string]*op.DeviceAuthorizationState{}, users: map[string]string{},
		tokens: map[string]*token{}, grants: map[string]*grant{}}
	s.rotate()
	return s
}

// rotate makes a new key, and withdraws the previous one.
func (s *storage) rotate() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = signingKey{rand.Text(), key}
}

func (k signingKey) ID() string                                  { return k.id }
func (k signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k signingKey) Key() any                                    { return k.key }

// publicKey is the published part of a key.
type publicKey struct{ signingKey }

func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return &k.key.PublicKey }

func (s *storage) SigningKey(context.Context) (op.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, nil
}

func (s *storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

func (s *storage) KeySet(context.Context) ([]op.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []op.Key{publicKey{s.key}}, nil
}

func (s *storage) Health(context.Context) error { return nil }

// Clients.

func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	if c := s.clients[id]; c != nil {
		return c, nil
	}
	return nil, oidc.ErrInvalidClient()
}

func (s *storage) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	if c := s.clients[id]; c == nil || c.secret == "" || c.secret != secret {
		return oidc.ErrInvalidClient()
	}
	return nil
}

func (s *storage) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey,
	error) {
	return nil, errors.New("no client has a key")
}

func (s *storage) ValidateJWTProfileScopes(context.Context, string, []string) ([]string, error) {
	return nil, errors.New("no client has a key")
}

// Logins.

func (l *login) GetID() string          { return l.id }
func (l *login) GetACR() string         { return "" }
func (l *login) GetAMR() []string       { return nil }
func (l *login) GetAudience() []string  { return l.audience }
func (l *login) GetAuthTime() time.Time { return l.at }
func (l *login) GetClientID() string    { return l.ClientID }
func (l *login) GetNonce() string       { return l.Nonce }
func (l *login) GetScopes() []string    { return l.Scopes }
func (l *login) GetSubject() string     { return l.user }
func (l *login) Done() bool             { return l.done }

func (l *login) GetCodeChallenge() *oidc.CodeChallenge {
	return &oidc.CodeChallenge{Challenge: l.CodeChallenge, Method: l.CodeChallengeMethod}
}

func (s *storage) CreateAuthRequest(ctx context.Context, r *oidc.AuthRequest, _ string) (
	op.AuthRequest, error) {
	if r.CodeChallenge == "" || r.CodeChallengeMethod != oidc.CodeChallengeMethodS256 {
		return nil, oidc.ErrInvalidRequest().WithDescription("PKCE with S256 is required")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &login{AuthRequest: r, id: rand.Text(), audience: resourcesOf(ctx)}
	s.logins[l.id] = l
	return l, nil
}

// logIn makes a user the user of a login.
func (s *storage) logIn(id, user string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logins[id]
	if l == nil || user == "" {
		return fmt.Errorf("no login %q, or no name", id)
	}
	l.user, l.at = user, time.Now()
	return nil
}

// consent completes a login if it has a user.
func (s *storage) consent(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.logins[id]; l != nil {
		l.done = l.user != ""
	}
}

func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.logins[id]; l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("no login %q", id)
}

func (s *storage) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	s.mu.Lock()
	id, ok := s.codes[code]
	delete(s.codes, code) // a code can be used once
	s.mu.Unlock()
	if !ok {
		return nil, errors.New("the code is unknown or used")
	}
	return s.AuthRequestByID(ctx, id)
}

func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[code] = id
	return nil
}

func (s *storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logins, id)
	return nil
}

func (s *storage) TerminateSession(context.Context, string, string) error { return nil }

// Devices.

func (s *storage) StoreDeviceAuthorization(ctx context.Context, client, deviceCode, userCode string,
	expires time.Time, scopes []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices[deviceCode] = &op.DeviceAuthorizationState{ClientID: client, Scopes: scopes,
		Audience: resourcesOf(ctx), Expires: expires}
	s.users[userCode] = deviceCode
	return nil
}

func (s *storage) GetDeviceAuthorizatonState(_ context.Context, client, deviceCode string) (
	*op.DeviceAuthorizationState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[deviceCode]
	if d == nil || d.ClientID != client {
		return nil, errors.New("the device code is unknown or used")
	}
	if d.Done {
		delete(s.devices, deviceCode)
	}
	state := *d
	return &state, nil
}

// completeDevice logs a user in on the device with the code.
func (s *storage) completeDevice(userCode, user string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[s.users[userCode]]
	if d == nil {
		return errors.New("the code is unknown or used")
	}
	delete(s.users, userCode)
	d.Done, d.Subject, d.AuthTime = true, user, time.Now()
	return nil
}

// Tokens.

func (s *storage) CreateAccessToken(_ context.Context, r op.TokenRequest) (string, time.Time,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, t := s.issue(tokenFor(r), s.first)
	return id, t.expires, nil
}

// issue keeps an access token. The caller holds the lock.
func (s *storage) issue(t token, valid time.Duration) (string, *token) {
	id := rand.Text()
	t.expires = time.Now().Add(valid)
	s.tokens[id] = &t
	return id, &t
}

// tokenFor returns the token that a request is for.
func tokenFor(r op.TokenRequest) token {
	t := token{user: r.GetSubject(), audience: r.GetAudience(), scopes: r.GetScopes()}
	if c, ok := r.(interface{ GetClientID() string }); ok {
		t.client = c.GetClientID()
	}
	if e, ok := r.(op.TokenExchangeRequest); ok {
		t.audience = e.GetResourses()
	}
	return t
}

// refreshRequest is a request to refresh a token.
type refreshRequest struct {
	*grant
	scopes []string
}

func (r *refreshRequest) GetAMR() []string            { return nil }
func (r *refreshRequest) GetAudience() []string       { return r.audience }
func (r *refreshRequest) GetAuthTime() time.Time      { return r.at }
func (r *refreshRequest) GetClientID() string         { return r.client }
func (r *refreshRequest) GetScopes() []string         { return r.scopes }
func (r *refreshRequest) GetSubject() string          { return r.user }
func (r *refreshRequest) SetCurrentScopes(s []string) { r.scopes = s }

func (s *storage) CreateAccessAndRefreshTokens(_ context.Context, r op.TokenRequest,
	current string) (id, next string, expires time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	valid, g := s.first, &grant{token: tokenFor(r), at: time.Now()}
	if current != "" {
		if g = s.grants[current]; g == nil || g.refresh != current {
			return "", "", time.Time{}, oidc.ErrInvalidGrant()
		}
		valid = s.refreshed
	}
	g.refresh = rand.Text()
	s.grants[g.refresh] = g
	id, t := s.issue(tokenFor(r), valid)
	g.issued = append(g.issued, id)
	return id, g.refresh, t.expires, nil
}

// TokenRequestByRefreshToken returns what a refresh token stands for. A token that was used before
// ends all tokens of its login.
func (s *storage) TokenRequestByRefreshToken(_ context.Context, refresh string) (
	op.RefreshTokenRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.grants[refresh]
	if g == nil {
		return nil, op.ErrInvalidRefreshToken
	}
	if g.refresh != refresh {
		s.end(g)
		return nil, op.ErrInvalidRefreshToken
	}
	return &refreshRequest{g, g.scopes}, nil
}

// end removes all tokens of a grant. The caller holds the lock.
func (s *storage) end(g *grant) {
	for _, id := range g.issued {
		delete(s.tokens, id)
	}
	for refresh, of := range s.grants {
		if of == g {
			delete(s.grants, refresh)
		}
	}
}

func (s *storage) GetRefreshTokenInfo(_ context.Context, client, refresh string) (user, id string,
	err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.grants[refresh]; g != nil && g.client == client {
		return g.user, refresh, nil
	}
	return "", "", op.ErrInvalidRefreshToken
}

// RevokeToken ends the grant of a refresh token, or an access token.
func (s *storage) RevokeToken(_ context.Context, id, _, client string) *oidc.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.grants[id]; g != nil && g.client == client {
		s.end(g)
		fmt.Println("revoked")
	}
	if t := s.tokens[id]; t != nil && t.client == client {
		delete(s.tokens, id)
	}
	return nil
}

// SetIntrospectionFromToken describes a valid token to the client "server".
func (s *storage) SetIntrospectionFromToken(_ context.Context, about *oidc.IntrospectionResponse,
	id, _, client string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[id]
	if t == nil || time.Now().After(t.expires) || client != "server" {
		return errors.New("the token is unknown, or not for this client")
	}
	about.Subject, about.ClientID, about.Scope = t.user, t.client, t.scopes
	about.Audience, about.Expiration = t.audience, oidc.FromTime(t.expires)
	about.TokenType = oidc.BearerToken
	return nil
}

// GetPrivateClaimsFromScopes returns the claim scope, which the library leaves out of JWTs.
func (s *storage) GetPrivateClaimsFromScopes(_ context.Context, _, _ string, scopes []string) (
	map[string]any, error) {
	return map[string]any{"scope": oidc.SpaceDelimitedArray(scopes)}, nil
}

// SetUserinfoFromScopes sets the subject of an ID token.
func (s *storage) SetUserinfoFromScopes(_ context.Context, info *oidc.UserInfo, user, _ string,
	_ []string) error {
	info.Subject = user
	return nil
}

func (s *storage) SetUserinfoFromToken(context.Context, *oidc.UserInfo, string, string,
	string) error {
	return errors.New("the provider has nothing to say about users")
}

// Exchanged tokens.

// ValidateTokenExchangeRequest allows the exchange of a valid access token for one for the audience
// "box". Its scopes are "read", and "write" if the access token has it.
func (s *storage) ValidateTokenExchangeRequest(_ context.Context, r op.TokenExchangeRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[r.GetExchangeSubjectTokenIDOrToken()]
	if t == nil || r.GetExchangeSubjectTokenType() != oidc.AccessTokenType ||
		!slices.Equal(r.GetAudience(), []string{"box"}) {
		return oidc.ErrInvalidGrant()
	}
	r.SetRequestedTokenType(oidc.AccessTokenType)
	scopes := []string{"read"}
	if slices.Contains(t.scopes, "write") {
		scopes = append(scopes, "write")
	}
	r.SetCurrentScopes(scopes)
	return nil
}

func (s *storage) CreateTokenExchangeRequest(context.Context, op.TokenExchangeRequest) error {
	return nil
}

func (s *storage) GetPrivateClaimsFromTokenExchangeRequest(ctx context.Context,
	r op.TokenExchangeRequest) (map[string]any, error) {
	return s.GetPrivateClaimsFromScopes(ctx, "", "", r.GetScopes())
}

func (s *storage) SetUserinfoFromTokenExchangeRequest(context.Context, *oidc.UserInfo,
	op.TokenExchangeRequest) error {
	return nil
}
