package policies_test

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
	"gatekit/policies/library"
)

// fromLibrary returns a stage with one library rule.
func fromLibrary(t testing.TB, rule string, settings map[string]any) *policies.Stage {
	t.Helper()
	s, err := policies.Load(policies.Options{Rules: []string{rule},
		Config: map[string]map[string]any{rule: settings}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func reading(uri string) *mcp.Message {
	return sent(mcp.NewRequest("1", "resources/read", []byte(`{"uri":`+quoted(uri)+`}`)),
		mcp.ToServer, uri)
}

// dots and slash are spellings of ".." and of "/" that some servers accept. starts are paths that
// come before the spellings.
var (
	dots = []string{"..", "%2e%2e", "%2E.", ".%2e", "%252e%252e", "%25252e%25252e",
		"%u002e%u002e", "．．", "․․", "‥", ".. ", "....", "..;x", "%ef%bc%8e%ef%bc%8e"}
	slash = []string{"/", "//", "/./", "%2f", "%2F", "%252f", "%25252f", `\`, "%5c", "%255c",
		`\\`, "／", "∕", "＼", "%u2215", "%ef%bc%8f"}
	starts = []string{"/data", "/data/", "/data/a", "/data/a/b", "file:///data",
		"FILE://localhost/data/a", "file:/data/a", "file:///data/a%20b", "", "a", "./", "notes://a"}
)

func TestEncodedPathsCannotLeaveRoots(t *testing.T) {
	for name, settings := range map[string]map[string]any{
		"a root": {"roots": []any{"/data"}, "relative": true},
		"two roots, one as a URI, and a base": {"roots": []any{"/srv/x y", "file:///data/"},
			"base": "/data/a"},
	} {
		s := fromLibrary(t, "roots/traversal", settings)
		var paths []string
		for i, start := range starts {
			dots, slash := dots, slash
			if i > 0 { // all spellings from one start folder, but only some from the others
				dots, slash = dots[:5], slash[3:8]
			}
			for _, up := range dots {
				for _, sep := range slash {
					for _, depth := range []int{1, 6} {
						// One ".." from a subfolder stays within the root.
						if depth == 1 && start != "" && start != "/data" && start != "/data/" {
							continue
						}
						path := start + sep + strings.Repeat(up+sep, depth) + "etc" + sep + "passwd"
						if start == "" {
							path = strings.Repeat(up+sep, depth) + "etc"
						}
						paths = append(paths, path)
					}
				}
			}
		}
		arguments, uris, _ := allowedPayloads(t, s, paths)
		for path := range arguments {
			t.Errorf("%s: the argument %q passes", name, path)
		}
		for path := range uris {
			if !strings.HasPrefix(path, "notes://a") {
				t.Errorf("%s: the URI %q passes", name, path)
			}
		}
	}
}

// refused reports whether the policies deny a message.
func refused(t *testing.T, s *policies.Stage, m *mcp.Message) bool {
	t.Helper()
	v, err := s.Inspect(t.Context(), m)
	if err != nil {
		t.Fatalf("%s: %v", m.Body(), err)
	}
	return v.Action == 0
}

func TestOnlyPathsWithinRootsPass(t *testing.T) {
	s := fromLibrary(t, "roots/traversal", map[string]any{"roots": []any{"/data", "C:/Work"},
		"relative": true})
	for _, path := range []string{
		"/database", "/data.bak", "/dat", "/", "/DATA", "/Data/x", "//data/x", `\\host\data`,
		"//?/C:/Work/x", `\\.\C:\Work`, "/data/x\x00", "/data/\nx", "~root/x", "~", "$HOME",
		"%HOME%/x", "C:x", "D:/Work/x", "C:/Workshop/x", `c:\work\..\x`,
		`C:\Work\x:stream`, "file:../x", "file://data/x", "file:////host/data",
		"file:///database", "file:///data/x?/../../../etc", "file:///data/../x?",
		"view-source:file:///etc/passwd", "notes://../x", "/data/\u202e/../../x",
		"/data/..\u00a0/../../x", strings.Repeat("/data", 3000),
		strings.Repeat("%25", 200) + "2e", "C:/Work/.. /x", "C:/Work/..\\..\\x",
		"/proc/self/root/data/x", "file%3A///etc/passwd", "FiLe:///etc", "  /etc",
		"/data/%c0%ae%c0%ae/x", "/data/%f8%80%80%80%ae./x", "/data/.%80./x", "/data/\u0085/../../x",
		"local:/etc/x", "LOCAL:///etc/x", "simplecache::/etc/x", "zip://a::/etc/x.zip",
		"php://filter/resource=/etc/x", "netdoc:/etc/x", "sqlite:////etc/x", "unix:/run/x.sock",
		"jar:file:///etc/x!/", "jdbc:sqlite:/etc/x", "git+file:///etc/x", "ext::sh -c id",
		"@/etc/x", "zip://../x", "local:%2fetc%2fx", "subfile,,start,0,end,0,,:/etc/x",
		"sqlite+x:////etc/x", "file::/etc/x", "label:@/etc/x", "a::b::/etc/x", "a::../x",
		`"/etc/x"`, `'/etc/x'`, `"../x"`, "\ufeff/etc/x", "%22/etc/x%22", ` "/etc/x`,
	} {
		if !refused(t, s, called("x", `{"path":`+quoted(path)+`}`)) {
			t.Errorf("the argument %q passes", path)
		}
		if !refused(t, s, reading(path)) {
			t.Errorf("the URI %q passes", path)
		}
	}
	for _, path := range []string{
		"/data", "/data/", "/data/.", "/data/x", "/data//x", "/data/database", "/data/a/../b",
		"/data/..x", "/data/x..", "/data/...", "/data/…", "/data/100%", "/data/50%25", "/data/a b",
		"/data/ä/日本", "/data/a;b", "/data/~x", "/data/$x", `/data/a\b`, "/data/%zz", "/data/caf%E9",
		"/data/50%ad", `"/data/a b"`, `/data/"a"`, "/data/it's",
		"x", "x/y", "./x", "a/../b", "...", "file:///data/x%20y", "FILE://LOCALHOST/data/x",
		"https://example.com/a/b", "notes://x/y", `c:\work\x`, "C:/WORK/a/../b",
		"file:///C:/Work/x", "file:///c%3A/Work/x", "", "file:data", `C:\Work\a\..\b`,
		"sqlite:/data/x.db", "simplecache::/data/x", "zip://a::/data/x.zip", "sqlite::memory:",
		"zip://a::https://example.com/x.zip", "unix:///data/x.sock", "std::vector", "@scope/x",
	} {
		if refused(t, s, called("x", `{"path":`+quoted(path)+`}`)) {
			t.Errorf("the argument %q is refused", path)
		}
		if refused(t, s, reading(path)) && path != "" {
			t.Errorf("the URI %q is refused", path)
		}
	}
}

// TestOrdinaryPathsHideNothing uses the setting "anywhere", which `gatekit wrap` sets by default.
// Paths that hide nothing must pass. Paths that hide `../` or a NUL character must be denied.
func TestOrdinaryPathsHideNothing(t *testing.T) {
	s := fromLibrary(t, "roots/traversal", library.DefaultRules()["roots/traversal"])
	for _, path := range []string{
		"../x/a%20b", `"../a b"`, "caf%E9.txt", "100%ad", "SELECT 1 WHERE a LIKE '%add%'",
		"file:///home/u/caf%E9", "HEAD~1..HEAD", "origin/main...ä", "**/*.{ts,tsx}",
		"a/…/b", "./.../x", "src/..../x", "日本語／資料．txt", "data:text/html,%c3%a9 ..",
		"https://x.com/?u=..%2f..%2f", "~/a", `C:\Users\me\x`,
		`C:\a\..\b`, `C:\a\..\..\b`, "c:/a\\..\\b", `src\..\lib`, "%2e%2e", "file:notes.txt",
	} {
		if got := verdictOf(t, s, called("x", `{"path":`+quoted(path)+`}`)); strings.HasPrefix(got,
			"denied") {
			t.Errorf("%q: %s, want it allowed", path, got)
		}
	}
	for _, path := range []string{`"..%2fx"`, "%c0%ae%c0%ae/x", "%e0%80%ae%e0%80%ae/x", ".%80./x",
		"a/%252e%252e/x", `a\..\..\x`, `C:\a%5c..%5cb`, "x\x00"} {
		if got := verdictOf(t, s, called("x", `{"path":`+quoted(path)+`}`)); !strings.HasPrefix(got,
			"denied") {
			t.Errorf("%q passes", path)
		}
	}
}

func TestSymbolicLinksCannotLeaveRoots(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"root/sub", "out/deep"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(top, "root")
	for name, to := range map[string]string{"in": "sub", "away": "../out",
		"absolute": filepath.Join(top, "out"), "dangling": "../out/new", "chain": "dangling",
		"loop": "loop", "deep": "../out/deep", "up": "sub/../..", "sub/back": "..", "self": root} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(root, filepath.Join(top, "alias")); err != nil {
		t.Fatal(err)
	}
	passes := func(s *policies.Stage, path string) bool {
		return !refused(t, s, called("x", `{"path":`+quoted(path)+`}`))
	}
	for name, r := range map[string]string{"the root": root, "a link to it": filepath.Join(top,
		"alias")} {
		s := fromLibrary(t, "roots/traversal", map[string]any{"roots": []any{r}, "base": r})
		for _, path := range []string{"away/x", "away", "absolute/x/y", "dangling", "dangling/x",
			"chain", "loop", "deep/../x", "up", "up/x", "sub/back/../out", "dangling/",
			"dangling/.", "self/away"} {
			for _, p := range []string{r + "/" + path, path,
				"file://" + (&url.URL{Path: r + "/" + path}).EscapedPath(),
				r + "/" + strings.ReplaceAll(path, "a", "%61")} {
				if passes(s, p) {
					t.Errorf("%s: %s passes", name, p)
				}
			}
		}
		for _, path := range []string{"in", "in/new", "sub/new/deeper", "sub/back/sub", "self/sub",
			"new", "."} {
			for _, p := range []string{r + "/" + path, path} {
				if !passes(s, p) {
					t.Errorf("%s: %s is refused", name, p)
				}
			}
		}
	}
	relative := fromLibrary(t, "roots/traversal", map[string]any{"roots": []any{root},
		"relative": true})
	if passes(relative, "away/x") {
		t.Error("a relative path through a link passes")
	}
	remote := fromLibrary(t, "roots/traversal", map[string]any{"roots": []any{root},
		"remote": []any{"a"}})
	if !passes(remote, root+"/away/x") {
		t.Error("a link of this machine denies a path of a server on another machine")
	}
}

// TestRootThatCannotBeResolved has allowed folders that cannot be resolved beside one that can: a
// link to itself, and a folder that does not exist. Links must not lead out of the other folder.
func TestRootThatCannotBeResolved(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	root, loop := filepath.Join(top, "root"), filepath.Join(top, "loop")
	for _, dir := range []string{root, filepath.Join(top, "out")} {
		must(t, os.Mkdir(dir, 0o700))
	}
	for name, to := range map[string]string{loop: "loop", filepath.Join(root, "self"): "self",
		filepath.Join(root, "away"):   "../out",
		filepath.Join(root, "absent"): "/gatekit-absent-file",
		filepath.Join(root, "inside"): "new"} {
		must(t, os.Symlink(to, name))
	}
	for _, other := range []string{loop, "/gatekit-absent-folder"} {
		s := fromLibrary(t, "roots/traversal", map[string]any{"roots": []any{root, other}})
		for path, want := range map[string]bool{"/away/x": true, "/absent": true, "/self": true,
			"/inside": false, "/x": false} {
			if got := refused(t, s, called("x", `{"path":`+quoted(root+path)+`}`)); got != want {
				t.Errorf("with %s, the path root%s is denied: %v, want %v", other, path, got, want)
			}
		}
	}
}

// TestHomeAndDrives checks paths in the configured home folder, and the folder of a whole drive.
func TestHomeAndDrives(t *testing.T) {
	s := fromLibrary(t, "roots/traversal", map[string]any{"roots": []any{"/data/ann", "C:/"},
		"home": "/data/ann"})
	for path, want := range map[string]bool{"~": false, "~/x": false, "/data/ann/x": false,
		"~/../bob": true, "~bob/x": true, "/etc/x": true, "/x/data": true, "C:/": false,
		"C:/x": false, "C:x": true, "C:": true, "D:/": true} {
		if got := refused(t, s, called("x", `{"path":`+quoted(path)+`}`)); got != want {
			t.Errorf("%s is denied: %v, want %v", path, got, want)
		}
	}
}

// TestManySchemesAreDenied checks texts with four and with five schemes, one within the other.
func TestManySchemesAreDenied(t *testing.T) {
	s := fromLibrary(t, "roots/traversal", map[string]any{"roots": []any{"/data"},
		"relative": true})
	schemes := func(n int) []string {
		cache := func(n int) string { return strings.Repeat("cache:", n) }
		return []string{strings.Repeat("local:", n) + "/data/x", cache(n) + "file:///data/x",
			"@" + cache(n-2) + "local:/data/x", cache(n-1) + "x+file:/data/x",
			"local:git:" + strings.Repeat("local:", n-2) + "/data/x?y",
			"zip://a.txt::" + cache(n-2) + "local:/data/x"}
	}
	for n, want := range map[int]bool{4: false, 5: true} {
		for _, path := range schemes(n) {
			got := verdictOf(t, s, called("x", `{"path":`+quoted(path)+`}`))
			if strings.Contains(got, "the path has too many schemes") != want ||
				strings.HasPrefix(got, "denied") != want {
				t.Errorf("%s: %s, want it denied: %v", path, got, want)
			}
		}
	}
	for path, want := range map[string]bool{"local:/data/x?y": false,
		"local:/data/x?/../../../etc/passwd": true,
		// each path within the text is checked, or there are too many
		"local:a" + strings.Repeat("=/data/x", 16):             false,
		"local:a" + strings.Repeat("=/data/x", 15) + "=/etc/x": true,
		"local:a" + strings.Repeat("=/data/x", 16) + "=/etc/x": true,
		"local:a" + strings.Repeat("=/data/x", 17):             true,
	} {
		if got := refused(t, s, called("x", `{"path":`+quoted(path)+`}`)); got != want {
			t.Errorf("%s is denied: %v, want %v", path, got, want)
		}
	}
}

// TestPathBeforeAQuery checks local URIs with a query. The text before the query is a path of its
// own, also if it is empty.
func TestPathBeforeAQuery(t *testing.T) {
	s := fromLibrary(t, "roots/traversal", map[string]any{"roots": []any{"/data"}})
	for path, want := range map[string]bool{"local:///data/x?y": false, "local:///etc/x?y": true,
		"local://x?y": true, "local://?y": true, "local://#y": true} {
		if got := refused(t, s, called("x", `{"path":`+quoted(path)+`}`)); got != want {
			t.Errorf("%s is denied: %v, want %v", path, got, want)
		}
	}
}

// TestPossiblePaths checks gatekit.path.possible for texts with blanks.
func TestPossiblePaths(t *testing.T) {
	s := loaded(t, `deny contains "no" if gatekit.path.possible(input.params.arguments.text)`)
	for text, want := range map[string]bool{"/a": true, "/a b/c": true, "/a b": false,
		"//a b/c": false} {
		if got := refused(t, s, called("x", `{"text":`+quoted(text)+`}`)); got != want {
			t.Errorf("%q is denied: %v, want %v", text, got, want)
		}
	}
}

// TestOverlongDotsAreDecoded checks paths with percent escapes of bytes that are not valid UTF-8.
// Only C0 AE and its longer forms stand for a dot.
func TestOverlongDotsAreDecoded(t *testing.T) {
	s := fromLibrary(t, "roots/traversal", map[string]any{"anywhere": true})
	for path, want := range map[string]bool{"/a/%c0%ae%c0%ae/b": true,
		"/a/%e0%80%ae%e0%80%ae/b": true, "/a/%ae%ae/b": false, "/a/%c0": false,
		"/a/%c3%a9/b": false, "/a/%c0%ae%c0": false} {
		if got := refused(t, s, called("x", `{"path":`+quoted(path)+`}`)); got != want {
			t.Errorf("%s is denied: %v, want %v", path, got, want)
		}
	}
}

func TestDeclaredRootsApply(t *testing.T) {
	s := fromLibrary(t, "roots/traversal", nil)
	callWith := func(path string) string {
		return verdictOf(t, s, called("x", `{"path":`+quoted(path)+`}`))
	}
	declare := func(roots string) string {
		m := sent(mcp.NewResponse("1", []byte(roots)), mcp.ToServer, "")
		m.Method = "roots/list"
		return verdictOf(t, s, m)
	}
	if got := callWith("/work/x"); !strings.Contains(got, "no allowed folders are known") {
		t.Errorf("before the client declared roots: %s, want that no folders are known", got)
	}
	if got := declare(`{"roots":[{"uri":"file:///work/%2e%2e/"}]}`); got !=
		`{"roots":[]}` {
		t.Errorf("roots that contain ..: %s, want the roots removed", got)
	}
	if got := callWith("/etc"); !strings.HasPrefix(got, "denied") {
		t.Errorf("a path after denied roots: %s, want it denied", got)
	}
	if got, want := declare(`{"roots":[{"uri":"file:///work"},{"uri":"https://x"},`+
		`{"uri":"file:///a%20b"}]}`), `{"roots":[{"uri":"file:///work"},`+
		`{"uri":"file:///a%20b"}]}`; got != want {
		t.Errorf("a bad root among good ones: %s, want %s", got, want)
	}
	for path, pass := range map[string]bool{"/work/x": true, "/a b/x": true, "/workshop": false,
		"/a": false} {
		if got := callWith(path); strings.HasPrefix(got, "denied") == pass {
			t.Errorf("%s: %s, want it allowed: %v", path, got, pass)
		}
	}
}

func BenchmarkTraversal(b *testing.B) {
	s := fromLibrary(b, "roots/traversal", map[string]any{"roots": []any{"/data"}})
	for name, m := range map[string]*mcp.Message{"path": called("x", `{"path":"/data/a/b.txt"}`),
		"64KiB": called("x", `{"text":"`+strings.Repeat("x", 64<<10)+`"}`),
		"other": reading("notes://x")} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if v, err := s.Inspect(b.Context(), m); err != nil || v.Action == 0 {
					b.Fatal(v, err)
				}
			}
		})
	}
}

// TestExistingPathsOutsideRootsAreRefused puts paths into an argument whose name says nothing.
func TestExistingPathsOutsideRootsAreRefused(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"root/sub", "out"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	settings := library.FolderSettings([]string{filepath.Join(top, "root")}, "")
	s := fromLibrary(t, "roots/traversal", settings)
	settings["remote"] = []any{"a"}
	remote := fromLibrary(t, "roots/traversal", settings)
	for value, outside := range map[string]bool{"../out": true, "sub/../../out": true,
		"../absent": false, "sub": false, filepath.Join(top, "root/sub"): false, "/": false} {
		arguments := `{"anything":` + quoted(value) + `}`
		if got := refused(t, s, called("x", arguments)); got != outside {
			t.Errorf("%q: refused is %v, want %v", value, got, outside)
		}
		if strings.HasPrefix(value, "..") && refused(t, remote, called("x", arguments)) {
			t.Errorf("%q is refused for a remote server, where it may not exist", value)
		}
		if refused(t, s, called("x", `{"text":`+quoted(value)+`}`)) {
			t.Errorf("the text %q is refused", value)
		}
	}
}
