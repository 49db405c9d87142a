package credentials

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/backoff"
	"gatekit/core/identity"
	"gatekit/core/shared"
	"gatekit/core/taskgroup"
	"gatekit/core/upstream"
	"gatekit/transport/tokenstore"

	"golang.org/x/oauth2"
)

// Grant is the way in which tokens are obtained.
type Grant string

// The ways to obtain tokens.
const (
	ClientCredentials Grant = "client_credentials" // Gatekit's own token, for all principals
	AuthorizationCode Grant = "oauth"              // the user logs in
	// The access token with which the principal asks Gatekit is exchanged for one that is for the
	// server (RFC 8693).
	Exchange Grant = "exchange"
	// The principal logs in at an identity provider, whose assertion about the user (ID-JAG) the
	// server's authorization server takes instead of a login.
	IDJAG Grant = "id_jag"

	identityLogin Grant = "login" // of an identity provider, for IDJAG
)

// Actions of events.
const (
	ActionLogin     = "login"     // a first token was obtained
	ActionRefreshed = "refreshed" // another token was obtained
	ActionRejected  = "rejected"  // the server or its authorization server refused Gatekit
	ActionLogout    = "logout"    // tokens are removed
	// Gatekit registered itself at an authorization server
	ActionRegistered = "registered"
	ActionExchanged  = "exchanged" // the token of a principal was exchanged for another one
)

// Options configure the credentials for one server.
type Options struct {
	Name  string // configured name of the server
	URL   string // of the server, which is its resource identifier
	Grant Grant
	// Shared means that all principals share one login. ClientCredentials implies it.
	Shared bool
	Client Client
	// Document is the URL of Gatekit's own client metadata document, "" if there is none. It is the
	// client id if Client has no ID and the authorization server reads such documents.
	Document string
	// Callback is the redirect URI of logins that begin at Gatekit's own pages, for BeginPageLogin.
	// "" means that there are no such pages.
	Callback string
	// Register lets Gatekit register itself, for AuthorizationCode: if Client has no ID, or if its
	// ID is the URL of a client metadata document. If the authorization server reads such a
	// document, the document is used instead.
	Register bool
	Issuer   string // of the authorization server; "" for the one of the server's metadata
	// WithoutMetadata allows a server without metadata whose authorization server, Issuer, has no
	// metadata either. Its endpoints are then those of the revision 2025-03-26, below Issuer, and
	// the operator vouches that it verifies PKCE.
	WithoutMetadata bool
	// Provider is where users log in, for IDJAG, and nil for other grants.
	Provider *IdentityProvider
	// Audience is the name of the server at the authorization server, for Exchange; "" if the
	// server's resource identifier is enough.
	Audience  string
	Scopes    []string // to ask for beside the scopes that the server wants
	MaxScopes []string // if not empty, no other scopes are asked for

	HTTP  *http.Client     // for URLs that servers and metadata name: it must check addresses
	Store tokenstore.Store // keeps logins; only AuthorizationCode and IDJAG need it
	// Event, if not nil, is called with one of the actions above. A login, a logout, a
	// registration, or a token of ClientCredentials, Exchange or IDJAG has no effect if Event
	// returns an error.
	Event func(principal, action, reason string, err error) error
}

// Bounds and times.
const (
	expiryMargin   = 30 * time.Second // a token is not used when it expires so soon…
	expiryShare    = 4                // …or when less than this part of its time is left
	obtainTimeout  = 40 * time.Second // for discovery and a request for a token
	metadataMaxAge = time.Hour
	maxLogins      = 10_000 // in memory; others are read from the store again
	firstPause     = time.Second
	longestPause   = 30 * time.Second
	awayPause      = time.Second            // while the shared state is away
	saveRetry      = 250 * time.Millisecond // of new tokens, while the shared state is away
)

