package plugins_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/plugins"
)

// processNames returns the names of the processes of a host, sorted.
func processNames(h *testHost) string {
	var names []string
	for _, s := range h.host.Status() {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

// The stages of the last four replaced configurations are kept for calls in flight. The oldest of
// five is released, with the process that no other configuration uses.
func TestOldestReplacedConfigurationIsReleased(t *testing.T) {
	h := startHost(t, programSpec("scripted", "scripted"))
	old := h.pipe
	for closed := 1; closed <= 6; closed++ {
		replaced := h.set
		h.load(programSpec("second", "scripted"))
		replaced.Close()
		want := "scripted second"
		if closed > 4 {
			want = "second"
		}
		if got := processNames(h); got != want {
			t.Errorf("%d replaced configurations: the processes are %q, want %q", closed, got, want)
		}
	}
	if _, err := h.pass(messagesByKind["a request"]("good")); err != nil {
		t.Errorf("a plugin that replaced configurations share: %v", err)
	}
	_, err := old.Pass(t.Context(), messagesByKind["a request"]("good"))
	requireDenied(t, err)
	h.load(programSpec("scripted", "scripted"))
	if _, err := h.pass(messagesByKind["a request"]("good")); err != nil {
		t.Errorf("a plugin that is configured again after its release: %v", err)
	}
}

// A plugin keeps its process as long as its program, arguments, environment and protection of the
// socket stay the same.
func TestProcessIsKeptWhileItsProgramIsTheSame(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*plugins.Spec)
		isKept bool
	}{
		"another configuration": {func(s *plugins.Spec) { s.Config = []byte(`{"methods":[]}`) },
			true},
		"another timeout": {func(s *plugins.Spec) { s.Timeout += time.Second }, true},
		"other grants":    {func(s *plugins.Spec) { s.Grants.Hide = false }, true},
		"another argument": {func(s *plugins.Spec) { s.Command = append(s.Command, "x") },
			false},
		"another environment": {func(s *plugins.Spec) { s.Env = map[string]string{"A": "b"} },
			false},
		"no TLS": {func(s *plugins.Spec) { s.NoTLS = true }, false},
	} {
		s := programSpec("scripted", "scripted")
		h := startHost(t, s)
		before := h.processOf("a")
		c.change(&s)
		h.load(s)
		if after := h.processOf("a"); (after == before) != c.isKept {
			t.Errorf("%s: process %d, then %d; want the same process: %v", name, before, after,
				c.isKept)
		}
	}
}

// A configuration that cannot be loaded leaves the plugins of the current configuration as they
// are. The processes that were started for it end.
func TestFailedLoadChangesNothing(t *testing.T) {
	h := startHost(t, builtinSpec("one", `{"mark":"1"}`))
	invalid := builtinSpec("other", `{"file":"/no/such/file"}`)
	for range 2 {
		if _, err := h.host.Load(t.Context(), []plugins.Spec{builtinSpec("one", `{"mark":"1"}`),
			programSpec("second", "scripted"), invalid}); err == nil {
			t.Fatal("the invalid plugin was loaded")
		}
		if got := processNames(h); got != "built-in" {
			t.Errorf("the processes are %q, want only the built-in plugins", got)
		}
	}
	m, err := h.pass(messagesByKind["a request"]("x"))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := m.Text("/mark"); got != "1" {
		t.Errorf("the mark is %q, want 1", got)
	}
}

// The runtime of the built-in plugins knows three quarters of their memory limit. Without
// MaxMemory, the limit is 1 GiB. A negative MaxMemory is no limit.
func TestMemoryLimitOfBuiltinPlugins(t *testing.T) {
	for maxMemory, want := range map[int64]string{0: "GOMEMLIMIT=805306368",
		400 << 20: "GOMEMLIMIT=314572800", -1: ""} {
		h := &testHost{t: t, record: &recorder{},
			host: newHost(t, plugins.Options{MaxMemory: maxMemory})}
		h.load(builtinSpec("one", `{}`))
		_, err := h.pass(messagesByKind["a request"]("show the environment"))
		if reason := requireDenied(t, err).Reason; !strings.Contains(reason, want) ||
			want == "" && strings.Contains(reason, "GOMEMLIMIT") {
			t.Errorf("MaxMemory is %d: the process has %q, want %q in it", maxMemory, reason, want)
		}
	}
}

// newHost returns a host with the scripted plugin as its built-in plugin, and closes it when the
// test ends.
func newHost(t *testing.T, o plugins.Options) *plugins.Host {
	o.BuiltinCommand, o.Dir = []string{os.Args[0], "", "plugin"}, socketDir(t)
	o.BuiltinPlugins = []string{"scripted"}
	h := plugins.New(o)
	t.Cleanup(func() { h.Close() })
	return h
}

