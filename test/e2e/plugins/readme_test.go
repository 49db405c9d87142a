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

// TestExamplesReadmeBuildsAWorkingPlugin follows examples/README.md: it writes the files that the
// page shows, runs its shell commands in order, and compares their output with the page.
func TestExamplesReadmeBuildsAWorkingPlugin(t *testing.T) {
	harness.Long(t, "builds a module")
	page, err := os.ReadFile("../../../examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	home, gatekit := t.TempDir(), peers.Gatekit(t)
	pluginDir := filepath.Join(home, "discreet")
	var output bytes.Buffer // of the latest script
	runScript := func(dir, script string) {
		t.Helper()
		output.Reset()
		cmd := exec.Command("bash", "-euc", script)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &output, &output
		cmd.Env = append(os.Environ(), "HOME="+home,
			"PATH="+filepath.Dir(gatekit)+string(os.PathListSeparator)+os.Getenv("PATH"))
		for name, value := range peers.GoEnv(t) {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, &output)
		}
	}

	// A step is a code block, perhaps after a line that names its file.
	step := regexp.MustCompile(
		"(?s)(?:`([a-z_.]+)`[^`]*(?:`[^`]*`[^`]*)?\n\n)?```([a-z]+)\n(.*?)```")
	dir, steps := peers.Top(), 0
	for _, m := range step.FindAllStringSubmatch(string(page), -1) {
		file, language, block := m[1], m[2], m[3]
		steps++
		switch {
		case language == "sh":
			// peers.Gatekit has built the binary already.
			script := strings.Replace(block, "go install ./cmd/gatekit", "gatekit version", 1)
			runScript(dir, script)
			dir = pluginDir
		case language == "text":
			for line := range strings.Lines(block) {
				// "…" stands for any text.
				parts := strings.Split(regexp.QuoteMeta(strings.TrimSpace(line)), "…")
				if !regexp.MustCompile(strings.Join(parts, ".*")).MatchString(output.String()) {
					t.Errorf("the commands printed\n%s\nwant the page's line: %s", &output, line)
				}
			}
		case file != "":
			if err := os.WriteFile(filepath.Join(pluginDir, file), []byte(block),
				0o600); err != nil {
				t.Fatal(err)
			}
		case language == "toml": // lines to add to the configuration
			program, err := os.ReadFile(filepath.Join(pluginDir, "discreet"))
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(program)
			configFile := filepath.Join(pluginDir, "gatekit.toml")
			config, err := os.ReadFile(configFile)
			if err != nil {
				t.Fatal(err)
			}
			command := `command = ["./discreet"]` + "\n"
			grants := strings.Replace(block, "…", hex.EncodeToString(sum[:]), 1)
			config = []byte(strings.Replace(string(config), command, command+grants, 1))
			if err := os.WriteFile(configFile, config, 0o600); err != nil {
				t.Fatal(err)
			}
			runScript(pluginDir, "gatekit check")
			if !strings.Contains(output.String(), "ok    discreet") {
				t.Errorf("with the grants of the page, gatekit check printed %s, want discreet ok",
					&output)
			}
		}
	}
	if steps != 9 {
		t.Errorf("the page has %d steps, want 9", steps)
	}
}
