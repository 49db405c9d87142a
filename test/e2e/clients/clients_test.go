package clients

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

// saw is what clients/use.mjs prints: what a real client listed and used.
type saw struct {
	Tools, Used, Prompts, Got, Resources, Templates, Completed, Errors []string
	Read, Sampling, Elicitation, Roots, Progress, Logs, Updates        int
	Modern                                                             bool
}

// use runs clients/use.mjs.
func use(t *testing.T, sdk, dir string, target ...string) (s saw) {
	t.Helper()
	b := node(t, "use.mjs", sdk, dir, target...)
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return s
}

// node runs a script of clients/ and answers what it printed.
func node(t *testing.T, script, sdk, dir string, target ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(harness.Context(t),
		"node", append([]string{peers.Top() + "/test/e2e/clients/" + script, sdk}, target...)...)
	cmd.Env = append(os.Environ(), "NODE_MODULES="+peers.Node(t).Path())
	cmd.Dir = dir
	cmd.WaitDelay = time.Second // what it started may hold on to its output
	out := &harness.Output{}
	cmd.Stderr = out
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", cmd, err, b, out)
	}
	return b
}

// behind is what a client should see of these servers behind gatekit, given what it sees of each
// directly.
func behind(names []string, direct map[string]saw) (all saw) {
	for _, n := range names {
		d := direct[n]
		name := func(ss []string) (out []string) {
			for _, s := range ss {
				out = append(out, n+"__"+s)
			}
			return out
		}
		uri := func(ss []string) (out []string) {
			for _, s := range ss {
				out = append(out, n+"+"+s)
			}
			return out
		}
		all.Tools, all.Used = append(all.Tools, name(d.Tools)...), append(all.Used, name(d.Used)...)
		all.Prompts, all.Got = append(all.Prompts, name(d.Prompts)...),
			append(all.Got, name(d.Got)...)
		all.Resources, all.Templates = append(all.Resources, uri(d.Resources)...),
			append(all.Templates, uri(d.Templates)...)
		for _, s := range d.Completed {
			if strings.Contains(s, "://") {
				all.Completed = append(all.Completed, n+"+"+s)
			} else {
				all.Completed = append(all.Completed, n+"__"+s)
			}
		}
		all.Errors = append(all.Errors, d.Errors...)
		all.Read += d.Read
		all.Sampling += d.Sampling
		all.Elicitation += d.Elicitation
		all.Roots += d.Roots
		all.Updates += d.Updates
	}
	return all
}

// holdAgainst compares what was seen; of progress and logs, which depend on the clock, it wants
// some.
func (got saw) holdAgainst(t *testing.T, want saw) {
	t.Helper()
	for what, pair := range map[string][2][]string{
		"tools": {got.Tools, want.Tools}, "tools used": {got.Used, want.Used},
		"prompts": {got.Prompts, want.Prompts}, "prompts used": {got.Got, want.Got},
		"resources": {got.Resources, want.Resources}, "templates": {got.Templates, want.Templates},
		"completions": {got.Completed, want.Completed},
	} {
		g, w := slices.Sorted(slices.Values(pair[0])), slices.Sorted(slices.Values(pair[1]))
		if !slices.Equal(g, w) {
			t.Errorf("%s\ngot  %q\nwant %q", what, g, w)
		}
	}
	if len(got.Errors) != len(want.Errors) {
		t.Errorf("errors\ngot  %q\nwant %q", got.Errors, want.Errors)
	}
	// server-everything asks once more when its tool is called before its first question could be
	// put
	if got.Modern && got.Roots > want.Roots {
		got.Roots = want.Roots
	}
	g, w := [...]int{got.Read, got.Sampling, got.Elicitation, got.Roots, got.Updates},
		[...]int{want.Read, want.Sampling, want.Elicitation, want.Roots, want.Updates}
	if g != w || g[1] == 0 {
		t.Errorf("contents, sampling, elicitation, roots, updates: got %v, want %v", g, w)
	}
	// a modern client gets those that come while its call runs
	if got.Progress == 0 || got.Logs == 0 && !got.Modern {
		t.Errorf("got %d reports of progress and %d logs", got.Progress, got.Logs)
	}
}

func TestTypeScriptClientsUseThreeRealServers(t *testing.T) {
	r := harness.NewRealServers(t)
	for _, sdk := range []string{"v1", "v2"} {
		t.Run(sdk, func(t *testing.T) {
			direct := map[string]saw{}
			for _, n := range r.Names {
				direct[n] = use(t, sdk, "", append([]string{"--"}, r.Commands[n]...)...)
			}
			want := behind(r.Names, direct)
			t.Run("stdio", func(t *testing.T) {
				g := harness.Prepare(t, r.Config())
				t.Setenv("MEMORY_FILE_PATH", r.Env["memory"][1])
				got := use(t, sdk, g.Dir, "--", g.Cmd.Path, "run")
				got.holdAgainst(t, want)
				g.CheckExit()
				g.WantRecords("to_server request tools/call everything echo pass",
					"to_client request sampling/createMessage everything - pass")
			})
			t.Run("http", func(t *testing.T) {
				g := harness.StartHTTP(t, r.Config())
				got := use(t, sdk, "", g.URL)
				got.holdAgainst(t, want)
				if got.Modern != (sdk == "v2") { // though all of the servers are legacy
					t.Errorf("the client of %s is modern: %v", sdk, got.Modern)
				}
				g.WantRecords("to_server request tools/call everything echo pass",
					"to_client request sampling/createMessage everything - pass")
			})
		})
	}
}

