package clients

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tailscale/hujson"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// machine is a home folder with the files of clients, and a gatekit in the PATH.
type machine struct {
	t    *testing.T
	home string
	env  []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	home := t.TempDir()
	m := &machine{t: t, home: home}
	bin := filepath.Join(home, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	// Import refuses the path of the build cache.
	if err := os.Symlink(peers.Gatekit(t), filepath.Join(bin, "gatekit")); err != nil {
		t.Fatal(err)
	}
	m.env = append(os.Environ(), "HOME="+home, "PATH="+bin+":"+os.Getenv("PATH"),
		"XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "CLAUDE_CONFIG_DIR=", "CODEX_HOME=",
		"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "GORACE=atexit_sleep_ms=0")
	return m
}

// run runs a program in the home folder and returns its output.
func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(harness.Context(m.t), name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = m.home, m.env, 10*time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func (m *machine) gatekit(args ...string) string {
	m.t.Helper()
	return m.run(filepath.Join(m.home, "bin", "gatekit"), args...)
}

func (m *machine) read(name string) []byte {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.home, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return b
}

func (m *machine) write(name, content string) {
	m.t.Helper()
	file := filepath.Join(m.home, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// TestImportedServersAreGuardedAndUndoRestoresEveryByte imports the files of Claude Code, Cursor
// and VS Code. It starts each server as the client's file has it then. It makes a call that is
// allowed and a call that is denied. Undo must restore every byte.
func TestImportedServersAreGuardedAndUndoRestoresEveryByte(t *testing.T) {
	m := newMachine(t)
	server := `exec '` + peers.Gatekit(t) + `' demo-server \"$WHICH\"`
	entry := `"command": "sh", "args": ["-c", "` + server + `"], "env": {"WHICH": "files"}`
	files := map[string]string{
		".claude.json": "{\n  \"numStartups\": 3,\n  \"mcpServers\": {\n    \"files\": { " +
			"\"type\": \"stdio\", " + entry + " }\n  }\n}\n",
		".cursor/mcp.json": "{\"mcpServers\":{\"files\":{" + entry + "}}}",
		".config/Code/User/mcp.json": "{\r\n\t// files of the team\r\n\t\"servers\": {\r\n" +
			"\t\t\"files\": { " + entry + ", }, // last\r\n\t},\r\n}\r\n",
	}
	for name, content := range files {
		m.write(name, content)
	}
	m.gatekit("import", "--yes")
	for name := range files {
		key := "mcpServers"
		if strings.Contains(name, "Code") {
			key = "servers"
		}
		t.Run(name, func(t *testing.T) { m.callAsClient(t, name, key) })
	}
	m.gatekit("import", "undo", "--yes")
	for name, content := range files {
		if got := m.read(name); string(got) != content {
			t.Errorf("%s after undo is\n%s\nwant\n%s", name, got, content)
		}
	}
}

// callAsClient starts the server "files" as a client's file has it.
func (m *machine) callAsClient(t *testing.T, name, key string) {
	standard, err := hujson.Standardize(m.read(name))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(standard, &file); err != nil {
		t.Fatal(err)
	}
	var servers map[string]struct {
		Command string
		Args    []string
		Env     map[string]string
	}
	if err := json.Unmarshal(file[key], &servers); err != nil {
		t.Fatal(err)
	}
	s := servers["files"]
	if filepath.Base(s.Command) != "gatekit" || !filepath.IsAbs(s.Command) {
		t.Fatalf("the command is %q, want the absolute path of gatekit", s.Command)
	}
	g := harness.Prepare(t, "") // for its folder and the checks of its log
	g.Cmd = exec.Command(s.Command, s.Args...)
	g.Cmd.Dir, g.Cmd.Stderr, g.Cmd.WaitDelay = g.Dir, g.Stderr, 10*time.Second
	g.Cmd.Env = append(m.env, "XDG_STATE_HOME="+g.Dir)
	for name, value := range s.Env {
		g.Cmd.Env = append(g.Cmd.Env, name+"="+value)
	}
	p, err := mcptest.Command(g.Cmd)
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.NewClient(p, "2025-11-25")
	g.Reap(p.Wait)
	harness.Handshake(t, c)
	harness.CallTool(t, c, "read_file", `{"path":"welcome.txt"}`)
	harness.WantDenied(t, c, "tools/call",
		`{"name":"read_file","arguments":{"path":"reports/..%2f..%2fetc%2fpasswd"}}`)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-g.Exited
	logs, _ := filepath.Glob(filepath.Join(g.Dir, "gatekit", "audit", "*.jsonl"))
	if len(logs) != 1 {
		t.Fatalf("gatekit left the logs %q, want one", logs)
	}
	if err := os.Rename(logs[0], filepath.Join(g.Dir, "audit.jsonl")); err != nil {
		t.Fatal(err)
	}
	g.CheckChain()
	g.WantRecords("to_client response tools/call sh read_file pass",
		"to_server request tools/call sh read_file deny")
}

// TestRealClientsUseImportedServers lets Claude Code, Codex and Gemini CLI write their own files,
// imports these, and lets the clients use them: Claude Code and Gemini CLI must connect to the
// wrapped server. Undo must restore every byte that the clients have written.
func TestRealClientsUseImportedServers(t *testing.T) {
	programs := clientPrograms(t)
	everything := peers.Node(t).Server("everything")
	for _, c := range []struct {
		name    string
		program []string
		file    string
		add     []string
		list    string // in the output of mcp list with a wrapped server
		calls   bool   // mcp list connects to the server
	}{
		{"claude", programs["claude"], ".claude.json", []string{"--scope", "user", "everything",
			"-e", "KEY=v", "--"}, "✔ Connected", true},
		{"codex", programs["codex"], ".codex/config.toml", []string{"everything", "--env", "KEY=v",
			"--"}, "wrap --env KEY node", false},
		{"gemini", programs["gemini"], ".gemini/settings.json", []string{"--scope", "user", "-e",
			"KEY=v", "everything"}, "Connected", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			client := m.client(c.program)
			client(append(append([]string{"mcp", "add"}, c.add...), everything...)...)
			before := m.read(c.file)
			m.gatekit("import", "--yes")
			after := m.read(c.file)
			if bytes.Equal(before, after) {
				t.Fatalf("import left %s as it was:\n%s", c.file, before)
			}
			out := client("mcp", "list")
			if !strings.Contains(out, c.list) || !strings.Contains(out, "gatekit") {
				t.Errorf("mcp list printed\n%s\nwant %q and gatekit", out, c.list)
			}
			if c.calls {
				m.wantAnswers(t)
			}
			// Some clients do not wait for their servers to end.
			harness.WaitUntilAtMost(t, "processes of the client", 0, m.processes)
			written := m.read(c.file) // Claude Code writes its file at each start
			m.gatekit("import", "undo", "--yes")
			got := m.read(c.file)
			if bytes.Contains(got, []byte(`"wrap"`)) {
				t.Errorf("undo left\n%s", got)
			}
			if bytes.Equal(written, after) && !bytes.Equal(got, before) {
				t.Errorf("undo left\n%s\nwant\n%s", got, before)
			}
		})
	}
}

// clientPrograms returns the commands of the published clients.
func clientPrograms(t *testing.T) map[string][]string {
	t.Helper()
	modules := peers.Clients(t)
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return map[string][]string{
		"claude": {modules.Path("@anthropic-ai", "claude-code-"+runtime.GOOS+"-"+arch, "claude")},
		"codex":  {"node", modules.Path("@openai", "codex", "bin", "codex.js")},
		"gemini": {"node", modules.Path("@google", "gemini-cli", "bundle", "gemini.js")},
	}
}

// client returns a function that runs a client in the home folder.
func (m *machine) client(program []string) func(args ...string) string {
	m.write(".codex/.keep", "")
	m.write(".gemini/trustedFolders.json", `{"`+m.home+`": "TRUST_FOLDER"}`)
	return func(args ...string) string {
		m.t.Helper()
		return m.run(program[0], append(append([]string{}, program[1:]...), args...)...)
	}
}

// TestRealClientsUseOneGatekit lets Claude Code, Codex and Gemini CLI write two servers into their
// own files. Import replaces these by one Gatekit, to which Claude Code and Gemini CLI must
// connect. Undo must restore every byte. Then the clients connect to Gatekit over HTTP.
func TestRealClientsUseOneGatekit(t *testing.T) {
	programs := clientPrograms(t)
	everything := peers.Node(t).Server("everything")
	for _, c := range []struct {
		name, file string
		add        []string // before the name of a server
		addURL     []string // before the name and the URL
		url        []string // between the name and the URL
		connected  string   // in the output of mcp list; "" if the client does not connect
		record     string   // of the connection over HTTP
	}{
		{"claude", ".claude.json", []string{"--scope", "user"},
			[]string{"--scope", "user", "--transport", "http"}, nil, "✔ Connected",
			"to_client response server/discover everything - pass"},
		{"codex", ".codex/config.toml", nil, nil, []string{"--url"}, "", ""},
		{"gemini", ".gemini/settings.json", []string{"--scope", "user"},
			[]string{"--scope", "user", "--transport", "http"}, nil, "Connected",
			"to_client response initialize everything - pass"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			client := m.client(programs[c.name])
			for _, name := range []string{"one", "two"} {
				args := append([]string{"mcp", "add"}, append(c.add, name)...)
				if c.name != "gemini" {
					args = append(args, "--")
				}
				client(append(args, everything...)...)
			}
			before := m.read(c.file)
			m.gatekit("import", "--to", "gatekit.toml", "--yes")
			after := m.read(c.file)
			if bytes.Contains(after, []byte("server-everything")) ||
				!bytes.Contains(after, []byte("gatekit.toml")) {
				t.Fatalf("import --to left\n%s", after)
			}
			out := client("mcp", "list")
			if !strings.Contains(out, "gatekit") || !strings.Contains(out, c.connected) {
				t.Errorf("mcp list printed\n%s\nwant gatekit and %q", out, c.connected)
			}
			harness.WaitUntilAtMost(t, "processes of the client", 0, m.processes)
			written := m.read(c.file)
			m.gatekit("import", "undo", "--yes")
			got := m.read(c.file)
			if bytes.Equal(written, after) && !bytes.Equal(got, before) ||
				!bytes.Contains(got, []byte("server-everything")) {
				t.Errorf("undo left\n%s\nwant\n%s", got, before)
			}

			g := harness.StartHTTP(t, harness.StdioServer("everything", everything))
			args := append([]string{"mcp", "add"}, append(c.addURL, "remote")...)
			client(append(append(args, c.url...), g.URL)...)
			out = client("mcp", "list")
			line := ""
			for l := range strings.Lines(out) {
				if strings.Contains(l, g.URL) {
					line = l
				}
			}
			if line == "" || !strings.Contains(line, c.connected) {
				t.Errorf("mcp list printed\n%s\nwant %s and %q", out, g.URL, c.connected)
			}
			if c.record != "" {
				g.WantRecords(c.record)
			}
		})
	}
}

// logs returns the paths of the audit logs of gatekit wrap.
func (m *machine) logs() []string {
	logs, _ := filepath.Glob(filepath.Join(m.home, ".local", "state", "gatekit", "audit",
		"*.jsonl"))
	return logs
}

// processes returns the number of processes that have the home folder.
func (m *machine) processes() (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err == nil && bytes.Contains(b, []byte("HOME="+m.home+"\x00")) {
			n++
		}
	}
	return n
}

// wantAnswers fails the test unless an audit log has an answer of the server that passed.
func (m *machine) wantAnswers(t *testing.T) {
	t.Helper()
	g := harness.Prepare(t, "")
	logs := m.logs()
	if len(logs) == 0 {
		t.Fatal("gatekit left no audit log, want one")
	}
	log, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(g.Dir, "audit.jsonl"), log, 0o600); err != nil {
		t.Fatal(err)
	}
	g.CheckChain()
	for _, r := range g.Records() {
		if r.Direction == "to_client" && r.Server == "server-everything" && r.Action == "pass" {
			return
		}
	}
	t.Errorf("the audit log has no answer of the server:\n%s", log)
}
