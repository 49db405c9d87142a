package pins

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// installTest is a folder whose configuration starts @acme/box with npx.
type installTest struct {
	*testing.T
	registry    *npmRegistry
	dir, config string
}

// newInstallTest publishes version 1.0.0, with a script that would leave a file. spec is what npx
// starts, and tables is added to the configuration.
func newInstallTest(t *testing.T, spec, tables string) *installTest {
	t.Helper()
	i := &installTest{T: t, registry: newNPMRegistry(t), dir: t.TempDir()}
	i.registry.script = "touch " + filepath.Join(i.dir, "script-ran")
	i.registry.publish("1.0.0", "red")
	i.config = harness.StdioServer("box", []string{"npx", "-y", spec, "--x"}) + tables +
		"[pins]\n" + harness.AuditTable
	harness.ReplaceFile(t, filepath.Join(i.dir, "gatekit.toml"), []byte(i.config))
	return i
}

// gatekit runs a command and checks its output.
func (i *installTest) gatekit(succeeds bool, want string, args ...string) {
	i.Helper()
	out, err := run(i.T, i.dir, args...)
	if (err == nil) != succeeds || !strings.Contains(out, want) {
		i.Errorf("gatekit %q: %v: %s, want success %v and %q", args, err, out, succeeds, want)
	}
}

// program returns the installed program. There must be one.
func (i *installTest) program() string {
	i.Helper()
	found, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_STATE_HOME"),
		"gatekit/packages/*[0-9a-f]/tree/node_modules/@acme/box/box.js"))
	if len(found) != 1 {
		i.Fatalf("the installed programs are %q, want one", found)
	}
	return found[0]
}

// start starts Gatekit and a client. The registry is closed, so npx would fail.
func (i *installTest) start() (*harness.Gatekit, *mcptest.Client) {
	i.Helper()
	i.registry.close()
	g := harness.StartHTTPIn(i.T, i.dir, i.config)
	return g, g.Client("2025-11-25")
}

// wantWhere calls the tool and checks its answer.
func (i *installTest) wantWhere(c *mcptest.Client, arguments, want string) {
	i.Helper()
	m := harness.CallTool(i.T, c, "box__where", arguments)
	if !strings.Contains(string(m.Raw), want) {
		i.Errorf("the tool answered %s, want %s", m.Raw, want)
	}
}

// wantNotStarted checks that the server is not available, and why.
func wantNotStarted(t *testing.T, g *harness.Gatekit, reason string) {
	t.Helper()
	m := harness.Request(t, g.Connect("2025-11-25"), "initialize", initialize)
	if m.Error == nil {
		t.Errorf("the server was started: %s", m.Raw)
	}
	g.WaitForLog(reason+`\nhint: run gatekit pin box`, 1)
	g.WantRecords("to_server request initialize box - pass")
}

const initialize = `{"protocolVersion":"2025-11-25","capabilities":{},` +
	`"clientInfo":{"name":"c","version":"1"}}`

// TestPinnedPackageIsTheOneThatRuns pins a server of npx. Its package is installed without running
// its scripts, its integrity is in the lock file, and Gatekit starts the server from there, without
// the registry.
func TestPinnedPackageIsTheOneThatRuns(t *testing.T) {
	i := newInstallTest(t, "@acme/box@1.0.0", "")
	i.gatekit(true, "installed @acme/box@1.0.0, without running scripts", "pin", "--yes")
	if _, err := os.Lstat(filepath.Join(i.dir, "script-ran")); err == nil {
		t.Error("npm has run a script of the package")
	}
	lock, err := os.ReadFile(filepath.Join(i.dir, "gatekit.lock"))
	if want := `"integrity": "` + i.registry.integrity("1.0.0") + `"`; err != nil ||
		!strings.Contains(string(lock), want) {
		t.Errorf("the lock file is %s, %v, want %s", lock, err, want)
	}
	i.gatekit(true, "unchanged", "pin", "--yes")
	program := i.program()
	g, c := i.start()
	i.wantWhere(c, `{}`, program+" --x")
	i.gatekit(true, "unchanged", "pin", "verify")
	g.WantRecords("to_server request tools/call box where pass")
}

