package secrets_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

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
		if f, err = os.Open("/work/shared/corpora/gitleaks/fixtures.jsonl"); err != nil {
			t.Skip("the corpora are not here: ", err)
		}
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

// TestRecallAndPrecision holds the rules against gitleaks' fixtures, each as the text of a result. -v shows the figures of each rule.
func TestRecallAndPrecision(t *testing.T) {
	s := newStage(t, `{"action":"audit","rules":{"enable":["hashicorp-tf-password"]}}`)
	type figures struct{ positive, found, others, negative, wrong int }
	rules := map[string]*figures{}
	var total figures
	for _, x := range fixtures(t) {
		r := rules[x.Rule]
		if r == nil {
			r = &figures{}
			rules[x.Rule] = r
		}
		ids := types(inspect(t, s, result(x.Text)))
		right := slices.Contains(ids, x.Rule)
		for _, f := range []*figures{r, &total} {
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
		t.Logf("%-45s positive %4d: by this rule %4d, by a better one %3d; near misses %3d, wrong %d", id, r.positive, r.found, r.others, r.negative, r.wrong)
	}
	t.Logf("%d rules, %d positives: found %d (%d under the name of another rule); %d near misses, wrong %d", len(rules), total.positive, total.found+total.others, total.others, total.negative, total.wrong)
	if total.wrong > 0 {
		t.Errorf("%d near misses are taken for secrets", total.wrong)
	}
}

// TestOrdinaryText: documentation and code hold no secrets. A text is a paragraph: what stands between blank lines.
func TestOrdinaryText(t *testing.T) {
	s := newStage(t, `{"action":"audit"}`)
	root := runtime.GOROOT()
	for name, globs := range map[string][]string{
		"Go's documentation":          {root + "/doc/*.html", root + "/doc/*.md", root + "/doc/**/*.md", root + "/src/*/doc.go", root + "/src/*/*/doc.go", root + "/src/*/README*", root + "/*.md"},
		"Go's code":                   {root + "/src/net/http/*.go", root + "/src/crypto/tls/*.go", root + "/src/go/types/*.go", root + "/src/encoding/json/*.go"},
		"this project's documents":    {"/work/shared/docs/*.md", "../../../../shared/docs/*.md"},
		"modules' READMEs":            {filepath.Join(os.Getenv("HOME"), "go/pkg/mod/*/*/*/README.md"), filepath.Join(os.Getenv("HOME"), "go/pkg/mod/*/*/README.md")},
		"npm packages' documentation": {filepath.Join(os.Getenv("HOME"), ".cache/gatekit-test/*/node_modules/*/README.md"), filepath.Join(os.Getenv("HOME"), ".cache/gatekit-test/*/node_modules/@*/*/README.md")},
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
		t.Logf("%s: %d of %d texts (%.2f %%), %d of %d files, %d KiB", name, flagged, texts, share, flaggedFiles, files, size>>10)
		if share > 1 {
			t.Errorf("%s: %.2f %% of the texts are taken for secrets, want 1 at most", name, share)
		}
	}
}

func result(text string) *mcp.Message {
	m := mcp.NewResponse("1", fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]}`, mcp.Quote(strings.ToValidUTF8(text, "?"))))
	m.To, m.Method, m.Server, m.Name = mcp.ToClient, "tools/call", "files", "read"
	return m
}
