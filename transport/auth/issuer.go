package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/transport/ssrfguard"
)

// maxWait bounds how long a request waits for an issuer.
const maxWait = 10 * time.Second

// Issuer configures one authorization server whose tokens are accepted.
type Issuer struct {
	Issuer   string   // the identifier: exactly the iss of its tokens
	Audience []string // values of aud that are accepted; at least one
	// Algorithms of signatures, such as RS256; at least one. Never none or an HS algorithm.
	Algorithms []string
	// Introspect is how the issuer is asked about each token; nil: it is not asked. Opaque tokens
	// need it.
	Introspect *Introspect
	Opaque     bool // accept tokens only by introspection, also opaque ones

	Subject string   // claim with the subject; "": sub
	Groups  string   // claim with the groups; "": groups
	Scope   string   // claim with the scopes; "": scope, or scp
	Clients []string // OAuth clients that may ask; empty: all
	// ScopePrefix is put before scopes where clients are told what to ask the issuer for, because
	// its tokens name scopes without it. If every token must have scopes, all issuers have the
	// same.
	ScopePrefix string

	// Login is the client with which users log in at the issuer, for BeginLogin; nil: they cannot.
	Login *LoginClient

	Networks []netip.Prefix // besides the public internet, where the issuer may be
}

// Algorithms are the algorithms of signatures that an Issuer may have.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
		"EdDSA"}
}

// issuer checks the tokens of one Issuer.
type issuer struct {
	o      Issuer
	skew   time.Duration
	client *http.Client
	keys   *keySource    // nil if there are neither signed access tokens nor ID tokens
	asking chan struct{} // has one element for each introspection in flight

	mu       sync.Mutex
	metadata *serverMetadata // nil until it was fetched
}

// Probe fetches the metadata of an issuer, and the keys that verify its tokens, as an Authenticator
// does. It returns the number of keys, which is 0 for an issuer of opaque tokens without Login.
func Probe(ctx context.Context, o Issuer) (keys int, err error) {
	log := slog.New(slog.DiscardHandler)
	i, err := newIssuer(o, 0, log)
	if err != nil {
		return 0, err
	}
	defer i.client.CloseIdleConnections()
	m, err := i.discover(ctx)
	switch {
	case err != nil:
		return 0, err
	case o.Introspect != nil && m.Introspection == "":
		return 0, fmt.Errorf("the metadata of the issuer %s has no introspection_endpoint",
			o.Issuer)
	case o.Login != nil && m.checkLogin() != nil:
		return 0, m.checkLogin()
	case o.Opaque && o.Login == nil:
		return 0, nil
	}
	set, err := i.fetchKeys(ctx)
	if err != nil {
		return 0, err
	}
	list, err := parseKeys(set, log)
	return len(list), err
}

// Principal returns the principal of an access token with the given claims, a JSON object. It
// checks nothing of the token. For use in explanations, not in authentication.
func (i Issuer) Principal(payload []byte) (*identity.Principal, error) {
	c, err := parseClaims(payload)
	if err != nil {
		return nil, err
	}
	a := identity.Attributes{Method: identity.JWT, Issuer: i.Issuer, Client: c.client()}
	if i.Opaque {
		a.Method = identity.Introspection
	}
	return i.withDefaults().principal(c, a)
}

// principal returns the principal with the claims c and the attributes a.
func (i Issuer) principal(c claims, a identity.Attributes) (*identity.Principal, error) {
	subject, _ := c.find(i.Subject)
	if a.Subject = text(subject); a.Subject == "" {
		return nil, fmt.Errorf("the token has no text in the claim %s", i.Subject)
	}
	a.Scopes, a.Claims, a.Issued = c.scopes(i.Scope), c.raw, c.issued()
	if groups, ok := c.find(i.Groups); ok {
		a.Groups, _ = texts(groups)
	}
	return identity.New(a)
}

// withDefaults returns i with the default claims.
func (i Issuer) withDefaults() Issuer {
	i.Subject, i.Groups = cmp.Or(i.Subject, "sub"), cmp.Or(i.Groups, "groups")
	return i
}

