//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// limits is a module with one package. The package's test also passes if Allowed compares with <=.
// The test does not call Sign.
var limits = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.26\n",
	"limits/limits.go": `package limits

func Allowed(n int) bool {
	return n < 10
}

func Sign(n int) string {
	switch {
	case n < 0:
		return "minus " + "one"
	}
	return "plus"
}
`,
	"limits/limits_test.go": `package limits

import "testing"

func TestAllowed(t *testing.T) {
	if !Allowed(9) || Allowed(11) {
		t.Error("wrong")
	}
}
`,
}

// writeFiles writes files below a folder.
func writeFiles(t *testing.T, top string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// commit makes the folder a git repository if it is none and commits all files.
func commit(t *testing.T, top string) {
	t.Helper()
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=t", "-c",
		"user.email=t@example.com", "commit", "-q", "-m", "files"}} {
		git := exec.Command("git", args...)
		git.Dir = top
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}

// check runs the command and returns what it printed.
func check(t *testing.T, c checker, folders ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c.out, c.workers = &out, 1
	err := c.run(t.Context(), folders)
	return out.String(), err
}

func TestOnlySurvivorsWithoutAReasonFail(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: builds test binaries")
	}
	top := t.TempDir()
	writeFiles(t, top, limits)
	list := filepath.Join(top, "test/mutants/survivors/limits.toml")

	out, err := check(t, checker{top: top}, "limits")
	if !errors.Is(err, errSurvivors) {
		t.Errorf("without a list: got the error %v, want %v", err, errSurvivors)
	}
	for _, want := range []string{
		"survives: limits.go:4\n", "line = 'return n {{<}} 10'\n",
		"survives: limits.go:9\n", "line = 'case n {{<}} 0:'\n", // Go's coverage leaves out cases
		"1 killed, 3 survive: 25.0 % killed", // "minus " - "one" does not compile
	} {
		if !strings.Contains(out, want) {
			t.Errorf("without a list: got the output\n%s\nwant %q in it", out, want)
		}
	}

	_, err = check(t, checker{top: top, update: true}, "limits")
	if !errors.Is(err, errSurvivors) {
		t.Errorf("-update: got the error %v, want %v: the reasons are missing", err, errSurvivors)
	}
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte(`why = ""`), []byte(`why = "it is a test"`))
	writeFiles(t, top, map[string]string{
		list[len(top):]:    string(text),
		"limits/limits.go": "// Package limits moved down.\n" + limits["limits/limits.go"],
	})
	if out, err := check(t, checker{top: top}, "limits"); err != nil {
		t.Errorf("with reasons, and the lines moved: got the error %v and the output\n%s", err, out)
	}
}

// Each mutant of the package is killed, except for those in the function Untested.
func TestEveryOperatorIsMutated(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: builds test binaries")
	}
	top := t.TempDir()
	writeFiles(t, top, map[string]string{
		"go.mod": limits["go.mod"],
		"all/all.go": `package all

import (
	"errors"
	"time"
)

const Size = 2 * 8

var ErrNone = errors.New("none" + " at all")

type Bits [Size / 4]uint8

func Arithmetic[T int | float64](a, b T) (T, T, T, T) { return a + b, a - b, a * b, a / b }

func Rest(n int) int { return n % 10 }

func Negative(n int64) (int64, int64) { return -n, -1 }

func Wait(n int) time.Duration { return time.Duration(n) * time.Second }

func Compared(a, b float64) [6]bool { return [6]bool{a < b, a <= b, a > b, a >= b, a == b, a != b} }

func Count(words []string) (counts map[string]int, left int) {
	counts, left = map[string]int{}, len(words)
	for i := 0; i < len(words); i++ {
		counts[words[i]]++
		left--
	}
	return counts, left
}

func Find(err error, f func(int) bool) (found int) {
	for n := range 5 {
		if f != nil && func() bool { return err == nil || errors.Is(err, ErrNone) != f(n+1) }() {
			found++
		}
	}
	return found
}

func Endless(n int) int {
	for n < 3 {
		n++
	}
	return n
}

func Untested(n int) bool {
	return n+1 > 5
}
`,
		"all/all_test.go": `package all

import (
	"errors"
	"maps"
	"os"
	"testing"
	"time"
)

func TestAll(t *testing.T) {
	if a, b, c, d := Arithmetic(6, 2); Size != 16 || a != 8 || b != 4 || c != 12 || d != 3 {
		t.Error("arithmetic")
	}
	if len(Bits{}) != 4 || Rest(21) != 1 || Wait(2) != 2*time.Second {
		t.Error("constants")
	}
	if a, b := Negative(5); a != -5 || b != -1 {
		t.Error("negative")
	}
	if Compared(1, 1) != [6]bool{false, true, false, true, true, false} ||
		Compared(1, 2) != [6]bool{true, true, false, false, false, true} {
		t.Error("compared")
	}
}

func TestLoops(t *testing.T) {
	if Endless(0) != 3 {
		t.Error("endless")
	}
	if counts, left := Count([]string{"a", "b", "a"}); left != 0 ||
		!maps.Equal(counts, map[string]int{"a": 2, "b": 1}) {
		t.Error("count")
	}
	isSmall := func(n int) bool { return n < 3 }
	if Find(nil, isSmall) != 5 || Find(ErrNone, isSmall) != 3 || Find(nil, nil) != 0 ||
		Find(errors.New("x"), isSmall) != 2 {
		t.Error("find")
	}
}

func TestThatNeedsTheUnchangedProgram(t *testing.T) {
	if _, ok := os.LookupEnv("MUTANTS_REACHED"); ok {
		t.Error("changed")
	}
}
`,
	})
	out, err := check(t, checker{top: top}, "all")
	for _, want := range []string{
		"all: TestThatNeedsTheUnchangedProgram: left out, it fails without a mutant\n",
		"line = 'return n{{+}}1 > 5'\n", "line = 'return n+1 {{>}} 5'\n",
		"all: 33 killed, 3 survive: ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("got the error %v and the output\n%s\nwant %q in it", err, out, want)
		}
	}
}

