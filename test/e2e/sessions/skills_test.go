package sessions_test

import (
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestSkillsAreCarried lists, gets and reads skills, with a skill that a rule hides and a file that
// its server has changed.
func TestSkillsAreCarried(t *testing.T) {
	for _, revision := range harness.Revisions {
		s := mcptest.Toolbox("docs", revision)
		s.Capabilities = `{"resources":{},"extensions":{"io.modelcontextprotocol/skills":` +
			`{"directoryRead":true},"io.modelcontextprotocol/unknown":{}}}`
		entry := func(name string) string {
			uri := "skill://" + name + "/SKILL.md"
			return fmt.Sprintf(`{"uri":%q,"frontmatter":{"name":%q,"description":"d"},"resources":`+
				`[{"uri":%q,"digest":"sha256:%x","size":4},{"uri":"skill://%s/a","digest":"sha256:%x",`+
				`"size":3}]}`, uri, name, uri, sha256.Sum256([]byte("text")), name,
				sha256.Sum256([]byte("old")))
		}
		const hints = `,"ttlMs":0,"cacheScope":"private"}`
		s.Handle["skills/list"] = func(c *mcptest.Call) {
			c.Result(`{"skills":[` + entry("good") + "," + entry("evil") + `]` + hints)
		}
		s.Handle["skills/get"] = func(c *mcptest.Call) {
			c.Result(`{"skill":` + entry("good") + hints)
		}
		s.Handle["resources/directory/read"] = func(c *mcptest.Call) {
			c.Result(`{"resources":[{"uri":"skill://good/a","name":"a"}]}`)
		}
		s.Handle["resources/read"] = func(c *mcptest.Call) {
			text := map[bool]string{true: "text", false: "new"}[strings.Contains(
				string(c.Params), "SKILL.md")]
			c.Result(fmt.Sprintf(`{"contents":[{"uri":%q,"text":%q}]`+hints, mcptest.Text(c.Params,
				"uri"), text))
		}
		h := httptest.NewServer(s)
		t.Cleanup(h.Close)
		config := harness.HTTPServer("docs", h.URL) +
			harness.LibraryRules(map[string]string{"skills/allowlist": `skills = ["good"]`})
		harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
			c *mcptest.Client) {
			if got := string(mcptest.At(harness.Handshake(t, c).Result, "capabilities",
				"extensions")); got != `{"io.modelcontextprotocol/skills":{"directoryRead":true}}` {
				t.Errorf("the extensions are %s, want skills with directoryRead only", got)
			}
			const good = `docs+skill://good/SKILL.md`
			for _, r := range []struct{ method, uri, want, not string }{
				{"skills/list", "", `"uri":"` + good, "evil"},
				{"skills/get", good, `"uri":"docs+skill://good/a"`, "-31000"},
				{"resources/directory/read", "docs+skill://good", `"uri":"docs+skill://good/a"`,
					"-31000"},
				{"resources/read", good, `"text":"text"`, "-31000"},
				{"resources/read", "docs+skill://good/a", "does not match the digest", `"new"`},
				{"skills/get", "docs+skill://evil/SKILL.md", "-31000", "frontmatter"},
				{"resources/read", "docs+skill://evil/a", "-31000", `"new"`},
				{"resources/directory/read", "docs+skill://evil", "-31000", `"resources"`},
			} {
				params := `{}`
				if r.uri != "" {
					params = `{"uri":"` + r.uri + `"}`
				}
				got := string(harness.Request(t, c, r.method, params).Raw)
				if !strings.Contains(got, r.want) || strings.Contains(got, r.not) {
					t.Errorf("%s %s got %s, want %s and not %s", r.method, params, got, r.want,
						r.not)
				}
			}
			g.WantRecords("to_client response skills/list docs - hide",
				"to_client response resources/read docs skill://good/SKILL.md pass",
				"to_client response resources/read docs skill://good/a deny")
		})
	}
}
