package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/peers"
)

// report is the output of clients/use.mjs: the items that a real client has listed and used, and
// the messages that it received.
type report struct {
	Tools, ToolsCalled    []string
	Prompts, PromptsUsed  []string
	Resources, Templates  []string
	Completions           []string // of prompts' arguments and of templates
	Errors                []string
	Contents              int // of all resources
	Sampling, Elicitation int // requests of the server
	Roots                 int // requests of the server
	Progress, Logs        int // notifications
	Updates               int // notifications
	Modern                bool
}

// useEverything runs clients/use.mjs and returns its report.
func useEverything(t *testing.T, sdk, dir string, target ...string) (r report) {
	t.Helper()
	b := runNode(t, "use.mjs", sdk, dir, target...)
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return r
}

// runNode runs a script of clients/ in dir and returns its output.
func runNode(t *testing.T, script, sdk, dir string, target ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(harness.Context(t), "node",
		append([]string{peers.Top() + "/test/e2e/clients/" + script, sdk}, target...)...)
	cmd.Env = append(os.Environ(), "NODE_MODULES="+peers.Node(t).Path())
	cmd.Dir = dir
	cmd.WaitDelay = time.Second // a child of the script may keep its output open
	stderr := &harness.Output{}
	cmd.Stderr = stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", cmd, err, b, stderr)
	}
	return b
}

// expectedReport returns the report that a client must give when it uses these servers through
// gatekit. direct has the reports of using each server directly.
func expectedReport(names []string, direct map[string]report) (all report) {
	for _, server := range names {
		exposed := func(separator string, names []string) (out []string) {
			for _, name := range names {
				out = append(out, server+separator+name)
			}
			return out
		}
		d := direct[server]
		all.Tools = append(all.Tools, exposed("__", d.Tools)...)
		all.ToolsCalled = append(all.ToolsCalled, exposed("__", d.ToolsCalled)...)
		all.Prompts = append(all.Prompts, exposed("__", d.Prompts)...)
		all.PromptsUsed = append(all.PromptsUsed, exposed("__", d.PromptsUsed)...)
		all.Resources = append(all.Resources, exposed("+", d.Resources)...)
		all.Templates = append(all.Templates, exposed("+", d.Templates)...)
		for _, name := range d.Completions {
			if strings.Contains(name, "://") {
				all.Completions = append(all.Completions, server+"+"+name)
			} else {
				all.Completions = append(all.Completions, server+"__"+name)
			}
		}
		all.Errors = append(all.Errors, d.Errors...)
		all.Contents += d.Contents
		all.Sampling += d.Sampling
		all.Elicitation += d.Elicitation
		all.Roots += d.Roots
		all.Updates += d.Updates
	}
	return all
}

// wantReport fails the test unless got equals want. The numbers of progress reports and logs depend
// on the clock. They need not be equal, but must not be zero.
func wantReport(t *testing.T, got, want report) {
	t.Helper()
	for what, pair := range map[string][2][]string{
		"tools":        {got.Tools, want.Tools},
		"tools called": {got.ToolsCalled, want.ToolsCalled},
		"prompts":      {got.Prompts, want.Prompts},
		"prompts used": {got.PromptsUsed, want.PromptsUsed},
		"resources":    {got.Resources, want.Resources},
		"templates":    {got.Templates, want.Templates},
		"completions":  {got.Completions, want.Completions},
	} {
		g, w := slices.Sorted(slices.Values(pair[0])), slices.Sorted(slices.Values(pair[1]))
		if !slices.Equal(g, w) {
			t.Errorf("%s:\ngot  %q\nwant %q", what, g, w)
		}
	}
	if len(got.Errors) != len(want.Errors) {
		t.Errorf("errors:\ngot  %q\nwant %q", got.Errors, want.Errors)
	}
	// server-everything requests the roots some time after the handshake. A modern client gets this
	// request only during a call. If that call needs the roots, the server requests them again.
	if got.Modern && got.Roots > want.Roots {
		got.Roots = want.Roots
	}
	g := [...]int{got.Contents, got.Sampling, got.Elicitation, got.Roots, got.Updates}
	w := [...]int{want.Contents, want.Sampling, want.Elicitation, want.Roots, want.Updates}
	if g != w || g[1] == 0 {
		t.Errorf("contents, sampling, elicitation, roots, updates: got %v, want %v", g, w)
	}
	// A modern client gets only the logs that come during its calls.
	if got.Progress == 0 || got.Logs == 0 && !got.Modern {
		t.Errorf("got %d progress reports and %d logs, want some of both", got.Progress, got.Logs)
	}
}

