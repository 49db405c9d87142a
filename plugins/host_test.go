package plugins_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins"
)

// journal keeps what is recorded.
type journal struct {
	mu   sync.Mutex
	said []string
}

func (j *journal) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	line := o.Action
	for _, s := range o.Steps {
		line += " " + s.Stage + ":" + s.Action + ":" + s.Reason
	}
	if o.Err != nil {
		line += " error " + o.Err.Error()
	}
	j.said = append(j.said, line)
	return uint64(len(j.said)), nil
}

func (j *journal) last() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.said) == 0 {
		return ""
	}
	return j.said[len(j.said)-1]
}

// world is a host and a pipeline of its plugins.
type world struct {
	t      *testing.T
	host   *plugins.Host
	set    *plugins.Set
	pipe   *pipeline.Pipeline
	record *journal
	dir    string
	log    lines

	mu     sync.Mutex
	events []string
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

// patience is how long is waited for what has to come: on a busy machine everything takes its time.
const patience = time.Minute

// spec is a program of the test's own, with one plugin of what it serves.
func spec(name string, args ...string) plugins.Spec {
	return plugins.Spec{Name: name, Command: append([]string{os.Args[0], "plugin"}, args...),
		Servers: []string{"*"}, Timeout: 20 * time.Second, Config: []byte(`{}`),
		Grants: plugins.AllGrants()}
}

func builtin(name, config string) plugins.Spec {
	return plugins.Spec{Name: name, Use: "words", Servers: []string{"*"}, Timeout: 20 * time.Second,
		Config: []byte(config), Grants: plugins.AllGrants()}
}

func start(t *testing.T, specs ...plugins.Spec) *world {
	t.Helper()
	w := &world{t: t, record: &journal{}, dir: folder(t)}
	w.host = plugins.New(plugins.Options{Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		BuiltinCommand: []string{os.Args[0],
			"", "plugin", "words"}, Dir: w.dir, MaxMemory: 256 << 20, Event: func(plugin, action,
			reason string, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, fmt.Sprint(plugin, " ", action, " ", err))
		}})
	t.Cleanup(func() {
		w.host.Close()
		if left, _ := os.ReadDir(w.dir); len(left) > 0 {
			t.Errorf("left in the folder of the plugins: %v", left)
		}
	})
	w.load(specs...)
	return w
}

// folder is a folder with a path that is short enough for sockets.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("", "gk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (w *world) load(specs ...plugins.Spec) {
	w.t.Helper()
	set, err := w.host.Load(w.t.Context(), specs)
	if err != nil {
		w.t.Fatal(err)
	}
	w.set, w.pipe = set, pipeline.New(w.record, pipeline.Options{}, set.Stages(specs)...)
}

// told is how often an event was.
func (w *world) told(want string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(strings.Join(w.events, "\n"), want)
}

// wait waits until it was told so many times.
func (w *world) wait(want string, times int) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		told := w.told(want)
		if told >= times {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%q was told %d times, want %d", want, told, times)
		}
	}
}

// kinds are messages that say a word, one of each kind.
var kinds = map[string]func(word string) *mcp.Message{
	"a request": func(word string) *mcp.Message {
		return sent(mcp.NewRequest("1", "tools/call", body(word)), mcp.ToServer)
	},
	"a response": func(word string) *mcp.Message {
		m := sent(mcp.NewResponse("1", body(word)), mcp.ToClient)
		m.Method, m.Request = "tools/call",
			sent(mcp.NewRequest("1", "tools/call", []byte(`{"name":"x"}`)), mcp.ToServer)
		return m
	},
	"a notification": func(word string) *mcp.Message {
		return sent(mcp.NewNotification("notifications/message", body(word)), mcp.ToClient)
	},
	"a reverse request": func(word string) *mcp.Message {
		return sent(mcp.NewRequest("1", "elicitation/create", body(word)), mcp.ToClient)
	},
}

