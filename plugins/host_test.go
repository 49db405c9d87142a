package plugins_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins"
)

// recorder keeps the outcomes that a pipeline records, one line each.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := o.Action
	for _, s := range o.Steps {
		line += " " + s.Stage + ":" + s.Action + ":" + s.Reason
	}
	if o.Err != nil {
		line += " error " + o.Err.Error()
	}
	r.lines = append(r.lines, line)
	return uint64(len(r.lines)), nil
}

func (r *recorder) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) == 0 {
		return ""
	}
	return r.lines[len(r.lines)-1]
}

// testHost is a host and a pipeline of its plugins.
type testHost struct {
	t      *testing.T
	host   *plugins.Host
	set    *plugins.Set
	specs  []plugins.Spec     // set by tests that make more than one pipeline
	pipe   *pipeline.Pipeline // of the set that was loaded last
	record *recorder
	dir    string
	log    logBuffer

	mu     sync.Mutex
	events []string
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

func (l *logBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testTimeout is how long a test waits for something that must happen. A busy machine may need that
// long.
const testTimeout = time.Minute

// programSpec returns the spec of a program. The program is the test binary, which serves the
// plugin that args select: see servePlugins.
func programSpec(name string, args ...string) plugins.Spec {
	return plugins.Spec{Name: name, Command: append([]string{os.Args[0], "plugin"}, args...),
		Servers: []string{"*"}, Timeout: 20 * time.Second, Config: []byte(`{}`),
		Grants: plugins.AllGrants()}
}

// builtinSpec returns the spec of a scripted plugin that runs as a built-in, in the shared process.
func builtinSpec(name, config string) plugins.Spec {
	return plugins.Spec{Name: name, Use: "scripted", Shared: true, Servers: []string{"*"},
		Timeout: 20 * time.Second, Config: []byte(config), Grants: plugins.AllGrants()}
}

// startHost returns a host that runs specs, and closes it when the test ends.
func startHost(t *testing.T, specs ...plugins.Spec) *testHost {
	t.Helper()
	return startHostWith(t, nil, specs...)
}

// startHostWith is startHost with a state that replicas share, unless it is nil.
func startHostWith(t *testing.T, state *plugins.SharedState, specs ...plugins.Spec) *testHost {
	t.Helper()
	h := &testHost{t: t, record: &recorder{}, dir: socketDir(t)}
	h.host = plugins.New(plugins.Options{
		Log:            slog.New(slog.NewTextHandler(&h.log, nil)),
		BuiltinCommand: []string{os.Args[0], "", "plugin"},
		BuiltinPlugins: []string{"scripted"},
		Dir:            h.dir,
		MaxMemory:      256 << 20,
		Shared:         state,
		Event: func(plugin, action, reason string, err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, fmt.Sprint(plugin, " ", action, " ", err))
		}})
	t.Cleanup(func() {
		h.host.Close()
		if left, _ := os.ReadDir(h.dir); len(left) > 0 {
			t.Errorf("files are left in the folder of the plugins: %v", left)
		}
	})
	h.load(specs...)
	return h
}

// socketDir returns a folder whose path is short enough for sockets.
func socketDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "gk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (h *testHost) load(specs ...plugins.Spec) {
	h.t.Helper()
	set, err := h.host.Load(h.t.Context(), specs)
	if err != nil {
		h.t.Fatal(err)
	}
	h.set, h.pipe = set, pipeline.New(h.record, pipeline.Options{}, set.Stages(specs)...)
}

// eventCount returns how often an event happened.
func (h *testHost) eventCount(want string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(strings.Join(h.events, "\n"), want)
}

// waitForEvent waits until the wanted event has happened at least the given number of times.
func (h *testHost) waitForEvent(want string, times int) {
	h.t.Helper()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(10 * time.Millisecond) {
		count := h.eventCount(want)
		if count >= times {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%d events %q, want %d", count, want, times)
		}
	}
}

