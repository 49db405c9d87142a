// Package identity holds the [Principal], the authenticated user or workload that sends a request.
// Package transport creates it for each request, before the body of the request is read. Every
// message that exists because of the request carries it.
//
// # What identifies a principal
//
// The ID. Two Principals with the same ID are the same user, even if their tokens differ: a
// refreshed token has other claims and another expiry, but sessions, tasks, parked calls and
// connections to servers stay the user's own. The client is not part of the ID. Code that only
// needs a key, such as a pool of connections, keeps the ID and not the Principal.
//
// A nil *Principal is the one local user: the user who started Gatekit, and every client of a
// listener without authentication. Its ID is "", and no other principal has this ID.
package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Method is how a principal was authenticated. The zero Method is Local.
type Method string

const (
	Local         Method = ""              // no proof: a process or address of this machine
	JWT           Method = "jwt"           // a signed access token of an issuer
	Introspection Method = "introspection" // an access token that its issuer was asked about
	Token         Method = "token"         // a static token of the configuration
	Certificate   Method = "certificate"   // a TLS certificate of the client
)

// Attributes describe a principal. Only Subject, and for JWT and Introspection also Issuer, are
// required.
type Attributes struct {
	Method  Method
	Issuer  string // issuer identifier of the access token; only with JWT and Introspection
	Subject string // the token's subject; the name of a static token; the URI of a certificate
	Client  string // OAuth client id of the program that acts for the user
	Scopes  []string
	Groups  []string
	Claims  []byte    // all claims of the token: a JSON object without duplicate names, or nil
	Issued  time.Time // of the access token; the zero time means unknown
	Expiry  time.Time // of the token or certificate; the zero time means never
}

// MaxIDBytes is the maximum length of an ID. The ID is a part of every audit record.
const MaxIDBytes = 1024

// Principal is an authenticated user or workload. It never changes, so many goroutines may read it.
// All methods accept a nil *Principal, which is the local user: they return zero values.
type Principal struct {
	id string
	a  Attributes
	// returns the access token; nil if it is not kept. As a function, it is in no text that a
	// Principal is formatted to.
	token func() string
}

// New returns the principal that the attributes describe. It keeps no memory of a. Its ID is
//
//	ISSUER#SUBJECT   for JWT and Introspection
//	token:SUBJECT    for Token
//	cert:SUBJECT     for Certificate
//	local:SUBJECT    for Local
//
// An issuer needs a scheme with "//" and has no "#", so two principals with different attributes
// never have the same ID. New fails if an attribute is missing, or if the ID is longer than
// MaxIDBytes, not valid UTF-8 or has control characters.
func New(a Attributes) (*Principal, error) {
	if a.Subject == "" {
		return nil, errors.New("the principal has no subject")
	}
	var id string
	switch a.Method {
	case JWT, Introspection:
		_, afterScheme, found := strings.Cut(a.Issuer, "://")
		if !found || afterScheme == "" || strings.Contains(a.Issuer, "#") {
			return nil, errors.New("the issuer of the principal is not a URL without fragment")
		}
		id = a.Issuer + "#" + a.Subject
	case Token:
		id = "token:" + a.Subject
	case Certificate:
		id = "cert:" + a.Subject
	case Local:
		id = "local:" + a.Subject
	default:
		return nil, fmt.Errorf("unknown method of authentication %q", a.Method)
	}
	if a.Issuer != "" && a.Method != JWT && a.Method != Introspection {
		return nil, errors.New("a principal without access token has no issuer")
	}
	if len(id) > MaxIDBytes {
		return nil, fmt.Errorf("issuer and subject of the principal have %d bytes, more than %d",
			len(id), MaxIDBytes)
	}
	if !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return nil, errors.New(
			"issuer and subject of the principal have control characters or invalid UTF-8")
	}
	if claims := jsontext.Value(a.Claims); claims != nil &&
		(claims.Kind() != '{' || !claims.IsValid()) {
		return nil,
			errors.New("the claims of the principal are not a JSON object with unique names")
	}
	a.Scopes, a.Groups, a.Claims = slices.Clone(a.Scopes), slices.Clone(a.Groups),
		slices.Clone(a.Claims)
	return &Principal{id: id, a: a}, nil
}

