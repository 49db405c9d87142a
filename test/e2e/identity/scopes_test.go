package identity_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/issuertest"
	"gatekit/test/mcptest"
)

const needsScopes = `scope contains "notes:read" if {
	input.method == "tools/call"
	input.kind == "request"
	input.direction == "to_server"
}

scope contains "notes:write" if {
	input.method == "tools/call"
	input.kind == "request"
	input.direction == "to_server"
	input.params.arguments.tag == "write"
}
`

// A call that needs scopes which the token lacks gets status 403 and one challenge with all of
// them. A new token with these scopes continues the session.
func TestScopesThatAPolicyDemands(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			i := issuertest.Start(t)
			g := start(t, i, harness.ScriptedServer("safe")+harness.PolicyFile(t, needsScopes))
			var status int
			var challenge string
			h := mcptest.NewHTTP(g.URL)
			h.Answered = func(r *http.Response) {
				status, challenge = r.StatusCode, r.Header.Get("WWW-Authenticate")
			}
			use := func(scope string) {
				h.Header.Set("Authorization", "Bearer "+i.Token("first", i.Claims(resource,
					map[string]any{"scope": scope})))
			}
			use("mcp other")
			c := mcptest.NewClient(h, revision)
			t.Cleanup(func() { c.Close() })
			harness.Handshake(t, c)
			if len(harness.ListAll(t, c, "tools/list", "tools")) == 0 {
				t.Error("got an empty list, want the tools: a client must see them to ask for more")
			}
			for _, tt := range []struct {
				scope, tag string
				challenge  string // its scopes; "" if the call is allowed
			}{
				{"mcp other", "write", "mcp notes:read notes:write"},
				{"mcp other", "read", "mcp notes:read"},
				{"mcp notes:read", "read", ""},
				{"mcp notes:read", "write", "mcp notes:read notes:write"},
				{"mcp notes:write notes:read", "write", ""},
			} {
				use(tt.scope)
				m, err := c.Tool(harness.Context(t), "box__echo", `{"tag":"`+tt.tag+`"}`)
				if err != nil {
					t.Fatal(err)
				}
				if tt.challenge == "" {
					if m.Error != nil {
						t.Errorf("%s with %s: got the error %s", tt.tag, tt.scope, m.Error)
					}
					continue
				}
				if string(mcptest.At(m.Error, "code")) != "-31000" {
					t.Errorf("%s with %s: got %s and %s, want a denial", tt.tag, tt.scope, m.Result,
						m.Error)
				}
				if status != 403 || !strings.Contains(challenge, `error="insufficient_scope"`) ||
					!strings.Contains(challenge, ` scope="`+tt.challenge+`"`) {
					t.Errorf("%s with %s: got status %d and %s, want 403 and the scopes %q",
						tt.tag, tt.scope, status, challenge, tt.challenge)
				}
			}
			g.Stop()
			var reasons []string
			for _, r := range g.Records() {
				if r.Action == "deny" {
					reasons = append(reasons, r.Reason)
				}
			}
			want := []string{
				"the access token lacks the scopes notes:read, notes:write",
				"the access token lacks the scopes notes:read",
				"the access token lacks the scopes notes:write",
			}
			if got, _ := json.Marshal(reasons); len(reasons) != 3 || reasons[0] != want[0] ||
				reasons[1] != want[1] || reasons[2] != want[2] {
				t.Errorf("got the reasons %s, want %q", got, want)
			}
		})
	}
}

// Clients ask Entra ID for scopes by other names than its tokens have. The challenges and the
// metadata have the former, and policies and the log the latter.
func TestScopesThatAnIssuerNamesWithAPrefix(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			i := issuertest.Start(t)
			g := start(t, i, "scope_prefix = \"api://app/\"\n"+harness.ScriptedServer("safe")+
				harness.PolicyFile(t, needsScopes))
			answer, _ := post(t, g, "POST", g.URL, "")
			if got := answer.Header.Get("WWW-Authenticate"); answer.StatusCode != 401 ||
				!strings.Contains(got, `scope="api://app/mcp"`) {
				t.Errorf("without a token, got status %d and %s", answer.StatusCode, got)
			}
			origin := strings.TrimSuffix(g.URL, "/mcp")
			_, metadata := post(t, g, "GET", origin+"/.well-known/oauth-protected-resource/mcp", "")
			if !strings.Contains(metadata, `"api://app/mcp"`) {
				t.Errorf("got the metadata %s", metadata)
			}
			var status int
			var challenge string
			h := mcptest.NewHTTP(g.URL)
			h.Answered = func(r *http.Response) {
				status, challenge = r.StatusCode, r.Header.Get("WWW-Authenticate")
			}
			use := func(scopes string) {
				h.Header.Set("Authorization", "Bearer "+i.Token("first", i.Claims(resource,
					map[string]any{"scope": nil, "scp": scopes})))
			}
			use("mcp")
			c := mcptest.NewClient(h, revision)
			t.Cleanup(func() { c.Close() })
			harness.Handshake(t, c)
			if m, err := c.Tool(harness.Context(t), "box__echo", `{}`); err != nil ||
				m.Error == nil || status != 403 || !strings.Contains(challenge,
				` scope="api://app/mcp api://app/notes:read"`) {
				t.Errorf("got %s, %v, status %d and %s; want 403 and the scopes", m.Raw, err,
					status, challenge)
			}
			use("mcp notes:read")
			if m, err := c.Tool(harness.Context(t), "box__echo", `{}`); err != nil ||
				m.Error != nil {
				t.Errorf("with the scopes, got %s, %v", m.Raw, err)
			}
			g.WantReasons("the access token lacks the scopes notes:read")
		})
	}
}

// A principal without an access token, such as the user of a pipe, has no scopes.
func TestScopesOverAPipe(t *testing.T) {
	g, c := harness.StartStdio(t, harness.ScriptedServer("box")+
		harness.PolicyFile(t, needsScopes), harness.Revisions[0])
	harness.WantDenied(t, c, "tools/call", `{"name":"box__echo","arguments":{"text":"x"}}`)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	g.CheckExit()
	g.WantReasons("the access token lacks the scopes notes:read")
}