func body(word string) []byte { return []byte(`{"name":"x","do":"` + word + `"}`) }

func sent(m *mcp.Message, to mcp.Direction) *mcp.Message {
	m.Direction, m.Server, m.Session, m.Principal, m.Name = to, "a", "s1", "ann", "x"
	return m
}

// pass judges a message as anybody would, within a time that no test needs.
func (w *world) pass(m *mcp.Message) (*mcp.Message, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	p, err := w.pipe.Pass(ctx, m)
	return p.Message(), err
}

func denied(t *testing.T, err error) *pipeline.DeniedError {
	t.Helper()
	var d *pipeline.DeniedError
	if !errors.As(err, &d) {
		t.Fatalf("it passed (%v), want a denial", err)
	}
	return d
}

// works waits until the plugin judges again.
func (w *world) works(kind string) {
	w.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(
		50 * time.Millisecond) {
		if _, err = w.pass(kinds[kind]("good")); err == nil {
			return
		}
	}
	w.t.Errorf("it has not recovered: %v", err)
}

// Three verdicts of one question were once held to the bound of one, so that three stages that each
// cleared the same large text denied it.
func TestEachVerdictHasABoundOfItsOwn(t *testing.T) {
	mark := `{"mark":"` + strings.Repeat("x", 300<<10) + `"}`
	w := start(t, builtin("first", mark), builtin("second", mark), builtin("third", mark))
	m, err := w.pass(kinds["a request"]("good"))
	if err != nil {
		t.Fatalf("%v\n%s", err, w.record.last())
	}
	if got, _ := m.Text("/mark"); len(got) != 3*300<<10 {
		t.Errorf("%d bytes of marks, want those of all three", len(got))
	}
}

func TestWhatAPluginSees(t *testing.T) {
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
			s := spec("words", "words")
			c.grants(&s.Grants)
			w := start(t, s)
			_, err := w.pass(kinds["a response"]("see"))
			if got := denied(t, err).Reason; got != c.want {
				t.Errorf("it saw %q, want %q", got, c.want)
			}
		})
	}
	t.Run("no body", func(t *testing.T) {
		s := spec("words", "words")
		s.Grants.Body = false
		w := start(t, s)
		if _, err := w.pass(kinds["a request"]("deny")); err != nil {
			t.Errorf("it read a body that it may not see: %v", err)
		}
	})
}

func TestWhatAPluginMayDo(t *testing.T) {
	for word, grant := range map[string]func(*plugins.Grants){
		"mark":   func(g *plugins.Grants) { g.Modify = false },
		"answer": func(g *plugins.Grants) { g.Answer = false },
		"hide":   func(g *plugins.Grants) { g.Hide = false },
	} {
		s := spec("words", "words")
		s.Config = []byte(`{"mark":"m"}`)
		w := start(t, s)
		w.pass(kinds["a request"](word))
		if got := w.record.last(); strings.Contains(got, "granted") {
			t.Errorf("%s is granted, and recorded as %q", word, got)
		}
		grant(&s.Grants)
		s.Skip = true // which changes nothing
		w.load(s)
		_, err := w.pass(kinds["a request"](word))
		if d := denied(t, err); !strings.Contains(d.Reason, "is not granted") {
			t.Errorf("%s: %q", word, d.Reason)
		}
	}
}

func TestTheProcessGetsNothingOfOurs(t *testing.T) {
	t.Setenv("SECRET", "s")
	s := spec("words", "words")
	s.Env = map[string]string{"GIVEN": "x"}
	w := start(t, s)
	_, err := w.pass(kinds["a request"]("env"))
	const want = "0 files, stdin 0 EOF, env GIVEN GATEKIT_PLUGIN PLUGIN_MIN_PORT " +
		"PLUGIN_MAX_PORT PLUGIN_PROTOCOL_VERSIONS PLUGIN_CLIENT_CERT PLUGIN_UNIX_SOCKET_DIR"
	if got := denied(t, err).Reason; got != want {
		t.Errorf("it has\n%s\nwant\n%s", got, want)
	}
}