func TestTypeScriptClientsUseRealServers(t *testing.T) {
	r := harness.NewRealServers(t)
	for _, sdk := range []string{"v1", "v2"} {
		t.Run(sdk, func(t *testing.T) {
			direct := map[string]report{}
			for _, n := range r.Names {
				direct[n] = useEverything(t, sdk, "", append([]string{"--"}, r.Commands[n]...)...)
			}
			want := expectedReport(r.Names, direct)
			t.Run("stdio", func(t *testing.T) {
				g := harness.Prepare(t, r.Config())
				t.Setenv("MEMORY_FILE_PATH", r.Env["memory"][1])
				got := useEverything(t, sdk, g.Dir, "--", g.Cmd.Path, "run")
				wantReport(t, got, want)
				g.CheckExit()
				g.WantRecords("to_server request tools/call everything echo pass",
					"to_client request sampling/createMessage everything - pass")
			})
			t.Run("http", func(t *testing.T) {
				g := harness.StartHTTP(t, r.Config())
				got := useEverything(t, sdk, "", g.URL)
				wantReport(t, got, want)
				if wantModern := sdk == "v2"; got.Modern != wantModern { // all servers are legacy
					t.Errorf("client %s: got modern = %v, want %v", sdk, got.Modern, wantModern)
				}
				g.WantRecords("to_server request tools/call everything echo pass",
					"to_client request sampling/createMessage everything - pass")
			})
			t.Run("each request to another replica than the last", func(t *testing.T) {
				url, all := startReplicas(t, r.Config())
				want := want
				if sdk == "v2" {
					// Each replica has its own process of a legacy server for a modern client. The
					// tool that makes the server send updates runs in another one than that of the
					// subscription.
					want.Updates = 0
					t.Setenv("UPDATE_PATIENCE", "1000")
				}
				wantReport(t, useEverything(t, sdk, "", url), want)
				serving, forwarded := countCalls(all)
				if wantServing := map[string]int{"v1": 1, "v2": 3}[sdk]; serving != wantServing ||
					forwarded == 0 {
					t.Errorf("%d replicas have served calls, want %d; %d calls were forwarded, "+
						"want some", serving, wantServing, forwarded)
				}
			})
		})
	}
}

// startReplicas starts three replicas of gatekit behind a balancer that sends each request to
// another replica than the last. It returns the URL of the balancer.
func startReplicas(t *testing.T, config string) (url string, all []*harness.Gatekit) {
	t.Helper()
	dir := t.TempDir()
	if err := clustertest.WriteCertificates(dir); err != nil {
		t.Fatal(err)
	}
	var urls []string
	for i := range 3 {
		g := harness.StartHTTP(t, clustertest.Config(i, peers.FreeAddress(t), dir)+config)
		all, urls = append(all, g), append(urls, g.URL)
	}
	handler, err := clustertest.RoundRobin(urls...)
	if err != nil {
		t.Fatal(err)
	}
	balancer := httptest.NewServer(handler)
	t.Cleanup(balancer.Close)
	return balancer.URL + "/mcp", all
}

// countCalls returns how many replicas have served calls of tools, and how many of all calls
// another replica has forwarded.
func countCalls(all []*harness.Gatekit) (serving, forwarded int) {
	for _, g := range all {
		calls := 0
		for _, record := range g.Records() {
			if record.Method != "tools/call" || record.Kind != "request" {
				continue
			}
			calls++
			if record.Via != "" {
				forwarded++
			}
		}
		serving += min(calls, 1)
	}
	return serving, forwarded
}