// Server obtains the tokens for one server. Its methods may be called from many goroutines.
type Server struct {
	o          Options
	provider   *Server // the logins at Options.Provider, for IDJAG; else nil
	goroutines *taskgroup.Group

	mu           sync.Mutex // taken after login.mu
	challenge    challenge  // the last 401
	isChallenged bool       // the server has answered 401
	endpoints    *endpoints // nil if unknown
	discoveredAt time.Time
	issuer       string // the authorization server that was used first
	logins       map[account]*login
}

// account identifies a login in this process.
type account struct {
	principal string // "" if all principals share the login
	// digest of the access token that is exchanged, so that no request gets a token in exchange for
	// the token of another request; zero for other grants
	subject [sha256.Size]byte
}

// login is the state of one principal's login in this process.
type login struct {
	key     string // the principal, "" if all share the login
	subject string // the access token that is exchanged

	mu       sync.Mutex
	access   string
	goodTill time.Time // after it, the token is refreshed; zero if unknown
	expiry   time.Time // of the token; zero if unknown
	// when the token is read from the store again, where another process may have removed it; zero
	// for a token that is not in the store
	recheckAt time.Time
	scopes    []string // that the token has
	issued    issued   // the last token, for IDJAG
	flight    *flight  // the attempt that is under way; nil if there is none
	// Whether attempts to get more scopes fail does not matter for requests that need none.
	replacing, widening attempts
}

// attempts are the attempts of one kind.
type attempts struct {
	failures int       // in a row
	err      error     // of the last attempt
	retryAt  time.Time // no attempt is made before, if err is set
}

// attempts returns the attempts of the kind of one that wants scopes. l.mu is held.
func (l *login) attempts(wanted []string) *attempts {
	if len(wanted) > 0 {
		return &l.widening
	}
	return &l.replacing
}

// flight is one attempt to obtain a token. Many requests may wait for it.
type flight struct {
	wanted []string // scopes that the token must have
	done   chan struct{}
	err    error
}

// New returns the credentials for a server. It sends nothing.
func New(o Options) *Server {
	o.Shared = o.Shared || o.Grant == ClientCredentials
	s := &Server{o: o, goroutines: taskgroup.New(), issuer: o.Issuer,
		isChallenged: o.Grant == identityLogin, // an identity provider always wants a login
		logins:       make(map[account]*login)}
	if o.Grant == IDJAG {
		s.provider = newProvider(o)
	}
	return s
}

// Close ends the requests that are under way and waits for them.
func (s *Server) Close() { s.goroutines.Close() }

// key returns the principal whose login a principal uses.
func (s *Server) key(principal string) string {
	if s.o.Shared {
		return ""
	}
	return principal
}

func (s *Server) id(key string) tokenstore.ID {
	return tokenstore.ID{Kind: tokenstore.Login, Server: s.o.Name, Principal: key}
}

