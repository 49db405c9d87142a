package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// Gatekit is a running gatekit binary. Its folder holds its gatekit.toml and its audit log.
type Gatekit struct {
	T       *testing.T
	Dir     string
	Mark    string // mark in the environment of its servers, to find servers that it did not end
	URL     string // URL of its HTTP listener; "" over stdio
	Cmd     *exec.Cmd
	Stderr  *Output
	Exited  chan struct{} // closed when the process has ended
	exitErr error         // how the process ended; read after Exited
	Killed  bool          // set by a test in which gatekit may end with an error
}

// Output keeps the text that a process writes. It is safe for concurrent use.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Output) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *Output) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Context returns a context that ends with the test, or after Patience.
func Context(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Patience is the longest time that tests wait for an expected event. It is long enough for a busy
// machine.
const Patience = 2 * time.Minute

// Prepare writes the configuration to a new folder and returns a Gatekit, whose command is not
// started yet.
func Prepare(t *testing.T, config string) *Gatekit {
	t.Helper()
	return prepareIn(t, t.TempDir(), config)
}

func prepareIn(t *testing.T, dir, config string) *Gatekit {
	t.Helper()
	g := &Gatekit{T: t, Dir: dir}
	g.Mark = "e2e-" + filepath.Base(filepath.Dir(g.Dir)) + "-" + filepath.Base(g.Dir)
	g.Configure(config)
	g.setCommand()
	return g
}

// setCommand sets the command that runs the configuration in the folder of g.
func (g *Gatekit) setCommand() {
	g.T.Helper()
	g.Stderr, g.Exited = &Output{}, make(chan struct{})
	g.Cmd = exec.Command(peers.Gatekit(g.T), "run")
	g.Cmd.Dir = g.Dir
	g.Cmd.Env = append(os.Environ(), "GORACE=halt_on_error=0",
		"SECRET_OF_THE_USER="+mcptest.Canary)
	g.Cmd.Stderr = g.Stderr
	g.Cmd.WaitDelay = 10 * time.Second
}

// Configure replaces gatekit.toml atomically. A running gatekit applies the change.
func (g *Gatekit) Configure(config string) {
	g.T.Helper()
	if !strings.Contains(config, "[audit]") {
		config += AuditTable
	}
	config = strings.ReplaceAll(config, "MARK", g.Mark)
	ReplaceFile(g.T, filepath.Join(g.Dir, "gatekit.toml"), []byte(config))
}

// StartHTTP starts gatekit with an HTTP listener, in a new folder. LISTEN_ADDRESS in the
// configuration stands for the listener's address.
func StartHTTP(t *testing.T, config string) *Gatekit {
	t.Helper()
	return StartHTTPIn(t, t.TempDir(), config)
}

// StartHTTPIn is StartHTTP in an existing folder, which may hold the files of an earlier gatekit.
// env is added to the environment of gatekit.
func StartHTTPIn(t *testing.T, dir, config string, env ...string) *Gatekit {
	t.Helper()
	g, address := prepareHTTP(t, dir, config)
	g.Cmd.Env = append(g.Cmd.Env, env...)
	g.startHTTP(address)
	return g
}

// StartHTTPWithFiles is StartHTTP with a limit of open files for gatekit, as ulimit -n sets it.
func StartHTTPWithFiles(t *testing.T, config string, files int) *Gatekit {
	t.Helper()
	g, address := prepareHTTP(t, t.TempDir(), config)
	g.Cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files)},
		g.Cmd.Args...)
	g.Cmd.Path = "/bin/sh"
	g.startHTTP(address)
	return g
}

// StartAgain starts gatekit again with the folder, the configuration and the address of g, whose
// process has ended.
func (g *Gatekit) StartAgain() *Gatekit {
	g.T.Helper()
	again := &Gatekit{T: g.T, Dir: g.Dir, Mark: g.Mark, URL: g.URL}
	again.setCommand()
	again.startHTTP(strings.TrimSuffix(strings.TrimPrefix(g.URL, "http://"), "/mcp"))
	return again
}

func prepareHTTP(t *testing.T, dir, config string) (g *Gatekit, address string) {
	t.Helper()
	address = peers.FreeAddress(t)
	config = strings.ReplaceAll(config, "LISTEN_ADDRESS", address)
	g = prepareIn(t, dir, fmt.Sprintf("[listen]\nhttp = %q\n", address)+config)
	g.URL = "http://" + address + "/mcp"
	return g, address
}

// startHTTP starts the process and waits until it listens on the address.
func (g *Gatekit) startHTTP(address string) {
	g.T.Helper()
	if err := g.Cmd.Start(); err != nil {
		g.T.Fatal(err)
	}
	g.Reap(g.Cmd.Wait)
	alive := func() bool {
		select {
		case <-g.Exited:
			return false
		default:
			return true
		}
	}
	if !peers.Listening(address, alive) {
		g.T.Fatalf("gatekit did not listen on %s: %v\n%s", address, g.exitErr, g.Stderr)
	}
}