// TestChangedPackageIsNotStarted changes the tree of an installed package in several ways. The
// server is not started until gatekit pin has installed the package again.
func TestChangedPackageIsNotStarted(t *testing.T) {
	i := newInstallTest(t, "@acme/box@1.0.0", "")
	i.gatekit(true, "", "pin", "--yes")
	program := i.program()
	added := filepath.Join(filepath.Dir(program), "added.js")
	for name, c := range map[string]struct {
		spoil func() error
		want  string
	}{
		"changed": {func() error {
			os.Chmod(program, 0o700)
			return os.WriteFile(program, []byte(boxServer+"//"), 0o700)
		}, "node_modules/@acme/box/box.js has changed"},
		"added": {func() error { return os.WriteFile(added, nil, 0o600) },
			"node_modules/@acme/box/added.js was added"},
		"removed": {func() error { return os.Remove(program) },
			"node_modules/@acme/box/box.js is missing"},
		"replaced by a link": {func() error {
			os.Rename(program, filepath.Join(i.dir, "box.js"))
			return os.Symlink(filepath.Join(i.dir, "box.js"), program)
		}, "node_modules/@acme/box/box.js is not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			os.Chmod(filepath.Dir(program), 0o700)
			if err := c.spoil(); err != nil {
				t.Fatal(err)
			}
			out, err := run(t, i.dir, "pin", "verify")
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("gatekit pin verify: %v: %s, want %q", err, out, c.want)
			}
			dir := t.TempDir()
			lock, err := os.ReadFile(filepath.Join(i.dir, "gatekit.lock"))
			if err != nil {
				t.Fatal(err)
			}
			harness.ReplaceFile(t, filepath.Join(dir, "gatekit.lock"), lock)
			g := harness.StartHTTPIn(t, dir, i.config)
			wantNotStarted(t, g, c.want)
			if out, err := run(t, i.dir, "pin", "--yes"); err != nil ||
				!strings.Contains(out, "unchanged") {
				t.Errorf("gatekit pin: %v: %s, want a repaired package", err, out)
			}
			if out, err := run(t, i.dir, "pin", "verify"); err != nil {
				t.Errorf("gatekit pin verify: %v: %s, want success", err, out)
			}
		})
	}
}

// TestAnotherMachineInstallsWhatTheLockHas has the lock file of another machine, on which nothing
// is installed. The commands install the approved package. If the registry has another package
// under its version, nothing is installed.
func TestAnotherMachineInstallsWhatTheLockHas(t *testing.T) {
	i := newInstallTest(t, "@acme/box@1.0.0", "")
	i.gatekit(true, "", "pin", "--yes")
	newState(t)
	g := harness.StartHTTPIn(t, i.dir, i.config)
	wantNotStarted(t, g, "the package @acme/box@1.0.0 is not installed on this machine")
	i.gatekit(true, "unchanged", "pin", "verify")
	i.program()
	newState(t)
	t.Setenv("npm_config_cache", t.TempDir())
	i.registry.publish("1.0.0", "blue")
	i.gatekit(false, "the registry has another package than the lock file", "pin", "--yes")
	i.gatekit(false, "the registry has another package than the lock file", "pin", "verify")
}

// TestUnversionedPackageKeepsItsVersion pins npx without a version. A newer release is neither
// started nor installed before gatekit pin --update.
func TestUnversionedPackageKeepsItsVersion(t *testing.T) {
	i := newInstallTest(t, "@acme/box", "")
	i.gatekit(true, "installed @acme/box@1.0.0", "pin", "--yes")
	i.registry.publish("1.1.0", "blue")
	i.gatekit(true, "unchanged", "pin", "--yes")
	i.gatekit(true, "unchanged", "pin", "verify")
	i.gatekit(false, "{+blue+}", "pin", "--update")
	i.gatekit(true, "unchanged", "pin", "verify")
	i.gatekit(true, "installed @acme/box@1.1.0", "pin", "--update", "--yes")
	i.gatekit(true, "unchanged", "pin", "verify")
	g, c := i.start()
	i.wantWhere(c, `{}`, "@acme+box@1.1.0-")
	g.WantRecords("to_server request tools/call box where pass")
}

// TestAnotherVersionInTheConfiguration changes the version of the command line: what runs is no
// longer the approved package, so everything is held back until gatekit pin has installed the new
// one.
func TestAnotherVersionInTheConfiguration(t *testing.T) {
	i := newInstallTest(t, "@acme/box@1.0.0", "")
	i.gatekit(true, "installed @acme/box@1.0.0", "pin", "--yes")
	i.registry.publish("1.1.0", "blue")
	i.config = strings.Replace(i.config, "@1.0.0", "@1.1.0", 1)
	harness.ReplaceFile(t, filepath.Join(i.dir, "gatekit.toml"), []byte(i.config))
	i.gatekit(false, "{+blue+}", "pin")
	i.gatekit(true, "installed @acme/box@1.1.0", "pin", "--yes")
	lock, err := os.ReadFile(filepath.Join(i.dir, "gatekit.lock"))
	if want := i.registry.integrity("1.1.0"); err != nil || !strings.Contains(string(lock), want) {
		t.Errorf("the lock file is %s, %v, want %s", lock, err, want)
	}
	g, c := i.start()
	i.wantWhere(c, `{}`, "@acme+box@1.1.0-")
	g.WantRecords("to_server request tools/call box where pass")
}

