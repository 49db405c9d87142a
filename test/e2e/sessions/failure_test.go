package sessions

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

func TestAServerThatDiesInMidCallFailsOnlyItsCallsAndComesBack(t *testing.T) {
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			harness.EachTransport(t, harness.ScriptedServer("one", "-revisions", revision)+
				harness.ScriptedServer("two", "-revisions", revision),
				revision, func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
					harness.Handshake(t, c)
					harness.StartWaitingCall(t, c, "one", `"a"`, "a")
					harness.StartWaitingCall(t, c, "one", `"b"`, "b")
					harness.StartWaitingCall(t, c, "two", `"c"`, "c")
					mark := c.Mark()
					dead := harness.Request(t, c, "tools/call", `{"name":"one__die"}`)
					for _, id := range []string{`"a"`, `"b"`} {
						m, err := c.Reply(harness.Context(t), mark, id)
						if err != nil || string(mcptest.At(m.Error, "code")) != "-32603" ||
							!strings.Contains(mcptest.Text(m.Error, "message"), "one") {
							t.Errorf("a call that died with its server got %s, %v; want -32603 "+
								"that names the server", m.Raw, err)
						}
					}
					if dead.Error == nil {
						t.Errorf("the deadly call got %s, want an error", dead.Raw)
					}
					for _, f := range c.Frames()[mark:] {
						if string(f.ID) == `"c"` {
							t.Errorf("the other server's call was answered: %s", f.Raw)
						}
					}
					if m := harness.CallTool(t, c, "two__echo", `{"tag":1}`); mcptest.Text(m.Result,
						"structuredContent", "server") != "two" {
						t.Errorf("the other server answered %s", m.Raw)
					}
					if revision != mcptest.Modern {
						if _, err := c.AwaitMethod(harness.Context(t), mark,
							"notifications/tools/list_changed"); err != nil {
							t.Errorf("nothing told the client that the server is back: %v", err)
						}
					}
					if m := harness.CallTool(t, c, "one__echo", `{"tag":2}`); mcptest.Text(m.Result,
						"structuredContent", "server") != "one" {
						t.Errorf("the server did not come back: %s", m.Raw)
					}
					g.WantRecords("to_server request tools/call one wait pass", "- - - one - lost",
						"- - - one - restarted")
					if wasHTTP := g.URL != ""; !wasHTTP || revision != mcptest.Modern {
						// else gatekit waits a while for it
						c.Notify("notifications/cancelled", `{"requestId":"c"}`)
						harness.CallTool(t, c, "two__cancelled", `{"tag":"c"}`)
					}
				})
		})
	}
}

// A legacy client that drops the connection of a call has not cancelled it.
func TestALegacyCallOutlivesItsConnection(t *testing.T) {
	g := harness.StartHTTP(t, harness.ScriptedServer("box"))
	h := mcptest.NewHTTP(g.URL)
	c := mcptest.NewClient(h, "2025-11-25")
	t.Cleanup(func() { c.Close() })
	harness.Handshake(t, c)
	harness.StartWaitingCall(t, c, "box", `"x"`, "x")
	h.Drop(`"x"`)
	harness.CallTool(t, c, "box__echo", `{"tag":1}`)
	c.Notify("notifications/cancelled", `{"requestId":"x"}`)
	harness.CallTool(t, c, "box__cancelled", `{"tag":"x"}`) // it was there to be cancelled
	g.WantRecords("to_server notification notifications/cancelled box - pass")
}

func TestAnExpiredSessionIsMadeAnewAndNothingIsSentTwice(t *testing.T) {
	box := mcptest.Toolbox("box", "2025-11-25")
	var calls atomic.Int32
	handle := box.Handle["tools/call"]
	box.Handle["tools/call"] = func(c *mcptest.Call) { calls.Add(1); handle(c) }
	s := httptest.NewServer(box)
	t.Cleanup(s.Close)
	g := harness.StartHTTP(t, harness.HTTPServer("box", s.URL))
	c := g.Client("2025-11-25")
	harness.CallTool(t, c, "box__echo", `{"tag":1}`)
	box.EndSessions("")
	m := harness.Request(t, c, "tools/call", `{"name":"box__echo","arguments":{"tag":2}}`)
	if !strings.Contains(mcptest.Text(m.Error, "message"), "session") {
		t.Errorf("the call that found the session gone got %s, want an error that says so", m.Raw)
	}
	if m := harness.CallTool(t, c, "box__echo", `{"tag":3}`); mcptest.Text(m.Result,
		"structuredContent",
		"server") != "box" {
		t.Errorf("it answered %s", m.Raw)
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("the server saw %d calls, want 2: the first and the last", n)
	}
	if n := box.OpenSessions(); n != 1 {
		t.Errorf("the server has %d sessions, want 1", n)
	}
}

