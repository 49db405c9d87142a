package transport_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gatekit/core/identity"
	"gatekit/transport"
	"gatekit/transport/auth"
)

// userHeader is an Authenticator that takes the principal from the header X-Test-User.
type userHeader struct{ asked func() }

func (a userHeader) Authenticate(r *http.Request) (*identity.Principal, *auth.Refusal) {
	a.asked()
	user := r.Header.Get("X-Test-User")
	if user == "" {
		return nil, &auth.Refusal{Status: 401, Reason: "send a token",
			Detail: "no credential",
			Header: http.Header{"Www-Authenticate": {`Bearer scope="mcp"`}}}
	}
	if user == "eve" {
		return nil, &auth.Refusal{Status: 403, Reason: "too few scopes",
			Detail: "the token lacks mcp", Principal: "token:eve"}
	}
	return identity.FromID("token:" + user), nil
}

func (userHeader) Challenge(*identity.Principal, []string) http.Header { return nil }

func (userHeader) Revoked(*identity.Principal) *auth.Refusal { return nil }

func TestRequestsAreAuthenticatedBeforeTheBodyIsRead(t *testing.T) {
	for _, c := range []struct {
		name, host, headers string
		asked               bool
		want                []string // texts of the answer
		record              string
	}{
		{"a principal", "HOST", "X-Test-User: ann\n", true, []string{"200 OK"}, ""},
		{"no credential", "HOST", "", true, []string{"401 Unauthorized",
			`Www-Authenticate:[Bearer scope="mcp"]`, `{"refused":true}`},
			"401 no credential"},
		{"too few scopes", "HOST", "X-Test-User: eve\n", true, []string{"403 Forbidden",
			`{"refused":true}`}, `403 the token lacks mcp`},
		{"another host", "evil.example", "X-Test-User: ann\n", false, []string{"403 Forbidden"},
			`403 Host`},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := false
			f := listen(t, func(o *transport.HTTPServerOptions) {
				o.Authenticator = userHeader{func() { asked = true }}
			})
			body, rest := `{"a":1}`, ""
			if c.record == "" {
				rest = body // a refused request never sends its body
			}
			response, text := f.do(t, "POST /mcp HTTP/1.1\nHost: "+c.host+"\n"+c.headers+
				"Accept: application/json, text/event-stream\nConnection: close\n"+
				"Content-Type: application/json\nContent-Length: 7\n\n"+rest)
			got := response.Status + " " + fmt.Sprint(response.Header) + " " + text
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("the answer is %q, want %q in it", got, want)
				}
			}
			if asked != c.asked {
				t.Errorf("the authenticator was asked: %v, want %v", asked, c.asked)
			}
			records := f.refused()
			if c.record == "" && len(records) > 0 || c.record != "" && (len(records) != 1 ||
				!strings.HasPrefix(records[0], c.record)) {
				t.Errorf("recorded %q, want %q", records, c.record)
			}
		})
	}
}
