package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"gatekit/test/mcptest"
	"gatekit/transport/sandbox"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain runs the tests. The test binary is also the program gatekit: scripts and tests start it
// by this name.
func TestMain(m *testing.M) {
	if os.Getenv("MCPTEST_SERVE") != "" {
		mcptest.Main()
		return
	}
	testscript.Main(m, map[string]func(){"gatekit": main})
}

// TestScripts runs the scripts in testdata. They have three additional commands: `exits CODE
// COMMAND…` checks the exit code of a command, `onefile DIR PATTERN NAME` copies the only file that
// matches the pattern to NAME, and `fleet DIR` writes the logs of three replicas that have met. The
// condition [sandbox] holds if the system can confine programs.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			e.Setenv("HOME", home)
			return os.MkdirAll(filepath.Join(home, ".config"), 0o755)
		},
		Condition: func(name string) (bool, error) {
			if name != "sandbox" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			box, err := sandbox.New(sandbox.Settings{Level: sandbox.Guard},
				sandbox.Launch{Program: os.Args[0], Dir: "/"})
			if _, ok := errors.AsType[*sandbox.UnsupportedError](err); ok {
				return false, nil
			}
			if err != nil {
				return false, err
			}
			return true, box.Close()
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: exits CODE COMMAND…")
				}
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				err = ts.Exec(args[1], args[2:]...)
				got := 0
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					got = exit.ExitCode()
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if got != want {
					ts.Fatalf("exit code %d, want %d", got, want)
				}
			},
			"fleet": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 1 {
					ts.Fatalf("usage: fleet DIR")
				}
				ts.Check(writeFleet(ts.MkAbs(args[0])))
			},
			"onefile": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 3 {
					ts.Fatalf("usage: onefile DIR PATTERN NAME")
				}
				files, err := filepath.Glob(filepath.Join(args[0], args[1]))
				ts.Check(err)
				if len(files) != 1 {
					ts.Fatalf("%s has the files %v that match %s, want one", args[0], files,
						args[1])
				}
				b, err := os.ReadFile(files[0])
				ts.Check(err)
				ts.Check(os.WriteFile(ts.MkAbs(args[2]), b, 0o600))
			},
		},
	})
}