// TestClientUsesRealServerOverStreamableHTTPAndSSE compares the reports of a client that uses
// server-everything directly, through gatekit, and through replicas. All connections use the same
// transport.
func TestClientUsesRealServerOverStreamableHTTPAndSSE(t *testing.T) {
	for _, mode := range []struct{ name, path string }{{"streamableHttp", "/mcp"},
		{"sse", "/sse"}} {
		t.Run(mode.name, func(t *testing.T) {
			start := func() string {
				address := peers.FreeAddress(t)
				cmd := exec.Command("node", append(peers.Node(t).Server("everything")[1:],
					mode.name)...)
				_, port, _ := net.SplitHostPort(address)
				cmd.Env = append(os.Environ(), "PORT="+port)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					cmd.Process.Kill()
					cmd.Wait()
				})
				if !peers.Listening(address, func() bool { return true }) {
					t.Fatalf("%s does not listen on %s", cmd, address)
				}
				return "http://" + address + mode.path
			}
			direct := useEverything(t, "v1", "", start())
			g := harness.StartHTTP(t, "sse = true\n"+harness.HTTPServer("everything", start()))
			got := useEverything(t, "v1", "", strings.TrimSuffix(g.URL, "/mcp")+mode.path)
			wantReport(t, got, expectedReport([]string{"everything"},
				map[string]report{"everything": direct}))
			g.WantRecords("to_server request tools/call everything echo pass",
				"to_client request elicitation/create everything - pass")
			if mode.path != "/sse" {
				return // TestTypeScriptClientsUseRealServers has the replicas for this transport
			}
			url, all := startReplicas(t, harness.HTTPServer("everything", start()))
			got = useEverything(t, "v1", "", strings.TrimSuffix(url, "/mcp")+mode.path)
			wantReport(t, got, expectedReport([]string{"everything"},
				map[string]report{"everything": direct}))
			if serving, forwarded := countCalls(all); serving != 1 || forwarded == 0 {
				t.Errorf("%d replicas have served calls, want one; %d calls were forwarded, want "+
					"some", serving, forwarded)
			}
		})
	}
}

func TestInspectorListsAndUsesRealServers(t *testing.T) {
	r := harness.NewRealServers(t)
	inspect := func(t *testing.T, dir string, args ...string) string {
		t.Helper()
		m := peers.Node(t)
		argv := append(append(m.Inspector()[1:], "--cli"), args...)
		cmd := exec.CommandContext(harness.Context(t), m.Inspector()[0], argv...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // the Inspector keeps files there
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return string(out)
	}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"tools/list", nil, []string{"everything__echo", "files__read_text_file",
			"memory__read_graph"}},
		{"prompts/list", nil, []string{"everything__simple-prompt"}},
		{"resources/list", nil, []string{"everything+demo://resource/static/document/features.md"}},
		{"resources/templates/list", nil,
			[]string{"everything+demo://resource/dynamic/text/{resourceId}"}},
		{"tools/call", []string{"--tool-name", "everything__echo", "--tool-arg", "message=hello"},
			[]string{"Echo: hello"}},
		{"prompts/get", []string{"--prompt-name", "everything__args-prompt", "--prompt-args",
			"city=Oslo"}, []string{"Oslo"}},
		{"resources/read", []string{"--uri",
			"everything+demo://resource/static/document/features.md"},
			[]string{"everything+demo://resource/static/document/features.md"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(t *testing.T, out string) {
				t.Helper()
				for _, w := range c.want {
					if !strings.Contains(out, w) {
						t.Errorf("the Inspector printed\n%s\nwant %q in it",
							harness.Clip([]byte(out)), w)
					}
				}
			}
			t.Run("stdio", func(t *testing.T) {
				g := harness.Prepare(t, r.Config())
				check(t, inspect(t, g.Dir, append([]string{g.Cmd.Path, "run", "--method", c.name},
					c.args...)...))
				g.CheckExit()
			})
			t.Run("http", func(t *testing.T) {
				g := harness.StartHTTP(t, r.Config())
				check(t, inspect(t, g.Dir, append([]string{g.URL, "--transport", "http", "--method",
					c.name}, c.args...)...))
			})
		})
	}
}

