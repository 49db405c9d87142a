package pins

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gatekit/test/peers"
)

// nobody is a user id without rights.
const nobody = 65534

// TestLockFileThatMayNotBeRead has a lock file without the permission to read it. Neither Gatekit
// nor its commands take it for a missing file: they end with the path, and write nothing. Root may
// read every file, so as root, the test runs Gatekit as another user.
func TestLockFileThatMayNotBeRead(t *testing.T) {
	dir, err := os.MkdirTemp("", "gatekit-unreadable-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary := filepath.Join(dir, "gatekit")
	program, err := os.ReadFile(peers.Gatekit(t))
	if err != nil {
		t.Fatal(err)
	}
	config := "[server.box]\ncommand = \"./gatekit\"\nargs = [\"demo-server\", \"files\"]\n" +
		"[pins]\nfirst = \"FIRST\"\n[audit]\nfile = \"audit.jsonl\"\n"
	lock := filepath.Join(dir, "gatekit.lock")
	for path, contents := range map[string]string{binary: string(program),
		filepath.Join(dir, "gatekit.toml"): strings.Replace(config, "FIRST", "ask", 1),
		filepath.Join(dir, "trust.toml"):   strings.Replace(config, "FIRST", "trust", 1)} {
		if err := os.WriteFile(path, []byte(contents), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	as := func(args ...string) (string, int) {
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader("")
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"))
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody,
				Gid: nobody}}
		}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if os.Geteuid() == 0 {
		if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			return os.Lchown(path, nobody, nobody)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := as("pin", "--yes"); code != 0 {
		t.Fatalf("gatekit pin: exit code %d: %s", code, out)
	}
	before, err := os.Stat(lock)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(lock, 0o200); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
	}{{"run", 1}, {"run --config trust.toml", 1}, {"pin --yes", 1}, {"pin diff", 1},
		{"pin show", 1}, {"pin verify", 2}} {
		out, code := as(strings.Fields(c.args)...)
		if want := lock + ": permission denied"; code != c.code || !strings.Contains(out, want) {
			t.Errorf("gatekit %s: exit code %d: %s, want %d and %q", c.args, code, out, c.code,
				want)
		}
	}
	after, err := os.Stat(lock)
	if err != nil || !os.SameFile(before, after) || after.Size() != before.Size() {
		t.Errorf("the lock file is another one (%v)", err)
	}
}
