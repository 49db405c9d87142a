package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// gatekit is the binary, running in a folder of its own that holds its gatekit.toml and its audit
// log.
type gatekit struct {
	t      *testing.T
	dir    string
	mark   string // in the environment of its children, so that those left over can be found
	url    string // with HTTP
	cmd    *exec.Cmd
	stderr *logged
	exited chan struct{} // closed when it is gone
	err    error         // how it ended
	killed bool          // by the test: its end says nothing
}

// logged keeps what a process writes to stderr.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// bounded is a context that ends long after a test should.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// patience is how long is waited for what has to come: on a busy machine everything takes its time.
const patience = 2 * time.Minute

// box is the configuration of a scripted server behind stdio; flags are mcptest.Main's.
func box(name string, flags ...string) string {
	// nobody looks for races there, and it would sleep a second at its end
	return stdioServer(name, append([]string{os.Args[0], "-name", name}, flags...), "MCPTEST_SERVE",
		"1", "GORACE", "atexit_sleep_ms=0")
}

// stdioServer is the configuration of a server; env is names and values.
func stdioServer(name string, command []string, env ...string) string {
	args := make([]string, 0, len(command))
	for _, a := range command[1:] {
		args = append(args, mcptest.Quote(a))
	}
	vars := []string{`GATEKIT_E2E = "MARK"`} // configure knows it
	for i := 0; i < len(env); i += 2 {
		vars = append(vars, fmt.Sprintf("%s = %s", env[i], mcptest.Quote(env[i+1])))
	}
	return fmt.Sprintf("[server.%s]\ncommand = %s\nargs = [%s]\nenv = { %s }\n", name,
		mcptest.Quote(command[0]), strings.Join(args, ", "), strings.Join(vars, ", "))
}

// httpServer is the configuration of a server at a URL.
func httpServer(name, url string) string {
	return fmt.Sprintf("[server.%s]\nurl = %q\n", name, url)
}

const auditTable = "[audit]\nfile = \"audit.jsonl\"\n"

// prepare writes the configuration and makes the command; it does not start it.
func prepare(t *testing.T, config string) *gatekit {
	t.Helper()
	return prepareIn(t, t.TempDir(), config)
}

func prepareIn(t *testing.T, dir, config string) *gatekit {
	t.Helper()
	g := &gatekit{t: t, dir: dir, stderr: &logged{}, exited: make(chan struct{})}
	g.mark = "e2e-" + filepath.Base(filepath.Dir(g.dir)) + "-" + filepath.Base(g.dir)
	g.configure(config)
	g.cmd = exec.Command(peers.Gatekit(t), "run")
	g.cmd.Dir = g.dir
	g.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=0",
		"SECRET_OF_THE_USER=must not reach a server")
	g.cmd.Stderr = g.stderr
	g.cmd.WaitDelay = 10 * time.Second
	return g
}

// configure writes gatekit.toml, whole or not at all; a running gatekit watches it.
func (g *gatekit) configure(config string) {
	g.t.Helper()
	if !strings.Contains(config, "[audit]") {
		config += auditTable
	}
	config = strings.ReplaceAll(config, "MARK", g.mark)
	replace(g.t, filepath.Join(g.dir, "gatekit.toml"), []byte(config))
}

// overHTTP starts gatekit with an HTTP listener.
func overHTTP(t *testing.T, config string) *gatekit {
	t.Helper()
	return overHTTPIn(t, t.TempDir(), config)
}

// overHTTPIn is overHTTP in a folder that there is, with what another gatekit left in it; env is
// more of its environment.
func overHTTPIn(t *testing.T, dir, config string, env ...string) *gatekit {
	t.Helper()
	address := peers.FreeAddress(t)
	g := prepareIn(t, dir, fmt.Sprintf("[listen]\nhttp = %q\n", address)+config)
	g.url = "http://" + address + "/mcp"
	g.cmd.Env = append(g.cmd.Env, env...)
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.reap(g.cmd.Wait)
	alive := func() bool {
		select {
		case <-g.exited:
			return false
		default:
			return true
		}
	}
	if !peers.Listening(address, alive) {
		t.Fatalf("gatekit does not listen on %s: %v\n%s", address, g.err, g.stderr)
	}
	return g
}

// reap waits for the process in the background, and sees to its end when the test is over.
func (g *gatekit) reap(wait func() error) {
	go func() {
		g.err = wait()
		close(g.exited)
	}()
	g.t.Cleanup(func() {
		select {
		case <-g.exited:
		default:
			g.stop()
		}
		g.inspect()
	})
}

// stop asks the process to end and waits until it has.
func (g *gatekit) stop() {
	g.t.Helper()
	g.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.exited:
	case <-time.After(patience):
		g.cmd.Process.Signal(syscall.SIGQUIT)
		<-g.exited
		g.t.Errorf("gatekit did not end when asked to")
	}
}

// bury ends the processes of a gatekit that was killed: it had no time to see to them.
func (g *gatekit) bury() {
	g.t.Helper()
	settled(g.t, "processes of a killed gatekit", 0, func() int {
		left := marked(g.mark)
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(left)
	})
}

