package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// process is a process of `gatekit run` in a folder of its own.
type process struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd

	mu     sync.Mutex
	stderr strings.Builder
	lines  chan string // lines of stderr in their order
}

func newProcess(t *testing.T, config string) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), lines: make(chan string, 1000)}
	p.writeConfig(config)
	p.cmd = exec.Command("gatekit", "run")
	p.cmd.Dir = p.dir
	p.cmd.WaitDelay = time.Minute
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = w
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.stderr, lines.Text())
			p.mu.Unlock()
			p.lines <- lines.Text()
		}
	})
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil && p.cmd.Process != nil {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
		w.Close()
		reading.Wait()
		if t.Failed() {
			t.Logf("gatekit's stderr:\n%s", p.stderr.String())
		}
	})
	return p
}

func (p *process) writeConfig(config string) {
	p.t.Helper()
	file := filepath.Join(p.dir, "gatekit.toml")
	if err := os.WriteFile(file+".new", []byte(config+"[audit]\nfile = \"audit.jsonl\"\n"),
		0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil { // atomically: Gatekit may watch the file
		p.t.Fatal(err)
	}
}

// waitForLog waits for a line of stderr that contains text, and returns it.
func (p *process) waitForLog(text string) string {
	p.t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		select {
		case line := <-p.lines:
			if strings.Contains(line, text) {
				return line
			}
		case <-timeout:
			p.t.Fatalf("gatekit did not log %q", text)
		}
	}
}

// url returns the URL at which a process that was just started listens.
func (p *process) url() string {
	_, rest, _ := strings.Cut(p.waitForLog("msg=listening"), "url=")
	url, _, _ := strings.Cut(rest, " ")
	return url
}

func (p *process) start() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// waitForExit waits for the process to end and returns its exit code.
func (p *process) waitForExit() int {
	p.t.Helper()
	err := p.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return 0
}

// recordedActions returns the actions in the audit log, in order, but only the wanted ones.
func (p *process) recordedActions(wanted ...string) string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "audit.jsonl"))
	if err != nil {
		p.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		var r struct{ Action, Reason string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			p.t.Fatal(err)
		}
		for _, w := range wanted {
			if r.Action == w {
				out = append(out, r.Action)
			}
		}
	}
	return strings.Join(out, " ")
}

