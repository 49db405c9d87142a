package sessions_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestSkillsAreCarried lists, gets and reads skills. It has a client and a server of each era, over
// stdio and HTTP. A rule hides one skill, the plugin injection hides another, and the server has
// changed a file. Each denial must be in the audit log.
func TestSkillsAreCarried(t *testing.T) {
	harness.Long(t, "starts a server for each era and transport")
	for _, route := range harness.Routes {
		for _, revision := range harness.Revisions {
			t.Run(revision+" client, "+route.Name, func(t *testing.T) {
				config := harness.ScriptedServer("docs", "-revisions", route.Revision, "-skills")
				if route.Back == "http" {
					s := mcptest.Toolbox("docs", route.Revision)
					mcptest.AddSkills(s)
					h := httptest.NewServer(s)
					t.Cleanup(h.Close)
					config = harness.HTTPServer("docs", h.URL)
				}
				config += harness.Builtin("injection", "") +
					harness.LibraryRules(map[string]string{
						"skills/allowlist": `skills = ["good", "poisoned"]`})
				harness.EachTransport(t, config, revision, checkSkills)
			})
		}
	}
}

// checkSkills uses the skills of AddSkills as a client, and checks the answers and the audit log.
func checkSkills(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
	if got := string(mcptest.At(harness.Handshake(t, c).Result, "capabilities",
		"extensions")); got != `{"io.modelcontextprotocol/skills":{"directoryRead":true}}` {
		t.Errorf("the extensions are %s, want skills with directoryRead only", got)
	}
	const good = `docs+skill://good/SKILL.md`
	for _, r := range []struct{ method, uri, want, not string }{
		{"skills/list", "", `"uri":"` + good, "evil"},
		{"skills/list", "", `"uri":"` + good, "poisoned"},
		{"skills/get", good, `"uri":"docs+skill://good/a"`, "-31000"},
		{"resources/directory/read", "docs+skill://good", `"uri":"docs+skill://good/a"`, "-31000"},
		{"resources/read", good, `"text":"text"`, "-31000"},
		{"resources/read", "docs+skill://good/a", "does not match the digest", `"new"`},
		{"skills/get", "docs+skill://evil/SKILL.md", "-31000", "frontmatter"},
		{"resources/read", "docs+skill://evil/a", "-31000", `"new"`},
		{"resources/directory/read", "docs+skill://evil", "-31000", `"resources"`},
		{"skills/get", "docs+skill://poisoned/SKILL.md", "-31000", "frontmatter"},
		{"resources/read", "docs+skill://poisoned/SKILL.md", "-31000", `"text":"text"`},
	} {
		params := `{}`
		if r.uri != "" {
			params = `{"uri":"` + r.uri + `"}`
		}
		got := string(harness.Request(t, c, r.method, params).Raw)
		if !strings.Contains(got, r.want) || strings.Contains(got, r.not) {
			t.Errorf("%s %s got %s, want %s and not %s", r.method, params, got, r.want, r.not)
		}
	}
	g.WantRecords("to_client response skills/list docs - hide",
		"to_server request skills/get docs skill://good/SKILL.md pass",
		"to_client response skills/get docs skill://good/SKILL.md pass",
		"to_client response resources/directory/read docs skill://good pass",
		"to_client response resources/read docs skill://good/SKILL.md pass",
		"to_client response resources/read docs skill://good/a deny",
		"to_server request skills/get docs skill://evil/SKILL.md deny",
		"to_server request resources/read docs skill://evil/a deny",
		"to_server request resources/directory/read docs skill://evil deny",
		"to_server request skills/get docs skill://poisoned/SKILL.md deny",
		"to_server request resources/read docs skill://poisoned/SKILL.md deny")
}
