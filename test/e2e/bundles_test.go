package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/bundles"
	"gatekit/test/mcptest"
)

// denying is the bundle of a policy that refuses a tool.
func denying(t *testing.T, revision, tool string, by *bundles.Key) []byte {
	t.Helper()
	rego := "package gatekit.acme\n\ndeny contains \"no\" if { input.method == \"tools/call\"; input.name in data.acme.refused }\n\nhide contains item.name if { some item in input.items; item.name in data.acme.refused }\n"
	return bundles.Pack(t, revision, map[string]string{"acme.rego": rego, "data.json": fmt.Sprintf(`{"acme":{"refused":[%q]}}`, tool)}, &bundles.Signature{By: by, ID: "acme"})
}

// replace puts a file in the place of another at once, as orchestrators do.
func replace(t *testing.T, file string, contents []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", contents, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// passes says whether a tool can be called.
func passes(t *testing.T, c *mcptest.Client, tool string) bool {
	t.Helper()
	return ask(t, c, "tools/call", fmt.Sprintf(`{"name":%q}`, tool)).Error == nil
}

// A signed bundle is in force, another revision takes its place, and what is not signed as it has to be does not. The record says which one was.
func TestASignedBundleInAFile(t *testing.T) {
	key, other := bundles.NewKey(t), bundles.NewKey(t)
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "acme.tar.gz")
			replace(t, file, denying(t, "one", "log", key))
			config := box("box") + fmt.Sprintf("[policy]\nfiles = [%q]\n[policy.key.acme]\nkey = '''%s'''\nalgorithm = %q\n", file, key.Public, bundles.Algorithm)
			front(t, config, revision, func(t *testing.T, g *gatekit, c *mcptest.Client) {
				t.Cleanup(func() { replace(t, file, denying(t, "one", "log", key)) }) // for the next front
				said := func(text string) {
					t.Helper()
					settled(t, "a report of "+text, 0, func() int { return 1 - min(1, strings.Count(g.stderr.String(), text)) })
				}
				open(t, c)
				if passes(t, c, "box__log") || !passes(t, c, "box__echo") {
					t.Error("the bundle is not in force")
				}
				if list := string(ask(t, c, "tools/list", `{}`).Raw); strings.Contains(list, "box__log") || !strings.Contains(list, "box__echo") {
					t.Errorf("the list is %s", list)
				}
				for _, bad := range []struct {
					why    string
					bundle []byte
				}{
					{"failed to verify JWT signature", denying(t, "two", "echo", other)},
					{"digest mismatch", bundles.Change(t, denying(t, "two", "log", key), func(name, text string) (string, string) {
						return name, strings.Replace(text, `"no"`, `"on"`, 1)
					})},
					{"it is no bundle", []byte("garbage")},
				} {
					replace(t, file, bad.bundle)
					said(bad.why)
					if passes(t, c, "box__log") || !passes(t, c, "box__echo") {
						t.Errorf("%s: the bundle before it is not in force", bad.why)
					}
				}
				replace(t, file, denying(t, "two", "echo", key))
				said("configuration is in force")
				if !passes(t, c, "box__log") || passes(t, c, "box__echo") {
					t.Error("the second bundle is not in force")
				}
				g.recorded("to_server request tools/call box log deny", "to_client response tools/list box - hide", "to_server request tools/call box echo pass",
					"to_server request tools/call box echo deny", "to_server request tools/call box log pass")
				var story []string
				for _, r := range g.records() {
					if r.Action == "start" || r.Action == "reload" {
						_, which, _ := strings.Cut(r.Reason, fmt.Sprintf(", bundle %q revision ", file))
						if which == "" {
							which = r.Reason
						} else if !strings.Contains(r.Reason, ", policies ") {
							t.Errorf("the record does not have the digest of the policies: %s", r.Reason)
						}
						story = append(story, r.Action+" "+which)
					}
				}
				if got, want := strings.Join(story, ", "), `start "one", reload refused, reload refused, reload refused, reload "two"`; got != want {
					t.Errorf("the record says %s, want %s", got, want)
				}
			})
		})
	}
}
