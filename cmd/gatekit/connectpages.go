package main

import (
	"context"
	"fmt"
	"net/url"

	"gatekit/core/config"
	"gatekit/core/identity"
	"gatekit/transport/auth"
	"gatekit/transport/connect"
)

// newPages returns the web pages at which principals log in to servers. Whoever opens one logs in
// at an issuer of the authenticator. With [shared], each step of a login may reach another replica.
func (g *gateway) newPages(c *config.Config, a *auth.Authenticator) (*connect.Pages, error) {
	o := connect.Options{
		PublicURL: c.Listen.PublicURL,
		HasLogin:  a.HasLogin,
		BeginLogin: func(ctx context.Context, issuer, redirect string) (connect.Begun, error) {
			l, err := a.BeginLogin(ctx, issuer, redirect)
			if err != nil {
				return connect.Begun{}, err
			}
			rest, err := l.Save()
			return connect.Begun{URL: l.URL, State: l.State(), Rest: rest}, err
		},
		FinishUser: func(ctx context.Context, issuer string, rest []byte, query url.Values) (
			*identity.Principal, error) {
			l, err := a.ResumeLogin(ctx, issuer, rest)
			if err != nil {
				return nil, err
			}
			return l.Finish(ctx, query)
		},
		Finish:        g.finishPageLogin,
		Revoked:       func(p *identity.Principal) bool { return a.Revoked(p) != nil },
		RecordRefusal: g.recording.refusedPage,
	}
	if store := g.sharedStore(); store != nil {
		o.Values, o.Key = store, []byte(c.Listen.StateKey)
	}
	return connect.New(o)
}

// finishPageLogin finishes a login that has begun at the pages, perhaps in another replica.
func (g *gateway) finishPageLogin(ctx context.Context, login connect.Login,
	query url.Values) error {
	tokens := g.credentialsOf(login.Server)
	if tokens == nil {
		return fmt.Errorf("the server %q is not configured", login.Server)
	}
	n, err := tokens.ResumeLogin(login.Rest)
	if err != nil {
		return err
	}
	if _, err := n.Finish(ctx, query); err != nil {
		return err
	}
	g.loginChanged(login.Server, login.Principal.ID())
	return nil
}

// beginUserLogin returns a function that begins the login of a user at an issuer of the
// authenticator, for a page that only this process serves.
func beginUserLogin(a *auth.Authenticator) func(ctx context.Context, issuer,
	redirect string) (connect.UserLogin, error) {
	return func(ctx context.Context, issuer, redirect string) (connect.UserLogin, error) {
		l, err := a.BeginLogin(ctx, issuer, redirect)
		if err != nil {
			return connect.UserLogin{}, err
		}
		return connect.UserLogin{URL: l.URL, Matches: l.Matches, Finish: l.Finish}, nil
	}
}