// FromID returns a principal of which only the ID is known, such as the principal of an audit
// record. For "" it returns nil, the local user.
func FromID(id string) *Principal {
	if id == "" {
		return nil
	}
	return &Principal{id: id}
}

// ParseID returns the attributes that an ID names: the method, the issuer and the subject. The
// method of a principal with an issuer is JWT, because the ID is the same for an introspected
// token. ParseID returns an error for "" and for each text that is not the ID of a principal.
func ParseID(id string) (Attributes, error) {
	var a Attributes
	kind, subject, _ := strings.Cut(id, ":")
	switch {
	case kind == "token":
		a = Attributes{Method: Token, Subject: subject}
	case kind == "cert":
		a = Attributes{Method: Certificate, Subject: subject}
	case kind == "local":
		a = Attributes{Method: Local, Subject: subject}
	default:
		a.Method = JWT
		a.Issuer, a.Subject, _ = strings.Cut(id, "#")
	}
	if _, err := New(a); err != nil {
		return Attributes{}, fmt.Errorf("%q is not a principal: it must be ISSUER#SUBJECT, "+
			"token:SUBJECT, cert:SUBJECT or local:SUBJECT", id)
	}
	return a, nil
}

// ID returns the name that identifies the principal, and "" for the local user.
func (p *Principal) ID() string {
	if p == nil {
		return ""
	}
	return p.id
}

// Method returns how the principal was authenticated.
func (p *Principal) Method() Method { return p.attributes().Method }

// Issuer returns the issuer of the principal's access token, or "" if there is no such token.
func (p *Principal) Issuer() string { return p.attributes().Issuer }

// Subject returns the name that the issuer, the configuration or the certificate gives the
// principal.
func (p *Principal) Subject() string { return p.attributes().Subject }

// Client returns the OAuth client id of the program that acts for the user, or "" if it is unknown.
func (p *Principal) Client() string { return p.attributes().Client }

// Scopes returns the scopes of the access token. The caller must not change them.
func (p *Principal) Scopes() []string { return p.attributes().Scopes }

// Groups returns the groups of the user. The caller must not change them.
func (p *Principal) Groups() []string { return p.attributes().Groups }

// Claims returns the claims of the access token, a JSON object, or nil. The caller must not change
// them.
func (p *Principal) Claims() []byte { return p.attributes().Claims }

// Issued returns the time at which the principal's access token was issued, by the clock of its
// issuer. The zero time means that there is no such token or that it has no such time.
func (p *Principal) Issued() time.Time { return p.attributes().Issued }

// Expiry returns the time after which the principal's proof is no longer valid. The zero time means
// never.
func (p *Principal) Expiry() time.Time { return p.attributes().Expiry }

// WithToken returns a copy of p, which must not be nil, that has the access token with which it was
// authenticated.
func (p *Principal) WithToken(token string) *Principal {
	c := *p
	c.token = func() string { return token }
	return &c
}

// Token returns the access token with which the principal was authenticated, or "" if it is not
// kept or has expired. It is a secret: only the issuer of the token may get it.
func (p *Principal) Token() string {
	if p == nil || p.token == nil || !p.a.Expiry.IsZero() && !time.Now().Before(p.a.Expiry) {
		return ""
	}
	return p.token()
}

// HasScope reports whether the access token has the scope.
func (p *Principal) HasScope(scope string) bool { return slices.Contains(p.Scopes(), scope) }

func (p *Principal) attributes() *Attributes {
	if p == nil {
		return &Attributes{}
	}
	return &p.a
}
