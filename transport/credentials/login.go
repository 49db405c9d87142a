package credentials

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"gatekit/core/shared"
	"gatekit/transport/tokenstore"

	"golang.org/x/oauth2"
)

// Login is an attempt of a user to log in to a server. It can be finished once.
type Login struct {
	// URL is the page of the authorization server that the user must open. It has no credentials.
	URL string
	// Issuer is the authorization server, and Scopes are what it is asked for.
	Issuer string
	Scopes []string

	server    *Server
	key       string // the principal whose login it is
	endpoints *endpoints
	client    Client
	redirect  string
	state     string
	nonce     string // of the ID token, for IDJAG; else ""
	verifier  string // of PKCE
}

// BeginLogin discovers the authorization server and returns the URL at which the user logs in. The
// authorization server sends the user to the URL that the function redirect returns, and Finish
// takes the query of that request. The parameter of redirect is the URL of an earlier login that
// the authorization server knows, or "".
func (s *Server) BeginLogin(ctx context.Context, principal string,
	redirect func(known string) (string, error)) (*Login, error) {
	return s.beginLogin(ctx, principal, tokenstore.Registration, redirect)
}

// BeginPageLogin is BeginLogin for a login that begins at Gatekit's own pages. The authorization
// server sends the user to Options.Callback.
func (s *Server) BeginPageLogin(ctx context.Context, principal string) (*Login, error) {
	if s.o.Callback == "" {
		return nil, errors.New("there are no pages for logins")
	}
	return s.beginLogin(ctx, principal, tokenstore.PageRegistration, func(string) (string, error) {
		return s.o.Callback, nil
	})
}

// beginLogin begins a login. If Gatekit registers itself, the registration has the given kind.
func (s *Server) beginLogin(ctx context.Context, principal, kind string,
	redirect func(known string) (string, error)) (*Login, error) {
	if s.provider != nil {
		return s.provider.beginLogin(ctx, principal, kind, redirect)
	}
	key := s.key(principal)
	e, scopes, err := s.discoverForLogin(ctx, key)
	if err != nil {
		return nil, err
	}
	isIdentity := s.o.Grant == identityLogin
	// Many identity providers know PKCE and do not say so. The nonce protects their codes, too.
	if !isIdentity && !slices.Contains(e.as.CodeChallengeMethodsSupported, "S256") {
		return nil, fmt.Errorf("the authorization server %q does not offer PKCE with S256, "+
			"without which codes can be stolen", e.as.Issuer)
	}
	if !isLoginPage(e.as.AuthorizationEndpoint) {
		return nil, errors.New("the authorization server has no page over https to log in at")
	}
	n := &Login{Issuer: e.as.Issuer, server: s, key: key, endpoints: e, Scopes: scopes,
		state: rand.Text(), verifier: oauth2.GenerateVerifier()}
	if n.client, n.redirect, err = s.loginClient(ctx, e, kind, redirect); err != nil {
		return nil, err
	}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(n.verifier)}
	if isIdentity {
		n.nonce = rand.Text()
		options = append(options, oauth2.SetAuthURLParam("nonce", n.nonce))
	} else {
		options = append(options, oauth2.SetAuthURLParam("resource", e.resource))
	}
	if slices.Contains(n.Scopes, offlineAccess) {
		// OpenID Connect asks for the prompt together with the scope.
		options = append(options, oauth2.SetAuthURLParam("prompt", "consent"))
	}
	config := oauth2.Config{ClientID: n.client.ID, RedirectURL: n.redirect, Scopes: n.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: e.as.AuthorizationEndpoint}}
	n.URL = config.AuthCodeURL(n.state, options...)
	return n, nil
}

// discoverForLogin discovers the authorization server for a login of a principal, and returns its
// endpoints and the scopes to ask for.
func (s *Server) discoverForLogin(ctx context.Context, key string) (*endpoints, []string, error) {
	if s.o.Grant != identityLogin {
		if err := s.askForChallenge(ctx); err != nil {
			return nil, nil, err
		}
	}
	issuer, wanted, err := s.lastLogin(key)
	if err != nil {
		return nil, nil, err
	}
	e, err := s.discover(ctx, s.lastChallenge(), issuer)
	if err != nil {
		return nil, nil, err
	}
	scopes, err := s.scopes(e, wanted)
	if err != nil {
		return nil, nil, err
	}
	// Some authorization servers issue refresh tokens only with this scope.
	if slices.Contains(e.as.ScopesSupported, offlineAccess) &&
		(len(s.o.MaxScopes) == 0 || slices.Contains(s.o.MaxScopes, offlineAccess)) &&
		!slices.Contains(scopes, offlineAccess) {
		scopes = append(scopes, offlineAccess)
	}
	return e, scopes, nil
}