// connectStdio starts the process and connects a client to its stdio.
func (p *process) connectStdio(ctx context.Context) *sdk.ClientSession {
	p.t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(ctx, &sdk.CommandTransport{Command: p.cmd}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func tools(ctx context.Context, t *testing.T, s *sdk.ClientSession) string {
	t.Helper()
	r, err := s.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}

const (
	onHTTP = "[listen]\nhttp = \"127.0.0.1:0\"\n"
	files  = "[server.files]\ncommand = \"gatekit\"\nargs = [\"demo-server\", \"files\"]\n"
	notes  = "[server.notes]\ncommand = \"gatekit\"\nargs = [\"demo-server\", \"notes\"]\n"
)

// withPID returns the configuration of a server that writes its process id to the file pid and then
// runs script.
func withPID(script string) string {
	return fmt.Sprintf("[server.files]\ncommand = \"sh\"\nargs = [\"-c\", %q]\n",
		"echo $$ > pid; "+script)
}

// serverEnded reports whether the process whose id is in the file pid has ended.
func (p *process) serverEnded() bool {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "pid"))
	if err != nil {
		p.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		p.t.Fatal(err)
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestSignalStopsSessionsServersAndLog(t *testing.T) {
	p := newProcess(t, onHTTP+withPID("exec gatekit demo-server files"))
	p.start()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: p.url()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, want := tools(t.Context(), t, s), "files__delete_file files__read_file"; got != want {
		t.Errorf("tools: got %q, want %q", got, want)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.waitForExit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if !p.serverEnded() {
		t.Error("the server is still running")
	}
	if got, want := p.recordedActions("start", "stop"), "start stop"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	// A server that ignores the end of its input and SIGTERM delays the shutdown.
	p := newProcess(t, onHTTP+
		withPID("trap '' TERM; gatekit demo-server files; while true; do sleep 1; done"))
	p.start()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: p.url()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p.cmd.Process.Signal(os.Interrupt)
	p.waitForLog("shutting down")
	p.cmd.Process.Signal(os.Interrupt)
	if code := p.waitForExit(); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
}

func TestGatekitExitsWithItsStdioClient(t *testing.T) {
	p := newProcess(t, withPID("exec gatekit demo-server files"))
	s := p.connectStdio(t.Context())
	if got, want := tools(t.Context(), t, s), "files__delete_file files__read_file"; got != want {
		t.Errorf("tools: got %q, want %q", got, want)
	}
	if err := s.Close(); err != nil { // closes stdin and waits for the process
		t.Errorf("close: %v", err)
	}
	if !p.serverEnded() {
		t.Error("the server is still running")
	}
	if got, want := p.recordedActions("start", "stop"), "start stop"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

// TestGatekitCleansUpAfterClientCrash closes all three pipes at once, as a crash of the client
// does. Gatekit must clean up although it can no longer write log lines.
func TestGatekitCleansUpAfterClientCrash(t *testing.T) {
	p := newProcess(t, withPID("exec gatekit demo-server files"))
	stderr, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = w
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.start()
	w.Close()
	fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	stderr.Close()
	out.Close()
	in.Close()
	if code := p.waitForExit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if !p.serverEnded() {
		t.Error("the server is still running")
	}
	if got, want := p.recordedActions("start", "stop"), "start stop"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

func TestChangedFileIsAppliedWithoutEndingSession(t *testing.T) {
	p := newProcess(t, files)
	s := p.connectStdio(t.Context())
	defer s.Close()
	if got, want := tools(t.Context(), t, s), "files__delete_file files__read_file"; got != want {
		t.Errorf("at first: got %q, want %q", got, want)
	}

	p.writeConfig(files + notes)
	p.waitForLog("configuration reloaded")
	if got, want := tools(t.Context(), t,
		s), "files__delete_file files__read_file notes__add_note notes__summarize"; got != want {
		t.Errorf("with the added server: got %q, want %q", got, want)
	}

	p.writeConfig(notes + "command = \"x\"\n")
	p.waitForLog("gatekit.toml:4:1: ")
	p.writeConfig(notes + "[[plugin]]\nname = \"p\"\nuse = \"p\"\n")
	if line := p.waitForLog(`there is no built-in plugin \"p\"`); !strings.Contains(line,
		`hint="correct the file, and Gatekit reads it again; gatekit check --config `) {
		t.Errorf("the log has %q, want a hint", line)
	}
	if got, want := tools(t.Context(), t,
		s), "files__delete_file files__read_file notes__add_note notes__summarize"; got != want {
		t.Errorf("after rejected changes: got %q, want %q", got, want)
	}

	p.writeConfig(notes + "[listen]\npath = \"/other\"\nhttp = \"127.0.0.1:0\"\n")
	p.waitForLog(`change needs a restart; keeping the previous settings" table=[listen]`)
	p.waitForLog("configuration reloaded")
	if got, want := tools(t.Context(), t, s), "notes__add_note notes__summarize"; got != want {
		t.Errorf("without the removed server: got %q, want %q", got, want)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if got, want := p.recordedActions("start",
		"reload", "stop"), "start reload reload reload reload stop"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

// TestHangupReadsTheConfiguration sends SIGHUP, which must not end a process that has a
// configuration to read.
func TestHangupReadsTheConfiguration(t *testing.T) {
	p := newProcess(t, onHTTP+files)
	p.start()
	p.waitForLog("msg=listening")
	p.writeConfig(onHTTP + files + notes)
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.waitForLog("configuration reloaded")
	p.cmd.Process.Signal(syscall.SIGHUP) // nothing has changed
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.waitForExit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if got, want := p.recordedActions("start", "reload", "stop"), "start reload stop"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

func TestRefusedHTTPRequestIsRecorded(t *testing.T) {
	p := newProcess(t, onHTTP+files)
	p.start()
	r, err := http.NewRequest("POST", p.url(), strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", "https://evil.example")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != http.StatusForbidden {
		t.Errorf("status %d, want 403", a.StatusCode)
	}
	if got, want := p.recordedActions("refuse"), "refuse"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

func TestAddressInUseIsReported(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newProcess(t, fmt.Sprintf("[listen]\nhttp = %q\n", l.Addr())+files)
	p.start()
	p.waitForLog("address already in use")
	p.waitForLog("hint: another process listens on this port, perhaps another Gatekit; end that " +
		"process, or set [listen] http to another port")
	if code := p.waitForExit(); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if got, want := p.recordedActions("start", "stop"), "start stop"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

// TestStopSucceedsWhenCollectorIsSilent sends telemetry to a collector that accepts connections and
// never responds.
func TestStopSucceedsWhenCollectorIsSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	p := newProcess(t, fmt.Sprintf("[telemetry]\nurl = \"http://%s\"\n", l.Addr())+onHTTP+files)
	p.start()
	p.url() // waits until Gatekit listens
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.waitForLog("last telemetry not exported")
	if code := p.waitForExit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if got, want := p.recordedActions("start", "stop"), "start stop"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

// TestSubstitutedValuesAreMasked puts a token into the path of a server's URL. No output may show
// the token.
func TestSubstitutedValuesAreMasked(t *testing.T) {
	const token = "t0ken/in the path"
	p := newProcess(t, "[server.remote]\nurl = \"http://127.0.0.1:1/${env:TOKEN}/mcp\"\n")
	p.cmd.Env = append(os.Environ(), "TOKEN="+token, "XDG_STATE_HOME="+p.dir)
	check := exec.Command("gatekit", "check")
	check.Dir, check.Env = p.dir, p.cmd.Env
	out, err := check.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "http://127.0.0.1:1/[redacted]/mcp") {
		t.Errorf("check printed %s (%v), want the URL with a masked path", out, err)
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.start()
	fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	answer, err := bufio.NewReader(answers).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	p.waitForExit()
	log, err := os.ReadFile(filepath.Join(p.dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	stderr := p.stderr.String()
	p.mu.Unlock()
	for what, text := range map[string]string{"check": string(out), "the client": answer,
		"the audit log": string(log), "stderr": stderr} {
		for _, part := range []string{token, "t0ken"} {
			if strings.Contains(text, part) {
				t.Errorf("%s got the secret %q: %s", what, part, text)
			}
		}
	}
}