func TestNeighboursAreAskedTogetherInTheirOrder(t *testing.T) {
	w := start(t, builtin("one", `{"mark":"1"}`),
		builtin("calls", `{"mark":"-","methods":["prompts/get"]}`), builtin("two", `{"mark":"2"}`),
		spec("mine", "words"), builtin("three", `{"mark":"3"}`))
	m, err := w.pass(kinds["a request"]("x"))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := m.Text("/mark"); got != "123" {
		t.Errorf("marked %q, want 123", got)
	}
	if got := w.record.last(); got != "modify one:modify:marked two:modify:marked mine:pass: "+
		"three:modify:marked" {
		t.Errorf("recorded as %q", got)
	}
	w.load(builtin("one", `{"mark":"1"}`), builtin("no", `{"refuse":true}`),
		builtin("two", `{"mark":"2"}`))
	_, err = w.pass(kinds["a request"]("x"))
	if d := denied(t, err); d.Stage != "no" || d.Reason != "it refuses all" {
		t.Errorf("denied by %s: %s", d.Stage, d.Reason)
	}
	if got := w.record.last(); got != "deny one:modify:marked no:deny:it refuses all" {
		t.Errorf("recorded as %q", got)
	}
}

func TestAPluginIsReplacedWithoutLosingACall(t *testing.T) {
	w := start(t, builtin("one", `{"mark":"1"}`), spec("mine", "words"))
	old := w.pipe
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
				if _, err := w.pass(kinds["a request"]("good")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	first := w.set
	other := builtin("one", `{"mark":"2"}`)
	set, err := w.host.Load(t.Context(), []plugins.Spec{other, spec("mine", "words")})
	if err != nil {
		t.Fatal(err)
	}
	now := pipeline.New(w.record, pipeline.Options{},
		set.Stages([]plugins.Spec{other, spec("mine", "words")})...)
	first.Close()
	for p, want := range map[*pipeline.Pipeline]string{old: "1", now: "2"} {
		passed, err := p.Pass(t.Context(), kinds["a request"]("x"))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := passed.Message().Text("/mark"); got != want {
			t.Errorf("marked %q, want %q", got, want)
		}
	}
	close(stop)
	wg.Wait()
}

func TestWhatCannotBeUsedIsSaidAtOnce(t *testing.T) {
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
		"a configuration that it refuses": {func(s *plugins.Spec) {
			s.Config = []byte(`{"marc":"1"}`)
		}, `config: marc: unknown option, did you mean "mark"?`},
		"a plugin that it does not have": {func(s *plugins.Spec) { s.Name = "other" },
			`it offers several plugins, and none is named "other"`},
		"another program than was pinned": {func(s *plugins.Spec) { s.SHA256 = make([]byte, 32) },
			"is not the program that was pinned"},
		"a program that is not there": {func(s *plugins.Spec) { s.Command[0] = "/no/such" },
			"no such file"},
		"a program that is none of ours": {func(s *plugins.Spec) {
			s.Command = []string{"/bin/false"}
		}, "exited with status 1"},
		"one that says nothing": {func(s *plugins.Spec) { s.Command[2] = "mute" },
			"timeout while waiting for plugin to start"},
		"one that says something else": {func(s *plugins.Spec) { s.Command[2] = "talks" },
			"Unrecognized remote plugin message: hello"},
		"one that is elsewhere": {func(s *plugins.Spec) { s.Command[2] = "elsewhere" },
			"which is no socket in the folder"},
		"one that cannot do TLS": {func(s *plugins.Spec) { s.Command[2] = "plain" },
			"hint: set mtls = false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spec("words", "words")
			c.change(&s)
			o := plugins.Options{StartTimeout: patience, Dir: folder(t)}
			if name == "one that says nothing" {
				o.StartTimeout = time.Second // which has to be waited for
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
	t.Run("a pinned program that is replaced on disk", func(t *testing.T) {
		s := spec("words", "words")
		s.Command[0], s.SHA256 = copied, sum[:]
		s.Timeout = 5 * time.Second // it is tried for as long
		w := start(t, s)
		w.works("a request")
		if err := os.Remove(copied); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		w.works("a request")
		_, err := w.pass(kinds["a request"]("die"))
		denied(t, err)
		_, err = w.pass(kinds["a request"]("good"))
		if d := denied(t, err); !strings.Contains(d.Err.Error(),
			"is not the program that was pinned") {
			t.Errorf("denied with %v", d.Err)
		}
	})
}

func TestTheCanaryIsThePluginsOwn(t *testing.T) {
	w := start(t, builtin("one", `{}`))
	c, err := w.set.SelfTest(0)
	if err != nil || c.Description != "a word" || c.Action != pipeline.Deny {
		t.Fatalf("%+v, %v", c, err)
	}
	_, err = w.pass(c.Message)
	denied(t, err)
}

func TestWhatAPluginWritesIsLogged(t *testing.T) {
	w := start(t, spec("words", "words"))
	w.pass(kinds["a request"]("write"))
	// by us, and by go-plugin's way
	for _, want := range []string{`hello \\x1b[31mred`, "said after Serve"} {
		for deadline := time.Now().Add(patience); !w.log.has(want) && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		if !w.log.has(want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

func TestStagesThatMaySeeDifferentThingsAreAskedApart(t *testing.T) {
	blind := builtin("blind", `{}`)
	blind.Grants.Body, blind.Grants.Principal = false, false
	w := start(t, builtin("one", `{}`), blind, builtin("two", `{}`))
	_, err := w.pass(kinds["a request"]("see"))
	if d := denied(t, err); d.Stage != "one" {
		t.Fatalf("denied by %s", d.Stage)
	}
	w.load(blind, builtin("two", `{}`))
	_, err = w.pass(kinds["a request"]("see"))
	if d := denied(t, err); d.Stage != "two" {
		t.Errorf("a stage without the right to see bodies read one, as its neighbour has it")
	}
}

func TestTwoChangesOfALargeText(t *testing.T) {
	w := start(t, builtin("one", `{}`), builtin("two", `{}`))
	m, err := w.pass(sent(mcp.NewRequest("1",
		"tools/call", []byte(`{"name":"x","do":"large","text":"`+strings.Repeat("x", 3<<20)+`"}`)),
		mcp.ToServer))
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := m.Text("/text"); len(text) != 3<<20-2 {
		t.Errorf("a text of %d bytes is left", len(text))
	}
}

// A stage of the configuration before, which cannot be made any more, does not keep the others
// down.
func TestAnOldConfigurationDoesNotKeepANewOneDown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := builtin("old", `{"file":`+string(mcp.Quote(file))+`}`)
	w := start(t, old)
	first, before := w.set, w.pipe
	w.load(builtin("new", `{}`))
	first.Close()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, err := w.pass(kinds["a request"]("die"))
	denied(t, err)
	w.works("a request")
	_, err = before.Pass(t.Context(), kinds["a request"]("good"))
	if d := denied(t, err); !strings.Contains(d.Err.Error(), "has not made the stage") {
		t.Errorf("the old one: %v", d.Err)
	}
}

func TestLoadAndCloseDoNotWaitForAPluginThatIsMute(t *testing.T) {
	h := plugins.New(plugins.Options{StartTimeout: patience, Dir: folder(t)})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := h.Load(ctx, []plugins.Spec{spec("a", "mute"), spec("b", "mute")}); err == nil {
		t.Error("mute plugins were loaded")
	}
	go h.Load(t.Context(), []plugins.Spec{spec("c", "mute")})
	time.Sleep(100 * time.Millisecond)
	h.Close()
	if took := time.Since(began); took > patience/2 { // each has a minute to start
		t.Errorf("it took %v", took)
	}
}