// messagesByKind has a function for each kind of message. Each function returns a message with an
// instruction for the scripted plugin.
var messagesByKind = map[string]func(instruction string) *mcp.Message{
	"a request": func(instruction string) *mcp.Message {
		return addressed(mcp.NewRequest("1", "tools/call", body(instruction)), mcp.ToServer)
	},
	"a response": func(instruction string) *mcp.Message {
		m := addressed(mcp.NewResponse("1", body(instruction)), mcp.ToClient)
		m.Method, m.Request = "tools/call",
			addressed(mcp.NewRequest("1", "tools/call", []byte(`{"name":"x"}`)), mcp.ToServer)
		return m
	},
	"a notification": func(instruction string) *mcp.Message {
		return addressed(mcp.NewNotification("notifications/message", body(instruction)),
			mcp.ToClient)
	},
	"a reverse request": func(instruction string) *mcp.Message {
		return addressed(mcp.NewRequest("1", "elicitation/create", body(instruction)), mcp.ToClient)
	},
}

func body(instruction string) []byte { return []byte(`{"name":"x","do":"` + instruction + `"}`) }

// addressed returns m with the fields that the transport sets.
func addressed(m *mcp.Message, to mcp.Direction) *mcp.Message {
	m.Direction, m.Server, m.Session, m.Principal, m.Name = to, "a", "s1", identity.FromID("ann"),
		"x"
	return m
}

// pass sends a message through the pipeline.
func (h *testHost) pass(m *mcp.Message) (*mcp.Message, error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), testTimeout)
	defer cancel()
	p, err := h.pipe.Pass(ctx, m)
	return p.Message(), err
}

// requireDenied returns the denial in err, and fails the test if there is none.
func requireDenied(t *testing.T, err error) *pipeline.DeniedError {
	t.Helper()
	var d *pipeline.DeniedError
	if !errors.As(err, &d) {
		t.Fatalf("got the error %v, want a denial", err)
	}
	return d
}

// waitUntilRunning waits until the main processes of all plugins run.
func (h *testHost) waitUntilRunning() {
	h.t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(
		10 * time.Millisecond) {
		if !slices.ContainsFunc(h.host.Status(), func(s plugins.ProcessStatus) bool {
			return !s.Running
		}) {
			return
		}
	}
	h.t.Errorf("not all processes run: %+v", h.host.Status())
}

// waitUntilAllowed waits until the plugin allows a message of a kind.
func (h *testHost) waitUntilAllowed(kind string) {
	h.t.Helper()
	var err error
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(
		50 * time.Millisecond) {
		if _, err = h.pass(messagesByKind[kind]("good")); err == nil {
			return
		}
	}
	h.t.Errorf("the plugin has not recovered: %v", err)
}

// This test fails if the size limit for one verdict applies to all verdicts of a response together.
// Three stages that edit the same large text would then exceed the limit.
func TestSizeLimitHoldsForEachVerdict(t *testing.T) {
	mark := `{"mark":"` + strings.Repeat("x", 300<<10) + `"}`
	h := startHost(t, builtinSpec("first", mark), builtinSpec("second", mark),
		builtinSpec("third", mark))
	m, err := h.pass(messagesByKind["a request"]("good"))
	if err != nil {
		t.Fatalf("three large edits: %v\nrecorded as %s", err, h.record.last())
	}
	if got, _ := m.Text("/mark"); len(got) != 3*300<<10 {
		t.Errorf("%d bytes of marks, want 3 times 300 KiB", len(got))
	}
}

