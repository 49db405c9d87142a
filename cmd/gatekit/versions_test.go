package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
)

// TestFilesOfEarlierVersions runs the script of each folder in testdata/versions. A folder has the
// files of one version of Gatekit. Later versions must read them: audit logs for ever,
// other files for two minor versions after a change was announced (see docs/release.md).
func TestFilesOfEarlierVersions(t *testing.T) {
	for _, dir := range versionFolders(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Files:               []string{filepath.Join(dir, "script.txtar")},
				RequireExplicitExec: true,
				Setup: func(e *testscript.Env) error {
					e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
					return os.CopyFS(e.WorkDir, os.DirFS(dir))
				},
			})
		})
	}
}

// TestCommandsOfEarlierVersionsExist checks that no command and no flag of an earlier version was
// removed. Names are removed from commands.txt two minor versions after they were deprecated.
func TestCommandsOfEarlierVersionsExist(t *testing.T) {
	root := (&program{}).root()
	for _, dir := range versionFolders(t) {
		text, err := os.ReadFile(filepath.Join(dir, "commands.txt"))
		if err != nil {
			t.Fatal(err)
		}
		names := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(names) < 100 {
			t.Errorf("%s has %d commands and flags, want 100 or more", dir, len(names))
		}
		for _, name := range names {
			if !exists(root, strings.Fields(name)[1:]) {
				t.Errorf("%s: %s does not exist any more", filepath.Base(dir), name)
			}
		}
	}
}

// exists reports whether the command that the words name exists, with the flag that the last word
// may be.
func exists(root *cobra.Command, words []string) bool {
	flag := ""
	if n := len(words); n > 0 && strings.HasPrefix(words[n-1], "--") {
		words, flag = words[:n-1], strings.TrimPrefix(words[n-1], "--")
	}
	c, rest, err := root.Find(words)
	if err != nil || len(rest) > 0 || len(strings.Fields(c.CommandPath())) != len(words)+1 {
		return false
	}
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	return flag == "" || c.Flag(flag) != nil
}

func versionFolders(t *testing.T) []string {
	dirs, err := filepath.Glob("testdata/versions/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("testdata/versions has no folders (%v)", err)
	}
	return dirs
}
