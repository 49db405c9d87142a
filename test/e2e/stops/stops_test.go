package stops

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

const audit = "[audit]\nfile = \"audit.jsonl\"\nbodies = \"redacted\"\n"

var tagPattern = regexp.MustCompile(`t-[0-9]+-[0-9]+`)

// start starts gatekit, and a client over stdio or HTTP that has made the handshake.
func start(t *testing.T, config, revision, front string) (*harness.Gatekit, *mcptest.Client) {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	if front == "stdio" {
		return harness.StartStdio(t, config+audit, revision)
	}
	g := harness.StartHTTP(t, config+audit)
	return g, g.Client(revision)
}

// A stop under load: half of 64 calls wait at the server, and half are repeated without a pause.
// Every call gets an answer. What the server got was recorded before the record of the stop.
func TestStopUnderLoad(t *testing.T) {
	for _, route := range harness.Routes {
		for _, client := range harness.Revisions {
			for _, front := range []string{"stdio", "http"} {
				t.Run(route.Name+", client "+client+" over "+front, func(t *testing.T) {
					config, lines := server(t, route.Revision, route.Back)
					g, c := start(t, config, client, front)
					stopUnderLoad(t, g, c, lines)
				})
			}
		}
	}
}

func stopUnderLoad(t *testing.T, g *harness.Gatekit, c *mcptest.Client, lines func() []string) {
	const half = 32
	ctx := harness.Context(t)
	call := func(id int, tool, tag string) mcptest.Message {
		m, err := c.Do(ctx, fmt.Sprint(id), "tools/call",
			fmt.Sprintf(`{"name":"box__%s","arguments":{"tag":%q}}`, tool, tag))
		if err != nil {
			t.Errorf("the call %s got no answer: %v", tag, err)
		}
		return m
	}
	var all sync.WaitGroup
	for i := range half {
		all.Go(func() {
			if m := call(1000+i, "wait", fmt.Sprintf("t-%d-0", i)); stopOf(m) == "" {
				t.Errorf("the waiting call %d got %s, want the error of a stop", i, m.Raw)
			}
		})
		all.Go(func() {
			for n := 1; !t.Failed(); n++ {
				m := call((i+10)*1_000_000+n, "echo", fmt.Sprintf("t-%d-%d", i, n))
				switch {
				case stopOf(m) != "":
					return
				case m.Error != nil:
					t.Errorf("a repeated call got %s", m.Raw)
				}
			}
		})
	}
	received := func(kind string) (n int) {
		for _, l := range lines() {
			if strings.HasPrefix(l, kind) && strings.HasSuffix(l, "-0") {
				n++
			}
		}
		return n
	}
	harness.WaitUntilAtMost(t, "calls that the server has not got", 0, func() int {
		return half - received("tools/call t-")
	})
	out := mustGatekit(t, g, "stop", "--reason", "the agent deletes files")
	all.Wait()
	if !strings.Contains(out, "stopped everything in 1 running Gatekit") {
		t.Errorf("gatekit stop printed %s", out)
	}
	if m := harness.Request(t, c, "tools/list", "{}"); stopOf(m) == "" {
		t.Errorf("a list got %s while stopped", m.Raw)
	}
	harness.WaitUntilAtMost(t, "calls that the server was not told to end", 0, func() int {
		return half - received("ended t-")
	})

	stopped, recorded := uint64(0), map[string]uint64{}
	for _, r := range records(t, g) {
		switch {
		case r.Action == "stop_traffic" && strings.Contains(r.Reason, "the agent deletes files"):
			if stopped = r.Seq; strings.Contains(r.Reason, "does not read") {
				t.Errorf("the stop did not wait for a write: %s", r.Reason)
			}
		case r.Action == "pass" && r.Kind == "request" && r.Method == "tools/call":
			recorded[tagPattern.FindString(r.line)] = r.Seq
		}
	}
	if stopped == 0 {
		t.Fatal("the stop has no record")
	}
	got := 0
	for _, line := range lines() {
		tag, isCall := strings.CutPrefix(line, "tools/call ")
		if !isCall {
			continue
		}
		got++
		if seq := recorded[tag]; seq == 0 || seq >= stopped {
			t.Errorf("the server got %s, recorded as %d; the stop is %d", tag, seq, stopped)
		}
	}
	if got <= half {
		t.Errorf("the server got %d calls: the load came after the stop", got)
	}

	mustGatekit(t, g, "resume")
	if m := harness.Request(t, c, "tools/call",
		`{"name":"box__echo","arguments":{"tag":"after"}}`); m.Error != nil {
		t.Errorf("a call after the resume got %s", m.Raw)
	}
	if !slices.Contains(lines(), "tools/call after") {
		t.Error("the server has not got the call after the resume")
	}
	if !slices.ContainsFunc(records(t, g), func(r record) bool {
		return r.Action == "resume_traffic" && strings.Contains(r.Reason, "the agent deletes files")
	}) {
		t.Error("the resume has no record")
	}
}