// login returns the login that a request of a principal uses.
func (s *Server) login(p *identity.Principal) *login {
	id, subject := account{principal: s.key(p.ID())}, ""
	if s.o.Grant == Exchange {
		subject = p.Token()
		id.subject = sha256.Sum256([]byte(subject))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logins[id]
	if l == nil {
		if len(s.logins) >= maxLogins {
			s.forgetSome()
		}
		l = &login{key: id.principal, subject: subject}
		s.logins[id] = l
	}
	return l
}

// forgetSome removes half of the logins from memory. s.mu is held. A request that uses a removed
// login is not affected. If two flights for one principal follow, the lock of the store keeps them
// apart.
func (s *Server) forgetSome() {
	for key := range s.logins {
		if len(s.logins) <= maxLogins/2 {
			return
		}
		delete(s.logins, key)
	}
}

// token returns a valid token of a principal. It returns "" if the server has not asked for one.
func (s *Server) token(ctx context.Context, p *identity.Principal) (string, error) {
	l := s.login(p)
	l.mu.Lock()
	if l.isUsable("") {
		defer l.mu.Unlock()
		return l.access, nil
	}
	l.mu.Unlock()
	return s.obtain(ctx, l, "", nil)
}

// Token is an access token for a program that asks the server itself.
type Token struct {
	Access string
	// GoodTill is the time after which another token should be used, some time before Expiry. Both
	// are zero if the authorization server has not named the expiry.
	GoodTill, Expiry time.Time
}

// Token returns a valid token of a principal. Without one, the error is an
// *upstream.CredentialsError.
func (s *Server) Token(ctx context.Context, p *identity.Principal) (Token, error) {
	access, err := s.token(ctx, p)
	if err != nil {
		return Token{}, err
	}
	l := s.login(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if access == "" || l.access != access {
		return Token{}, s.loginNeeded("you are not logged in to it", l.key, nil, nil)
	}
	return Token{access, l.goodTill, l.expiry}, nil
}

// goodTill returns when the token of a record is refreshed: some time before it expires.
func goodTill(r *tokenstore.Record) time.Time {
	if r.Expiry.IsZero() {
		return r.Expiry
	}
	margin := expiryMargin
	if !r.Saved.IsZero() {
		margin = min(margin, r.Expiry.Sub(r.Saved)/expiryShare)
	}
	return r.Expiry.Add(-margin)
}

// isBefore reports whether now is before a time. The zero time never comes.
func isBefore(t time.Time) bool { return t.IsZero() || time.Now().Before(t) }

// obtain returns a token other than stale, which the server has rejected, with the wanted scopes.
// All requests of a principal that want the same wait for one attempt. The attempt goes on if the
// requests end: an answer that nobody reads would be a lost refresh token.
func (s *Server) obtain(ctx context.Context, l *login, stale string,
	wanted []string) (string, error) {
	for {
		l.mu.Lock()
		if l.isUsable(stale) && !missing(wanted, l.scopes) {
			defer l.mu.Unlock()
			return l.access, nil
		}
		f := l.flight
		if f == nil {
			last := l.attempts(wanted)
			if last.err != nil && time.Now().Before(last.retryAt) {
				defer l.mu.Unlock()
				return l.whileAway(stale, wanted, last.err)
			}
			f = &flight{wanted: wanted, done: make(chan struct{})}
			started := s.goroutines.Go(func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, obtainTimeout)
				defer cancel()
				s.fly(ctx, l, f, stale)
			})
			if !started {
				l.mu.Unlock()
				return "", taskgroup.ErrClosed
			}
			l.flight = f
		}
		l.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if !slices.Equal(f.wanted, wanted) {
			continue // it was an attempt for requests that want other scopes
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if f.err != nil {
			return l.whileAway(stale, wanted, f.err)
		}
		return l.access, nil
	}
}

// whileAway returns the token in memory if err means that the shared state is not available. This
// token is used until it expires, even if it should be refreshed. l.mu is held.
func (l *login) whileAway(stale string, wanted []string, err error) (string, error) {
	if l.canGoOn(stale, wanted, err) {
		return l.access, nil
	}
	return "", err
}

// canGoOn reports whether the token in memory is used although err. l.mu is held.
func (l *login) canGoOn(stale string, wanted []string, err error) bool {
	return errors.Is(err, shared.ErrUnavailable) && l.access != "" && l.access != stale &&
		isBefore(l.expiry) && !missing(wanted, l.scopes)
}

// isUsable reports whether the token in memory can be sent. l.mu is held.
func (l *login) isUsable(stale string) bool {
	return l.access != "" && l.access != stale && isBefore(l.goodTill) &&
		(l.recheckAt.IsZero() || time.Now().Before(l.recheckAt))
}

// fly makes one attempt to obtain a token, and publishes its result.
func (s *Server) fly(ctx context.Context, l *login, f *flight, stale string) {
	key := l.key
	l.mu.Lock()
	isFirst := l.access == ""
	l.mu.Unlock()
	var r *tokenstore.Record
	var err error
	switch s.o.Grant {
	case ClientCredentials:
		r, err = s.clientCredentials(ctx, f.wanted, isFirst)
	case Exchange:
		r, err = s.exchange(ctx, l, f.wanted)
	case IDJAG:
		r, err = s.idJAG(ctx, l, f.wanted, stale)
	default:
		r, err = s.stored(ctx, key, f.wanted, stale)
	}
	refused := (*upstream.CredentialsError)(nil)
	isAway := errors.Is(err, shared.ErrUnavailable)
	if err != nil && !errors.As(err, &refused) {
		reason := "Gatekit could not obtain a token for it"
		if isAway {
			reason = shared.ErrUnavailable.Error()
		}
		err = &upstream.CredentialsError{Reason: reason, Err: err}
		l.mu.Lock()
		goesOn := l.canGoOn(stale, f.wanted, err)
		l.mu.Unlock()
		if !goesOn {
			s.event(key, ActionRejected, "no token for "+s.o.URL, errors.Unwrap(err))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.attempts(f.wanted)
	l.flight, last.err, f.err = nil, err, err
	switch {
	case err != nil && refused == nil && isAway:
		last.retryAt = time.Now().Add(awayPause)
	case err != nil && refused == nil:
		last.failures++
		last.retryAt = time.Now().Add(backoff.Delay(firstPause, longestPause, last.failures))
	case err != nil:
		last.retryAt = time.Time{} // the user may log in at any time
		if len(f.wanted) == 0 {
			l.access = "" // without wanted scopes, the token is of no use to other requests either
		}
	case r == nil:
		l.access, last.failures = "", 0 // the server has not asked for a token
	default:
		l.access, l.goodTill, l.scopes = r.Secrets.Access, goodTill(r), r.Scopes
		l.expiry = r.Expiry
		last.failures = 0
		if s.o.Grant == AuthorizationCode || s.o.Grant == IDJAG {
			l.recheckAt = time.Now().Add(s.o.Store.FreshFor())
		}
	}
	close(f.done)
}

// clientCredentials requests a token of Gatekit's own. It returns nil if the server has not asked
// for a token and no authorization server is configured.
func (s *Server) clientCredentials(ctx context.Context, wanted []string,
	isFirst bool) (*tokenstore.Record, error) {
	e, err := s.discovered(ctx)
	if e == nil || err != nil {
		return nil, err
	}
	scopes, err := s.scopes(e, wanted)
	if err != nil {
		return nil, err
	}
	t, err := s.requestToken(ctx, e, s.o.Client, grantClientCredentials, scopes, nil)
	if err != nil {
		s.forgetEndpoints()
		return nil, err
	}
	r := s.newRecord("", e, s.o.Client, scopes, t)
	action := ActionRefreshed
	if isFirst {
		action = ActionLogin
	}
	if err := s.event("", action, describe(r), nil); err != nil {
		return nil, fmt.Errorf("record the token: %w", err)
	}
	return r, nil
}

// newRecord returns the record of a token. If the answer names no scopes, the token has the scopes
// that were asked for.
func (s *Server) newRecord(key string, e *endpoints, client Client, scopes []string,
	t *oauth2.Token) *tokenstore.Record {
	if granted, ok := t.Extra("scope").(string); ok {
		scopes = splitScopes(granted)
	}
	r := &tokenstore.Record{ID: s.id(key), AuthorizationServer: e.as.Issuer, ClientID: client.ID,
		Resource: e.resource, Scopes: scopes, Expiry: t.Expiry, Saved: time.Now(),
		Secrets: tokenstore.Secrets{Access: t.AccessToken, Refresh: t.RefreshToken}}
	if client.ID != s.o.Client.ID {
		r.AuthMethod, r.Secrets.ClientSecret = client.AuthMethod, client.Secret
	}
	return r
}

// describe returns a text about a token for an event.
func describe(r *tokenstore.Record) string {
	return fmt.Sprintf("issuer %s, client %s, scopes %q", r.AuthorizationServer, r.ClientID,
		strings.Join(r.Scopes, " "))
}

// stored returns the token in the store. It refreshes the token if it has expired, or if it is the
// token stale. The lock of the record makes other processes wait.
func (s *Server) stored(ctx context.Context, key string, wanted []string,
	stale string) (*tokenstore.Record, error) {
	id := s.id(key)
	r, err := s.o.Store.Load(id)
	if errors.Is(err, fs.ErrNotExist) {
		s.mu.Lock()
		isChallenged := s.isChallenged
		s.mu.Unlock()
		if !isChallenged {
			return nil, nil
		}
		return nil, s.loginNeeded("you are not logged in to it", key, wanted, nil)
	}
	if err == nil && s.isUsable(r, wanted, stale) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	ctx, unlock, err := s.o.Store.Lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if r, err = s.o.Store.Load(id); err != nil {
		return nil, err
	}
	switch {
	case s.isUsable(r, wanted, stale): // another process has refreshed it
		return r, nil
	case !slices.Contains(resourcesOf(s.o.URL), r.Resource):
		return nil, s.loginNeeded("its login is for another URL", key, wanted, nil)
	case s.o.Issuer != "" && r.AuthorizationServer != s.o.Issuer:
		return nil, s.loginNeeded("its login is of another issuer", key, wanted, nil)
	case !s.isOwnClient(r.ClientID):
		return nil, s.loginNeeded("its login is of another client id", key, wanted, nil)
	case missing(wanted, r.Scopes):
		// The next login, perhaps in another process, asks for these scopes.
		if !slices.Equal(r.Wanted, wanted) {
			r.Wanted = wanted
			if err := s.o.Store.Save(r); err != nil {
				return nil, err
			}
		}
		return nil, s.loginNeeded("it wants more permissions", key, wanted, nil)
	case r.Secrets.Refresh == "", s.o.Grant == identityLogin && r.Secrets.Access == "":
		return nil, s.loginNeeded("the login has expired", key, wanted, nil)
	}
	return s.refresh(ctx, r, unlock)
}

// isUsable reports whether the token of a record can be sent to the server.
func (s *Server) isUsable(r *tokenstore.Record, wanted []string, stale string) bool {
	return r.Secrets.Access != "" && r.Secrets.Access != stale && isBefore(goodTill(r)) &&
		!missing(wanted, r.Scopes) && slices.Contains(resourcesOf(s.o.URL), r.Resource) &&
		s.isOwnClient(r.ClientID) &&
		(s.o.Issuer == "" || r.AuthorizationServer == s.o.Issuer)
}

// missing reports whether a wanted scope is not in have.
func missing(wanted, have []string) bool {
	return slices.ContainsFunc(wanted, func(s string) bool { return !slices.Contains(have, s) })
}

// isOwnClient reports whether the tokens of a client can be used.
func (s *Server) isOwnClient(id string) bool {
	return id == s.o.Client.ID || s.o.Register || s.isDocument(id)
}

// isDocument reports whether a client id is the one of Gatekit's own client metadata document, and
// no other client is configured.
func (s *Server) isDocument(id string) bool {
	return s.o.Client.ID == "" && s.o.Document != "" && id == s.o.Document
}

// isRegistered reports whether a client id is of a client that Gatekit registered itself.
func (s *Server) isRegistered(id string) bool {
	return id != s.o.Client.ID && !s.isDocument(id)
}

// clientOf returns the client that a record was issued to.
func (s *Server) clientOf(r *tokenstore.Record) Client {
	if r.ClientID == s.o.Client.ID {
		return s.o.Client
	}
	return registeredClient(r)
}

// loginNeeded returns the error for a request of a principal who has to log in.
func (s *Server) loginNeeded(why, principal string, scopes []string, err error) error {
	command := "gatekit auth login " + s.o.Name
	if principal != "" {
		// quoted for a shell: the principal's issuer has chosen the name
		command += " --principal '" + strings.ReplaceAll(principal, "'", `'\''`) + "'"
	}
	return &upstream.CredentialsError{Reason: why + ": run " + command,
		LoginNeeded: true, Scopes: scopes, Err: err}
}

// scopes returns the scopes to ask for: those of the last challenge or else of the metadata, the
// configured ones, and the wanted ones. A wanted scope that max_scopes does not have is an error.
func (s *Server) scopes(e *endpoints, wanted []string) ([]string, error) {
	c := s.lastChallenge()
	scopes := c.scopes
	if len(scopes) == 0 {
		scopes = e.scopes
	}
	scopes = validScopes(slices.Concat(s.o.Scopes, wanted, scopes))
	if len(s.o.MaxScopes) == 0 {
		return scopes, nil
	}
	if missing(wanted, s.o.MaxScopes) {
		return nil, &upstream.CredentialsError{Reason: fmt.Sprintf(
			"it wants the scopes %q, and max_scopes does not allow them all",
			strings.Join(wanted, " "))}
	}
	return slices.DeleteFunc(scopes, func(scope string) bool {
		return !slices.Contains(s.o.MaxScopes, scope)
	}), nil
}

func (s *Server) lastChallenge() challenge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.challenge
}

// discovered returns the endpoints for the server, from memory or by discovery. It returns nil if
// the server has not asked for a token and no authorization server is configured.
func (s *Server) discovered(ctx context.Context) (*endpoints, error) {
	s.mu.Lock()
	c, e, issuer := s.challenge, s.endpoints, s.issuer
	isFresh := time.Since(s.discoveredAt) < metadataMaxAge
	isNeeded := s.isChallenged || s.o.Issuer != ""
	s.mu.Unlock()
	switch {
	case e != nil && isFresh:
		return e, nil
	case !isNeeded:
		return nil, nil
	}
	e, err := s.discover(ctx, c, issuer)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints, s.discoveredAt, s.issuer = e, time.Now(), e.as.Issuer
	return e, nil
}

// discoveredAs returns the endpoints of an authorization server, from memory or by discovery.
func (s *Server) discoveredAs(ctx context.Context, issuer string) (*endpoints, error) {
	s.mu.Lock()
	c, e := s.challenge, s.endpoints
	isFresh := time.Since(s.discoveredAt) < metadataMaxAge
	s.mu.Unlock()
	if e != nil && isFresh && e.as.Issuer == issuer {
		return e, nil
	}
	e, err := s.discover(ctx, c, issuer)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints, s.discoveredAt = e, time.Now()
	return e, nil
}

func (s *Server) forgetEndpoints() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints = nil
}

// rejected handles a 401 or 403 of the server. If it returns nil, the request can be repeated:
// there is another token than used.
func (s *Server) rejected(ctx context.Context, p *identity.Principal, used string, status int,
	header http.Header) error {
	l, c := s.login(p), readChallenge(header)
	key := l.key
	var wanted []string
	switch {
	case status == http.StatusUnauthorized:
		s.mu.Lock()
		if c.metadataURL != s.challenge.metadataURL {
			s.endpoints = nil
		}
		s.challenge, s.isChallenged = c, true
		s.mu.Unlock()
	case (c.code == "insufficient_scope" || c.code == "") && len(c.scopes) > 0:
		l.mu.Lock()
		if s.o.Grant == AuthorizationCode && !missing(c.scopes, l.scopes) {
			l.mu.Unlock()
			return s.refusal(key, status) // another login would change nothing
		}
		// The token's scopes are asked for again: authorization servers replace them.
		wanted = validScopes(slices.Concat(l.scopes, c.scopes))
		l.mu.Unlock()
	default:
		return s.refusal(key, status)
	}
	next, err := s.obtain(ctx, l, used, wanted)
	if err == nil && (next == "" || next == used) {
		err = s.refusal(key, status)
	}
	return err
}

// refusal records that the server refused a token, and returns the error.
func (s *Server) refusal(key string, status int) error {
	reason := fmt.Sprintf("the server refused the token (HTTP %d)", status)
	s.event(key, ActionRejected, reason, nil)
	return &upstream.CredentialsError{Reason: reason}
}

func (s *Server) event(principal, action, reason string, err error) error {
	if s.o.Event == nil {
		return nil
	}
	return s.o.Event(principal, action, reason, err)
}

// resourcesOf returns the resource identifiers that the metadata of a server may have: its URL, or
// its origin.
func resourcesOf(server string) []string {
	u, err := url.Parse(server)
	if err != nil {
		return nil
	}
	origin := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	return []string{server, origin, origin + "/"}
}