func TestOnlyOneFileIsMutated(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: builds test binaries")
	}
	top := t.TempDir()
	writeFiles(t, top, limits)
	const entry = "[[survivor]]\nfile = \"limits.go\"\nfunc = \"Allowed\"\n" +
		"mutant = \"CONDITIONALS_BOUNDARY\"\nline = 'kept'\nwhy = 'it is a test'\n"
	writeFiles(t, top, map[string]string{
		"limits/other.go": "package limits\n\nfunc Not(a, b int) bool { return a != b }\n",
	})
	writeFiles(t, top, map[string]string{"test/mutants/survivors/limits.toml": entry})
	out, err := check(t, checker{top: top, file: "other.go", update: true}, "limits")
	if !errors.Is(err, errSurvivors) || !strings.Contains(out, "other.go:3\n") ||
		!strings.Contains(out, "0 killed, 1 survive") {
		t.Errorf("got the error %v and the output\n%s\nwant the survivor of other.go only", err,
			out)
	}
	text, err := os.ReadFile(filepath.Join(top, "test/mutants/survivors/limits.toml"))
	if err != nil || !strings.Contains(string(text), entry) ||
		strings.Count(string(text), "[[survivor]]") != 2 {
		t.Errorf("got the list\n%s\nand the error %v, want the entry of limits.go and a new one",
			text, err)
	}
	for _, folders := range [][]string{{"limits", "limits"}, nil, {"limits"}} {
		_, err = check(t, checker{top: top, base: "HEAD", file: "absent.go"}, folders...)
		if err == nil || !strings.Contains(err.Error(), "-file") {
			t.Errorf("%q: got the error %v, want one about -file", folders, err)
		}
	}
}

func TestOnlyChangedLinesAreMutated(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: builds test binaries")
	}
	top := t.TempDir()
	writeFiles(t, top, limits)
	writeFiles(t, top, map[string]string{
		"test/mutants/survivors/limits.toml": "",
		"other/other.go":                     "package other\n",
	})
	commit(t, top)

	writeFiles(t, top, map[string]string{
		"other/other.go":        "package other\n\nfunc Not(a, b int) bool { return a != b }\n",
		"limits/limits_test.go": limits["limits/limits_test.go"] + "\n// a comment\n",
	})
	out, err := check(t, checker{top: top, base: "HEAD"})
	if err != nil || !strings.Contains(out, "skipped: no package with a list of survivors") {
		t.Errorf("tests and a package without a list: got the error %v and the output %q, "+
			"want that the check is skipped", err, out)
	}

	writeFiles(t, top, map[string]string{"limits/limits.go": strings.Replace(
		limits["limits/limits.go"], "n < 0", "n <= -2", 1)})
	out, err = check(t, checker{top: top, base: "HEAD"})
	if !errors.Is(err, errSurvivors) || !strings.Contains(out, "limits.go:9\n") ||
		strings.Contains(out, "limits.go:4\n") {
		t.Errorf("line 9 changed: got the error %v and the output\n%s\n"+
			"want survivors of line 9 only", err, out)
	}

	const entry = "[[survivor]]\nfile = \"limits.go\"\nfunc = \"%s\"\n" +
		"mutant = \"CONDITIONALS_BOUNDARY\"\nline = '%s'\nwhy = 'it is a test'\n"
	writeFiles(t, top, map[string]string{
		"limits/limits.go": strings.Replace(limits["limits/limits.go"], "n < 10", "11 > n", 1),
		"test/mutants/survivors/limits.toml": fmt.Sprintf(entry, "Sign", "case n {{<}} 0:") +
			fmt.Sprintf(entry, "Allowed", "return n {{<}} 10"),
	})
	out, err = check(t, checker{top: top, base: "HEAD"})
	if !errors.Is(err, errStale) || !strings.Contains(out, "gone: limits.go CONDITIONALS_BOUNDARY "+
		"return n {{<}} 10\n") || strings.Count(out, "gone:") != 1 {
		t.Errorf("the line of an entry changed: got the error %v and the output\n%s\n"+
			"want this entry to be removed", err, out)
	}

	out, err = check(t, checker{top: top, base: "HEAD", limit: time.Nanosecond}, "limits")
	if err != nil || !strings.Contains(out, "left out") {
		t.Errorf("no time: got the error %v and the output %q, want that limits is left out",
			err, out)
	}
}