func newIssuer(o Issuer, skew time.Duration, log *slog.Logger) (*issuer, error) {
	switch u, err := url.Parse(o.Issuer); {
	case err != nil:
		return nil, fmt.Errorf("issuer %q: %w", o.Issuer, err)
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, fmt.Errorf("issuer %q is not a URL without query, fragment and user name",
			o.Issuer)
	case len(o.Audience) == 0 || slices.Contains(o.Audience, ""):
		return nil, fmt.Errorf("issuer %s: no audience", o.Issuer)
	case o.Opaque && o.Introspect == nil:
		return nil, fmt.Errorf("issuer %s: opaque tokens without introspection", o.Issuer)
	case o.Login != nil && (o.Login.ID == "" || o.Login.Secret == ""):
		return nil, fmt.Errorf("issuer %s: a login client without id or secret", o.Issuer)
	case (!o.Opaque || o.Login != nil) && len(o.Algorithms) == 0:
		return nil, fmt.Errorf("issuer %s: no algorithms", o.Issuer)
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(Algorithms(), a) {
			return nil, fmt.Errorf("issuer %s: algorithm %q is not one of %s", o.Issuer, a,
				strings.Join(Algorithms(), ", "))
		}
	}
	o = o.withDefaults()
	client, err := ssrfguard.Client(ssrfguard.Options{Configured: o.Issuer, Networks: o.Networks,
		Timeout: maxWait})
	if err != nil {
		return nil, err
	}
	i := &issuer{o: o, skew: skew, client: client,
		asking: make(chan struct{}, maxIntrospections)}
	if !o.Opaque || o.Login != nil {
		i.keys = newKeySource(i.fetchKeys, log.With("issuer", o.Issuer))
	}
	return i, nil
}

// run keeps the keys of the issuer fresh until ctx ends.
func (i *issuer) run(ctx context.Context) {
	defer i.client.CloseIdleConnections()
	if i.keys == nil {
		<-ctx.Done()
		return
	}
	i.keys.run(ctx)
}

// serverMetadata are the members of an authorization server's metadata (RFC 8414 and OpenID Connect
// Discovery) that are read.
type serverMetadata struct {
	Issuer        string `json:"issuer"`
	JWKS          string `json:"jwks_uri"`
	Introspection string `json:"introspection_endpoint"`

	// for logins of users
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	TokenMethods  []string `json:"token_endpoint_auth_methods_supported"`
	SendsIssuer   bool     `json:"authorization_response_iss_parameter_supported"`
}

// metadataURLs returns where the metadata may be, in the order of the specification of MCP.
func metadataURLs(issuer string) []string {
	u, _ := url.Parse(issuer) // newIssuer has parsed it
	origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	list := []string{origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path}
	if path != "" {
		list = append(list, origin+path+"/.well-known/openid-configuration")
	}
	return list
}

// discover returns the metadata of the issuer. Metadata is fetched again with the keys.
func (i *issuer) discover(ctx context.Context) (*serverMetadata, error) {
	var all []error
	for _, at := range metadataURLs(i.o.Issuer) {
		b, err := i.get(ctx, at)
		if err != nil {
			all = append(all, err)
			continue
		}
		var m serverMetadata
		if err := json.Unmarshal(b, &m); err != nil {
			all = append(all, fmt.Errorf("%s is not valid metadata", at))
			continue
		}
		if m.Issuer != i.o.Issuer {
			all = append(all, fmt.Errorf("the metadata at %s is that of the issuer %s, not of %s",
				at, display.Quote(m.Issuer, maxQuoted), i.o.Issuer))
			continue
		}
		i.mu.Lock()
		i.metadata = &m
		i.mu.Unlock()
		return &m, nil
	}
	return nil, fmt.Errorf("no metadata of the issuer %s: %w", i.o.Issuer, errors.Join(all...))
}

// fetchKeys returns the JSON Web Key Set of the issuer.
func (i *issuer) fetchKeys(ctx context.Context) ([]byte, error) {
	m, err := i.discover(ctx)
	if err != nil {
		return nil, err
	}
	if m.JWKS == "" {
		return nil, fmt.Errorf("the metadata of the issuer %s has no jwks_uri", i.o.Issuer)
	}
	return i.get(ctx, m.JWKS)
}

// get returns the JSON document at a URL.
func (i *issuer) get(ctx context.Context, at string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	return i.do(request)
}

func (i *issuer) do(request *http.Request) ([]byte, error) {
	response, err := i.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered with status %d", request.URL.Redacted(),
			response.StatusCode)
	}
	return io.ReadAll(response.Body)
}