func TestPluginSeesOnlyWhatItIsGranted(t *testing.T) {
	for _, c := range []struct {
		name   string
		grants func(*plugins.Grants)
		want   string
	}{
		{"all", func(*plugins.Grants) {}, `response to_client s1|ann|tools/call|a|x|{"name":"x"}`},
		{"no principal", func(g *plugins.Grants) { g.Principal = false },
			`response to_client s1||tools/call|a|x|{"name":"x"}`},
		{"no request", func(g *plugins.Grants) { g.Request = false },
			`response to_client s1|ann|tools/call|a|x|none`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := programSpec("scripted", "scripted")
			c.grants(&s.Grants)
			h := startHost(t, s)
			_, err := h.pass(messagesByKind["a response"]("show"))
			if got := requireDenied(t, err).Reason; got != c.want {
				t.Errorf("the plugin saw %q, want %q", got, c.want)
			}
		})
	}
	t.Run("no body", func(t *testing.T) {
		s := programSpec("scripted", "scripted")
		s.Grants.Body = false
		h := startHost(t, s)
		if _, err := h.pass(messagesByKind["a request"]("deny")); err != nil {
			t.Errorf("the plugin read a body that it must not see: %v", err)
		}
	})
}

func TestVerdictBeyondTheGrantsDenies(t *testing.T) {
	for instruction, revoke := range map[string]func(*plugins.Grants){
		"mark":   func(g *plugins.Grants) { g.Modify = false },
		"answer": func(g *plugins.Grants) { g.Answer = false },
		"hide":   func(g *plugins.Grants) { g.Hide = false },
		"label":  func(g *plugins.Grants) { g.Label = false },
	} {
		s := programSpec("scripted", "scripted")
		s.Config = []byte(`{"mark":"m"}`)
		h := startHost(t, s)
		h.pass(messagesByKind["a request"](instruction))
		if got := h.record.last(); strings.Contains(got, `"may"`) {
			t.Errorf("%s is granted, but recorded as %q, which names a missing grant", instruction,
				got)
		}
		revoke(&s.Grants)
		s.SkipOnError = true // must not matter
		h.load(s)
		_, err := h.pass(messagesByKind["a request"](instruction))
		if d := requireDenied(t, err); !strings.Contains(d.Reason, `but "may" does not have "`) {
			t.Errorf("%s: denied with the reason %q, want a missing grant", instruction, d.Reason)
		}
	}
}