// A test that fails without a mutant is left out, as on a busy machine. With -base, a mutant that
// this test kills is no survivor.
func TestSurvivorsInChangedLinesAreConfirmed(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: builds test binaries")
	}
	top := t.TempDir()
	writeFiles(t, top, limits)
	writeFiles(t, top, map[string]string{"test/mutants/survivors/limits.toml": ""})
	commit(t, top)
	writeFiles(t, top, map[string]string{
		"limits/limits.go": strings.NewReplacer("n < 10", "10 > n", "n < 0", "0 > n").Replace(
			limits["limits/limits.go"]),
		"limits/busy_test.go": `package limits

import (
	"os"
	"testing"
)

func TestSignOnABusyMachine(t *testing.T) {
	if _, ok := os.LookupEnv("MUTANTS_REACHED"); ok {
		t.Fatal("too busy")
	}
	if Sign(0) != "plus" || Sign(-1) != "minus one" {
		t.Error("wrong")
	}
}
`,
	})
	out, err := check(t, checker{top: top, base: "HEAD"})
	if !errors.Is(err, errSurvivors) || strings.Count(out, "survives:") != 1 ||
		!strings.Contains(out, "survives: limits.go:4\n") ||
		!strings.Contains(out, "3 killed, 1 survive") {
		t.Errorf("got the error %v and the output\n%s\nwant only the survivor of line 4", err, out)
	}
}

func TestSurvivorsAreCompared(t *testing.T) {
	entry := func(line, why string) survivor {
		return survivor{File: "a.go", Func: "f", Mutant: "CONDITIONALS_BOUNDARY", Line: line,
			Why: why}
	}
	alive := func(line string) *mutant {
		return &mutant{survivor: entry(line, ""), outcome: survived}
	}
	unconfirmed := func(line string) *mutant {
		return &mutant{survivor: entry(line, ""), outcome: unconfirmed}
	}
	killed := func(line string) *mutant {
		return &mutant{survivor: entry(line, ""), outcome: killed}
	}
	for _, tt := range []struct {
		name               string
		found              []*mutant
		listed             []survivor
		unexplained, stale int
	}{
		{"a survivor that is not listed", []*mutant{alive("a {{<}} b")}, nil, 1, 0},
		{"a survivor that is listed", []*mutant{alive("a {{<}} b")},
			[]survivor{entry("a {{<}} b", "equal")}, 0, 0},
		{"a survivor that is listed without a reason", []*mutant{alive("a {{<}} b")},
			[]survivor{entry("a {{<}} b", "")}, 1, 0},
		{"two survivors with one entry", []*mutant{alive("a {{<}} b"), alive("a {{<}} b")},
			[]survivor{entry("a {{<}} b", "equal")}, 1, 0},
		{"the other token of a line", []*mutant{alive("a < b && b {{<}} c")},
			[]survivor{entry("a {{<}} b && b < c", "equal")}, 1, 1},
		{"a killed mutant that is listed", []*mutant{killed("a {{<}} b")},
			[]survivor{entry("a {{<}} b", "equal")}, 0, 1},
		{"a survivor when the time is over", []*mutant{unconfirmed("a {{<}} b")}, nil, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := compare(tt.found, tt.listed)
			if len(r.unexplained) != tt.unexplained || len(r.stale) != tt.stale {
				t.Errorf("got %d without an explanation and %d to remove, want %d and %d",
					len(r.unexplained), len(r.stale), tt.unexplained, tt.stale)
			}
		})
	}
}
