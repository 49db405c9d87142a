package audit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

// variable holds patterns for the parts of the example's output that differ from run to run, and
// the replacement of each.
var variable = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z`), "TIME"},
	{regexp.MustCompile(`(session|principal)-[a-z2-7]{12}`), "$1-ID"},
	{regexp.MustCompile(`\b[0-9.]+(µs|ms|s)\b`), "DURATION"},
	// The output does not show very short durations.
	{regexp.MustCompile(`\b(pass|modify)( DURATION)?$`), "$1"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "DIGEST"},
	{regexp.MustCompile(`#\d+`), "#RECORD"},
	{regexp.MustCompile(`\bid [a-z2-7]{26}\b`), "id ID"},
	{regexp.MustCompile(`\S+/gatekit.toml`), "FILE"},
	{regexp.MustCompile(`\buser id \d+\b`), "user id ID"},
	{regexp.MustCompile(`^initialized in gatekit-[0-2]$`), "initialized in REPLICA"},
	{regexp.MustCompile(`^\d+ calls answered\b`), "N calls answered"},
	{regexp.MustCompile(` +`), " "}, // column widths depend on the values
}

// TestAuditExampleReadmeMatchesOutput runs the commands of examples/04-audit/README.md, and
// compares their output with the page. The first command makes a session.
func TestAuditExampleReadmeMatchesOutput(t *testing.T) {
	peers.Installed(t, "curl", "pgrep", "sed")
	dir, commands := runReadme(t, "04-audit", "127.0.0.1:7777")
	if commands != 5 {
		t.Errorf("the page has %d commands, want 5", commands)
	}
	for _, name := range []string{"audit.jsonl", "gatekit.log", "clients.txt"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || len(b) == 0 || bytes.Contains(b, []byte("AKIA")) {
			t.Errorf("%s: error %v, %d bytes, contains the key: %t; want a file without the key",
				name, err, len(b), bytes.Contains(b, []byte("AKIA")))
		}
	}
}

// TestCompanyExampleReadmeMatchesOutput runs the command of examples/05-company-gateway/README.md,
// with the gatekit of the tests. Two users log in at two issuers.
func TestCompanyExampleReadmeMatchesOutput(t *testing.T) {
	harness.Long(t, "builds a program")
	t.Setenv("GATEKIT", peers.Gatekit(t))
	dir, commands := runReadme(t, "05-company-gateway", "127.0.0.1:7777", "127.0.0.1:7778")
	if commands != 1 {
		t.Errorf("the page has %d commands, want 1", commands)
	}
	for _, name := range []string{"audit.jsonl", "gatekit.log"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || len(b) == 0 || bytes.Contains(b, []byte("eyJ")) {
			t.Errorf("%s: error %v, %d bytes, contains a token: %t; want a file without tokens",
				name, err, len(b), bytes.Contains(b, []byte("eyJ")))
		}
	}
}

// runReadme runs the commands in the README of an example in a copy of the example, and compares
// their output with the page. It returns the copy's folder and the number of commands. The copy
// gets free addresses, since another test may use those of the example.
func runReadme(t *testing.T, example string, addresses ...string) (dir string, commands int) {
	t.Helper()
	dir = copyExample(t, example, addresses...)
	return dir, runConsoleBlocks(t, dir)
}

// copyExample returns the folder of a copy of an example, which has free addresses instead of its
// own.
func copyExample(t *testing.T, example string, addresses ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), example)
	from := os.DirFS(filepath.Join(peers.Top(), "examples", example))
	if err := os.CopyFS(dir, from); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "audit.jsonl*")) // of a run by hand
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range logs {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range addresses {
		replaceInFiles(t, dir, address, peers.FreeAddress(t))
	}
	return dir
}

// runConsoleBlocks runs the commands in the README of a folder, and compares their output with the
// page. It returns the number of commands.
func runConsoleBlocks(t *testing.T, dir string) (commands int) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	consoleBlock := regexp.MustCompile("(?s)```console\n(.*?)```")
	for _, block := range consoleBlock.FindAllStringSubmatch(string(page), -1) {
		for _, entry := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(entry, "\n")
			commands++
			cmd := exec.CommandContext(harness.Context(t), "sh", "-c", command)
			cmd.Dir, cmd.WaitDelay = dir, time.Second
			cmd.Env = withGatekit(t)
			out, err := cmd.CombinedOutput()
			if err != nil {
				log, _ := os.ReadFile(filepath.Join(dir, "gatekit.log"))
				t.Fatalf("%s: %v\n%s\n%s", command, err, out, log)
			}
			if err := compareOutput(string(out), want); err != nil {
				t.Errorf("%s: %v", command, err)
			}
		}
	}
	return commands
}

// withGatekit returns the environment with the gatekit of the tests in PATH.
func withGatekit(t *testing.T) []string {
	return append(os.Environ(), "PATH="+filepath.Dir(peers.Gatekit(t))+
		string(os.PathListSeparator)+os.Getenv("PATH"))
}

// replaceInFiles replaces a text in all files in a folder. It fails the test if none has it.
func replaceInFiles(t *testing.T, dir, old, replacement string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(b, []byte(old)) {
			continue
		}
		found = true
		if err := os.WriteFile(file, bytes.ReplaceAll(b, []byte(old), []byte(replacement)),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Fatalf("no file of %s has %s", dir, old)
	}
}

// compareOutput returns an error unless the output has the same lines as the page. The lines may be
// in any order, since concurrent calls end in any order. "…" in the page stands for any text.
func compareOutput(output, page string) error {
	normalize := func(s string) string {
		s = strings.TrimRight(s, " \n")
		for _, v := range variable {
			s = v.pattern.ReplaceAllString(s, v.replacement)
		}
		return s
	}
	var extra []string // lines of the output that match no line of the page
	for line := range strings.Lines(output) {
		extra = append(extra, normalize(line))
	}
	var missing []string
	for line := range strings.Lines(page) {
		if line = normalize(line); line == "" {
			continue
		}
		want := regexp.MustCompile("^" +
			strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$")
		found := false
		for i := range extra {
			if found = want.MatchString(extra[i]); found {
				extra = append(extra[:i], extra[i+1:]...)
				break
			}
		}
		if !found {
			missing = append(missing, line)
		}
	}
	if len(missing)+len(extra) > 0 {
		return fmt.Errorf("missing in the output:\n\t%s\nmissing on the page:\n\t%s",
			strings.Join(missing, "\n\t"), strings.Join(extra, "\n\t"))
	}
	return nil
}
