package secrets_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"gatekit/core/mcp"
)

// fixtures are gitleaks' own: label 1 holds a secret of the rule, 0 nearly does.
type fixture struct {
	Label      int
	Rule, Text string
}

func fixtures(t testing.TB) (all []fixture) {
	f, err := os.Open("../../../../shared/corpora/gitleaks/fixtures.jsonl")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the corpora are not here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var x fixture
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	if lines.Err() != nil || len(all) == 0 {
		t.Fatal("no fixtures: ", lines.Err())
	}
	return all
}

// TestRecallAndPrecision holds the rules against gitleaks' fixtures, each as the text of a result.
// -v shows the figures of each rule.
func TestRecallAndPrecision(t *testing.T) {
	s := newStage(t, `{"action":"audit","rules":{"enable":["hashicorp-tf-password"]}}`)
	type figures struct{ positive, found, others, negative, wrong, otherwise int }
	rules := map[string]*figures{}
	var total figures
	classes := classesOf(t)
	for _, x := range fixtures(t) {
		for _, name := range []string{x.Rule, classes[x.Rule]} {
			if rules[name] == nil {
				rules[name] = &figures{}
			}
		}
		ids := types(inspect(t, s, result(x.Text)))
		right := slices.Contains(ids, x.Rule)
		for _, f := range []*figures{rules[x.Rule], rules[classes[x.Rule]], &total} {
			switch {
			case x.Label == 1:
				f.positive++
				if right {
					f.found++
				} else if len(ids) > 0 {
					f.others++
				}
			default:
				f.negative++
				if right {
					f.wrong++
				} else if len(ids) > 0 {
					f.otherwise++
				}
			}
		}
		if x.Label == 1 && len(ids) == 0 {
			t.Errorf("%s is not found in %q", x.Rule, x.Text)
		}
	}
	var ids []string
	for id := range rules {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		r := rules[id]
		t.Logf("%-45s positive %4d: by this rule %4d, by a better one %3d; near misses %3d, "+
			"wrong %d, of another rule %d", id, r.positive, r.found, r.others, r.negative, r.wrong,
			r.otherwise)
	}
	t.Logf("%d rules, %d positives: found %d (%d under the name of another rule); %d near "+
		"misses, wrong %d, of another rule %d", len(classes), total.positive,
		total.found+total.others, total.others,
		total.negative, total.wrong, total.otherwise)
	if total.wrong > 0 {
		t.Errorf("%d near misses are taken for secrets", total.wrong)
	}
}

// classesOf says of which class each of gitleaks' rules is.
func classesOf(t *testing.T) map[string]string {
	var file struct{ Rules []struct{ ID, Regex string } }
	if _, err := toml.DecodeFile("gitleaks.toml", &file); err != nil {
		t.Fatal(err)
	}
	classes := map[string]string{}
	for _, r := range file.Rules {
		switch {
		case strings.Contains(r.ID, "generic"):
			classes[r.ID] = "CLASS generic"
		case r.ID == "private-key":
			classes[r.ID] = "CLASS PEM"
		case strings.HasPrefix(r.ID, "jwt"):
			classes[r.ID] = "CLASS JWT"
		case strings.Contains(r.Regex, `[\w.-]{0,50}?`):
			classes[r.ID] = "CLASS name = value"
		default:
			classes[r.ID] = "CLASS known form"
		}
	}
	return classes
}

// TestOrdinaryText: documentation and code hold no secrets. A text is a paragraph: what stands
// between blank lines.
func TestOrdinaryText(t *testing.T) {
	s := newStage(t, `{"action":"audit"}`)
	root := goroot(t)
	for name, globs := range map[string][]string{
		"Go's documentation": {root + "/doc/*.html", root + "/doc/*.md",
			root + "/doc/**/*.md", root + "/src/*/doc.go", root + "/src/*/*/doc.go",
			root + "/src/*/README*", root + "/*.md"},
		"Go's code": {root + "/src/net/http/*.go", root + "/src/crypto/tls/*.go",
			root + "/src/go/types/*.go", root + "/src/encoding/json/*.go"},
		"this project's documents": {"../../../../shared/docs/*.md"},
		"modules' READMEs": {filepath.Join(os.Getenv("HOME"),
			"go/pkg/mod/*/*/*/README.md"), filepath.Join(os.Getenv("HOME"),
			"go/pkg/mod/*/*/README.md")},
		"npm packages' documentation": {filepath.Join(os.Getenv("HOME"),
			".cache/gatekit-test/*/node_modules/*/README.md"), filepath.Join(os.Getenv("HOME"),
			".cache/gatekit-test/*/node_modules/@*/*/README.md")},
	} {
		files, texts, flagged, flaggedFiles, size := 0, 0, 0, 0, 0
		for _, glob := range globs {
			paths, _ := filepath.Glob(glob)
			for _, path := range paths {
				b, err := os.ReadFile(path)
				if err != nil || len(b) > 1<<20 {
					continue
				}
				files++
				size += len(b)
				bad := false
				for _, p := range strings.Split(strings.ToValidUTF8(string(b), "?"), "\n\n") {
					if strings.TrimSpace(p) == "" {
						continue
					}
					texts++
					if ids := types(inspect(t, s, result(p))); len(ids) > 0 {
						flagged++
						bad = true
						if testing.Verbose() {
							t.Logf("%s: %v in %.300q", path, ids, p)
						}
					}
				}
				if bad {
					flaggedFiles++
				}
			}
		}
		if files == 0 {
			t.Logf("%s: none here", name)
			continue
		}
		share := 100 * float64(flagged) / float64(texts)
		t.Logf("%s: %d of %d texts (%.2f %%), %d of %d files, %d KiB", name, flagged, texts, share,
			flaggedFiles, files, size>>10)
		if share > 1 {
			t.Errorf("%s: %.2f %% of the texts are taken for secrets, want 1 at most", name, share)
		}
	}
}

func result(text string) *mcp.Message {
	m := mcp.NewResponse("1", fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]}`,
		mcp.Quote(strings.ToValidUTF8(text, "?"))))
	m.Direction, m.Method, m.Server, m.Name = mcp.ToClient, "tools/call", "files", "read"
	return m
}

// TestToolDefinitions: what published servers say of their tools holds no secrets.
func TestToolDefinitions(t *testing.T) {
	f, err := os.Open("testdata/tools.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := newStage(t, `{"action":"audit"}`)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n, flagged, servers := 0, 0, map[string]bool{}
	for ; lines.Scan(); n++ {
		var x struct{ Server string }
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		servers[x.Server] = true
		m := mcp.NewResponse("1", fmt.Appendf(nil, `{"tools":[%s]}`, lines.Bytes()))
		m.Direction, m.Method = mcp.ToClient, "tools/list"
		if v := inspect(t, s, m); len(v.Findings) > 0 {
			flagged++
			t.Logf("%v in %.300s", v.Findings, lines.Bytes())
		}
	}
	t.Logf("%d of %d definitions of %d servers", flagged, n, len(servers))
	if flagged*100 > n || n == 0 {
		t.Errorf("%d of %d definitions are taken for secrets, want 1 %% at most", flagged, n)
	}
}

// goroot is where Go's own texts are.
func goroot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("no go command: ", err)
	}
	return strings.TrimSpace(string(out))
}
