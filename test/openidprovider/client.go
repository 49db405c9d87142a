package main

import (
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Grant types of the clients.
const (
	code     = oidc.GrantTypeCode
	refresh  = oidc.GrantTypeRefreshToken
	device   = oidc.GrantTypeDeviceCode
	exchange = oidc.GrantTypeTokenExchange
)

var _ op.HasRedirectGlobs = (*client)(nil)

// client is a registered client. A client without a secret is public.
type client struct {
	id, secret string
	redirects  []string
	grants     []oidc.GrantType
	jwts       bool // its access tokens are JWTs
}

// clients returns the clients of provider.mjs. connect is the URL of Gatekit's pages, or "".
func clients(connect string, jwts bool) map[string]*client {
	ownRedirects, pageRedirects := []string{"http://127.0.0.1/callback"}, []string(nil)
	if connect != "" {
		ownRedirects = append(ownRedirects, connect+"/callback")
		pageRedirects = []string{connect + "/login"}
	}
	all := map[string]*client{}
	for _, c := range []*client{
		{id: "gatekit", secret: "s3cret-of-gatekit", redirects: ownRedirects,
			grants: []oidc.GrantType{code, refresh, device}},
		{id: "gatekit-connect", secret: "s3cret-of-connect", redirects: pageRedirects,
			grants: []oidc.GrantType{code}},
		{id: "editor", grants: []oidc.GrantType{device}},
		{id: "admin", grants: []oidc.GrantType{device}},
		{id: "desktop", redirects: []string{"http://127.0.0.1/oauth/callback"},
			grants: []oidc.GrantType{code, refresh}},
		{id: "exchanger", secret: "s3cret-of-exchanger", grants: []oidc.GrantType{exchange}},
		{id: "server", secret: "server"}, // introspects
	} {
		c.jwts = jwts
		all[c.id] = c
	}
	return all
}

func (c *client) GetID() string                        { return c.id }
func (c *client) RedirectURIs() []string               { return c.redirects }
func (c *client) PostLogoutRedirectURIs() []string     { return nil }
func (c *client) LoginURL(id string) string            { return "/login?id=" + id }
func (c *client) GrantTypes() []oidc.GrantType         { return c.grants }
func (c *client) IDTokenLifetime() time.Duration       { return time.Hour }
func (c *client) DevMode() bool                        { return false }
func (c *client) IDTokenUserinfoClaimsAssertion() bool { return false }
func (c *client) ClockSkew() time.Duration             { return 0 }

func (c *client) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}

// ApplicationType returns web for clients with a secret: the library calls only these confidential.
func (c *client) ApplicationType() op.ApplicationType {
	if c.secret != "" {
		return op.ApplicationTypeWeb
	}
	return op.ApplicationTypeNative
}

// RedirectURIGlobs allows any port of a loopback address (RFC 8252). The library allows this itself
// only for clients without a secret.
func (c *client) RedirectURIGlobs() []string {
	var globs []string
	for _, uri := range c.redirects {
		if path, ok := strings.CutPrefix(uri, "http://127.0.0.1/"); ok {
			globs = append(globs, "http://127.0.0.1:*/"+path)
		}
	}
	return globs
}

func (c *client) PostLogoutRedirectURIGlobs() []string { return nil }

func (c *client) AuthMethod() oidc.AuthMethod {
	if c.secret == "" {
		return oidc.AuthMethodNone
	}
	return oidc.AuthMethodBasic
}

func (c *client) AccessTokenType() op.AccessTokenType {
	if c.jwts {
		return op.AccessTokenTypeJWT
	}
	return op.AccessTokenTypeBearer
}

func (c *client) IsScopeAllowed(scope string) bool { return scope == "read" || scope == "write" }

func (c *client) RestrictAdditionalIdTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}

func (c *client) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}