// inspect says what must be true of every gatekit that has ended.
func (g *gatekit) inspect() {
	if g.err != nil && !g.killed {
		g.t.Errorf("gatekit ended with %v", g.err)
	}
	log := g.stderr.String()
	if i := strings.Index(log, "WARNING: DATA RACE"); i >= 0 {
		g.t.Errorf("data race:\n%s", log[i:])
	}
	if i := strings.Index(log, "panic:"); i >= 0 {
		g.t.Errorf("panic:\n%s", log[i:])
	}
	if left := marked(g.mark); len(left) > 0 {
		g.t.Errorf("processes left over: %v", left)
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	g.chain()
	if g.t.Failed() && log != "" {
		g.t.Logf("gatekit's stderr:\n%s", log[max(0, len(log)-8000):])
	}
}

// client connects a scripted client over HTTP and shakes hands.
func (g *gatekit) client(revision string) *mcptest.Client {
	g.t.Helper()
	c := g.connect(revision)
	open(g.t, c)
	return c
}

// connect is client without the handshake.
func (g *gatekit) connect(revision string) *mcptest.Client {
	c := mcptest.NewClient(mcptest.NewHTTP(g.url), revision)
	g.t.Cleanup(func() { c.Close() })
	return c
}

// overStdio starts gatekit as a child of a scripted client and shakes hands.
func overStdio(t *testing.T, config, revision string) (*gatekit, *mcptest.Client) {
	t.Helper()
	g, c := spawn(t, config, revision)
	open(t, c)
	return g, c
}

// spawn is overStdio without the handshake.
func spawn(t *testing.T, config, revision string) (*gatekit, *mcptest.Client) {
	t.Helper()
	g := prepare(t, config)
	p, err := mcptest.Command(g.cmd)
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.NewClient(p, revision)
	g.reap(p.Wait)
	t.Cleanup(func() {
		late := time.AfterFunc(patience, func() {
			t.Error("gatekit did not end when its client left")
			g.cmd.Process.Signal(syscall.SIGQUIT)
		})
		defer late.Stop()
		c.Close()
	})
	return g, c
}

// front runs f once for each way a client can come, over stdio and over HTTP; the client has not
// shaken hands.
func front(t *testing.T, config, revision string, f func(t *testing.T, g *gatekit,
	c *mcptest.Client)) {
	t.Run("stdio", func(t *testing.T) {
		g, c := spawn(t, config, revision)
		f(t, g, c)
	})
	t.Run("http", func(t *testing.T) {
		g := overHTTP(t, config)
		f(t, g, g.connect(revision))
	})
}

func open(t *testing.T, c *mcptest.Client) mcptest.Message {
	t.Helper()
	m, err := c.Open(bounded(t))
	if err != nil || m.Error != nil {
		t.Fatalf("shake hands: %s, %v", m.Raw, err)
	}
	return m
}

// ask sends a request and wants an answer of any kind.
func ask(t *testing.T, c *mcptest.Client, method, params string) mcptest.Message {
	t.Helper()
	m, err := c.Call(bounded(t), method, params)
	if err != nil {
		t.Fatalf("%s %s: %v", method, params, err)
	}
	return m
}

// call calls a tool and wants a result.
func call(t *testing.T, c *mcptest.Client, tool, arguments string) mcptest.Message {
	t.Helper()
	m, err := c.Tool(bounded(t), tool, arguments)
	if err != nil || m.Error != nil {
		t.Fatalf("call %s %s: %s, %v", tool, arguments, m.Raw, err)
	}
	return m
}

// record is a line of the audit log.
type record struct {
	Seq       uint64
	Prev      string
	Session   string
	Exchange  string
	Principal string
	Direction string
	Kind      string
	Method    string
	Server    string
	Name      string
	Action    string
	Reason    string
	Before    struct {
		Size   int
		SHA256 string
	}
	After struct {
		Size   int
		SHA256 string
	}
	Error string
}

// String is the record in a line, for comparison: "to_server request tools/call box echo pass".
func (r record) String() string {
	word := func(s string) string { return cmp.Or(s, "-") }
	return strings.Join([]string{word(r.Direction), word(r.Kind), word(r.Method), word(r.Server),
		word(r.Name), word(r.Action)}, " ")
}

// records reads the audit log as it stands.
func (g *gatekit) records() (all []record) {
	g.t.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, "audit.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		g.t.Error(err)
	}
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			g.t.Errorf("a record is no JSON: %v: %s", err, line)
		}
		all = append(all, r)
	}
	return all
}

// recorded wants each line, which is a record's String, in the audit log.
func (g *gatekit) recorded(want ...string) {
	g.t.Helper()
	var got []string
	for _, r := range g.records() {
		got = append(got, r.String())
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			g.t.Errorf("not recorded: %s\nrecorded:\n\t%s", w,
				strings.Join(got[max(0, len(got)-60):], "\n\t"))
			return
		}
	}
}

// chain wants every record bound to the one before, through all files of the log.
func (g *gatekit) chain() {
	var b []byte
	segments, _ := audit.Segments(filepath.Join(g.dir, "audit.jsonl"))
	for _, name := range segments {
		part, _ := os.ReadFile(name)
		b = append(b, part...)
	}
	prev := strings.Repeat("0", 64)
	for i, line := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			g.t.Errorf("record %d is no JSON: %v: %s", i+1, err, line)
			return
		}
		if r.Seq != uint64(i+1) || r.Prev != prev {
			g.t.Errorf("record %d has seq %d and prev %s, want %s", i+1, r.Seq, r.Prev, prev)
			return
		}
		sum := sha256.Sum256(line)
		prev = hex.EncodeToString(sum[:])
	}
}

// marked are the processes with the mark in their environment, gatekit itself apart.
func marked(mark string) (pids []int) {
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