// Check is the result of one check of a token.
type Check struct {
	Name   string // such as "audience"
	Detail string // what was found; "" if the check failed
	Err    error  // why the check failed
}

// verified is a token that passed all checks of its issuer.
type verified struct {
	principal *identity.Principal
	until     time.Time  // when the token must be checked again
	key       *key       // that verified the signature; nil if none did
	keys      *keySource // of key
}

// isGood reports whether the checks of the token still count.
func (v *verified) isGood(now time.Time) bool {
	return now.Before(v.until) && (v.key == nil || v.keys.isGood(v.key, now))
}

// verify checks a token. t is nil for an opaque token. report gets the result of each check in
// order; verify ends after a failed check if report returns false. It returns the first error.
func (i *issuer) verify(ctx context.Context, token string, t *signedToken,
	report func(Check) (more bool)) (*verified, error) {
	v := &verified{keys: i.keys}
	a := identity.Attributes{Method: identity.JWT, Issuer: i.o.Issuer}
	now := time.Now()
	var c claims
	if t != nil {
		c = t.claims
	}
	type step struct {
		name string
		run  func() (string, error)
	}
	ask := step{"introspection", func() (string, error) {
		answer, err := i.introspect(ctx, token)
		if err == nil && i.o.Opaque {
			c, a.Method = answer, identity.Introspection
		}
		return "active", err
	}}
	var steps []step
	if i.o.Opaque {
		steps = append(steps, ask, step{"issuer", func() (string, error) {
			if iss, ok := c.values["iss"]; ok && text(iss) != i.o.Issuer {
				return "", fmt.Errorf("the answer is about a token of the issuer %s",
					display.Quote(text(iss), maxQuoted))
			}
			return i.o.Issuer, nil
		}}, step{"type", func() (string, error) {
			return "access token", c.checkAnsweredType()
		}})
	} else {
		steps = append(steps, step{"algorithm", func() (string, error) {
			return t.header.Algorithm, t.checkHeader(i.o.Algorithms)
		}}, step{"key", func() (key string, err error) {
			if err = t.checkHeader(i.o.Algorithms); err != nil {
				return "", errors.New("not looked for without a valid algorithm")
			}
			v.key, err = i.keys.find(ctx, t.header.KeyID, t.header.Algorithm)
			return display.Quote(t.header.KeyID, maxQuoted), err
		}}, step{"signature", func() (string, error) {
			if v.key == nil {
				return "", errors.New("not verified without a key")
			}
			return "valid", t.verifySignature(v.key)
		}}, step{"type", func() (string, error) {
			return "access token", t.checkType()
		}})
	}
	steps = append(steps, step{"audience", func() (string, error) {
		return c.checkAudience(i.o.Audience)
	}}, step{"expiry", func() (string, error) {
		var err error
		a.Expiry, err = c.checkExpiry(now, i.skew)
		v.until = a.Expiry
		return "until " + a.Expiry.Add(-i.skew).UTC().Format(time.RFC3339), err
	}}, step{"not before", func() (string, error) {
		return "valid now", c.checkNotBefore(now, i.skew)
	}}, step{"client", func() (string, error) {
		if a.Client = c.client(); len(i.o.Clients) > 0 && !slices.Contains(i.o.Clients, a.Client) {
			return "", fmt.Errorf("the client %s is not one of %s",
				display.Quote(a.Client, maxQuoted), strings.Join(i.o.Clients, ", "))
		}
		return display.Quote(a.Client, maxQuoted), nil
	}}, step{"subject", func() (string, error) {
		var err error
		v.principal, err = i.o.principal(c, a)
		return v.principal.ID(), err
	}})
	if i.o.Introspect != nil && !i.o.Opaque {
		steps = append(steps, ask)
	}
	var first error
	for _, s := range steps {
		result := Check{Name: s.name}
		if result.Detail, result.Err = s.run(); result.Err != nil {
			result.Detail = ""
			if first == nil {
				first = result.Err
			}
		}
		if !report(result) && first != nil {
			break
		}
	}
	if first != nil {
		return nil, first
	}
	if i.o.Introspect != nil {
		if again := now.Add(i.o.Introspect.Cache); again.Before(v.until) {
			v.until = again
		}
	}
	return v, nil
}
