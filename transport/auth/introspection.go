package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"gatekit/core/display"
)

// maxIntrospections is the number of questions that one issuer is asked at the same time.
const maxIntrospections = 8

// Introspect configures token introspection (RFC 7662).
type Introspect struct {
	ID, Secret string        // of Gatekit at the issuer
	Cache      time.Duration // how long an answer counts
}

// errInactive is the error for a token that the issuer no longer accepts, or never did.
var errInactive = errors.New("the issuer does not accept the token")

// introspect asks the issuer about a token and returns the members of the answer.
func (i *issuer) introspect(ctx context.Context, token string) (claims, error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case i.asking <- struct{}{}:
		defer func() { <-i.asking }()
	case <-ctx.Done():
		return claims{}, fmt.Errorf("%w: too many questions at once", errUnavailable)
	}
	i.mu.Lock()
	m := i.metadata
	i.mu.Unlock()
	if m == nil {
		var err error
		if m, err = i.discover(ctx); err != nil {
			return claims{}, fmt.Errorf("%w: %w", errUnavailable, err)
		}
	}
	if m.Introspection == "" {
		return claims{}, fmt.Errorf("%w: its metadata has no introspection_endpoint",
			errUnavailable)
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Introspection,
		strings.NewReader(form.Encode()))
	if err != nil {
		return claims{}, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	// A question can be asked twice, so its connection can be kept. An empty value is not sent.
	request.Header["Idempotency-Key"] = nil
	// RFC 6749, section 2.3.1
	request.SetBasicAuth(url.QueryEscape(i.o.Introspect.ID),
		url.QueryEscape(i.o.Introspect.Secret))
	b, err := i.do(request)
	if err != nil {
		return claims{}, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	c, err := parseClaims(b)
	if err != nil {
		return claims{}, fmt.Errorf("%w: its answer is not a valid JSON object", errUnavailable)
	}
	if string(c.values["active"]) != "true" {
		return claims{}, errInactive
	}
	return c, nil
}

// checkAnsweredType refuses an answer about a token that is no bearer token. Answers have the type
// in token_type (RFC 7662), and those of Keycloak also in typ.
func (c claims) checkAnsweredType() error {
	for _, name := range []string{"token_type", "typ"} {
		if kind, ok := c.values[name]; ok && !strings.EqualFold(text(kind), "Bearer") {
			return fmt.Errorf("the %s %s of the answer is not Bearer", name,
				display.Quote(string(kind), maxQuoted))
		}
	}
	return c.checkUnbound()
}
