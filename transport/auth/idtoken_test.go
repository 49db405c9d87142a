package auth_test

import (
	"strings"
	"testing"
	"time"

	"gatekit/test/issuertest"
	"gatekit/transport/auth"
)

func TestIDTokensFromTheTokenEndpoint(t *testing.T) {
	i := issuertest.New(loginA)
	i.AddKey("a1", "ES256")
	header := map[string]any{"typ": "JWT"}
	for _, c := range []struct {
		name   string
		change map[string]any // of the claims
		header map[string]any
		nonce  string // of the login
		want   string // a part of the error, or "" for none
	}{
		{"of the login", nil, header, "n", ""},
		{"of a refresh", map[string]any{"nonce": nil}, header, "", ""},
		{"of a refresh, with the first nonce", nil, header, "", ""},
		{"another nonce", map[string]any{"nonce": "x"}, header, "n", "claim nonce"},
		{"no nonce", map[string]any{"nonce": nil}, header, "n", "claim nonce"},
		{"another issuer", map[string]any{"iss": loginB}, header, "n", "of the issuer"},
		{"another client", map[string]any{"aud": "other"}, header, "n", "aud"},
		{"issued to another client", map[string]any{"azp": "other"}, header, "n", "azp"},
		{"expired", map[string]any{"exp": 1}, header, "n", "expired"},
		{"not yet", map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}, header, "n", "valid"},
		{"no user", map[string]any{"oid": nil}, header, "n", "claim oid"},
		{"an access token", nil, map[string]any{"typ": "at+jwt"}, "n", "not that of an ID token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			claims := map[string]any{"nonce": "n", "oid": "user-1", "client_id": nil}
			for name, value := range c.change {
				claims[name] = value
			}
			raw := i.TokenWithHeader("a1", c.header, i.Claims("gatekit", claims))
			who, err := auth.Issuer{Issuer: loginA, Subject: "oid"}.CheckIDToken(raw, "gatekit",
				c.nonce, time.Minute)
			if c.want == "" {
				if err != nil || who.ID() != loginA+"#user-1" {
					t.Errorf("got %q, %v; want the user", who.ID(), err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, %v; want an error with %q", who.ID(), err, c.want)
			}
		})
	}
	for _, raw := range []string{"", "opaque", strings.Repeat("x", 1<<20)} {
		if _, err := (auth.Issuer{Issuer: loginA}).CheckIDToken(raw, "gatekit", "n",
			time.Minute); err == nil {
			t.Errorf("a token of %d bytes that is no ID token was accepted", len(raw))
		}
	}
}