// What a plugin declares is limited to the servers of its configuration.
func TestStagesSeeOnlyMessagesOfTheirServers(t *testing.T) {
	specs := []plugins.Spec{}
	add := func(declared string, servers ...string) {
		s := builtinSpec(fmt.Sprint("p", len(specs)), `{"servers":`+declared+`}`)
		s.Servers = servers
		specs = append(specs, s)
	}
	add(`["a"]`, "*")
	add(`[]`, "a", "b")
	add(`["a","c"]`, "a", "b")
	add(`["c"]`, "a")
	h := startHost(t, specs...)
	want := []string{"a", "a b", "a", "\x00"}
	for i, s := range h.set.Stages(specs) {
		if got := strings.Join(s.Wants.Servers, " "); got != want[i] {
			t.Errorf("%s: the stage sees messages of the servers %q, want %q", specs[i].Name, got,
				want[i])
		}
	}
}

// A plugin without the optional grants is loaded, and its verdicts count, unless they use a grant.
func TestPluginWithoutGrantsIsUsed(t *testing.T) {
	s := programSpec("any name", "allow-all")
	s.Grants = plugins.Grants{}
	h := startHost(t, s)
	if _, err := h.pass(messagesByKind["a request"]("x")); err != nil {
		t.Error(err)
	}
}

func TestFindingsAndLabelsAreLimited(t *testing.T) {
	h := startHost(t, programSpec("scripted", "scripted"))
	for _, instruction := range []string{"100 labels", "1000 findings"} {
		if _, err := h.pass(messagesByKind["a request"](instruction)); err != nil {
			t.Errorf("%s: %v", instruction, err)
		}
	}
	for _, instruction := range []string{"101 labels", "1001 findings"} {
		_, err := h.pass(messagesByKind["a request"](instruction))
		if d := requireDenied(t, err); !strings.Contains(d.Reason,
			"at most 1000 and 100 are allowed") {
			t.Errorf("%s: denied with the reason %q, want the limits", instruction, d.Reason)
		}
	}
}

// The path of a socket has a limit. If the path of the folder is too long, /tmp is used.
func TestFolderWithLongPath(t *testing.T) {
	top := socketDir(t)
	for length, isUsed := range map[int]bool{43: true, 44: false} {
		dir := top + "/" + strings.Repeat("x", length-len(top)-1)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		h := plugins.New(plugins.Options{Dir: dir})
		defer h.Close()
		if _, err := h.Load(t.Context(), []plugins.Spec{programSpec("scripted",
			"scripted")}); err != nil {
			t.Fatal(err)
		}
		if files, err := os.ReadDir(dir); err != nil || (len(files) > 0) != isUsed {
			t.Errorf("a path of %d bytes: %d files in the folder, and the error %v; want files: %v",
				length, len(files), err, isUsed)
		}
	}
}

// A message may be as large as MaxMessage, and so may the edit of its whole text.
func TestLargestMessageIsEdited(t *testing.T) {
	h := &testHost{t: t, record: &recorder{},
		host: newHost(t, plugins.Options{MaxMessage: 2 << 20})}
	h.load(builtinSpec("one", `{}`))
	params := `{"name":"x","do":"edit a large text","text":"` +
		strings.Repeat("x", 2<<20-100) + `"}`
	if _, err := h.pass(addressed(mcp.NewRequest("1", "tools/call", []byte(params)),
		mcp.ToServer)); err != nil {
		t.Error(err)
	}
}

// While a process inspects a large message, another one waits if both together would take too much
// memory.
func TestLargeMessagesWait(t *testing.T) {
	spec := programSpec("scripted", "scripted")
	h := startHost(t, spec)
	stage := h.set.Stages([]plugins.Spec{spec})[0].Stage
	inspect := func(ctx context.Context, instruction string) error {
		m := addressed(mcp.NewRequest("1", "tools/call", []byte(`{"do":"`+instruction+
			`","pad":"`+strings.Repeat("x", 3<<20)+`"}`)), mcp.ToServer)
		_, err := stage.Inspect(ctx, m)
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { first <- inspect(ctx, "hang") }()
	var err error
	for tries := 0; tries < 20 && err == nil; tries++ { // the first message may come late
		second, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
		err = inspect(second, "good")
		stop()
	}
	if err == nil {
		t.Error("a large message was inspected while another one was")
	}
	cancel()
	<-first
	if err := inspect(t.Context(), "good"); err != nil {
		t.Errorf("after the first message: %v", err)
	}
}

// Built-in plugins that are Shared run in one process. Another built-in plugin has its own process,
// which goes on when the shared process ends.
func TestBuiltinPluginWithItsOwnProcess(t *testing.T) {
	alone := builtinSpec("alone", `{"methods":["prompts/get"]}`)
	alone.Shared = false
	h := startHost(t, alone, builtinSpec("one", `{}`), builtinSpec("two", `{}`))
	alone.Config = []byte(`{}`)
	h.load(alone, builtinSpec("one", `{"methods":["tools/call"]}`))
	if got := processNames(h); got != "alone built-in" {
		t.Errorf("the processes are %q, want one of its own and a shared one", got)
	}
	h.load(builtinSpec("one", `{"methods":["tools/call"]}`))
	h.pass(messagesByKind["a request"]("die"))
	h.waitForEvent("built-in plugin_lost", 1)
	if n := h.eventCount("alone plugin_lost"); n != 0 {
		t.Errorf("the plugin with its own process was lost %d times, want 0", n)
	}
}
