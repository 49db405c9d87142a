package policies_test

import (
	"slices"
	"strings"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// TestScopesOfARequest evaluates rules that demand scopes. A request that lacks one of them is
// denied, and the verdict has all demanded scopes. Other messages cannot have scopes.
func TestScopesOfARequest(t *testing.T) {
	s := loaded(t, `scope contains "read" if input.method != "ping"
scope contains "write" if input.method != "ping"`)
	toServer := func(m *mcp.Message) *mcp.Message { return sent(m, mcp.ToServer, "") }
	rootsOfClient := toServer(mcp.NewResponse("1", []byte(`{"roots":[]}`)))
	rootsOfClient.Method = "roots/list"
	const lacks, other = "the access token lacks the scopes ", "scopes can only be demanded of " +
		"requests to servers"
	both := []string{"read", "write"}
	for _, c := range []struct {
		name, scopes string // of the access token
		m            *mcp.Message
		reason       string // "" means allowed
		want         []string
	}{
		{"all scopes", "write read", called("x", `{}`), "", nil},
		{"no scope", "", called("x", `{}`), lacks + "read, write", both},
		{"one scope", "write", called("x", `{}`), lacks + "read", both},
		{"none demanded", "", request("ping", `{}`, ""), "", nil},
		{"a notification", "read write", toServer(mcp.NewNotification("notifications/x", nil)),
			other, nil},
		{"a response", "read write", answered(called("x", `{}`), `{}`), other, nil},
		{"a request of a server", "read write", fromServer(mcp.Request, "roots/list", `{}`), other,
			nil},
		{"the answer to a server", "read write", rootsOfClient, other, nil},
	} {
		var err error
		if c.m.Principal, err = identity.New(identity.Attributes{Method: identity.Token,
			Subject: "ann", Scopes: strings.Fields(c.scopes)}); err != nil {
			t.Fatal(err)
		}
		v, err := s.Inspect(t.Context(), c.m)
		if err != nil || (v.Action == pipeline.Deny) != (c.reason != "") ||
			!strings.HasPrefix(v.Reason, c.reason) || !slices.Equal(v.Scopes, c.want) {
			t.Errorf("%s: the verdict is %+v, error %v; want the reason %q and the scopes %q",
				c.name, v, err, c.reason, c.want)
		}
	}
}

// TestCharactersOfScopes demands scopes of one character each (RFC 6749, section 3.3).
func TestCharactersOfScopes(t *testing.T) {
	s := loaded(t, `scope contains input.params.arguments.scope`)
	for scope, want := range map[string]bool{"!": true, "~": true, "#": true, "[": true, "]": true,
		" ": false, "\x7f": false, `"`: false, `\`: false, "é": false, "": false} {
		_, err := s.Inspect(t.Context(), called("x", `{"scope":`+quoted(scope)+`}`))
		if (err == nil) != want {
			t.Errorf("%q: error %v, want that it is a scope: %v", scope, err, want)
		}
	}
}
