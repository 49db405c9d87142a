package main

import (
	"context"

	"gatekit/core/config"
	"gatekit/core/identity"
	"gatekit/transport/auth"
	"gatekit/transport/connect"
)

// newPages returns the web pages at which principals log in to servers. Whoever opens one logs in
// at an issuer of the authenticator.
func newPages(c *config.Config, a *auth.Authenticator, r *recording) (*connect.Pages, error) {
	return connect.New(connect.Options{
		PublicURL:     c.Listen.PublicURL,
		HasLogin:      a.HasLogin,
		BeginLogin:    beginLogin(a),
		Revoked:       func(p *identity.Principal) bool { return a.Revoked(p) != nil },
		RecordRefusal: r.refusedPage,
	})
}

// beginLogin returns a function that begins the login of a user at an issuer of the authenticator.
func beginLogin(a *auth.Authenticator) func(ctx context.Context, issuer,
	redirect string) (connect.UserLogin, error) {
	return func(ctx context.Context, issuer, redirect string) (connect.UserLogin, error) {
		l, err := a.BeginLogin(ctx, issuer, redirect)
		if err != nil {
			return connect.UserLogin{}, err
		}
		return connect.UserLogin{URL: l.URL, Matches: l.Matches, Finish: l.Finish}, nil
	}
}
