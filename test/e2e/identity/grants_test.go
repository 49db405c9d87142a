package identity_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/issuertest"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// Each principal sees and uses what the grants of its groups cover, in both eras. What it may not
// use is not in its lists, and a call of it is denied and recorded with the principal.
func TestPrincipalsHaveWhatTheirGroupsGrant(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			i := issuertest.Start(t)
			g := start(t, i, harness.ScriptedServer("safe")+harness.LibraryRules(map[string]string{
				"principal/allow": `grants = [{ issuers = ["` + i.URL + `"], groups = ["dev"], ` +
					`servers = ["box"] }, { groups = ["legal"], servers = ["safe"], ` +
					`tools = ["echo"] }]`}))
			user := func(name, instructed string, groups ...string) *mcptest.Client {
				h := mcptest.NewHTTP(g.URL)
				h.Header.Set("Authorization", "Bearer "+i.Token("first", i.Claims(resource,
					map[string]any{"sub": name, "groups": groups})))
				c := mcptest.NewClient(h, revision)
				t.Cleanup(func() { c.Close() })
				opened := string(harness.Handshake(t, c).Result)
				for _, server := range []string{"box", "safe"} {
					got := strings.Contains(opened, "Use "+server+" gently.")
					if got != (server == instructed) {
						t.Errorf("%s got %s, want the instructions of %q only", name, opened,
							instructed)
					}
				}
				return c
			}
			names := func(c *mcptest.Client, method, what string) (servers []string, n int) {
				for _, item := range harness.ListAll(t, c, method, what) {
					server, _, _ := strings.Cut(mcptest.Text(item, "name"), "__")
					if !slices.Contains(servers, server) {
						servers = append(servers, server)
					}
					n++
				}
				return servers, n
			}
			ann, eve := user("ann", "box", "dev"), user("eve", "")
			bob := user("bob", "safe", "legal")
			if servers, n := names(ann, "tools/list", "tools"); n < 2 ||
				!slices.Equal(servers, []string{"box"}) {
				t.Errorf("ann sees %d tools of %v, want all of box", n, servers)
			}
			if servers, n := names(bob, "tools/list", "tools"); n != 1 ||
				!slices.Equal(servers, []string{"safe"}) {
				t.Errorf("bob sees %d tools of %v, want one of safe", n, servers)
			}
			for _, list := range []struct{ method, what string }{{"tools/list", "tools"},
				{"prompts/list", "prompts"}, {"resources/list", "resources"}} {
				if all := harness.ListAll(t, eve, list.method, list.what); len(all) > 0 {
					t.Errorf("eve sees %s", all)
				}
			}
			for _, call := range []struct {
				who     *mcptest.Client
				tool    string
				allowed bool
			}{{ann, "box__echo", true}, {bob, "safe__echo", true}, {ann, "safe__echo", false},
				{bob, "safe__add", false}, {bob, "box__echo", false}, {eve, "box__echo", false}} {
				params := `{"name":"` + call.tool + `","arguments":{"text":"hi","a":1,"b":2}}`
				if !call.allowed {
					harness.WantDenied(t, call.who, "tools/call", params)
				} else if m := harness.Request(t, call.who, "tools/call", params); m.Error != nil {
					t.Errorf("%s: got the error %s", call.tool, m.Error)
				}
			}
			denied := map[string]int{}
			for _, r := range g.Records() {
				if r.Method == "tools/call" && r.Action == "deny" {
					denied[strings.TrimPrefix(r.Principal, i.URL+"#")]++
					if !strings.Contains(r.Reason, "principal/allow") {
						t.Errorf("a denial has the reason %s", r.Reason)
					}
				}
			}
			explainGrants(t, g, i, denied)
			if denied["ann"] != 1 || denied["bob"] != 2 || denied["eve"] != 1 {
				t.Errorf("got the denials %v, want ann 1, bob 2, eve 1", denied)
			}
		})
	}
}

// explainGrants fails the test unless gatekit policy explain denies each principal as many calls as
// the audit log has denials of it. It gets the groups from the claims of a token.
func explainGrants(t *testing.T, g *harness.Gatekit, i *issuertest.Issuer, denied map[string]int) {
	t.Helper()
	explain := func(claims map[string]any, args ...string) (denies bool) {
		b, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(harness.Context(t), peers.Gatekit(t), append([]string{"policy",
			"explain"}, args...)...)
		cmd.Dir, cmd.Stdin = g.Dir, bytes.NewReader(b)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("policy explain: %v\n%s", err, out)
		}
		return strings.Contains(string(out), "verdict: deny: principal/allow")
	}
	groups := map[string]string{"ann": "dev", "bob": "legal", "eve": "other"}
	again := map[string]int{}
	for _, r := range g.Records() {
		if r.Kind != "request" || r.Method != "tools/call" {
			continue
		}
		name := strings.TrimPrefix(r.Principal, i.URL+"#")
		message := filepath.Join(t.TempDir(), "call.json")
		if err := os.WriteFile(message, []byte(`{"method":"tools/call","server":"`+r.Server+
			`","params":{"name":"`+r.Name+`"}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		byClaims := explain(i.Claims(resource, map[string]any{"sub": name,
			"groups": []string{groups[name]}}), "--claims", "-", message)
		if byClaims {
			again[name]++
		}
		if byName := explain(nil, "--as", r.Principal, "--group", groups[name],
			message); byName != byClaims {
			t.Errorf("%s calls %s of %s: denied %v with --as, and %v with --claims", name, r.Name,
				r.Server, byName, byClaims)
		}
	}
	if !maps.Equal(again, denied) {
		t.Errorf("policy explain denies %v, and the audit log has the denials %v", again, denied)
	}
}
