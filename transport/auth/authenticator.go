package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"gatekit/core/display"
	"gatekit/core/identity"
)

// Options configure an Authenticator.
type Options struct {
	// Resource is the URL of the endpoint as clients reach it. Issuers need it.
	Resource string
	Path     string        // of the endpoint on the listener, such as /mcp
	Scopes   []string      // that every token must have
	Skew     time.Duration // of the clocks of issuers

	Issuers      []Issuer
	Tokens       []StaticToken
	Certificates *Certificates // nil: certificates of clients do not count
	// Anonymous accepts requests without credential from loopback addresses, as local:anonymous.
	Anonymous bool

	// KeepTokens, if not nil, reports whether principals keep their access token
	// (identity.Principal.Token).
	KeepTokens func() bool

	Revocations *Revocations // nil: none
	Log         *slog.Logger // nil: nothing is logged
}

// Authenticator authenticates requests. All methods may be called at the same time.
type Authenticator struct {
	o           Options
	issuers     map[string]*issuer
	opaque      *issuer // that is asked about opaque tokens; nil: none
	static      staticTokens
	anonymous   *identity.Principal // nil: not accepted
	takesTokens bool
	metadata    *Metadata
	metadataURL string
	verified    verifiedTokens
}

// New returns an Authenticator. Run must be called for the keys of issuers.
func New(o Options) (*Authenticator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &Authenticator{o: o, issuers: map[string]*issuer{},
		verified:    verifiedTokens{size: cacheSize},
		takesTokens: len(o.Issuers)+len(o.Tokens) > 0}
	for _, i := range o.Issuers {
		one, err := newIssuer(i, o.Skew, o.Log)
		if err != nil {
			return nil, err
		}
		if a.issuers[i.Issuer] != nil {
			return nil, fmt.Errorf("two issuers are %s", i.Issuer)
		}
		a.issuers[i.Issuer] = one
		if i.Opaque {
			if a.opaque != nil {
				return nil, errors.New("only one issuer can be asked about opaque tokens")
			}
			a.opaque = one
		}
	}
	var err error
	if len(o.Issuers) > 0 {
		if o.Resource == "" {
			return nil, errors.New("issuers without the URL of the resource")
		}
		if a.metadata, a.metadataURL, err = newMetadata(o); err != nil {
			return nil, err
		}
	}
	if a.static, err = newStaticTokens(o.Tokens); err != nil {
		return nil, err
	}
	if o.Certificates != nil {
		if err := o.Certificates.check(); err != nil {
			return nil, err
		}
	}
	if o.Anonymous {
		a.anonymous, err = identity.New(identity.Attributes{Subject: "anonymous"})
	}
	return a, err
}

// Run keeps the keys of issuers fresh until ctx ends.
func (a *Authenticator) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, i := range a.issuers {
		running.Go(func() { i.run(ctx) })
	}
	running.Wait()
}

// Authenticate returns the principal who sent a request, or a refusal. It does not read the body.
func (a *Authenticator) Authenticate(r *http.Request) (*identity.Principal, *Refusal) {
	p, refused := a.identify(r)
	if refused == nil {
		refused = a.Revoked(p)
	}
	if refused != nil {
		return nil, refused
	}
	return p, nil
}

// Revoked returns the refusal of a principal that was revoked after its token was issued, or nil.
// While nobody knows who is revoked, it refuses everybody.
func (a *Authenticator) Revoked(p *identity.Principal) *Refusal {
	x, err := a.o.Revocations.of(p, a.o.Skew)
	if err != nil {
		refused := unavailable("the revocations of the other replicas are not known: " +
			err.Error())
		refused.Principal = p.ID()
		return refused
	}
	if x == nil {
		return nil
	}
	refused := a.invalid(fmt.Errorf("the principal was revoked at %s: %s",
		x.At.UTC().Format(time.RFC3339), x.Reason))
	refused.Principal = p.ID()
	return refused
}

// identify returns the principal who sent a request, whether or not it is revoked.
func (a *Authenticator) identify(r *http.Request) (*identity.Principal, *Refusal) {
	headers := r.Header["Authorization"]
	switch {
	case len(headers) > 1:
		return nil, a.malformed("the request has two Authorization headers")
	case r.URL.Query().Has("access_token"):
		return nil, a.malformed("the request has a token in its URL")
	case len(headers) == 1:
		scheme, token, _ := strings.Cut(headers[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, a.refuse(http.StatusUnauthorized, "", "Only bearer tokens are accepted.",
				"the scheme of Authorization is not Bearer")
		}
		if !isToken(token) {
			return nil, a.malformed("the bearer token is empty, too long or malformed")
		}
		return a.bearer(r.Context(), token)
	}
	if a.o.Certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		p, err := a.o.Certificates.verify(r.TLS)
		if err != nil {
			return nil, a.refuse(http.StatusUnauthorized, "invalid_token",
				"The certificate is not accepted.", err.Error())
		}
		return p, nil
	}
	if a.anonymous != nil && isLocal(r) {
		return a.anonymous, nil
	}
	return nil, a.refuse(http.StatusUnauthorized, "", "Authentication is required.",
		"the request has no credential")
}

