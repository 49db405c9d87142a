package auth

import (
	"net/http"
	"slices"
	"strings"

	"gatekit/core/identity"
)

// Refusal is the answer to a request that is not authenticated.
type Refusal struct {
	Status int         // 400, 401, 403 or 503
	Header http.Header // WWW-Authenticate or Retry-After
	Reason string      // for the client
	Detail string      // for the operator: what exactly was found; contains no credential
	// ID of the principal that is revoked, or whose token has too few scopes; else ""
	Principal string
}

// Error returns the detail.
func (r *Refusal) Error() string { return r.Detail }

// challenge returns the value of WWW-Authenticate. code is an error code of RFC 6750, or "" if the
// request had no credential.
func (a *Authenticator) challenge(code, description string, scopes []string) string {
	var parameters []string
	add := func(name, value string) {
		if value != "" {
			parameters = append(parameters, name+`="`+value+`"`)
		}
	}
	add("error", code)
	add("error_description", description)
	add("scope", strings.Join(scopes, " "))
	add("resource_metadata", a.metadataURL)
	return strings.TrimSpace("Bearer " + strings.Join(parameters, ", "))
}

// asked returns the names by which clients ask an issuer for scopes. Without an issuer, the names
// are those of the first one: where every token must have scopes, all have the same prefix.
func (a *Authenticator) asked(issuer string, scopes []string) []string {
	prefix := a.o.scopePrefix()
	if i := a.issuers[issuer]; i != nil {
		prefix = i.o.ScopePrefix
	}
	return withPrefix(prefix, scopes)
}

// scopePrefix returns the prefix for scopes where the issuer is not known.
func (o Options) scopePrefix() string {
	if len(o.Issuers) == 0 {
		return ""
	}
	return o.Issuers[0].ScopePrefix
}

// withPrefix returns the scopes with a prefix.
func withPrefix(prefix string, scopes []string) []string {
	var names []string
	for _, s := range scopes {
		names = append(names, prefix+s)
	}
	return names
}

// refuse returns a refusal with a challenge.
func (a *Authenticator) refuse(status int, code, reason, detail string) *Refusal {
	r := &Refusal{Status: status, Header: http.Header{}, Reason: reason, Detail: detail}
	if a.takesTokens {
		description := reason
		if code == "" {
			description = ""
		}
		r.Header.Set("WWW-Authenticate", a.challenge(code, description,
			a.asked("", a.o.Scopes)))
	} else if status == http.StatusUnauthorized {
		r.Status = http.StatusForbidden // 401 needs a challenge, and a certificate has none
	}
	return r
}

const tooFewScopes = "The access token has too few scopes."

// insufficientScope returns the refusal of a token that lacks a scope that every token must have.
func (a *Authenticator) insufficientScope() *Refusal {
	return &Refusal{Status: http.StatusForbidden, Reason: tooFewScopes,
		Detail: "the token does not have the scopes " + strings.Join(a.o.Scopes, ", "),
		Header: a.scopeChallenge(a.asked("", a.o.Scopes))}
}

// Challenge returns the headers of an answer with status 403 to a request that needs the scopes, of
// a principal with an access token that lacks some of them. The challenge names the scopes, and
// those that every token must have (RFC 6750, section 3.1), with the prefix of the principal's
// issuer. For a principal without an access token of an issuer, Challenge returns nil: it cannot
// get scopes. The scopes have no quote and no backslash.
func (a *Authenticator) Challenge(p *identity.Principal, scopes []string) http.Header {
	if p.Issuer() == "" {
		return nil
	}
	all := slices.Clone(a.o.Scopes)
	for _, s := range scopes {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return a.scopeChallenge(a.asked(p.Issuer(), all))
}

func (a *Authenticator) scopeChallenge(scopes []string) http.Header {
	return http.Header{"Www-Authenticate": {a.challenge("insufficient_scope", tooFewScopes,
		scopes)}}
}

// unavailable returns the refusal of a request whose token cannot be checked now.
func unavailable(detail string) *Refusal {
	return &Refusal{Status: http.StatusServiceUnavailable,
		Header: http.Header{"Retry-After": {"5"}},
		Reason: "The access token cannot be checked at the moment.", Detail: detail}
}
