package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"time"

	"gatekit/core/config"
	"gatekit/core/shared"
	"gatekit/transport/auth"
	"gatekit/transport/credentials"
	"gatekit/transport/ssrfguard"
	"gatekit/transport/tokenstore"
)

// newCredentials returns the credentials for a server, or nil if the server needs no tokens. state
// is that of [shared], or nil without it.
func newCredentials(s config.Server, c *config.Config, state shared.Values,
	event func(principal, action, reason string, err error) error) (*credentials.Server, error) {
	if s.Auth == nil || s.Auth.Type == "headers" {
		return nil, nil
	}
	a := s.Auth
	fail := func(err error) (*credentials.Server, error) {
		return nil, fmt.Errorf("server %q: %w", s.Name, err)
	}
	for _, key := range []config.Secret{a.Client.Key, a.Login.Key} {
		if len(key) > 0 {
			if err := credentials.CheckKey([]byte(key)); err != nil {
				return fail(err)
			}
		}
	}
	client, err := guardedClient(s, a.Issuer)
	if err != nil {
		return fail(err)
	}
	provider, err := newProvider(s, c)
	if err != nil {
		return fail(err)
	}
	var store tokenstore.Store
	if s.HasLogins() {
		if store, err = openTokens(c, state); err != nil {
			return fail(err)
		}
	}
	return credentials.New(credentials.Options{
		Name:     s.Name,
		URL:      s.URL,
		Grant:    credentials.Grant(a.Type),
		Shared:   a.Per == "gatekit",
		Register: a.Register,
		Document: c.Listen.ClientDocumentURL(),
		Callback: c.Listen.ConnectCallbackURL(),
		Store:    store,
		Client: credentials.Client{ID: a.Client.ID, Secret: string(a.Client.Secret),
			Key: []byte(a.Client.Key)},
		Issuer:          a.Issuer,
		WithoutMetadata: a.WithoutMetadata,
		Provider:        provider,
		Audience:        a.Audience,
		Scopes:          a.Scopes,
		MaxScopes:       a.MaxScopes,
		HTTP:            client,
		Event:           event,
	}), nil
}

// guardedClient returns the client for the URLs that a server and an issuer name. Loopback
// addresses are allowed if the operator has named one.
func guardedClient(s config.Server, issuer string) (*http.Client, error) {
	guard := ssrfguard.Options{Configured: s.URL}
	if u, err := url.Parse(issuer); err == nil && ssrfguard.IsLoopback(u.Hostname()) {
		guard.Configured = issuer
	}
	for _, network := range s.Auth.Networks {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return nil, err
		}
		guard.Networks = append(guard.Networks, prefix)
	}
	return ssrfguard.Client(guard)
}

// newProvider returns the identity provider of a server with type = "id_jag", or nil. If it is also
// an issuer of clients, an ID token names a user as their access tokens do.
func newProvider(s config.Server, c *config.Config) (*credentials.IdentityProvider, error) {
	if s.Auth.Type != "id_jag" {
		return nil, nil
	}
	login := s.Auth.Login
	client, err := guardedClient(s, login.Issuer)
	if err != nil {
		return nil, err
	}
	issuer, skew := auth.Issuer{Issuer: login.Issuer}, config.DefaultSkew
	if a := c.Listen.Auth; a != nil {
		skew = a.Skew
		for _, i := range a.Issuers {
			if i.Issuer == login.Issuer {
				issuer.Subject = i.Subject
			}
		}
	}
	return &credentials.IdentityProvider{
		Issuer: login.Issuer,
		Client: credentials.Client{ID: login.ID, Secret: string(login.Secret),
			Key: []byte(login.Key)},
		HTTP: client,
		Check: func(idToken, nonce string) (string, time.Time, error) {
			who, err := issuer.CheckIDToken(idToken, login.ID, nonce, skew)
			if err != nil {
				return "", time.Time{}, err
			}
			return who.ID(), who.Expiry().Add(-skew), nil
		},
	}, nil
}

// openTokens returns where the logins of users at servers are: in the state of [shared], or else in
// the folder of [tokens].
func openTokens(c *config.Config, state shared.Values) (tokenstore.Store, error) {
	if c.Shared != nil {
		return tokenstore.NewShared(state), nil
	}
	return openTokenFolder(c.Tokens)
}

func openTokenFolder(t config.Tokens) (tokenstore.Store, error) {
	folder, key := t.File, []byte(t.Key)
	state, err := stateFolder()
	if err != nil && (folder == "" || len(key) == 0) {
		return nil, fmt.Errorf("find the folder of tokens: %w\nhint: set file and key in [tokens]",
			err)
	}
	if folder == "" {
		folder = filepath.Join(state, "tokens")
	}
	switch t.Key {
	case "":
		key, err = tokenstore.KeyFile(filepath.Join(state, "tokens.key"))
	case config.KeyringKey:
		key, err = tokenstore.KeyringKey()
	default:
		err = nil
	}
	if err != nil {
		return nil, err
	}
	store, err := tokenstore.Open(folder, key)
	if err != nil {
		return nil, err // an interface that holds a nil pointer is not nil
	}
	return store, nil
}
