//go:build amd64 || arm64

package plugins_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"gatekit/core/mcp"
	"gatekit/core/shared"
	"gatekit/plugins"
	"gatekit/transport/sandbox"
)

// requireLandlock skips a test on a kernel that cannot confine.
func requireLandlock(t *testing.T) {
	t.Helper()
	if v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0,
		unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 || v < 3 {
		t.Skipf("this kernel has Landlock ABI %d (%v), 3 is needed", v, errno)
	}
}

// hostilePlace holds the files and addresses that a hostile plugin tries to reach.
type hostilePlace struct{ key, auditKey, auditLog, data, tcp, unixSocket string }

func newHostilePlace(t *testing.T) hostilePlace {
	home := t.TempDir()
	t.Setenv("HOME", home)
	p := hostilePlace{key: filepath.Join(home, ".ssh/id_ed25519"),
		auditKey: filepath.Join(home, "log/audit.key"),
		auditLog: filepath.Join(home, "log/audit.jsonl"), data: filepath.Join(home, "data/x")}
	for _, file := range []string{p.key, p.auditKey, p.auditLog, p.data} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.unixSocket = filepath.Join(socketDir(t), "s")
	for network, address := range map[string]*string{"tcp": &p.tcp, "unix": &p.unixSocket} {
		at := *address
		if network == "tcp" {
			at = "127.0.0.1:0"
		}
		l, err := net.Listen(network, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		*address = l.Addr().String()
	}
	return p
}

// refused returns why the plugin of a host could not make an attempt; "" if it could.
func refused(t *testing.T, h *testHost, attempt, target string) string {
	t.Helper()
	m, err := instruct("a", attempt, 0).Edit(mcp.Set("/file", mcp.Quote(target)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = h.pass(m); err != nil {
		return requireDenied(t, err).Reason
	}
	return ""
}

// Each attempt succeeds without a sandbox, so its failure inside proves something.
func TestPluginCannotEscape(t *testing.T) {
	requireLandlock(t)
	p := newHostilePlace(t)
	own := func(s plugins.Sandbox) plugins.Spec {
		spec := programSpec("scripted", "scripted")
		spec.Sandbox = s
		spec.Sandbox.Hidden = []string{filepath.Dir(p.auditLog)}
		return spec
	}
	shared := builtinSpec("scripted", `{}`)
	network := builtinSpec("scripted", `{}`)
	network.Sandbox.Network = true
	folder := filepath.Dir(p.data)
	attempts := []struct {
		attempt, target string
		allowed         string // to which plugins
	}{
		{"read", p.key, "off"},
		{"read", p.auditKey, "off"},
		{"append", p.auditLog, "off"},
		{"write to", p.auditLog + "-1", "off"},
		{"read", p.data, "off granted guard"},
		{"append", p.data, "off granted"},
		{"connect", "tcp " + p.tcp, "off network guard"},
		{"connect", "unix " + p.unixSocket, "off network guard"},
		{"connect", "udp 127.0.0.1:9", "off network guard"},
		{"listen", "tcp 127.0.0.1:0", "off network guard"},
		{"read", "/etc/passwd", "off strict built-in granted network guard"},
		{"write to", "here", "off strict built-in granted network guard"},
	}
	for name, spec := range map[string]plugins.Spec{
		"off":      own(plugins.Sandbox{Level: sandbox.Off}),
		"strict":   own(plugins.Sandbox{}),
		"guard":    own(plugins.Sandbox{Level: sandbox.Guard, Network: true}),
		"granted":  own(plugins.Sandbox{Level: sandbox.Strict, Write: []string{folder}}),
		"built-in": shared,
		"network":  network,
	} {
		h := startHost(t, spec)
		for _, test := range attempts {
			reason := refused(t, h, test.attempt, test.target)
			if got, want := reason == "", strings.Contains(test.allowed, name); got != want {
				t.Errorf("%s, %s %s: allowed is %v: %s", name, test.attempt, test.target, got,
					reason)
			}
		}
		h.host.Close()
	}
}

// Plugins that need no network do not run in the process of those that need it.
func TestNetworkIsForItsOwnProcess(t *testing.T) {
	one, two := builtinSpec("one", `{}`), builtinSpec("two", `{}`)
	two.Sandbox.Network = true
	h := startHost(t, one, two)
	if got, want := processNames(h), "built-in built-in with network"; got != want {
		t.Errorf("the processes are %q, want %q", got, want)
	}
}

// A process that runs keeps its sandbox, so another sandbox needs another process.
func TestChangedSandboxStartsAnotherProcess(t *testing.T) {
	spec := programSpec("scripted", "scripted")
	h := startHost(t, spec)
	last := h.processOf("a")
	for _, change := range []struct {
		name    string
		apply   func(*plugins.Sandbox)
		another bool
	}{
		{"nothing", func(*plugins.Sandbox) {}, false},
		{"hidden files", func(s *plugins.Sandbox) { s.Hidden = []string{"/x"} }, false},
		{"fixed files", func(s *plugins.Sandbox) { s.Fixed = []string{"/x"} }, false},
		{"network", func(s *plugins.Sandbox) { s.Network = true }, true},
		{"read", func(s *plugins.Sandbox) { s.Read = []string{"/etc/passwd"} }, true},
		{"write", func(s *plugins.Sandbox) { s.Write = []string{h.dir} }, true},
		{"run", func(s *plugins.Sandbox) { s.Run = []string{h.dir} }, true},
		{"level", func(s *plugins.Sandbox) { s.Level = sandbox.Off }, true},
	} {
		change.apply(&spec.Sandbox)
		h.load(spec)
		pid := h.processOf("a")
		if another := pid != last; another != change.another {
			t.Errorf("after a change of %s, it is another process: %v", change.name, another)
		}
		last = pid
	}
}

// What a program was refused is told with the line that grants it.
func TestRefusalOfPluginIsTold(t *testing.T) {
	requireLandlock(t)
	p := newHostilePlace(t)
	spec := programSpec("scripted")
	reads := func(file string) []string {
		return []string{"/bin/sh", "-c", `cat ` + file + `; exec "$0" plugin scripted`, os.Args[0]}
	}
	spec.Command, spec.Sandbox.Hidden = reads(p.data), []string{p.data}
	h := startHost(t, spec)
	if log := h.log.text(); !strings.Contains(log, "denied") || strings.Contains(log, "hint=") {
		t.Errorf("a hint to grant one of Gatekit's files, or no refusal: %s", log)
	}
	spec.Command, spec.Sandbox.Hidden = reads(p.auditKey), nil
	h = startHost(t, spec)
	want := `add to [plugin.sandbox]: read = [\"` + p.auditKey
	if log := h.log.text(); !strings.Contains(log, want) {
		t.Errorf("the log has no %s: %s", want, log)
	}
}

// Where the system cannot confine it, a plugin starts only if nothing asks for a sandbox. The log
// and an event tell that.
func TestPluginThatCannotBeConfined(t *testing.T) {
	spec := programSpec("scripted", "scripted")
	t.Run("by default", func(t *testing.T) {
		refuseLandlock(t)
		h := startHost(t, spec)
		const event, line = "scripted unconfined <nil>", "plugin not confined"
		if h.eventCount(event) != 1 || !h.log.has(line) {
			t.Errorf("no event %q, or no line %q: %s", event, line, h.log.text())
		}
		if _, err := h.pass(instruct("a", "good", 0)); err != nil {
			t.Error(err)
		}
	})
	t.Run("asked for", func(t *testing.T) {
		refuseLandlock(t)
		spec.Sandbox.Level = sandbox.Strict
		_, err := newHost(t, plugins.Options{}).Load(t.Context(), []plugins.Spec{spec})
		if err == nil || !strings.Contains(err.Error(), "cannot confine") ||
			!strings.Contains(err.Error(), `sandbox = { level = "off" }`) {
			t.Errorf("got %v", err)
		}
	})
}

// refuseLandlock lets the calling goroutine find no Landlock. Its thread ends with it.
func refuseLandlock(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1,
			K: unix.SYS_LANDLOCK_CREATE_RULESET},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		t.Skipf("this kernel has no seccomp: %v", err)
	}
}

// An explicit level that cannot be prepared keeps the plugin from starting.
func TestPluginDoesNotStartWithoutWhatItsSandboxGrants(t *testing.T) {
	spec := programSpec("scripted", "scripted")
	spec.Sandbox = plugins.Sandbox{Level: sandbox.Strict, Read: []string{"/does/not/exist"}}
	_, err := newHost(t, plugins.Options{}).Load(t.Context(), []plugins.Spec{spec})
	if err == nil || !strings.Contains(err.Error(), "the sandbox grants /does/not/exist") {
		t.Errorf("got %v", err)
	}
}

// A confined plugin cannot connect to anything, and counts in the state that replicas share all the
// same.
func TestConfinedPluginsCallTheSharedState(t *testing.T) {
	requireLandlock(t)
	shares, tries := sharingSpec("a"), builtinSpec("a", `{}`)
	shares.Sandbox.Level, tries.Sandbox.Level = sandbox.Strict, sandbox.Strict
	state := &plugins.SharedState{State: &shared.Memory{}}
	h := startHostWith(t, state, shares)
	for range 3 {
		h.wantReason("rate", ":counted")
	}
	h.wantReason("rate", ":0 false 30m0s")
	h.load(tries) // in the same process
	place := newHostilePlace(t)
	for _, address := range []string{"tcp " + place.tcp, "unix " + place.unixSocket} {
		if refused(t, h, "connect", address) == "" {
			t.Errorf("the process can connect to %s", address)
		}
	}
}