// Reap waits in the background until the process ends. At the end of the test, the process is
// stopped if it still runs, and CheckExit is called.
func (g *Gatekit) Reap(wait func() error) {
	go func() {
		g.exitErr = wait()
		close(g.Exited)
	}()
	g.T.Cleanup(func() {
		select {
		case <-g.Exited:
		default:
			g.Stop()
		}
		g.CheckExit()
	})
}

// Stop sends SIGTERM and waits until the process has ended.
func (g *Gatekit) Stop() {
	g.T.Helper()
	g.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.Exited:
	case <-time.After(Patience):
		g.Cmd.Process.Signal(syscall.SIGQUIT)
		<-g.Exited
		g.T.Errorf("gatekit did not end within %s after SIGTERM", Patience)
	}
}

// KillChildren kills the servers of a gatekit that was killed and could not end them itself.
func (g *Gatekit) KillChildren() {
	g.T.Helper()
	WaitUntilAtMost(g.T, "processes of a killed gatekit", 0, func() int {
		left := ProcessesWith(g.Mark)
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(left)
	})
}

// CheckExit fails the test if gatekit ended with an error, had a data race or a panic, or left
// running servers or an invalid audit log behind.
func (g *Gatekit) CheckExit() {
	if g.exitErr != nil && !g.Killed {
		g.T.Errorf("gatekit ended with the error %v, want none", g.exitErr)
	}
	log := g.Stderr.String()
	if i := strings.Index(log, "WARNING: DATA RACE"); i >= 0 {
		g.T.Errorf("data race:\n%s", log[i:])
	}
	if i := strings.Index(log, "panic:"); i >= 0 {
		g.T.Errorf("panic:\n%s", log[i:])
	}
	if left := ProcessesWith(g.Mark); len(left) > 0 {
		g.T.Errorf("the server processes %v are still running, want none", left)
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	g.CheckChain()
	if g.T.Failed() && log != "" {
		g.T.Logf("gatekit's stderr:\n%s", log[max(0, len(log)-8000):])
	}
}

// Client connects a scripted client over HTTP and makes the handshake of its revision.
func (g *Gatekit) Client(revision string) *mcptest.Client {
	g.T.Helper()
	c := g.Connect(revision)
	Handshake(g.T, c)
	return c
}

// Connect is Client without the handshake.
func (g *Gatekit) Connect(revision string) *mcptest.Client {
	c := mcptest.NewClient(mcptest.NewHTTP(g.URL), revision)
	g.T.Cleanup(func() { c.Close() })
	return c
}

// StartStdio starts gatekit as the child of a scripted client and makes the handshake.
func StartStdio(t *testing.T, config, revision string) (*Gatekit, *mcptest.Client) {
	t.Helper()
	g, c := SpawnStdio(t, config, revision)
	Handshake(t, c)
	return g, c
}

// SpawnStdio is StartStdio without the handshake.
func SpawnStdio(t *testing.T, config, revision string) (*Gatekit, *mcptest.Client) {
	t.Helper()
	g := Prepare(t, config)
	p, err := mcptest.Command(g.Cmd)
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.NewClient(p, revision)
	g.Reap(p.Wait)
	t.Cleanup(func() {
		late := time.AfterFunc(Patience, func() {
			t.Errorf("gatekit did not end within %s after its client disconnected", Patience)
			g.Cmd.Process.Signal(syscall.SIGQUIT)
		})
		defer late.Stop()
		c.Close()
	})
	return g, c
}

// EachTransport runs f as two subtests: with a client over stdio, and with a client over HTTP. The
// clients have not made the handshake.
func EachTransport(t *testing.T, config, revision string, f func(t *testing.T, g *Gatekit,
	c *mcptest.Client)) {
	t.Run("stdio", func(t *testing.T) {
		g, c := SpawnStdio(t, config, revision)
		f(t, g, c)
	})
	t.Run("http", func(t *testing.T) {
		g := StartHTTP(t, config)
		f(t, g, g.Connect(revision))
	})
}

// ProcessesWith returns the ids of the processes that have the mark in their environment, except
// gatekit.
func ProcessesWith(mark string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(b, []byte("GATEKIT_E2E="+mark+"\x00")) {
			continue
		}
		var pid int
		fmt.Sscanf(f, "/proc/%d/environ", &pid)
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil &&
			filepath.Base(exe) != "gatekit" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ResidentBytes returns how many bytes of memory a process uses. On other systems than Linux, it
// returns 0.
func ResidentBytes(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[1])
	return pages * os.Getpagesize()
}

// PluginPIDs returns the plugin processes of a gatekit.
func (g *Gatekit) PluginPIDs() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		var pid, parent int
		var name, state string
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		fmt.Sscanf(string(b), "%d %s %s %d", &pid, &name, &state, &parent)
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if parent == g.Cmd.Process.Pid && bytes.Contains(line, []byte("\x00plugin\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ReplaceFile replaces a file atomically, as orchestrators do.
func ReplaceFile(t *testing.T, file string, contents []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", contents, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