// During a call, the server asks the client's user. A stop ends the call, and the answer of the
// user, which comes later, does not reach the server.
func TestStopDuringAQuestion(t *testing.T) {
	for _, route := range harness.Routes {
		for _, client := range harness.Revisions {
			t.Run(route.Name+", client "+client, func(t *testing.T) {
				config, lines := server(t, route.Revision, route.Back)
				g, c := start(t, config, client, "stdio")
				asked, stopped := make(chan struct{}), make(chan struct{})
				c.Answer["elicitation/create"] = func(mcptest.Message) string {
					close(asked)
					<-stopped
					return `{"action":"accept","content":{"secret":"answer of the user"}}`
				}
				answer := make(chan mcptest.Message, 1)
				go func() {
					m, err := c.Call(harness.Context(t), "tools/call",
						`{"name":"box__ask","arguments":{"tag":"q"}}`)
					if err != nil {
						t.Errorf("the call got no answer: %v", err)
					}
					answer <- m
				}()
				<-asked
				mustGatekit(t, g, "stop", "--reason", "no more questions")
				close(stopped)
				if m := <-answer; stopOf(m) == "" {
					t.Errorf("the call got %s, want the error of a stop", m.Raw)
				}
				mustGatekit(t, g, "resume")
				if m := harness.Request(t, c, "tools/call",
					`{"name":"box__echo","arguments":{"tag":"after"}}`); m.Error != nil {
					t.Errorf("a call after the resume got %s", m.Raw)
				}
				for _, line := range lines() {
					if strings.Contains(line, "answer of the user") {
						t.Errorf("the server got %s", line)
					}
				}
				for _, r := range records(t, g) {
					if strings.Contains(r.line, "answer of the user") && r.Action != "deny" {
						t.Errorf("the answer has the record %s", r.line)
					}
				}
			})
		}
	}
}

// A stop of one server leaves the other server alone. The wrong scope does not end it.
func TestStopOfOneServer(t *testing.T) {
	for _, revision := range harness.Revisions {
		for _, front := range []string{"stdio", "http"} {
			t.Run(revision+" over "+front, func(t *testing.T) {
				g, c := start(t, harness.ScriptedServer("box")+harness.ScriptedServer("other"),
					revision, front)
				mustGatekit(t, g, "stop", "--server", "box", "--reason", "issue 17")
				if m := harness.Request(t, c, "tools/call",
					`{"name":"box__echo"}`); !strings.Contains(stopOf(m), "user id") {
					t.Errorf("the stopped server's tool got %s", m.Raw)
				}
				harness.CallTool(t, c, "other__echo", "{}")
				list := harness.Request(t, c, "tools/list", "{}")
				if strings.Contains(string(list.Raw), "box__") ||
					!strings.Contains(string(list.Raw), "other__") {
					t.Errorf("the list is %s, want the tools of the other server only",
						harness.Clip(list.Raw))
				}
				if out, err := gatekit(t, g, "resume"); err == nil ||
					!strings.Contains(out, `server "box"`) {
					t.Errorf("gatekit resume without --server: %v, %s", err, out)
				}
				if out := mustGatekit(t, g, "stop", "status", "--json"); !strings.Contains(out,
					`"server":"box"`) || !strings.Contains(out, "issue 17") {
					t.Errorf("gatekit stop status --json printed %s", out)
				}
				mustGatekit(t, g, "resume", "--server", "box")
				harness.CallTool(t, c, "box__echo", "{}")
			})
		}
	}
}

// A killed Gatekit is as stopped after its restart as before. An unreadable or missing file of the
// stops means that everything is stopped. No client can resume.
func TestStopSurvivesARestart(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, file string){
		"an intact file": func(*testing.T, string) {},
		"a damaged file": func(t *testing.T, file string) { writeFile(t, file, `{"version":1`) },
		"an empty list of another version": func(t *testing.T, file string) {
			writeFile(t, file, `{"version":2,"stops":[]}`)
		},
		"a removed file": func(t *testing.T, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		},
		"a file that others can write": func(t *testing.T, file string) {
			if err := os.Chmod(file, 0o666); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := "XDG_STATE_HOME=" + t.TempDir()
			t.Setenv("XDG_STATE_HOME", strings.TrimPrefix(state, "XDG_STATE_HOME="))
			config, dir := harness.ScriptedServer("box")+audit, t.TempDir()
			g := harness.StartHTTPIn(t, dir, config, state)
			harness.CallTool(t, g.Client("2025-11-25"), "box__echo", "{}")
			mustGatekit(t, g, "stop", "--reason", "before the crash")
			g.Killed = true
			g.Cmd.Process.Signal(syscall.SIGKILL)
			<-g.Exited
			files, _ := filepath.Glob(filepath.Join(strings.TrimPrefix(state, "XDG_STATE_HOME="),
				"gatekit", "stopped", "*", "stops.json"))
			if len(files) != 1 {
				t.Fatalf("the files of the stops are %q", files)
			}
			damage(t, files[0])
			g = harness.StartHTTPIn(t, dir, config, state)
			for _, revision := range harness.Revisions {
				c := g.Connect(revision)
				m, err := c.Open(harness.Context(t))
				if err != nil || stopOf(m) == "" {
					t.Errorf("after the restart, the handshake of %s got %s, %v", revision, m.Raw,
						err)
				}
			}
			mustGatekit(t, g, "resume", "--all")
			for _, revision := range harness.Revisions {
				harness.CallTool(t, g.Client(revision), "box__echo", "{}")
			}
		})
	}
}

func writeFile(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