// TestPackagesAreNotInstalled has install = "none": the lock has the version of the command line
// only.
func TestPackagesAreNotInstalled(t *testing.T) {
	i := newInstallTest(t, "@acme/box@1.0.0", "[server.box.pins]\ninstall = \"none\"\n")
	i.config = strings.Replace(i.config, "env = {", fmt.Sprintf(`env = { npm_config_registry = `+
		`%q, npm_config_cache = %q, npm_config_ignore_scripts = "true",`, i.registry.url,
		t.TempDir()), 1)
	harness.ReplaceFile(t, filepath.Join(i.dir, "gatekit.toml"), []byte(i.config))
	i.gatekit(true, "wrote ", "pin", "--yes")
	lock, err := os.ReadFile(filepath.Join(i.dir, "gatekit.lock"))
	if err != nil || strings.Contains(string(lock), "integrity") {
		t.Errorf("the lock file is %s, %v, want no integrity", lock, err)
	}
	g := harness.StartHTTPIn(i.T, i.dir, i.config)
	i.wantWhere(g.Client("2025-11-25"), `{}`, "/_npx/")
	g.WantRecords("to_server request tools/call box where pass")
}

// TestWrappedPackageIsInstalledOnce wraps a server with --install, and again without the registry.
func TestWrappedPackageIsInstalledOnce(t *testing.T) {
	i := newInstallTest(t, "@acme/box", "")
	start := func(flags ...string) (*harness.Gatekit, *mcptest.Client) {
		g, c := harness.WrapIn(t, i.dir, "2025-11-25", flags,
			[]string{"npx", "-y", "@acme/box", "--x"})
		harness.Handshake(t, c)
		return g, c
	}
	for _, flags := range [][]string{{"--install"}, {"--install"}, nil} {
		g, c := start(flags...)
		harness.ListAll(t, c, "tools/list", "tools")
		m := harness.CallTool(t, c, "where", `{}`)
		if want := i.program() + " --x"; !strings.Contains(string(m.Raw), want) {
			t.Errorf("the tool answered %s, want %s", m.Raw, want)
		}
		g.WantRecords("to_server request tools/call box where pass")
		c.Close()
		i.registry.close()
	}
	os.Chmod(filepath.Dir(i.program()), 0o700)
	if err := os.WriteFile(i.program()+".map", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--install"}, {}} {
		args := slices.Concat([]string{"wrap"}, flags, []string{"--", "npx", "-y", "@acme/box",
			"--x"})
		cmd := exec.Command(peers.Gatekit(t), args...)
		cmd.Dir = i.dir
		cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` +
			initialize + "}\n")
		out, _ := cmd.CombinedOutput()
		if want := "box.js.map was added"; !strings.Contains(string(out), want) ||
			strings.Contains(string(out), "serverInfo") {
			t.Errorf("gatekit %q: %s, want %q", args, out, want)
		}
	}
}

// TestRealPackageRunsFromItsInstallation pins a published server, and runs it without the registry
// and without npm's cache.
func TestRealPackageRunsFromItsInstallation(t *testing.T) {
	peers.Node(t)
	newState(t)
	t.Setenv("npm_config_prefer_offline", "true")
	i := &installTest{T: t, dir: t.TempDir()}
	i.config = harness.StdioServer("everything", []string{"npx", "-y",
		"@modelcontextprotocol/server-everything"}) + "[pins]\n" + harness.AuditTable
	harness.ReplaceFile(t, filepath.Join(i.dir, "gatekit.toml"), []byte(i.config))
	i.gatekit(true, "without running scripts", "pin", "--yes")
	g := harness.StartHTTPIn(t, i.dir, i.config, "npm_config_registry=http://127.0.0.1:1",
		"npm_config_cache="+t.TempDir())
	m := harness.CallTool(t, g.Client("2025-11-25"), "everything__echo", `{"message":"hello"}`)
	if !strings.Contains(string(m.Raw), "hello") {
		t.Errorf("the tool answered %s", m.Raw)
	}
	g.WantRecords("to_server request tools/call everything echo pass")
}
