//go:build amd64 || arm64

package launcher_test

import (
	"errors"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"gatekit/transport/sandbox/launcher"
)

// allowAll is a filter that allows every system call.
var allowAll = []byte{unix.BPF_RET, 0, 0, 0, 0, 0, 0xff, 0x7f}

func TestPackageImportsOnlyWhatIsInitializedEarly(t *testing.T) {
	early := []string{"errors", "os", "runtime", "slices", "strconv", "syscall", "unsafe"}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); !slices.Contains(early, path) {
				t.Errorf("%s imports %s, which may be initialized late", name, path)
			}
		}
	}
}

// The program must not start if the process cannot confine itself entirely.
func TestProgramStartsOnlyIfEverythingHolds(t *testing.T) {
	ruleset := newRuleset(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	good := launcher.Settings{Ruleset: launcher.FirstFile, Filter: allowAll}
	echo := []string{"echo", "started"}
	replaced := func(i int, text string) []string {
		args := launcher.Arguments(good, "/bin/echo", echo)
		args[i] = text
		return args
	}
	for _, test := range []struct {
		name    string
		args    []string
		ruleset *os.File
		ready   string // what the process reads from the pipe
		want    string // part of the output
	}{
		{"good", launcher.Arguments(good, "/bin/echo", echo), ruleset, "1", "started"},
		{"no rules", launcher.Arguments(good, "/bin/echo", echo), ruleset, "",
			"wait for the rules of Landlock: they could not be made"},
		{"no ruleset", replaced(2, "0"), null, "1", "by Landlock"},
		{"ruleset of no number", replaced(0, "x"), ruleset, "1", "no file has the number x"},
		{"ruleset in place of stderr", replaced(0, "2"), ruleset, "1", "no file has the number 2"},
		{"no filter", replaced(1, ""), ruleset, "1", "the filter is damaged"},
		{"filter cut off", replaced(1, "0600"), ruleset, "1", "the filter is damaged"},
		{"filter of other text", replaced(1, "0600zz000000ff7f"), ruleset, "1",
			"the filter is damaged"},
		{"filter that the kernel refuses", replaced(1, "ffff00000000ff7f"), ruleset, "1",
			"filter its system calls: invalid argument"},
		{"memory is no number", replaced(2, "lots"), ruleset, "1",
			"limit its memory to lots bytes"},
		{"files are no number", replaced(3, "-1"), ruleset, "1", "limit its open files to -1"},
		{"no program", replaced(4, "/does/not/exist"), ruleset, "1", "start /does/not/exist"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ready, signal, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer ready.Close()
			signal.WriteString(test.ready)
			signal.Close()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			output, err := (&exec.Cmd{Path: self, Args: append([]string{launcher.Name},
				test.args...), Env: []string{"GORACE=atexit_sleep_ms=0"},
				ExtraFiles: []*os.File{test.ruleset, ready}}).CombinedOutput()
			started := strings.Contains(string(output), "started")
			if !strings.Contains(string(output), test.want) || started != (err == nil) ||
				started != (test.name == "good") {
				t.Errorf("got %v: %s, want %q", err, output, test.want)
			}
			exit, ok := errors.AsType[*exec.ExitError](err)
			if ok && exit.ExitCode() != 126 {
				t.Errorf("exit status %d, want 126", exit.ExitCode())
			}
		})
	}
}

// newRuleset returns rules that refuse only to make block devices.
func newRuleset(t *testing.T) *os.File {
	t.Helper()
	attr := unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK}
	file, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), 8, 0)
	if errno != 0 {
		t.Skipf("this kernel has no Landlock: %v", errno)
	}
	f := os.NewFile(file, "ruleset")
	t.Cleanup(func() { f.Close() })
	return f
}