// TestInspectorUsesTheConfigurationOfTheREADME runs the Inspector with a file that has the README's
// client configuration: `gatekit wrap npx -y @modelcontextprotocol/server-filesystem /srv/data`.
// Only the paths differ, and the installed server is run instead of npx.
func TestInspectorUsesTheConfigurationOfTheREADME(t *testing.T) {
	m := peers.Node(t)
	readme, err := os.ReadFile(filepath.Join(peers.Top(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Servers map[string]struct {
			Command string            `json:"command"`
			Args    []string          `json:"args"`
			Env     map[string]string `json:"env"`
		} `json:"mcpServers"`
	}
	_, block, _ := strings.Cut(string(readme), "```json\n{ \"mcpServers\"")
	block, _, _ = strings.Cut(block, "```")
	if err := json.Unmarshal([]byte(`{ "mcpServers"`+block), &config); err != nil {
		t.Fatalf("the README has no configuration with mcpServers: %v", err)
	}
	const name = "files"
	server := config.Servers[name]
	install := []string{"npx", "-y", "@modelcontextprotocol/server-filesystem"}
	at := slices.Index(server.Args, install[0])
	if server.Command != "gatekit" || at < 0 || len(server.Args) != at+4 ||
		!slices.Equal(server.Args[at:at+3], install) {
		t.Fatalf("the README has the command %s %q, want gatekit with %q and a folder",
			server.Command, server.Args, install)
	}
	g := harness.Prepare(t, "") // for its folder and the checks of its log
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "a.txt"), []byte("some text"), 0o600); err != nil {
		t.Fatal(err)
	}
	server.Command = peers.Gatekit(t)
	server.Args = append(append(server.Args[:at:at], m.Server("filesystem")...), data)
	server.Env = map[string]string{"XDG_STATE_HOME": g.Dir}
	config.Servers[name] = server
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(g.Dir, "mcp.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, run := range []struct {
		args         []string
		want, record string
	}{
		{[]string{"--method", "tools/list"}, `"name": "read_text_file"`,
			"to_client response tools/list server-filesystem - pass"},
		{[]string{"--method", "tools/call", "--tool-name", "read_text_file", "--tool-arg",
			"path=" + filepath.Join(data, "a.txt")}, "some text",
			"to_client response tools/call server-filesystem read_text_file pass"},
	} {
		args := slices.Concat(m.Inspector()[1:], []string{"--cli", "--config", file, "--server",
			name}, run.args)
		cmd := exec.CommandContext(harness.Context(t), m.Inspector()[0], args...)
		cmd.Dir = g.Dir
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // the Inspector keeps files there
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), run.want) {
			t.Fatalf("%s: got %v and\n%s\nwant %q in it", cmd, err, harness.Clip(out), run.want)
		}
		logs, _ := filepath.Glob(filepath.Join(g.Dir, "gatekit", "audit", "*.jsonl"))
		if len(logs) != 1 {
			t.Fatalf("gatekit wrap left the logs %q, want one", logs)
		}
		if err := os.Rename(logs[0], filepath.Join(g.Dir, "audit.jsonl")); err != nil {
			t.Fatal(err)
		}
		g.CheckChain()
		g.WantRecords(run.record)
	}
}

// TestGoClientListsAndUsesEverything runs the client of the Go SDK in both eras, with servers of
// both eras. The servers are scripted, because the real servers are legacy.
func TestGoClientListsAndUsesEverything(t *testing.T) {
	harness.Long(t, "starts gatekit and servers for each era and transport")
	for _, servers := range []struct{ era, revisions string }{
		{"legacy", "2025-11-25,2025-06-18"}, {"modern", "2026-07-28"}} {
		config := harness.ScriptedServer("one", "-revisions", servers.revisions) +
			harness.ScriptedServer("two", "-revisions", servers.revisions)
		for _, revision := range harness.Revisions {
			for _, transportName := range []string{"stdio", "http"} {
				t.Run(fmt.Sprintf("client %s, %s servers, %s", revision, servers.era,
					transportName), func(t *testing.T) {
					useWithGoClient(t, config, revision, transportName)
				})
			}
		}
	}
}