// bearer checks a bearer token.
func (a *Authenticator) bearer(ctx context.Context, token string) (*identity.Principal, *Refusal) {
	if strings.HasPrefix(token, staticPrefix) {
		p, err := a.static.verify(token)
		if err != nil {
			return nil, a.invalid(err)
		}
		return a.withScopes(p)
	}
	digest, now := sha256.Sum256([]byte(token)), time.Now()
	v := a.verified.find(digest, now)
	if v == nil {
		i, t, err := a.choose(token)
		if err != nil {
			return nil, a.invalid(err)
		}
		v, err = i.verify(ctx, token, t, func(Check) bool { return false })
		if errors.Is(err, errUnavailable) {
			return nil, unavailable(err.Error())
		}
		if err != nil {
			return nil, a.invalid(err)
		}
		a.verified.add(digest, v)
	}
	p, refused := a.withScopes(v.principal)
	if refused == nil && a.o.KeepTokens != nil && a.o.KeepTokens() {
		p = p.WithToken(token)
	}
	return p, refused
}

// choose returns the issuer of a token, and the token if it is a JWT.
func (a *Authenticator) choose(token string) (*issuer, *signedToken, error) {
	t, err := parseToken(token)
	if err != nil {
		if a.opaque != nil && strings.Count(token, ".") != 2 {
			return a.opaque, nil, nil
		}
		return nil, nil, err
	}
	iss := text(t.claims.values["iss"])
	if i := a.issuers[iss]; i != nil {
		return i, t, nil
	}
	return nil, nil, fmt.Errorf("the issuer %s is not configured", display.Quote(iss, maxQuoted))
}

// withScopes returns the principal, or a refusal if its token does not have the scopes that every
// token must have.
func (a *Authenticator) withScopes(p *identity.Principal) (*identity.Principal, *Refusal) {
	for _, s := range a.o.Scopes {
		if !p.HasScope(s) {
			r := a.insufficientScope()
			r.Principal = p.ID()
			return nil, r
		}
	}
	return p, nil
}

func (a *Authenticator) malformed(detail string) *Refusal {
	return a.refuse(http.StatusBadRequest, "invalid_request",
		"The request must have one bearer token, in the header Authorization.", detail)
}

func (a *Authenticator) invalid(err error) *Refusal {
	return a.refuse(http.StatusUnauthorized, "invalid_token",
		"The access token is not valid, or it has expired.", err.Error())
}

// maxTokenBytes bounds a bearer token.
const maxTokenBytes = 16 << 10

// isToken reports whether s has the syntax of a bearer token (token68 of RFC 9110).
func isToken(s string) bool {
	if s == "" || len(s) > maxTokenBytes {
		return false
	}
	for _, c := range []byte(strings.TrimRight(s, "=")) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			strings.IndexByte("-._~+/", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// isLocal reports whether a program of this machine sent the request itself: a loopback address
// without the headers that proxies add.
func isLocal(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
		"X-Forwarded-Proto", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// Explain checks a token as Authenticate does, and returns the result of every check. It fetches
// the keys of the issuer.
func (a *Authenticator) Explain(ctx context.Context, token string) (checks []Check, ok bool) {
	add := func(name, detail string, err error) {
		if err != nil {
			detail = ""
		}
		checks = append(checks, Check{name, detail, err})
	}
	done := func() ([]Check, bool) {
		for _, c := range checks {
			ok = ok || c.Err != nil
		}
		return checks, !ok
	}
	if !isToken(token) {
		add("syntax", "", errors.New("the token is empty, too long or malformed"))
		return done()
	}
	var p *identity.Principal
	if strings.HasPrefix(token, staticPrefix) {
		var err error
		p, err = a.static.verify(token)
		add("static token", p.ID(), err)
	} else {
		i, t, err := a.choose(token)
		if err != nil {
			add("issuer", "", err)
			return done()
		}
		add("issuer", i.o.Issuer, nil)
		if i.keys != nil {
			add("keys of the issuer", "fetched", i.keys.refreshOnce(ctx))
		}
		v, _ := i.verify(ctx, token, t, func(c Check) bool {
			checks = append(checks, c)
			return true
		})
		if v != nil {
			p = v.principal
		}
	}
	if p != nil {
		var err error
		if _, refusal := a.withScopes(p); refusal != nil {
			err = refusal
		}
		add("scopes", strings.Join(p.Scopes(), " "), err)
		err = nil
		if refusal := a.Revoked(p); refusal != nil {
			err = refusal
		}
		add("revocation", "not revoked", err)
	}
	return done()
}
