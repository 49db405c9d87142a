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

// TestFileServerStaysWithinRoots starts the reference filesystem server with a folder of which
// gatekit allows only one subfolder. No spelling of a path and no symbolic link may lead outside
// the subfolder.
func TestFileServerStaysWithinRoots(t *testing.T) {
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
	for name, target := range map[string]string{"data/away": "../database",
		"data/file": "../secret.txt", "data/sub/up": "../..", "data/in": "sub"} {
		if err := os.Symlink(target, filepath.Join(top, name)); err != nil {
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
	inside := []string{"/own.txt", "/sub/100%.txt", "/sub/../own.txt", "/in/100%.txt",
		"/.../own.txt", "/database/own.txt", "/./sub//100%.txt"}
	config := harness.StdioServer("files", append(peers.Node(t).Server("filesystem"), top)) +
		"[policy]\nmode = %q\nrules = [\"roots/traversal\"]\n" +
		"[policy.config.\"roots/traversal\"]\nroots = [%q]\n"
	for _, mode := range []string{"shadow", "enforce"} {
		t.Run(mode, func(t *testing.T) {
			g, c := harness.SpawnStdio(t, fmt.Sprintf(config, mode, root), "2025-11-25")
			c.Capabilities = `{}` // without the client's roots, the server uses its command line
			harness.Handshake(t, c)
			read := func(path string) string {
				return string(harness.Request(t, c, "tools/call",
					`{"name":"files__read_text_file","arguments":{"path":`+mcptest.Quote(path)+
						`}}`).Raw)
			}
			leaked, denied := 0, 0
			for _, p := range attacks {
				got := read(p)
				if strings.Contains(got, "SECRET") {
					if leaked++; mode == "enforce" {
						t.Errorf("path %q got %s, want a denial or an error", p, got)
					}
				}
				if strings.Contains(got, `"code":-31000`) {
					denied++
				}
			}
			for _, p := range inside {
				if got := read(root + p); !strings.Contains(got, "OWN") {
					t.Errorf("path %q got %s, want the file", p, got)
				}
			}
			t.Logf("%d paths: %d denied, %d outside the root", len(attacks), denied, leaked)
			if mode == "shadow" && leaked < 10 {
				t.Errorf("without enforcement, %d paths lead outside the root, want at least 10: "+
					"otherwise the test with enforcement proves nothing", leaked)
			}
			if mode == "enforce" {
				if denied < len(attacks)*9/10 {
					t.Errorf("%d of %d paths were denied, want 9 of 10", denied, len(attacks))
				}
				g.WantRecords("to_server request tools/call files read_text_file deny",
					"to_server request tools/call files read_text_file pass")
				g.WantReasons("roots/traversal: argument path: the path leaves the allowed folders",
					"the path leaves the allowed folders through a symbolic link")
			}
		})
	}
}
