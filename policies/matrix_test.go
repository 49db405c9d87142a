package policies_test

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"

	"golang.org/x/text/unicode/norm"
)

// replaceAll returns a transformation that replaces all matches of a pattern.
func replaceAll(pattern, with string) func(string) string {
	re := regexp.MustCompile(pattern)
	return func(s string) string { return re.ReplaceAllString(s, with) }
}

var escaped = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// transformations are the steps by which servers, correct or not, may change a path before they
// open it. The transformations use none of the code under test.
var transformations = map[string]func(string) string{
	"decodes percent escapes": func(s string) string {
		return escaped.ReplaceAllStringFunc(s, func(e string) string {
			plain, _ := url.PathUnescape(e)
			return plain
		})
	},
	"decodes the escapes of IIS":   replaceAll(`%u00([0-7][0-9A-Fa-f])`, "%$1"),
	"reads a backslash as a slash": strings.NewReplacer(`\`, "/").Replace,
	"normalizes Unicode":           norm.NFKC.String,
	"decodes overlong UTF-8": strings.NewReplacer("\xc0\xae", ".", "\xc0\xaf", "/",
		"\xe0\x80\xae", ".", "\xe0\x80\xaf", "/", "\xc1\x9c", `\`).Replace,
	"cuts the path at a NUL": func(s string) string {
		s, _, _ = strings.Cut(s,
			"\x00")
		return s
	},
	"trims spaces":                     strings.TrimSpace,
	"trims quotes":                     replaceAll(`^["']|["']$`, ""),
	"removes the byte order mark":      replaceAll(`^\x{feff}+`, ""),
	"removes invalid UTF-8":            func(s string) string { return strings.ToValidUTF8(s, "") },
	"removes path parameters":          replaceAll(`;[^/]*`, ""),
	"removes dots and spaces after ..": replaceAll(`(\.\.) [. ]*(/|$)`, "$1$2"),
	"removes ../ once":                 strings.NewReplacer("../", "").Replace,
	"converts to a code page": strings.NewReplacer("¥", `\`, "₩", `\`, "∕", "/", "⁄", "/",
		"∖", `\`).Replace,
	"resolves . and ..":                            path.Clean,
	"reads a file URI as a path":                   replaceAll(`(?i)^file:(//(localhost)?)?`, ""),
	"reads a file URI as a path, without its host": replaceAll(`(?i)^file://[^/]*`, ""),
}

// openedPaths returns the files that a server may open for a text: the results of up to three
// transformations in a row, in every order.
func openedPaths(text, root string) (paths []string) {
	all := []string{text}
	for at, step := 0, 0; step < 3; step++ {
		for end := len(all); at < end; at++ {
			for _, transform := range transformations {
				if next := transform(all[at]); !slices.Contains(all, next) {
					all = append(all, next)
				}
			}
		}
	}
	for _, p := range all {
		if !strings.HasPrefix(p, "/") {
			p = root + "/" + p
		}
		paths = append(paths, p)
	}
	return paths
}

// traversalPayloads returns paths that try to reach secret.txt from the root top/data. They combine
// spellings of ".." and of "/", the number of "..", the start folder, and symbolic links.
func traversalPayloads(top string, starts []string) (payloads []string) {
	seen := map[string]bool{}
	add := func(p string) {
		if !seen[p] {
			seen[p] = true
			payloads = append(payloads, p)
		}
	}
	ups := append([]string{"%2e%2E", "%u002e%u002e", "%c0%ae%c0%ae", "%e0%80%ae%e0%80%ae", "..%00",
		"..\x00", "︰", ". .", "...", "..;a=b", "../.", "....//..", "\u200b..", ".%80."}, dots...)
	seps := append([]string{"%c0%af", "%c1%9c", "¥", "₩", "%2f%2f", "/ /", "\\/"}, slash...)
	for i, start := range starts {
		ups, seps := ups, seps
		// all spellings from the root, but only three from other start folders: with the race
		// detector, all of them would take a minute
		if i > 0 {
			ups, seps = []string{"..", "%2e%2e", "．．"}, []string{"/", "%2f", `\`}
		}
		for _, sep := range seps {
			join := func(s ...string) string {
				return strings.Join(slices.DeleteFunc(s, func(s string) bool {
					return s == ""
				}), sep)
			}
			add(join(start, "secret.txt"))
			add(join(start, "out", "secret.txt"))
			for _, up := range ups {
				for _, depth := range []int{1, 14} {
					climb := strings.TrimSuffix(strings.Repeat(up+sep, depth), sep)
					rest := []string{"secret.txt"}
					if depth == 14 {
						rest = append(strings.Split(top[1:], "/"), "out", "secret.txt")
					}
					add(join(append([]string{start, climb}, rest...)...))
				}
				add(join(start, up, "database", "secret.txt"))
			}
			for _, mark := range []string{`"`, `'`, "\ufeff", "%22"} {
				add(mark + join(start, "..", "secret.txt") + mark)
				add(mark + join(append(strings.Split(top, "/"), "secret.txt")...))
			}
		}
	}
	return payloads
}

// TestEveryPathPayloadIsDeniedOrHarmless checks that each payload is denied or harmless. A payload
// is harmless if no server that applies the transformations to it opens a file outside of the root.
// The payloads are sent as arguments, as URIs, and as roots of the client.
func TestEveryPathPayloadIsDeniedOrHarmless(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root := top + "/data"
	for _, dir := range []string{"data/sub/deep", "out", "database"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{"secret.txt": "SECRET", "out/secret.txt": "SECRET",
		"database/secret.txt": "SECRET", "data/own.txt": "own", "data/sub/secret.txt": "own"} {
		if err := os.WriteFile(filepath.Join(top, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"data/in": "sub/deep", "data/away": "../out",
		"data/sub/up": "../..", "data/file": "../secret.txt", "data/chain": "sub/up/out",
		"alias": "data"} {
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	isSecret := map[string]bool{} // by the names of the files that were opened
	harmful := func(payload string) bool {
		return slices.ContainsFunc(openedPaths(payload, root), func(name string) bool {
			secret, tried := isSecret[name]
			if !tried {
				b, err := os.ReadFile(name)
				secret = err == nil && string(b) == "SECRET"
				isSecret[name] = secret
			}
			return secret
		})
	}
	for n, c := range []struct {
		name, root string
		settings   map[string]any
	}{
		{"the root as a path, and a base", root, map[string]any{"roots": []any{root},
			"base": root}},
		{"the root as a URI", root, map[string]any{"roots": []any{"file://" + root + "/"},
			"relative": true}},
		{"the root as a link to it", top + "/alias", map[string]any{"roots": []any{top + "/alias"},
			"base": top + "/alias"}},
	} {
		r := c.root
		starts := []string{r, r + "/in", r + "/away", r + "/sub/up", r + "base", r + "/file",
			"", "chain", top + "/alias", top + "/out/../data", "file://" + r,
			"FILE://localhost" + r + "/in"}
		var some []string
		for i, p := range traversalPayloads(top, starts) {
			if i%3 == n { // a third of the payloads for each of the three cases
				some = append(some, p)
			}
		}
		t.Run(c.name, func(t *testing.T) {
			s := fromLibrary(t, "roots/traversal", c.settings)
			attacks := 0
			arguments, uris, roots := allowedPayloads(t, s, some)
			for _, p := range some {
				if !harmful(p) {
					continue
				}
				attacks++
				for where, passes := range map[string]map[string]bool{"argument": arguments,
					"URI": uris, "root": roots} {
					if passes[p] {
						t.Errorf("the %s %q passes, but a server may open %q", where, p,
							openedPaths(p, root))
					}
				}
			}
			passed := len(arguments)
			t.Logf("%d payloads: %d harmful, %d allowed", len(some), attacks,
				passed)
			if attacks < 200 || passed < 30 {
				t.Errorf("of %d payloads, %d are harmful and %d allowed: too few for a "+
					"meaningful test", len(some),
					attacks, passed)
			}
			// resources/read uses the same check as subscriptions/listen, so a sample is enough
			for _, p := range some {
				if len(p)%17 == 0 && harmful(p) && !refused(t, s, reading(p)) {
					t.Errorf("resources/read of the URI %q is allowed", p)
				}
			}
		})
	}
}

// allowedPayloads returns the paths that a stage with roots/traversal allows as arguments, as URIs,
// and as roots of a client. It sends up to 100 paths in one message.
func allowedPayloads(t *testing.T, s *policies.Stage,
	paths []string) (arguments, uris, roots map[string]bool) {
	t.Helper()
	inspect := func(m *mcp.Message) pipeline.Verdict {
		v, err := s.Inspect(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	arguments, uris, roots = map[string]bool{}, map[string]bool{}, map[string]bool{}
	for some := range slices.Chunk(paths, 100) {
		var texts, objects []string
		for _, p := range some {
			texts, objects = append(texts, quoted(p)), append(objects, `{"uri":`+quoted(p)+`}`)
		}
		list := strings.Join(texts, ",")
		argument := inspect(called("x", `{"paths":[`+list+`]}`))
		uri := inspect(sent(mcp.NewRequest("1", "subscriptions/listen",
			[]byte(`{"notifications":{"resourceSubscriptions":[`+list+`]}}`)), mcp.ToServer, ""))
		root := inspect(answered(sent(mcp.NewRequest("1", "roots/list", nil), mcp.ToClient, ""),
			`{"roots":[`+strings.Join(objects, ",")+`]}`))
		for i, p := range some {
			if !strings.Contains(argument.Reason, fmt.Sprintf("argument paths/%d: ", i)) {
				arguments[p] = true
			}
			if !slices.Contains(uri.Hide, p) {
				uris[p] = true
			}
			if !slices.Contains(root.Hide, p) {
				roots[p] = true
			}
		}
	}
	return arguments, uris, roots
}