// After the clients have gone there are no children, no sessions at HTTP servers, no descriptors
// and no goroutines more than one client left.
func TestNothingIsLeftAfterTheClientsHaveGone(t *testing.T) {
	legacy, modern := mcptest.Toolbox("far", "2025-11-25"), mcptest.Toolbox("new", mcptest.Modern)
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			far := legacy
			if revision == mcptest.Modern {
				far = modern
			}
			s := httptest.NewServer(far)
			t.Cleanup(s.Close)
			g := harness.StartHTTP(t, harness.ScriptedServer("near", "-revisions", revision)+
				harness.HTTPServer(far.Name, s.URL))
			visit := func() {
				t.Helper()
				h := mcptest.NewHTTP(g.URL)
				c := mcptest.NewClient(h, revision)
				harness.Handshake(t, c)
				harness.CallTool(t, c, "near__echo", ``)
				harness.CallTool(t, c, far.Name+"__ask", `{"method":"roots/list","params":{}}`)
				harness.StartWaitingCall(t, c, "near", `"n"`, "n")
				harness.StartWaitingCall(t, c, far.Name, `"f"`, "f")
				c.Close() // in the middle of two calls
			}
			visit()
			children := len(harness.ProcessesWith(g.Mark)) // modern servers are shared and stay
			if revision != mcptest.Modern {
				children = 0
			}
			harness.WaitUntilAtMost(t, "children", children, func() int {
				return len(harness.ProcessesWith(g.Mark))
			})
			fds := descriptors(t, g)
			for range 20 {
				visit()
			}
			harness.WaitUntilAtMost(t, "children", children, func() int {
				return len(harness.ProcessesWith(g.Mark))
			})
			harness.WaitUntilAtMost(t, "legacy sessions at the server", 0, far.OpenSessions)
			s.CloseClientConnections()
			harness.WaitUntilAtMost(t, "descriptors", fds, func() int { return descriptors(t, g) })
			n := goroutines(g)
			t.Logf("%d goroutines", n)
			if n > 30 {
				t.Errorf("%d goroutines are left", n)
			}
		})
	}
}

func descriptors(t *testing.T, g *harness.Gatekit) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.Cmd.Process.Pid))
	if err != nil {
		t.Skip("needs /proc")
	}
	return len(files)
}

// goroutines ends gatekit by SIGQUIT, which makes it say what all its goroutines do, and counts
// them.
func goroutines(g *harness.Gatekit) (n int) {
	g.Killed = true
	g.Cmd.Process.Signal(syscall.SIGQUIT)
	<-g.Exited
	for lines := bufio.NewScanner(strings.NewReader(g.Stderr.String())); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "goroutine ") {
			n++
		}
	}
	g.KillChildren()
	return n
}

func TestServersGetAMinimalEnvironment(t *testing.T) {
	harness.EachTransport(t, harness.ScriptedServer("box"), "2025-11-25", func(t *testing.T,
		g *harness.Gatekit, c *mcptest.Client) {
		harness.Handshake(t, c)
		m := harness.CallTool(t, c, "box__self", ``)
		env := string(mcptest.At(m.Result, "structuredContent", "env"))
		if strings.Contains(env, "SECRET_OF_THE_USER") || !strings.Contains(env,
			"MCPTEST_SERVE=1") || !strings.Contains(env, "PATH=") {
			t.Errorf("the server's environment is %s", env)
		}
		dir, _ := filepath.EvalSymlinks(g.Dir)
		if got := mcptest.Text(m.Result, "structuredContent", "dir"); got != dir {
			t.Errorf("the server runs in %s, want %s", got, dir)
		}
	})
}

// A client that never reads its answers must not hold up another.
func TestAClientThatNeverReadsHoldsUpNobody(t *testing.T) {
	harness.Long(t, "waits for write deadlines")
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			g := harness.StartHTTP(t, harness.ScriptedServerOver(t, "box", revision, "http"))
			deaf := mcptest.NewHTTP(g.URL) // nobody reads from it after the handshake
			c := mcptest.NewClient(deaf, revision)
			harness.Handshake(t, c)
			body := c.Request(`"flood"`,
				"tools/call", `{"name":"box__progress","arguments":{"n":20000},"_meta":{"progressToken":"`+strings.Repeat("x", 1000)+`"}}`)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL,
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range map[string]string{"Content-Type": "application/json",
				"Accept": "application/json, text/event-stream", "Mcp-Session-Id": deaf.Session()} {
				r.Header.Set(k, v)
			}
			r.Header.Set("Mcp-Protocol-Version", revision)
			if revision == mcptest.Modern {
				r.Header.Del("Mcp-Session-Id")
				r.Header.Set("Mcp-Method", "tools/call")
				r.Header.Set("Mcp-Name", "box__progress")
			}
			// 20 MB are on their way, and its body is not read
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			other := g.Client(revision)
			for i := range 20 {
				harness.CallTool(t, other, "box__echo", fmt.Sprintf(`{"tag":%d}`, i))
			}
			c.Close()
			g.WantRecords("to_client notification notifications/progress box - pass",
				"to_client response tools/call box echo pass")
		})
	}
}