// useWithGoClient lists and uses everything of the servers "one" and "two".
func useWithGoClient(t *testing.T, config, revision, transportName string) {
	var g *harness.Gatekit
	var transport mcp.Transport
	if transportName == "http" {
		g = harness.StartHTTP(t, config)
		transport = &mcp.StreamableClientTransport{Endpoint: g.URL}
	} else {
		g = harness.Prepare(t, config)
		t.Cleanup(g.CheckExit)
		transport = &mcp.CommandTransport{Command: g.Cmd}
	}
	ctx, updated := harness.Context(t), make(chan string, 16)
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"},
		&mcp.ClientOptions{
			ResourceUpdatedHandler: func(_ context.Context,
				r *mcp.ResourceUpdatedNotificationRequest) {
				updated <- r.Params.URI
			},
		})
	s, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.InitializeResult().ProtocolVersion; got != revision {
		t.Errorf("the client speaks %s, want %s", got, revision)
	}
	count := func(what string, want int, seq func(func(error) bool)) {
		t.Helper()
		n := 0
		for err := range seq {
			if n++; err != nil {
				t.Fatalf("list %s: %v", what, err)
			}
		}
		if n != want {
			t.Errorf("the list has %d %s, want %d", n, what, want)
		}
	}
	// Each number is twice that of one scripted server.
	count("tools", 28, func(y func(error) bool) {
		for _, err := range s.Tools(ctx, nil) {
			if !y(err) {
				return
			}
		}
	})
	count("prompts", 6, func(y func(error) bool) {
		for _, err := range s.Prompts(ctx, nil) {
			if !y(err) {
				return
			}
		}
	})
	count("resources", 6, func(y func(error) bool) {
		for _, err := range s.Resources(ctx, nil) {
			if !y(err) {
				return
			}
		}
	})
	count("templates", 4, func(y func(error) bool) {
		for _, err := range s.ResourceTemplates(ctx, nil) {
			if !y(err) {
				return
			}
		}
	})
	if r, err := s.GetPrompt(ctx, &mcp.GetPromptParams{Name: "two__greet",
		Arguments: map[string]string{"who": "you"}}); err != nil ||
		len(r.Messages) != 1 {
		t.Errorf("prompts/get: got %+v, %v, want one message", r, err)
	}
	if r, err := s.ReadResource(ctx,
		&mcp.ReadResourceParams{URI: "one+test://one/a"}); err != nil ||
		r.Contents[0].URI != "one+test://one/a" ||
		r.Contents[0].Text != "test://one/a of one" {
		t.Errorf("resources/read: got %+v, %v, want test://one/a of one", r, err)
	}
	if r, err := s.Complete(ctx,
		&mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt",
			Name: "two__greet"}, Argument: mcp.CompleteParamsArgument{Name: "who",
			Value: ""}}); err != nil || !slices.Equal(r.Completion.Values,
		[]string{"two", "greet"}) {
		t.Errorf("completion/complete: got %+v, %v, want two and greet", r, err)
	}
	if err := s.Subscribe(ctx,
		&mcp.SubscribeParams{URI: "two+test://two/a"}); err != nil {
		t.Error(err)
	}
	// The update is repeated until it arrives: in the modern era Subscribe does not
	// wait for the server's acknowledgement.
	for received := false; !received; {
		if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "two__update",
			Arguments: map[string]any{"uri": "test://two/a"}}); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-updated:
			if received = true; got != "two+test://two/a" {
				t.Errorf("got an update of %q, want two+test://two/a", got)
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	g.WantRecords("to_server request tools/call two update pass",
		"to_client notification notifications/resources/updated two test://two/a pass",
		"to_server request resources/read one test://one/a pass")
}

// TestLegacyTypeScriptClientUsesModernServer compares the reports of a legacy and a modern client
// that use the modern server of the Go SDK.
func TestLegacyTypeScriptClientUsesModernServer(t *testing.T) {
	harness.Long(t, "calls every tool of a server, with two clients")
	config := harness.StdioServer("go", []string{peers.Tool(t, "everything-server")}) +
		"era = \"modern\"\n"
	for _, transportName := range []string{"stdio", "http"} {
		t.Run(transportName, func(t *testing.T) {
			g := harness.StartHTTP(t, config)
			want := useEverything(t, "v2", "", g.URL)
			if !want.Modern || len(want.ToolsCalled) < 20 {
				t.Fatalf("the modern client reports %+v, want 20 or more called tools", want)
			}
			if transportName == "http" {
				wantReport(t, useEverything(t, "v1", "", g.URL), want)
				g.WantRecords("to_server request server/discover go - pass",
					"to_server request initialize go - pass",
					"to_client request sampling/createMessage go - pass")
				return
			}
			g = harness.Prepare(t, config)
			got := useEverything(t, "v1", g.Dir, "--", g.Cmd.Path, "run")
			wantReport(t, got, want)
			g.CheckExit()
			g.WantRecords("to_server request initialize go - pass",
				"to_client request elicitation/create go - pass",
				"to_server response roots/list go - pass")
		})
	}
}
