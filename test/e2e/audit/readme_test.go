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

// What changes from session to session in what the commands of examples/04-audit print.
var varying = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z`), "TIME"},
	{regexp.MustCompile(`(session|principal)-[a-z2-7]{12}`), "$1-ID"},
	{regexp.MustCompile(`\b[0-9.]+(µs|ms|s)\b`), "DURATION"},
	// a step that took no time to speak of
	{regexp.MustCompile(`\b(pass|modify)( DURATION)?$`), "$1"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "DIGEST"},
	{regexp.MustCompile(`#\d+`), "#RECORD"},
	{regexp.MustCompile(`\S+/gatekit.toml`), "FILE"},
	{regexp.MustCompile(` +`), " "}, // columns are as wide as they have to be
}

// The session of examples/04-audit is held by its script, and the commands of its page print what
// the page says.
func TestThePageOfTheLogIsTrue(t *testing.T) {
	peers.Installed(t, "curl", "pgrep", "sed")
	const example = "../../../examples/04-audit"
	page, err := os.ReadFile(filepath.Join(example, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "04-audit")
	if err := os.CopyFS(dir, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	address := peers.FreeAddress(t)
	// another test may be listening there
	for _, name := range []string{"gatekit.toml", "session.sh"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(b, []byte("127.0.0.1:7777")) {
			t.Fatalf("%s names no listener, %v", name, err)
		}
		b = bytes.ReplaceAll(b, []byte("127.0.0.1:7777"), []byte(address))
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := 0
	for _, block := range regexp.MustCompile(
		"(?s)```console\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for _, said := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(said, "\n")
			commands++
			cmd := exec.CommandContext(harness.Context(t), "sh", "-c", command)
			cmd.Dir, cmd.WaitDelay = dir, time.Second
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(peers.Gatekit(t))+
				string(os.PathListSeparator)+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				log, _ := os.ReadFile(filepath.Join(dir, "gatekit.log"))
				t.Fatalf("%s: %v\n%s\n%s", command, err, out, log)
			}
			if err := prints(string(out), want); err != nil {
				t.Errorf("%s: %v", command, err)
			}
		}
	}
	if commands != 5 {
		t.Errorf("the page has %d commands", commands)
	}
	for _, name := range []string{"audit.jsonl", "gatekit.log", "clients.txt"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || len(b) == 0 || bytes.Contains(b, []byte("AKIA")) {
			t.Errorf("%s: %v, %d bytes, the key in it: %t", name, err, len(b),
				bytes.Contains(b, []byte("AKIA")))
		}
	}
}

// prints holds the lines of out against those of a page, in any order: what happens at once ends in
// any. "…" stands for any text.
func prints(out, page string) error {
	same := func(s string) string {
		s = strings.TrimRight(s, " \n")
		for _, v := range varying {
			s = v.what.ReplaceAllString(s, v.by)
		}
		return s
	}
	var left []string
	for line := range strings.Lines(out) {
		left = append(left, same(line))
	}
	var missing []string
	for line := range strings.Lines(page) {
		if line = same(line); line == "" {
			continue
		}
		want := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line),
			"…", ".*") + "$")
		found := false
		for i := range left {
			if found = want.MatchString(left[i]); found {
				left = append(left[:i], left[i+1:]...)
				break
			}
		}
		if !found {
			missing = append(missing, line)
		}
	}
	if len(missing)+len(left) > 0 {
		return fmt.Errorf("the page has\n\t%s\nand it prints\n\t%s", strings.Join(missing, "\n\t"),
			strings.Join(left, "\n\t"))
	}
	return nil
}
