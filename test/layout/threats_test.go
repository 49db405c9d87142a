package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testReference matches the name of a test in a document: `core/mcp TestParseRefuses`.
var testReference = regexp.MustCompile("`([a-z0-9/]+) ((?:Test|Fuzz)[A-Za-z0-9_]+)`")

// absentTests returns the tests that a text names although they do not exist. found is the number
// of all tests that the text names. hasTest reports whether a package has a test.
func absentTests(text string, hasTest func(pkg, name string) bool) (absent []string, found int) {
	for _, m := range testReference.FindAllStringSubmatch(text, -1) {
		found++
		if !hasTest(m[1], m[2]) {
			absent = append(absent, m[1]+" "+m[2])
		}
	}
	return absent, found
}

// TestThreatsHaveTests checks that docs/threats.md names a test for each threat, and that all named
// tests exist.
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
		t.Errorf("docs/threats.md names %d tests, want 50 or more; did its format change?", found)
	}
	rows := 0
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "| **") {
			if rows++; !testReference.MatchString(line) {
				t.Errorf("docs/threats.md names no test for a threat: %s", line)
			}
		}
	}
	if rows < 30 {
		t.Errorf("docs/threats.md has %d threats, want 30 or more; did its format change?", rows)
	}
	if got, _ := absentTests("`core/mcp TestNothing`", hasTest); len(got) != 1 {
		t.Errorf("for a text that names one absent test: got the absent tests %q, want that test",
			got)
	}
}
