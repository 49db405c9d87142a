package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"gatekit/core/upstream"
	"gatekit/transport/tokenstore"

	"golang.org/x/oauth2"
)

// accessTokenType identifies access tokens in an exchange (RFC 8693, section 3).
const accessTokenType = "urn:ietf:params:oauth:token-type:access_token"

// exchange exchanges the access token of a request for one that is for the server. The principal
// must be one of the authorization server's own: no other one gets its token.
func (s *Server) exchange(ctx context.Context, l *login,
	wanted []string) (*tokenstore.Record, error) {
	key, subject := l.key, l.subject
	if !strings.HasPrefix(key, s.o.Issuer+"#") || subject == "" {
		return nil, &upstream.CredentialsError{Reason: fmt.Sprintf("it is asked with a token in "+
			"exchange for yours, and you have no access token of %s", s.o.Issuer)}
	}
	e, err := s.discovered(ctx)
	if err != nil {
		return nil, err
	}
	scopes, err := s.scopes(e, wanted)
	if err != nil {
		return nil, err
	}
	params := url.Values{"subject_token": {subject}, "subject_token_type": {accessTokenType},
		"requested_token_type": {accessTokenType}}
	if s.o.Audience != "" {
		params.Set("audience", s.o.Audience)
	}
	t, err := s.requestToken(ctx, e, s.o.Client, grantExchange, scopes, params)
	if err == nil {
		err = checkExchanged(t, subject)
	}
	if err != nil {
		s.forgetEndpoints()
		return nil, err
	}
	r := s.newRecord(key, e, s.o.Client, scopes, t)
	if err := s.event(key, ActionExchanged, describe(r), nil); err != nil {
		return nil, fmt.Errorf("record the token: %w", err)
	}
	return r, nil
}

// checkExchanged refuses a token that is not an access token, and the token of the client itself,
// which must not reach the server.
func checkExchanged(t *oauth2.Token, subject string) error {
	if kind, _ := t.Extra("issued_token_type").(string); kind != accessTokenType {
		return errors.New("the authorization server issued no access token (issued_token_type)")
	}
	if t.AccessToken == subject {
		return errors.New("the authorization server returned the token that it was to exchange")
	}
	return nil
}
