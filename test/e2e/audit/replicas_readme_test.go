package audit

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

// replicasAddresses are the addresses of examples/06-replicas.
var replicasAddresses = []string{"127.0.0.1:7777", "127.0.0.1:7379", "127.0.0.1:7781",
	"127.0.0.1:7782", "127.0.0.1:7783", "127.0.0.1:7791", "127.0.0.1:7792", "127.0.0.1:7793"}

// TestReplicasExampleReadmeMatchesOutput starts examples/06-replicas with each balancer, and runs
// the commands of its README. In the end, it does what a terminal does at Ctrl-C. Then nothing of
// the example may be left.
func TestReplicasExampleReadmeMatchesOutput(t *testing.T) {
	harness.Long(t, "restarts three replicas")
	peers.Installed(t, "curl", "openssl", "redis-server", "setsid")
	for _, balancer := range []string{"haproxy", "nginx"} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			installedForRoot(t, balancer)
			dir := copyExample(t, "06-replicas", replicasAddresses...)
			// the default timeout is too short for a busy machine
			replaceInFiles(t, dir, "[shared]\n", "[shared]\ntimeout = \"5s\"\n")
			script := startScript(t, dir, balancer)
			if t.Failed() {
				return
			}
			if again, err := runScript(t, dir, withGatekit(t), balancer); err == nil ||
				!strings.Contains(again, "runs already") {
				t.Errorf("a second replicas.sh printed %q, %v; want an error", again, err)
			}
			if commands := runConsoleBlocks(t, dir); commands != 12 {
				t.Errorf("the page has %d commands, want 12", commands)
			}
			if err := script.interrupt(); err == nil || err.Error() != "exit status 130" {
				t.Errorf("replicas.sh ended with %v, want the exit status of Ctrl-C", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "run")); !os.IsNotExist(err) {
				t.Errorf("run/ is left (%v)", err)
			}
			wantNothingRunning(t, dir)
		})
	}
}

// TestReplicasExampleNamesMissingPackages runs the script of examples/06-replicas without the
// programs that it needs.
func TestReplicasExampleNamesMissingPackages(t *testing.T) {
	dir, programs := copyExample(t, "06-replicas"), t.TempDir()
	dirname, err := exec.LookPath("dirname")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dirname, filepath.Join(programs, "dirname")); err != nil {
		t.Fatal(err)
	}
	// The script looks in /usr/sbin, too, where this machine may have the balancers.
	script := filepath.Join(dir, "replicas.sh")
	b, err := os.ReadFile(script)
	if err == nil {
		err = os.WriteFile(script, []byte(strings.Replace(string(b), "PATH=$PATH:/usr/sbin", "",
			1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for balancer, pkg := range map[string]string{"haproxy": "haproxy", "nginx": "nginx-light"} {
		out, err := runScript(t, dir, []string{"PATH=" + programs}, balancer)
		if err == nil {
			t.Errorf("without programs, replicas.sh %s succeeds", balancer)
		}
		for _, want := range []string{balancer + " is not installed: apt-get install " + pkg,
			"redis-server is not installed: apt-get install redis-server",
			"gatekit is not installed: "} {
			if !strings.Contains(out, want) {
				t.Errorf("replicas.sh %s printed %q, want %q in it", balancer, out, want)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "run")); !os.IsNotExist(err) {
		t.Errorf("run/ is left (%v)", err)
	}
}

// TestReplicasExampleNeedsItsAddresses starts the script of examples/06-replicas while another
// program listens on the address of the balancer, and would answer in its place.
func TestReplicasExampleNeedsItsAddresses(t *testing.T) {
	peers.Installed(t, "curl", "openssl", "redis-server", "setsid")
	installedForRoot(t, "haproxy")
	dir := copyExample(t, "06-replicas", replicasAddresses[1:]...)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	address := other.Listener.Addr().String()
	replaceInFiles(t, dir, replicasAddresses[0], address)
	out, err := runScript(t, dir, withGatekit(t), "haproxy")
	if err == nil || !strings.Contains(out, "Another program listens on "+address) {
		t.Errorf("replicas.sh printed %q, %v; want an error that names %s", out, err, address)
	}
	if _, err := os.Stat(filepath.Join(dir, "run")); !os.IsNotExist(err) {
		t.Errorf("run/ is left (%v)", err)
	}
}

// installedForRoot is peers.Installed for a program that Debian has in /usr/sbin, which is not in
// the PATH of every user.
func installedForRoot(t *testing.T, program string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("/usr/sbin", program)); err != nil {
		peers.Installed(t, program)
	}
}

// runScript runs replicas.sh in a folder, and returns what it printed.
func runScript(t *testing.T, dir string, env []string, balancer string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(harness.Context(t), "/bin/sh", "replicas.sh", balancer)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// script is a running replicas.sh.
type script struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended, with err
	err    error
}

// startScript starts replicas.sh in a folder, as a terminal does, and returns when it has printed
// its last line.
func startScript(t *testing.T, dir, balancer string) *script {
	t.Helper()
	s := &script{cmd: exec.Command("sh", "replicas.sh", balancer), exited: make(chan struct{})}
	s.cmd.Dir, s.cmd.Env = dir, withGatekit(t)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = write, write
	// If this process ignores SIGINT, as the background jobs of a script do, the shell would ignore
	// it, too.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGINT)
	err = s.cmd.Start()
	signal.Stop(heard)
	if err != nil {
		t.Fatal(err)
	}
	write.Close()
	go func() {
		defer close(s.exited)
		s.err = s.cmd.Wait()
	}()
	t.Cleanup(func() { _ = s.interrupt() })
	lines := bufio.NewScanner(read)
	printed := ""
	for lines.Scan() {
		printed += lines.Text() + "\n"
		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			go func() { _, _ = io.Copy(io.Discard, read) }()
			return s
		}
	}
	t.Errorf("replicas.sh %s has ended:\n%s", balancer, printed)
	return s
}

// interrupt does what a terminal does at Ctrl-C: it sends SIGINT to the group of the script. It
// returns how the script ended.
func (s *script) interrupt() error {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT)
	select {
	case <-s.exited:
	case <-time.After(harness.Patience):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.exited
	}
	return s.err
}

// wantNothingRunning fails the test if a process works in a folder.
func wantNothingRunning(t *testing.T, dir string) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if to, err := os.Readlink(folder); err == nil && strings.HasPrefix(to, dir) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(folder), "cmdline"))
			t.Errorf("a process is left: %s", strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
}
