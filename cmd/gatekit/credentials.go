package main

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"

	"gatekit/core/config"
	"gatekit/transport/credentials"
	"gatekit/transport/ssrfguard"
	"gatekit/transport/tokenstore"
)

// newCredentials returns the credentials for a server, or nil if the server needs no tokens.
func newCredentials(s config.Server, c *config.Config,
	event func(principal, action, reason string, err error) error) (*credentials.Server, error) {
	if s.Auth == nil || s.Auth.Type == "headers" {
		return nil, nil
	}
	a := s.Auth
	fail := func(err error) (*credentials.Server, error) {
		return nil, fmt.Errorf("server %q: %w", s.Name, err)
	}
	if key := []byte(a.Client.Key); len(key) > 0 {
		if err := credentials.CheckKey(key); err != nil {
			return fail(err)
		}
	}
	// Loopback addresses are allowed if the operator has named one.
	guard := ssrfguard.Options{Configured: s.URL}
	if u, err := url.Parse(a.Issuer); err == nil && ssrfguard.IsLoopback(u.Hostname()) {
		guard.Configured = a.Issuer
	}
	for _, network := range a.Networks {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return fail(err)
		}
		guard.Networks = append(guard.Networks, prefix)
	}
	client, err := ssrfguard.Client(guard)
	if err != nil {
		return fail(err)
	}
	var store *tokenstore.Store
	if s.HasLogins() {
		if store, err = openTokens(c.Tokens); err != nil {
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
		Issuer:    a.Issuer,
		Audience:  a.Audience,
		Scopes:    a.Scopes,
		MaxScopes: a.MaxScopes,
		HTTP:      client,
		Event:     event,
	}), nil
}

// openTokens opens the folder with the logins of users at servers.
func openTokens(t config.Tokens) (*tokenstore.Store, error) {
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
	return tokenstore.Open(folder, key)
}