// isLoginPage reports whether a user can be sent to a URL of an authorization server.
func isLoginPage(page string) bool {
	u, err := url.Parse(page)
	return err == nil && u.Host != "" && u.User == nil &&
		(u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()))
}

// isLoopback reports whether a host is a loopback address or localhost.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// offlineAccess is a scope of OpenID Connect.
const offlineAccess = "offline_access"

// lastLogin returns the authorization server to which the first login of the server pins all later
// ones, or the configured one, and the scopes that the server has asked this principal for.
func (s *Server) lastLogin(key string) (issuer string, wanted []string, err error) {
	r, err := s.o.Store.Load(s.id(key))
	switch {
	case errors.Is(err, shared.ErrUnavailable):
		return "", nil, err
	case err == nil:
		return cmp.Or(s.o.Issuer, r.AuthorizationServer), r.Wanted, nil
	}
	// A damaged record, or one of another key, is replaced by the login.
	err = nil
	if s.o.Issuer != "" {
		return s.o.Issuer, nil, nil
	}
	for r, listErr := range s.o.Store.Records() {
		err = errors.Join(err, listErr)
		if r.Kind == tokenstore.Login && r.Server == s.o.Name &&
			slices.Contains(resourcesOf(s.o.URL), r.Resource) {
			return r.AuthorizationServer, nil, nil
		}
	}
	return "", nil, err
}

// askForChallenge asks the server without a token, for the challenge in its answer: with a GET and,
// if the server does not answer that with 401, with a ping. A server that answers neither with 401
// has no challenge.
func (s *Server) askForChallenge(ctx context.Context) error {
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, ask := range []struct{ method, body, accept string }{
		{http.MethodGet, "", "text/event-stream"},
		{http.MethodPost, ping, "application/json, text/event-stream"},
	} {
		request, err := http.NewRequestWithContext(ctx, ask.method, s.o.URL,
			strings.NewReader(ask.body))
		if err != nil {
			return err
		}
		request.Header.Set("Accept", ask.accept)
		if ask.body != "" {
			request.Header.Set("Content-Type", "application/json")
		}
		response, err := s.o.HTTP.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode == http.StatusUnauthorized {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.challenge, s.isChallenged = readChallenge(response.Header), true
			return nil
		}
	}
	return nil
}

// Matches reports whether a query with which a user was sent back belongs to the login. Others
// must not be given to Finish: anybody can make them.
func (n *Login) Matches(query url.Values) bool {
	return n.state != "" && query.Get("state") == n.state
}

// Finish takes the query with which the authorization server sent the user back, and stores the
// tokens. It does not show texts of the query: another server may have made it.
func (n *Login) Finish(ctx context.Context, query url.Values) (*tokenstore.Record, error) {
	s, as := n.server, n.endpoints.as
	fail := func(err error) (*tokenstore.Record, error) {
		return nil, errors.Join(err, s.event(n.key, ActionRejected, "login at "+as.Issuer, err))
	}
	isOurs := n.Matches(query)
	n.state = "" // once
	iss, hasIss := query.Get("iss"), query.Has("iss")
	switch {
	case !isOurs:
		return fail(errors.New("the answer belongs to no login, or to one that has ended"))
	case as.AuthorizationResponseIssParameterSupported && !hasIss, hasIss && iss != as.Issuer:
		return fail(fmt.Errorf("the answer is not of the authorization server %q", as.Issuer))
	case query.Get("error") != "":
		return fail(&tokenError{code: errorCode(query.Get("error"))})
	case query.Get("code") == "":
		return fail(errors.New("the answer has no code"))
	}
	t, err := s.requestToken(ctx, n.endpoints, n.client, grantCode, nil, url.Values{
		"code": {query.Get("code")}, "redirect_uri": {n.redirect}, "code_verifier": {n.verifier}})
	if err != nil {
		return fail(errors.Join(err, s.forgetUnknown(n.client, as.Issuer, err)))
	}
	if t, err = s.identityToken(t, n.key, n.nonce); err != nil {
		return fail(err)
	}
	return s.storeLogin(ctx, s.newRecord(n.key, n.endpoints, n.client, n.Scopes, t))
}

