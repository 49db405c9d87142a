package plugins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

// Who does what examples/README.md says has a plugin that runs: its files are written and its
// commands given to a shell, one after another, and what it says that they print they print.
func TestThePageTakesAnAuthorToAPluginThatRuns(t *testing.T) {
	harness.Long(t, "builds a module")
	page, err := os.ReadFile("../../../examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	home, gatekit := t.TempDir(), peers.Gatekit(t)
	dir := filepath.Join(home, "discreet")
	var said bytes.Buffer
	shell := func(at, script string) {
		t.Helper()
		said.Reset()
		cmd := exec.Command("bash", "-euc", script)
		cmd.Dir, cmd.Stdout, cmd.Stderr = at, &said, &said
		cmd.Env = append(os.Environ(), "HOME="+home,
			"PATH="+filepath.Dir(gatekit)+string(os.PathListSeparator)+os.Getenv("PATH"))
		for name, value := range peers.GoEnv(t) {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, &said)
		}
	}

	step := regexp.MustCompile(
		"(?s)(?:`([a-z_.]+)`[^`]*(?:`[^`]*`[^`]*)?\n\n)?```([a-z]+)\n(.*?)```")
	at, steps := peers.Top(), 0
	for _, m := range step.FindAllStringSubmatch(string(page), -1) {
		file, language, block := m[1], m[2], m[3]
		steps++
		switch {
		case language == "sh":
			// it is built
			shell(at, strings.Replace(block, "go install ./cmd/gatekit", "gatekit version", 1))
			at = dir
		case language == "text":
			for line := range strings.Lines(block) {
				// which stands for any rest
				shown := strings.Split(regexp.QuoteMeta(strings.TrimSpace(line)), "…")
				if !regexp.MustCompile(strings.Join(shown, ".*")).MatchString(said.String()) {
					t.Errorf("the page says that this is printed: %s\nand this is printed: %s",
						line, &said)
				}
			}
		case file != "":
			if err := os.WriteFile(filepath.Join(dir, file), []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
		case language == "toml": // is added to what there is
			program, err := os.ReadFile(filepath.Join(dir, "discreet"))
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(program)
			toml, err := os.ReadFile(filepath.Join(dir, "gatekit.toml"))
			if err != nil {
				t.Fatal(err)
			}
			at := `command = ["./discreet"]` + "\n"
			toml = []byte(strings.Replace(string(toml), at, at+strings.Replace(block,
				"…", hex.EncodeToString(sum[:]), 1), 1))
			if err := os.WriteFile(filepath.Join(dir, "gatekit.toml"), toml, 0o600); err != nil {
				t.Fatal(err)
			}
			shell(dir, "gatekit check")
			if !strings.Contains(said.String(), "ok    discreet") {
				t.Errorf("with the grants of the page, gatekit check prints %s", &said)
			}
		}
	}
	if steps != 9 {
		t.Errorf("found %d steps on the page, want 9", steps)
	}
}