// TestVerdictThatHidesTooManyNamesDenies sends a verdict with the largest number of hidden names,
// and one with a name more.
func TestVerdictThatHidesTooManyNamesDenies(t *testing.T) {
	s := programSpec("scripted", "scripted")
	s.SkipOnError = true // must not matter
	h := startHost(t, s)
	list := func(instruction string) *mcp.Message {
		m := addressed(mcp.NewResponse("1", []byte(`{"do":"`+instruction+`","tools":[{"name":"h"},`+
			`{"name":"x"}]}`)), mcp.ToClient)
		m.Method, m.Name = "tools/list", ""
		m.Request = addressed(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer)
		return m
	}
	m, err := h.pass(list("hide 100000"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(m.Body()), `{"do":"hide 100000","tools":[{"name":"x"}]}`; got != want {
		t.Errorf("with 100,000 hidden names, the list is %s, want %s", got, want)
	}
	_, err = h.pass(list("hide 100001"))
	if d := requireDenied(t, err); !strings.Contains(d.Reason, "hides 100001 names") {
		t.Errorf("denied with the reason %q, want the number of hidden names", d.Reason)
	}
}

func TestProcessDoesNotInheritEnvironmentStdinOrFolder(t *testing.T) {
	t.Setenv("SECRET", "s")
	s := programSpec("scripted", "scripted")
	s.Env = map[string]string{"GIVEN": "x"}
	h := startHost(t, s)
	_, err := h.pass(messagesByKind["a request"]("show the environment"))
	const want = "0 files, stdin 0 EOF, env GIVEN GATEKIT_PLUGIN PLUGIN_MIN_PORT " +
		"PLUGIN_MAX_PORT PLUGIN_PROTOCOL_VERSIONS PLUGIN_CLIENT_CERT PLUGIN_UNIX_SOCKET_DIR " +
		"TMPDIR HOME"
	if got := requireDenied(t, err).Reason; got != want {
		t.Errorf("the process has\n%s\nwant\n%s", got, want)
	}
}

func TestStagesRunInOrder(t *testing.T) {
	h := startHost(t, builtinSpec("one", `{"mark":"1"}`),
		builtinSpec("calls", `{"mark":"-","methods":["prompts/get"]}`),
		builtinSpec("two", `{"mark":"2"}`), programSpec("second", "scripted"), builtinSpec("three", `{"mark":"3"}`))
	m, err := h.pass(messagesByKind["a request"]("x"))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := m.Text("/mark"); got != "123" {
		t.Errorf("the mark is %q, want 123", got)
	}
	want := "modify one:modify:marked two:modify:marked second:pass: three:modify:marked"
	if got := h.record.last(); got != want {
		t.Errorf("recorded as %q, want %q", got, want)
	}
	h.load(builtinSpec("one", `{"mark":"1"}`), builtinSpec("no", `{"refuse":true}`),
		builtinSpec("two", `{"mark":"2"}`))
	_, err = h.pass(messagesByKind["a request"]("x"))
	if d := requireDenied(t, err); d.Stage != "no" || d.Reason != "denies everything" {
		t.Errorf("denied by stage %q with the reason %q, want \"no\" with \"denies everything\"",
			d.Stage, d.Reason)
	}
	want = "deny one:modify:marked no:deny:denies everything"
	if got := h.record.last(); got != want {
		t.Errorf("recorded as %q, want %q", got, want)
	}
}

func TestReloadLosesNoCall(t *testing.T) {
	h := startHost(t, builtinSpec("one", `{"mark":"1"}`), programSpec("second", "scripted"))
	old := h.pipe
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := h.pass(messagesByKind["a request"]("good")); err != nil {
					t.Errorf("a call during the reload: %v", err)
					return
				}
			}
		})
	}
	first := h.set
	other := builtinSpec("one", `{"mark":"2"}`)
	set, err := h.host.Load(t.Context(), []plugins.Spec{other, programSpec("second", "scripted")})
	if err != nil {
		t.Fatal(err)
	}
	now := pipeline.New(h.record, pipeline.Options{},
		set.Stages([]plugins.Spec{other, programSpec("second", "scripted")})...)
	first.Close()
	for p, want := range map[*pipeline.Pipeline]string{old: "1", now: "2"} {
		passed, err := p.Pass(t.Context(), messagesByKind["a request"]("x"))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := passed.Message().Text("/mark"); got != want {
			t.Errorf("the mark is %q, want %q", got, want)
		}
	}
	close(stop)
	wg.Wait()
}