// storeLogin records and stores a login. If it cannot, it revokes the tokens.
func (s *Server) storeLogin(ctx context.Context, r *tokenstore.Record) (*tokenstore.Record, error) {
	key := r.Principal
	notStored := func(err error) error {
		err = errors.Join(err, s.revoke(ctx, r))
		return errors.Join(err, s.event(key, ActionRejected, "login at "+r.AuthorizationServer,
			err))
	}
	_, unlock, err := s.o.Store.Lock(ctx, r.ID)
	if err != nil {
		return nil, notStored(err)
	}
	defer unlock()
	// The login takes effect when it is stored. Before that, it must be recorded.
	if err := s.event(key, ActionLogin, describe(r), nil); err != nil {
		return nil, errors.Join(fmt.Errorf("record the login: %w", err), s.revoke(ctx, r))
	}
	if err := s.o.Store.Save(r); err != nil {
		return nil, notStored(err)
	}
	s.Forget(key)
	return r, nil
}

// Forget drops the tokens of a principal from memory, because another process has stored or removed
// a login.
func (s *Server) Forget(principal string) {
	key := s.key(principal)
	var known []*login // s.mu is taken after the lock of a login
	s.mu.Lock()
	for id, l := range s.logins {
		if id.principal == key {
			known = append(known, l)
		}
	}
	s.mu.Unlock()
	for _, l := range known {
		l.mu.Lock()
		l.access, l.issued = "", issued{}
		l.replacing, l.widening = attempts{}, attempts{}
		l.mu.Unlock()
	}
}

// IsShared reports whether all principals share one login.
func (s *Server) IsShared() bool { return s.o.Shared }

// Logout revokes the tokens of a principal at the authorization server, if it has an endpoint for
// that (RFC 7009), and removes them. If the revocation fails, the tokens are removed all the same,
// and the error says so. If the principal is not logged in, the error matches fs.ErrNotExist.
func (s *Server) Logout(ctx context.Context, principal string) error {
	if s.provider != nil {
		defer s.Forget(principal)
		return s.provider.Logout(ctx, principal)
	}
	id := s.id(s.key(principal))
	ctx, unlock, err := s.o.Store.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := s.o.Store.Load(id)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	what := "the tokens were removed"
	if err == nil {
		what += ": " + describe(r)
	}
	if err := s.event(id.Principal, ActionLogout, what, err); err != nil {
		return fmt.Errorf("record the logout: %w", err)
	}
	if err == nil {
		err = s.revoke(ctx, r)
	}
	if deleteErr := s.o.Store.Delete(id); deleteErr != nil {
		return errors.Join(deleteErr, s.event(id.Principal, ActionRejected,
			"the tokens were not removed", deleteErr))
	}
	s.Forget(id.Principal)
	if err != nil {
		return errors.Join(fmt.Errorf("the tokens were removed here, and not revoked: %w", err),
			s.event(id.Principal, ActionRejected, "the tokens were not revoked", err))
	}
	return nil
}

// revoke asks the authorization server to revoke the refresh token, or else the access token.
func (s *Server) revoke(ctx context.Context, r *tokenstore.Record) error {
	if s.o.Issuer != "" && r.AuthorizationServer != s.o.Issuer && r.ClientID == s.o.Client.ID {
		return fmt.Errorf("they are of the issuer %q, and the client of the configuration is "+
			"for %q", r.AuthorizationServer, s.o.Issuer) // which alone gets its secret
	}
	as, err := s.authServerMetadata(ctx, r.AuthorizationServer)
	if err != nil || as.RevocationEndpoint == "" {
		return err
	}
	token := r.Secrets.Refresh
	if token == "" {
		token = r.Secrets.Access
	}
	supported := as.RevocationEndpointAuthMethodsSupported
	if len(supported) == 0 {
		supported = as.TokenEndpointAuthMethodsSupported
	}
	response, err := s.postForm(ctx, as.RevocationEndpoint, s.clientOf(r), as.Issuer, supported,
		url.Values{"token": {token}})
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the authorization server responded with HTTP %d", response.StatusCode)
	}
	return nil
}
