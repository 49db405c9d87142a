package policies

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// A real server of files that may read all of a folder, behind a gatekit that lets it read one
// folder in it: no spelling of a path, and no link, gets it to what lies beside.
func TestAServerOfFilesStaysWithinTheRoots(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"secret.txt": "SECRET",
		"database/secret.txt": "SECRET", "data/own.txt": "OWN", "data/sub/100%.txt": "OWN",
		"data/a..b/%2e%2e.txt": "OWN", "data/.../own.txt": "OWN", "data/database/own.txt": "OWN"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(top, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"data/away": "../database",
		"data/file": "../secret.txt", "data/sub/up": "../..", "data/in": "sub"} {
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	root := top + "/data"
	attacks := []string{top + "/secret.txt", root + "base/secret.txt", root + "/file",
		root + "/away/secret.txt", root + "/sub/up/secret.txt", root + "/in/up/secret.txt",
		"~/../.." + top + "/secret.txt", "data/../secret.txt"}
	for _, up := range []string{"..", "%2e%2e", "%252e%252e", "．．", "︰", "....", ".. ", "..%00",
		"..;", `..\..`} {
		for _, sep := range []string{"/", "//", "/./", "%2f", `\`, "／", "%c0%af"} {
			for _, start := range []string{"", "/sub", "/in/up/data"} {
				attacks = append(attacks, root+start+sep+strings.Repeat(up+sep, strings.Count(start,
					"/")+1)+"secret.txt")
			}
		}
	}
	own := []string{"/own.txt", "/sub/100%.txt", "/sub/../own.txt", "/in/100%.txt",
		"/.../own.txt", "/database/own.txt", "/./sub//100%.txt"}
	config := harness.StdioServer("files", append(peers.Node(t).Server("filesystem"), top)) +
		"[policy]\nmode = %q\nrules = " +
		"[\"roots/traversal\"]\n[policy.config.\"roots/traversal\"]\nroots = [%q]\n"
	for _, mode := range []string{"shadow", "enforce"} {
		t.Run(mode, func(t *testing.T) {
			g, c := harness.SpawnStdio(t, fmt.Sprintf(config, mode, root), "2025-11-25")
			c.Capabilities = `{}` // without roots of the client's, the server goes by its own
			harness.Handshake(t, c)
			read := func(path string) string {
				return string(harness.Request(t, c, "tools/call",
					`{"name":"files__read_text_file","arguments":{"path":`+mcptest.Quote(path)+
						`}}`).Raw)
			}
			leaked, refused := 0, 0
			for _, p := range attacks {
				got := read(p)
				if strings.Contains(got, "SECRET") {
					if leaked++; mode == "enforce" {
						t.Errorf("%q gets %s", p, got)
					}
				}
				if strings.Contains(got, `"code":-31000`) {
					refused++
				}
			}
			for _, p := range own {
				if got := read(root + p); !strings.Contains(got, "OWN") {
					t.Errorf("%q gets %s", p, got)
				}
			}
			t.Logf("of %d paths %d were refused, %d got out", len(attacks), refused, leaked)
			if mode == "shadow" && leaked < 10 {
				t.Errorf("only %d of the paths get out when nothing is enforced: this says nothing",
					leaked)
			}
			if mode == "enforce" {
				if refused < len(attacks)*9/10 {
					t.Errorf("only %d of %d paths were refused", refused, len(attacks))
				}
				g.WantRecords("to_server request tools/call files read_text_file deny",
					"to_server request tools/call files read_text_file pass")
				g.WantReasons("roots/traversal: argument path: the path leaves the allowed folders",
					"the path leaves the allowed folders through a symbolic link")
			}
		})
	}
}