func TestLoadReportsUnusablePlugins(t *testing.T) {
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	copied := filepath.Join(t.TempDir(), "copied")
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*plugins.Spec)
		want   string
	}{
		"an invalid configuration": {func(s *plugins.Spec) {
			s.Config = []byte(`{"marc":"1"}`)
		}, `config: marc: unknown option, did you mean "mark"?`},
		"a name that the program does not offer": {func(s *plugins.Spec) { s.Name = "other" },
			`the program offers several plugins, and none is named "other"`},
		"a program with another checksum": {func(s *plugins.Spec) { s.SHA256 = make([]byte, 32) },
			"is not the pinned program"},
		"a program that does not exist": {func(s *plugins.Spec) { s.Command[0] = "/no/such" },
			"no such file"},
		"a program that is no plugin": {func(s *plugins.Spec) {
			s.Command = []string{"/bin/false"}
		}, "exited with status 1"},
		"no handshake": {func(s *plugins.Spec) { s.Command[2] = "no handshake" },
			"timeout while waiting for plugin to start"},
		"another handshake": {func(s *plugins.Spec) { s.Command[2] = "another handshake" },
			"Unrecognized remote plugin message: hello"},
		"a socket in another folder": {func(s *plugins.Spec) { s.Command[2] = "another folder" },
			"which is not a socket in the folder"},
		"a socket of another network": {func(s *plugins.Spec) { s.Command[2] = "another network" },
			"which is not a socket in the folder"},
		"a program that is not in PATH": {func(s *plugins.Spec) {
			s.Command[0] = "no-such-program"
		}, "hint: install the program"},
		"restored values that are not granted": {func(s *plugins.Spec) {
			s.Grants.Restore = false
			s.Config = []byte(`{"restore":true}`)
		}, `but "may" does not have "restore"`},
		"restored values that are not possible": {func(s *plugins.Spec) {
			s.NoRestore = "as configured"
			s.Config = []byte(`{"restore":true}`)
		}, "which is not possible: as configured"},
		"no certificate": {func(s *plugins.Spec) { s.Command[2] = "no certificate" },
			"hint: set mtls = false"},
		"an unknown built-in plugin": {func(s *plugins.Spec) { s.Use = "none" },
			`plugin "scripted" (built-in none): there is no built-in plugin "none"`},
		"no plugins": {func(s *plugins.Spec) { s.Command[2] = "0 plugins" },
			"the program offers 0 plugins; 1 to 1000 are allowed"},
		"too many plugins": {func(s *plugins.Spec) { s.Command[2] = "1001 plugins" },
			"the program offers 1001 plugins; 1 to 1000 are allowed"},
		"many plugins with other names": {func(s *plugins.Spec) { s.Command[2] = "1000 plugins" },
			`the program offers several plugins, and none is named "scripted"`},
		"no stage": {func(s *plugins.Spec) { s.Command[2] = "no stage" },
			"the plugin returned no stage for its configuration"},
		"renames that are not granted": {func(s *plugins.Spec) {
			s.Grants.Rename = false
			s.Config = []byte(`{"tools":{"a":"b"},"prompts":{"c":"d"}}`)
		}, `but "may" does not have "rename"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := programSpec("scripted", "scripted")
			c.change(&s)
			o := plugins.Options{StartTimeout: testTimeout, Dir: socketDir(t),
				BuiltinCommand: []string{os.Args[0], "", "plugin"},
				BuiltinPlugins: []string{"scripted"}}
			if name == "no handshake" {
				o.StartTimeout = time.Second // the test waits this long
			}
			h := plugins.New(o)
			defer h.Close()
			_, err := h.Load(t.Context(), []plugins.Spec{s})
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), `plugin "`+s.Name+`"`) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
	t.Run("a pinned program that is replaced later", func(t *testing.T) {
		s := programSpec("scripted", "scripted")
		s.Command[0], s.SHA256 = copied, sum[:]
		h := startHost(t, s)
		h.waitUntilAllowed("a request")
		if err := os.Remove(copied); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		h.waitUntilAllowed("a request")
		_, err := h.pass(messagesByKind["a request"]("die"))
		requireDenied(t, err)
		h.waitForEvent("is not the pinned program", 1)
		// A message that waits for the process is denied with the cause when its time is over.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := stageOf(h, s).Inspect(ctx, messagesByKind["a request"](
			"good")); !strings.Contains(fmt.Sprint(err), "is not the pinned program") {
			t.Errorf("got the error %v, want \"is not the pinned program\"", err)
		}
	})
}

func TestSetReturnsTheSelfTestOfAPlugin(t *testing.T) {
	h := startHost(t, builtinSpec("one", `{}`))
	c, err := h.set.SelfTest(0)
	if err != nil || c.Description != "the instruction to deny" || c.Action != pipeline.Deny {
		t.Fatalf("got %+v and the error %v, want the self-test of the scripted plugin", c, err)
	}
	_, err = h.pass(c.Message)
	requireDenied(t, err)
}

func TestSelfTestsThatCannotRun(t *testing.T) {
	h := startHost(t, programSpec("none", "allow-all"),
		programSpec("direction", "a self-test of no direction"),
		programSpec("JSON", "a self-test that is not JSON"))
	if c, err := h.set.SelfTest(0); c != nil || err != nil {
		t.Errorf("a plugin without a self-test has %+v, and the error %v", c, err)
	}
	for i, want := range []string{1: "unknown message direction", 2: "is not valid JSON"} {
		if _, err := h.set.SelfTest(i); want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("got the error %v, want %q in it", err, want)
		}
	}
}

func TestStderrIsLogged(t *testing.T) {
	h := startHost(t, programSpec("scripted", "scripted"))
	h.pass(messagesByKind["a request"]("write"))
	// The first line is copied by the host, the second by go-plugin.
	for _, want := range []string{`hello \\x1b[31mred`, "written after Serve"} {
		for deadline := time.Now().Add(testTimeout); !h.log.has(want) &&
			time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		if !h.log.has(want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

func TestStagesWithDifferentGrantsGetSeparateRequests(t *testing.T) {
	noBody := builtinSpec("no-body", `{}`)
	noBody.Grants.Body, noBody.Grants.Principal = false, false
	h := startHost(t, builtinSpec("one", `{}`), noBody, builtinSpec("two", `{}`))
	_, err := h.pass(messagesByKind["a request"]("show"))
	if d := requireDenied(t, err); d.Stage != "one" {
		t.Fatalf("denied by stage %q, want stage \"one\"", d.Stage)
	}
	h.load(noBody, builtinSpec("two", `{}`))
	_, err = h.pass(messagesByKind["a request"]("show"))
	if d := requireDenied(t, err); d.Stage != "two" {
		t.Errorf("denied by stage %q, want stage \"two\": only \"two\" may see the body", d.Stage)
	}
}

func TestTwoStagesEditALargeText(t *testing.T) {
	h := startHost(t, builtinSpec("one", `{}`), builtinSpec("two", `{}`))
	params := `{"name":"x","do":"edit a large text","text":"` + strings.Repeat("x", 3<<20) + `"}`
	m, err := h.pass(addressed(mcp.NewRequest("1", "tools/call", []byte(params)), mcp.ToServer))
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := m.Text("/text"); len(text) != 3<<20-2 {
		t.Errorf("the text has %d bytes, want two less than before", len(text))
	}
}

// A stage of the previous configuration that can no longer be made must not prevent a restart.
func TestStageOfOldConfigurationDoesNotPreventRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := builtinSpec("old", `{"file":`+string(mcp.Quote(file))+`}`)
	h := startHost(t, old)
	first, before := h.set, h.pipe
	h.load(builtinSpec("new", `{}`))
	first.Close()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, err := h.pass(messagesByKind["a request"]("die"))
	requireDenied(t, err)
	h.waitUntilAllowed("a request")
	_, err = before.Pass(t.Context(), messagesByKind["a request"]("good"))
	if d := requireDenied(t, err); !strings.Contains(d.Err.Error(), "does not have this stage") {
		t.Errorf("the old stage: denied with %v, want \"does not have this stage\"", d.Err)
	}
}

func TestLoadAndCloseDoNotWaitForAPluginWithoutHandshake(t *testing.T) {
	h := plugins.New(plugins.Options{StartTimeout: testTimeout, Dir: socketDir(t)})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	started := time.Now()
	if _, err := h.Load(ctx, []plugins.Spec{programSpec("a", "no handshake"),
		programSpec("b", "no handshake")}); err == nil {
		t.Error("plugins without a handshake were loaded")
	}
	go h.Load(t.Context(), []plugins.Spec{programSpec("c", "no handshake")})
	time.Sleep(100 * time.Millisecond)
	h.Close()
	if took := time.Since(started); took > testTimeout/2 { // each plugin has a minute to start
		t.Errorf("Load and Close took %v, want less than %v", took, testTimeout/2)
	}
}
