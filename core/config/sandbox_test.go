package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gatekit/core/config"
)

func TestSandboxDefaults(t *testing.T) {
	for _, tt := range []struct{ table, level, network string }{
		{"", "guard", "all"},
		{"level = \"guard\"", "guard", "all"},
		{"level = \"strict\"", "strict", "none"},
		{"level = \"strict\"\nnetwork = \"all\"", "strict", "all"},
		{"network = \"none\"", "guard", "none"},
		{"memory = 16777216\nfiles = 16", "guard", "all"},
		{"network = [\"a.example\", \"*.B.example:8443\"]", "guard",
			"hosts a.example, *.b.example:8443"},
		{"level = \"strict\"\nnetwork = [\"a.example\"]\nnetworks = [\"10.0.0.0/8\"]", "strict",
			"hosts a.example"},
	} {
		c, err := load(t, "[server.a]\ncommand = \"x\"\n[server.a.sandbox]\n"+tt.table+"\n")
		if err != nil {
			t.Fatalf("%q: %v", tt.table, err)
		}
		s := c.Servers[0].Sandbox
		network := strings.TrimSpace(s.Network.Mode + " " + s.Network.Hosts.String())
		if s.Level != tt.level || network != tt.network {
			t.Errorf("%q: got level %q and network %q, want %q and %q", tt.table, s.Level,
				network, tt.level, tt.network)
		}
	}
}

func TestSandboxMistakes(t *testing.T) {
	for table, want := range map[string]string{
		`level = "lax"`:     `must be one of "off", "guard", "strict"`,
		`network = "some"`:  `must be "all", "none" or a list of hosts`,
		`network = 1`:       `must be "all", "none" or a list of hosts`,
		`network = []`:      `sandbox.network has no host: write "none" instead`,
		`network = [1]`:     "sandbox.network[0] must be a string, not an integer",
		`network = ["all"]`: `sandbox.network[0] is "all": in a list, each element is a host`,
		`network = ["none"]`: `sandbox.network[0] is "none": in a list, each element is a ` +
			`host`,
		`network = ["a.example", "https://b.example"]`: "sandbox.network[1]: ",
		`network = ["${env:GATEKIT_TEST_UNSET}"]`:      "sandbox.network[0]: ${env:",
		`network = "${env:GATEKIT_TEST_UNSET}"`:        "sandbox.network: ${env:",
		manyHosts():                                    "sandbox.network: 257 hosts are too many",
		`networks = ["10.0.0.0/8"]`:                    "needs a list of hosts in network",
		`read = ["absent"]`:                            "does not exist",
		`write = ["a", ""]`:                            "sandbox.write[0]",
		`memory = 16777215`:                            "sandbox.memory must be at least 16777216",
		`files = 15`:                                   "sandbox.files must be at least 16",
	} {
		_, err := load(t, "[server.a]\ncommand = \"x\"\n[server.a.sandbox]\n"+table+"\n")
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), ":4:") {
			t.Errorf("%s: got %v, want an error in line 4 with %q", table, err, want)
		}
	}
	for _, networks := range []string{"10.0.0.1/8", "10.0.0.0"} {
		_, err := load(t, "[server.a]\ncommand = \"x\"\n[server.a.sandbox]\n"+
			"network = [\"a.example\"]\nnetworks = [\"192.0.2.0/24\", \""+networks+"\"]\n")
		if err == nil || !strings.Contains(err.Error(), ":5:") || !strings.Contains(err.Error(),
			`sandbox.networks[1] must be a network such as "10.0.0.0/8"`) {
			t.Errorf("the network %s: got %v", networks, err)
		}
	}
	// A value that is wrong for another reason is reported once.
	_, err := load(t, "[server.a]\ncommand = \"x\"\n[server.a.sandbox]\nnetwork = \"some\"\n"+
		"networks = [1, \"10.0.0.0/8\"]\n")
	if err == nil || strings.Count(err.Error(), "sandbox.network") != 2 {
		t.Errorf("two wrong values: got %v, want two errors", err)
	}
	_, err = load(t, "[server.a]\ncommand = \"x\"\n[server.a.sandbox]\nlevel = \"off\"\n"+
		"network = [\"a.example\"]\n")
	if err == nil || !strings.Contains(err.Error(), "a list of hosts needs the level guard") {
		t.Errorf("hosts without a sandbox: got %v", err)
	}
	_, err = load(t, "[server.a]\ncommand = \"x\"\n[server.a.sandbox]\nlevel = \"off\"\n"+
		"memory = 1073741824\n")
	if err == nil || !strings.Contains(err.Error(), "memory needs the level guard or strict") {
		t.Errorf("a limit without a sandbox: got %v", err)
	}
	_, err = load(t, "[server.a]\nurl = \"https://a.example\"\n[server.a.sandbox]\n")
	if err == nil || !strings.Contains(err.Error(), "applies to a server with a command") {
		t.Errorf("a sandbox for a URL: got %v", err)
	}
}

