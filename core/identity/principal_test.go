package identity_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/core/identity"
)

func TestIDIsFormedFromTheAttributes(t *testing.T) {
	for _, c := range []struct {
		name string
		a    identity.Attributes
		want string // "" means an error
	}{
		{"a signed token", identity.Attributes{Method: identity.JWT,
			Issuer: "https://login.example/acme", Subject: "ann"},
			"https://login.example/acme#ann"},
		{"an introspected token of the same user", identity.Attributes{
			Method: identity.Introspection, Issuer: "https://login.example/acme", Subject: "ann",
			Client: "vscode"}, "https://login.example/acme#ann"},
		{"a static token", identity.Attributes{Method: identity.Token, Subject: "ci"}, "token:ci"},
		{"a certificate", identity.Attributes{Method: identity.Certificate,
			Subject: "spiffe://acme.example/build"}, "cert:spiffe://acme.example/build"},
		{"a local client", identity.Attributes{Subject: "anonymous"}, "local:anonymous"},
		{"no subject", identity.Attributes{Method: identity.Token}, ""},
		{"no issuer", identity.Attributes{Method: identity.JWT, Subject: "ann"}, ""},
		{"an issuer that looks like a static token", identity.Attributes{Method: identity.JWT,
			Issuer: "token:ci", Subject: "ann"}, ""},
		{"an issuer with a fragment", identity.Attributes{Method: identity.JWT,
			Issuer: "https://a.example/#b", Subject: "ann"}, ""},
		{"an issuer without a host", identity.Attributes{Method: identity.JWT,
			Issuer: "https://", Subject: "ann"}, ""},
		{"a static token with an issuer", identity.Attributes{Method: identity.Token,
			Issuer: "https://a.example", Subject: "ci"}, ""},
		{"an unknown method", identity.Attributes{Method: "magic", Subject: "ci"}, ""},
		{"claims that are no object", identity.Attributes{Method: identity.Token, Subject: "ci",
			Claims: []byte(`[]`)}, ""},
		{"a claim with two values", identity.Attributes{Method: identity.Token, Subject: "ci",
			Claims: []byte(`{"sub":"ci","sub":"root"}`)}, ""},
		{"a line break", identity.Attributes{Method: identity.Token, Subject: "c\ni"}, ""},
		{"invalid UTF-8", identity.Attributes{Method: identity.Token, Subject: "c\xff"}, ""},
		{"the longest ID", identity.Attributes{Method: identity.Token,
			Subject: strings.Repeat("x", identity.MaxIDBytes-6)},
			"token:" + strings.Repeat("x", identity.MaxIDBytes-6)},
		{"an ID that is too long", identity.Attributes{Method: identity.Token,
			Subject: strings.Repeat("x", identity.MaxIDBytes-5)}, ""},
	} {
		p, err := identity.New(c.a)
		if (err == nil) != (c.want != "") || p.ID() != c.want {
			t.Errorf("%s: ID %q, error %v; want %q", c.name, p.ID(), err, c.want)
		}
	}
}

// ParseID reverses New, and refuses what New never returns.
func TestParsedIDNamesTheSamePrincipal(t *testing.T) {
	for id, want := range map[string]identity.Attributes{
		"https://login.example/acme#ann": {Method: identity.JWT,
			Issuer: "https://login.example/acme", Subject: "ann"},
		"https://login.example#a#b": {Method: identity.JWT, Issuer: "https://login.example",
			Subject: "a#b"},
		"token:ci": {Method: identity.Token, Subject: "ci"},
		"cert:spiffe://acme.example/build#1": {Method: identity.Certificate,
			Subject: "spiffe://acme.example/build#1"},
		"local:anonymous": {Subject: "anonymous"},
	} {
		a, err := identity.ParseID(id)
		if err != nil || a.Method != want.Method || a.Issuer != want.Issuer ||
			a.Subject != want.Subject {
			t.Errorf("%s: got %+v, error %v; want %+v", id, a, err, want)
		}
		if p, err := identity.New(a); err != nil || p.ID() != id {
			t.Errorf("%s: its attributes give the ID %q, error %v", id, p.ID(), err)
		}
	}
	for _, id := range []string{"", "ann", "token:", "cert:", "local:", "https://login.example",
		"https://login.example#", "https://#ann", "#ann", "token", "token:a\nb",
		"token:" + strings.Repeat("x", identity.MaxIDBytes)} {
		if a, err := identity.ParseID(id); err == nil {
			t.Errorf("%q was parsed as %+v", id, a)
		}
	}
}

func TestPrincipalKeepsNoMemoryOfTheCaller(t *testing.T) {
	a := identity.Attributes{Method: identity.Token, Subject: "ci", Scopes: []string{"mcp"},
		Groups: []string{"dev"}, Claims: []byte(`{"a":1}`)}
	p, err := identity.New(a)
	if err != nil {
		t.Fatal(err)
	}
	a.Scopes[0], a.Groups[0], a.Claims[2] = "admin", "root", 'x'
	if !p.HasScope("mcp") || p.HasScope("admin") || !slices.Equal(p.Groups(), []string{"dev"}) ||
		string(p.Claims()) != `{"a":1}` {
		t.Errorf("the principal changed: scopes %q, groups %q, claims %s", p.Scopes(), p.Groups(),
			p.Claims())
	}
}

func TestNilIsTheLocalUser(t *testing.T) {
	var p *identity.Principal
	if p.ID() != "" || p.Method() != identity.Local || p.Issuer() != "" || p.Subject() != "" ||
		p.Client() != "" || p.Scopes() != nil || p.Groups() != nil || p.Claims() != nil ||
		p.HasScope("") || !p.Expiry().Equal(time.Time{}) {
		t.Error("a nil principal has attributes")
	}
}