// server-everything over the two transports of HTTP, reached by the same client directly and
// through gatekit, which speaks that transport on both sides.
func TestARealServerOverHTTPAndOverTheOldSSE(t *testing.T) {
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
			direct := use(t, "v1", "", start())
			g := harness.StartHTTP(t, "sse = true\n"+harness.HTTPServer("everything", start()))
			got := use(t, "v1", "", strings.TrimSuffix(g.URL, "/mcp")+mode.path)
			got.holdAgainst(t, behind([]string{"everything"}, map[string]saw{"everything": direct}))
			g.WantRecords("to_server request tools/call everything echo pass",
				"to_client request elicitation/create everything - pass")
		})
	}
}

func TestTheInspectorListsAndCallsOverBothTransports(t *testing.T) {
	r := harness.NewRealServers(t)
	inspect := func(t *testing.T, dir string, args ...string) string {
		t.Helper()
		m := peers.Node(t)
		argv := append(append(m.Inspector()[1:], "--cli"), args...)
		cmd := exec.CommandContext(harness.Context(t), m.Inspector()[0], argv...)
		cmd.Dir = dir
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
						t.Errorf("it printed\n%s\nwant %q in it", harness.Clip([]byte(out)), w)
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

// The go-sdk's client, in both eras, before servers of both: scripted ones, since the real ones are
// legacy.
func TestTheGoClientListsAndUsesEverything(t *testing.T) {
	harness.Long(t, "builds the SDK's server")
	for _, era := range []struct{ name, revisions string }{{"legacy", "2025-11-25,2025-06-18"},
		{"modern", "2026-07-28"}} {
		config := harness.ScriptedServer("one", "-revisions", era.revisions) +
			harness.ScriptedServer("two", "-revisions", era.revisions)
		for _, over := range []string{"stdio", "http"} {
			t.Run(era.name+" "+over, func(t *testing.T) {
				var g *harness.Gatekit
				var transport mcp.Transport
				if over == "http" {
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
				s, err := client.Connect(ctx, transport, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				count := func(what string, want int, seq func(func(error) bool)) {
					t.Helper()
					n := 0
					for err := range seq {
						if n++; err != nil {
							t.Fatalf("list %s: %v", what, err)
						}
					}
					if n != want {
						t.Errorf("it listed %d %s, want %d", n, what, want)
					}
				}
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
					t.Errorf("get a prompt: %+v, %v", r, err)
				}
				if r, err := s.ReadResource(ctx,
					&mcp.ReadResourceParams{URI: "one+test://one/a"}); err != nil ||
					r.Contents[0].URI != "one+test://one/a" ||
					r.Contents[0].Text != "test://one/a of one" {
					t.Errorf("read a resource: %+v, %v", r, err)
				}
				if r, err := s.Complete(ctx,
					&mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt",
						Name: "two__greet"}, Argument: mcp.CompleteParamsArgument{Name: "who",
						Value: ""}}); err != nil || !slices.Equal(r.Completion.Values,
					[]string{"two", "greet"}) {
					t.Errorf("complete: %+v, %v", r, err)
				}
				if err := s.Subscribe(ctx,
					&mcp.SubscribeParams{URI: "two+test://two/a"}); err != nil {
					t.Error(err)
				}
				// again and again: in the modern era Subscribe does not wait until the server has
				// acknowledged it
				for told := false; !told; {
					if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "two__update",
						Arguments: map[string]any{"uri": "test://two/a"}}); err != nil {
						t.Fatal(err)
					}
					select {
					case got := <-updated:
						if told = true; got != "two+test://two/a" {
							t.Errorf("updated is %q", got)
						}
					case <-time.After(100 * time.Millisecond):
					}
				}
				g.WantRecords("to_server request tools/call two update pass",
					"to_client notification notifications/resources/updated two test://two/a pass",
					"to_server request resources/read one test://one/a pass")
			})
		}
	}
}

// The go-sdk's server of the modern era, used by a client that knows only the legacy one as by a
// client of its own era.
func TestALegacyTypeScriptClientUsesAModernServer(t *testing.T) {
	config := harness.StdioServer("go", []string{peers.Tool(t, "everything-server")}) +
		"era = \"modern\"\n"
	for _, over := range []string{"stdio", "http"} {
		t.Run(over, func(t *testing.T) {
			g := harness.StartHTTP(t, config)
			want := use(t, "v2", "", g.URL)
			if !want.Modern || len(want.Used) < 20 {
				t.Fatalf("the modern client saw %+v", want)
			}
			if over == "http" {
				use(t, "v1", "", g.URL).holdAgainst(t, want)
				g.WantRecords("to_server request server/discover go - pass",
					"to_server request initialize go - pass",
					"to_client request sampling/createMessage go - pass")
				return
			}
			g = harness.Prepare(t, config)
			got := use(t, "v1", g.Dir, "--", g.Cmd.Path, "run")
			got.holdAgainst(t, want)
			g.CheckExit()
			g.WantRecords("to_server request initialize go - pass",
				"to_client request elicitation/create go - pass",
				"to_server response roots/list go - pass")
		})
	}
}