func TestSandboxOfPlugin(t *testing.T) {
	const plugin = "[server.a]\ncommand = \"x\"\n[[plugin]]\nname = \"p\"\ncommand = [\"x\"]\n"
	c, err := load(t, plugin)
	if err != nil {
		t.Fatal(err)
	}
	if c.Plugins[0].Sandbox != nil {
		t.Errorf("without a table: got %+v", c.Plugins[0].Sandbox)
	}
	c, err = load(t, plugin+"[plugin.sandbox]\nread = [\"data\"]\n", "data/x", "")
	if err != nil {
		t.Fatal(err)
	}
	want := config.PluginSandbox{Level: "strict", Network: "none",
		Read: []string{filepath.Join(filepath.Dir(c.File), "data")}}
	if got := *c.Plugins[0].Sandbox; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for table, want := range map[string]string{
		`level = "lax"`:    `sandbox.level must be one of "off", "guard", "strict"`,
		`network = "some"`: `sandbox.network must be one of "all", "none"`,
		`run = ["absent"]`: "does not exist",
		`memory = 1`:       `unknown key "memory"`,
	} {
		_, err := load(t, plugin+"[plugin.sandbox]\n"+table+"\n")
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), ":7:") {
			t.Errorf("%s: got %v, want an error in line 7 with %q", table, err, want)
		}
	}
	_, err = load(t, "[[plugin]]\nname = \"p\"\nuse = \"limits\"\nsandbox = { level = \"off\" }\n")
	if err == nil || !strings.Contains(err.Error(), "sandbox applies to a plugin with a command") {
		t.Errorf("a sandbox for a built-in plugin: got %v", err)
	}
}

func manyHosts() string {
	var hosts []string
	for i := range 257 {
		hosts = append(hosts, fmt.Sprintf(`"h%d.example"`, i))
	}
	return "network = [" + strings.Join(hosts, ", ") + "]"
}

func TestPathsOfSandboxAreAbsolute(t *testing.T) {
	c, err := load(t, "[server.a]\ncommand = \"x\"\n[server.a.sandbox]\nread = [\"data\"]\n",
		"data/x", "")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(filepath.Dir(c.File), "data"); c.Servers[0].Sandbox.Read[0] != want {
		t.Errorf("got %s, want %s", c.Servers[0].Sandbox.Read[0], want)
	}
}

func TestProtectedFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"log/gatekit.jsonl", "log/gatekit-1.jsonl", "log/other", "secret",
		"rules.rego", "data.json", "judge", "judge.conf"} {
		write(t, at(name), "{}")
	}
	cert, key := certificate(t)
	write(t, at("tls.pem"), cert)
	write(t, at("tls.key"), key)
	if err := os.WriteFile(at("rules.rego"), []byte("package gatekit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, at("gatekit.toml"), `
[server.a]
command = "x"
env = { TOKEN = "${file:secret}" }
[audit]
file = "log/gatekit.jsonl"
key = "keys/gatekit.key"
anchor = "anchor/a"
[[audit.sink]]
name = "s"
kind = "file"

path = "sink/s.jsonl"
[listen]
http = "127.0.0.1:7777"
tls = { cert = "tls.pem", key = "tls.key" }
[pins]
file = "pinned.lock"
[tokens]
file = "logins"
[policy]
files = ["rules.rego"]
data = ["data.json"]
[[plugin]]
name = "judge"
command = ["`+at("judge")+`", "--conf", "`+at("judge.conf")+`", "/"]
`)
	c, err := config.Load(at("gatekit.toml"))
	if err != nil {
		t.Fatal(err)
	}
	hidden, fixed := c.ProtectedFiles()
	for _, name := range []string{"log/gatekit.jsonl", "log/gatekit-1.jsonl", "keys/gatekit.key",
		"anchor/a", "sink/s.jsonl", "secret", "tls.key", "logins"} {
		if !slices.Contains(hidden, at(name)) {
			t.Errorf("%s is not hidden: %q", name, hidden)
		}
	}
	for _, name := range []string{"gatekit.toml", "gatekit.lock", "pinned.lock", "rules.rego",
		"data.json", "judge", "judge.conf"} {
		if !slices.Contains(fixed, at(name)) {
			t.Errorf("%s is not fixed: %q", name, fixed)
		}
	}
	if slices.Contains(hidden, at("log/other")) || slices.Contains(hidden, at("gatekit.toml")) ||
		slices.Contains(fixed, "/") || slices.Contains(hidden, "") || slices.Contains(fixed, "") {
		t.Errorf("too much is protected: hidden %q, fixed %q", hidden, fixed)
	}
}

func TestProtectedFilesWithoutAConfiguration(t *testing.T) {
	c := config.Wrap("a", "x")
	c.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
	hidden, fixed := c.ProtectedFiles()
	if !slices.Equal(hidden, []string{c.Audit.File}) || len(fixed) > 0 {
		t.Errorf("got %q and %q, want only the audit log", hidden, fixed)
	}
}
