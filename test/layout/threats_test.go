package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named matches a test that a document names: `core/mcp TestParseRefuses`.
var named = regexp.MustCompile("`([a-z0-9/]+) ((?:Test|Fuzz)[A-Za-z0-9_]+)`")

// absentTests returns the tests that a text names and that do not exist. hasTest reports whether a
// package has a test.
func absentTests(text string, hasTest func(pkg, name string) bool) (absent []string, found int) {
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		found++
		if !hasTest(m[1], m[2]) {
			absent = append(absent, m[1]+" "+m[2])
		}
	}
	return absent, found
}

// Each threat that docs/threats.md names has a test that proves what holds it.
func TestThreatsHaveTests(t *testing.T) {
	b, err := os.ReadFile("../../docs/threats.md")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	hasTest := func(pkg, name string) bool {
		if _, read := sources[pkg]; !read {
			files, _ := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
			for _, file := range files {
				source, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				sources[pkg] += string(source)
			}
		}
		return strings.Contains(sources[pkg], "\nfunc "+name+"(")
	}
	absent, found := absentTests(string(b), hasTest)
	for _, name := range absent {
		t.Errorf("docs/threats.md names a test that does not exist: %s", name)
	}
	if found < 50 {
		t.Errorf("docs/threats.md names %d tests; is its form another one?", found)
	}
	rows := 0
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "| **") {
			if rows++; !named.MatchString(line) {
				t.Errorf("a threat has no test: %s", line)
			}
		}
	}
	if rows < 30 {
		t.Errorf("docs/threats.md has %d threats, want all", rows)
	}
	if got, _ := absentTests("`core/mcp TestNothing`", hasTest); len(got) != 1 {
		t.Errorf("a planted name of a test is not found: %q", got)
	}
}
