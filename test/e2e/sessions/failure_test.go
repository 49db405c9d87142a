package sessions

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestServerExitFailsOnlyItsCallsAndItRestarts ends one of two servers while both servers have
// calls in flight. Only the calls of the ended server fail, and Gatekit restarts that server.
func TestServerExitFailsOnlyItsCallsAndItRestarts(t *testing.T) {
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
					fatal := harness.Request(t, c, "tools/call", `{"name":"one__die"}`)
					for _, id := range []string{`"a"`, `"b"`} {
						m, err := c.Reply(harness.Context(t), mark, id)
						if err != nil || string(mcptest.At(m.Error, "code")) != "-32603" ||
							!strings.Contains(mcptest.Text(m.Error, "message"), "one") {
							t.Errorf("call %s of the dead server got %s, %v; want -32603 and the "+
								"server's name", id, m.Raw, err)
						}
					}
					if fatal.Error == nil {
						t.Errorf("the call that ends the server got %s, want an error", fatal.Raw)
					}
					for _, f := range c.Frames()[mark:] {
						if string(f.ID) == `"c"` {
							t.Errorf("the other server's call got an answer: %s", f.Raw)
						}
					}
					if m := harness.CallTool(t, c, "two__echo", `{"tag":1}`); mcptest.Text(m.Result,
						"structuredContent", "server") != "two" {
						t.Errorf("the other server's call got %s, want a result of \"two\"", m.Raw)
					}
					if revision != mcptest.Modern {
						if _, err := c.AwaitMethod(harness.Context(t), mark,
							"notifications/tools/list_changed"); err != nil {
							t.Errorf("the client got no list_changed after the restart: %v", err)
						}
					}
					if m := harness.CallTool(t, c, "one__echo", `{"tag":2}`); mcptest.Text(m.Result,
						"structuredContent", "server") != "one" {
						t.Errorf("a call after the restart got %s, want a result of \"one\"", m.Raw)
					}
					g.WantRecords("to_server request tools/call one wait pass", "- - - one - lost",
						"- - - one - restarted")
					// Cancel the waiting call, so that gatekit can stop at once. Over HTTP a modern
					// client cancels a call by closing the connection. The end of the test does
					// that.
					if isHTTP := g.URL != ""; !isHTTP || revision != mcptest.Modern {
						c.Notify("notifications/cancelled", `{"requestId":"c"}`)
						harness.CallTool(t, c, "two__cancelled", `{"tag":"c"}`)
					}
				})
		})
	}
}

// TestMessagesSentAgainAfterARestartAreRecorded ends a server of a session in which the client has
// set the log level and subscribed to a resource. Gatekit restarts the server and sends these
// requests and the handshake again. The stages have inspected them before. The audit log must show
// each message to the new process, and each answer, as Gatekit's own.
func TestMessagesSentAgainAfterARestartAreRecorded(t *testing.T) {
	const uri = "test://one/a"
	harness.EachTransport(t, harness.ScriptedServer("one", "-revisions", "2025-11-25")+
		"[names]\nprefix = \"never\"\n", "2025-11-25", func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		harness.Handshake(t, c)
		harness.Request(t, c, "logging/setLevel", `{"level":"error"}`)
		harness.Request(t, c, "resources/subscribe", `{"uri":"`+uri+`"}`)
		wantOwn(t, g, 0, "to_server request server/discover one - own",
			"to_client error server/discover one - own") // the probe
		harness.Request(t, c, "tools/call", `{"name":"die"}`)
		harness.CallTool(t, c, "echo", `{}`)
		lost := slices.IndexFunc(g.Records(), func(r harness.Record) bool {
			return r.String() == "- - - one - lost"
		})
		wantOwn(t, g, lost, "to_server request initialize one - own",
			"to_client response initialize one - own",
			"to_server notification notifications/initialized one - own",
			"to_server request logging/setLevel one - own",
			"to_client response logging/setLevel one - own",
			"to_server request resources/subscribe one "+uri+" own",
			"to_client response resources/subscribe one "+uri+" own")
		g.WantRecords("to_server request resources/subscribe one " + uri + " pass")
		awaitRestarted(t, g, "one")
	})
}

// awaitRestarted waits for the record that a server was restarted. Calls do not wait for it.
func awaitRestarted(t *testing.T, g *harness.Gatekit, server string) {
	t.Helper()
	harness.WaitUntilAtMost(t, "missing records of a restart", 0, func() int {
		if slices.ContainsFunc(g.Records(), func(r harness.Record) bool {
			return r.String() == "- - - "+server+" - restarted"
		}) {
			return 0
		}
		return 1
	})
}

// wantOwn fails the test unless the records from index from on have exactly these records of
// messages that Gatekit has made, and of the answers to them.
func wantOwn(t *testing.T, g *harness.Gatekit, from int, want ...string) {
	t.Helper()
	var got []string
	for _, r := range g.Records()[max(from, 0):] {
		if r.Action == "own" {
			got = append(got, r.String())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if from < 0 || !slices.Equal(got, want) {
		t.Errorf("from record %d on, the audit log has as Gatekit's own messages\n\t%s\nwant\n\t%s",
			from, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// TestLegacyCallSurvivesItsConnection closes the connection of a legacy call. This does not cancel
// the call.
func TestLegacyCallSurvivesItsConnection(t *testing.T) {
	g := harness.StartHTTP(t, harness.ScriptedServer("box"))
	h := mcptest.NewHTTP(g.URL)
	c := mcptest.NewClient(h, "2025-11-25")
	t.Cleanup(func() { c.Close() })
	harness.Handshake(t, c)
	harness.StartWaitingCall(t, c, "box", `"x"`, "x")
	h.Drop(`"x"`)
	harness.CallTool(t, c, "box__echo", `{"tag":1}`)
	c.Notify("notifications/cancelled", `{"requestId":"x"}`)
	harness.CallTool(t, c, "box__cancelled", `{"tag":"x"}`) // waits for the cancellation
	g.WantRecords("to_server notification notifications/cancelled box - pass")
}

// TestExpiredSessionIsReplaced ends Gatekit's session at an HTTP server, like a restart of the
// server. The next call gets HTTP 404, which means that the server has not run the call. Gatekit
// opens another session and sends the call again.
func TestExpiredSessionIsReplaced(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) { useExpiredSession(t, revision) })
	}
}

func useExpiredSession(t *testing.T, revision string) {
	box := mcptest.Toolbox("box", "2025-11-25")
	var calls atomic.Int32
	handle := box.Handle["tools/call"]
	box.Handle["tools/call"] = func(c *mcptest.Call) { calls.Add(1); handle(c) }
	s := httptest.NewServer(box)
	t.Cleanup(s.Close)
	g := harness.StartHTTP(t, harness.HTTPServer("box", s.URL))
	c := g.Client(revision)
	harness.CallTool(t, c, "box__echo", `{"tag":1}`)
	box.EndSessions("")
	for tag := range 2 {
		m := harness.CallTool(t, c, "box__echo", fmt.Sprintf(`{"tag":%d}`, tag))
		if mcptest.Text(m.Result, "structuredContent", "server") != "box" {
			t.Errorf("call %d after the session ended got %s, want a result of \"box\"", tag,
				m.Raw)
		}
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("the server ran %d calls, want 3", n)
	}
	if n := box.OpenSessions(); n != 1 {
		t.Errorf("the server has %d sessions, want 1", n)
	}
}

// TestClientsLeaveNoResourcesBehind disconnects 20 clients during their calls. After that, Gatekit
// has no more child processes and descriptors than after one client, no legacy sessions at HTTP
// servers, and few goroutines.
func TestClientsLeaveNoResourcesBehind(t *testing.T) {
	legacy, modern := mcptest.Toolbox("old", "2025-11-25"), mcptest.Toolbox("new", mcptest.Modern)
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			remote := legacy
			if revision == mcptest.Modern {
				remote = modern
			}
			s := httptest.NewServer(remote)
			t.Cleanup(s.Close)
			g := harness.StartHTTP(t, harness.ScriptedServer("local", "-revisions", revision)+
				harness.HTTPServer(remote.Name, s.URL))
			connectAndLeave := func() {
				t.Helper()
				h := mcptest.NewHTTP(g.URL)
				c := mcptest.NewClient(h, revision)
				harness.Handshake(t, c)
				harness.CallTool(t, c, "local__echo", ``)
				harness.CallTool(t, c, remote.Name+"__ask", `{"method":"roots/list","params":{}}`)
				harness.StartWaitingCall(t, c, "local", `"l"`, "l")
				harness.StartWaitingCall(t, c, remote.Name, `"r"`, "r")
				c.Close() // while two calls are in flight
			}
			connectAndLeave()
			// Modern servers keep running, since all clients share them.
			children := len(harness.ProcessesWith(g.Mark))
			if revision != mcptest.Modern {
				children = 0
			}
			harness.WaitUntilAtMost(t, "child processes", children, func() int {
				return len(harness.ProcessesWith(g.Mark))
			})
			fds := descriptors(t, g)
			for range 20 {
				connectAndLeave()
			}
			harness.WaitUntilAtMost(t, "child processes", children, func() int {
				return len(harness.ProcessesWith(g.Mark))
			})
			harness.WaitUntilAtMost(t, "legacy sessions at the server", 0, remote.OpenSessions)
			s.CloseClientConnections()
			harness.WaitUntilAtMost(t, "descriptors", fds, func() int { return descriptors(t, g) })
			n := goroutines(g)
			t.Logf("%d goroutines", n)
			if n > 30 {
				t.Errorf("%d goroutines are left, want at most 30", n)
			}
		})
	}
}

// descriptors returns the number of open file descriptors of a gatekit.
func descriptors(t *testing.T, g *harness.Gatekit) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.Cmd.Process.Pid))
	if err != nil {
		t.Skip("needs /proc")
	}
	return len(files)
}

// goroutines returns the number of goroutines of a gatekit. It ends the process with SIGQUIT, which
// makes the Go runtime print all goroutines.
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

func TestServerEnvironmentIsMinimal(t *testing.T) {
	harness.EachTransport(t, harness.ScriptedServer("box"), "2025-11-25", func(t *testing.T,
		g *harness.Gatekit, c *mcptest.Client) {
		harness.Handshake(t, c)
		m := harness.CallTool(t, c, "box__self", ``)
		env := string(mcptest.At(m.Result, "structuredContent", "env"))
		if strings.Contains(env, "SECRET_OF_THE_USER") || !strings.Contains(env,
			"MCPTEST_SERVE=1") || !strings.Contains(env, "PATH=") {
			t.Errorf("the server has the environment %s, want PATH and MCPTEST_SERVE, not "+
				"SECRET_OF_THE_USER", env)
		}
		dir, _ := filepath.EvalSymlinks(g.Dir)
		if got := mcptest.Text(m.Result, "structuredContent", "dir"); got != dir {
			t.Errorf("the server runs in %s, want %s", got, dir)
		}
	})
}

// TestClientThatDoesNotReadDelaysNoOtherClient makes a server send 20 MB to a client that does not
// read its response. Meanwhile, the calls of another client succeed.
func TestClientThatDoesNotReadDelaysNoOtherClient(t *testing.T) {
	harness.Long(t, "waits for write deadlines")
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			g := harness.StartHTTP(t, harness.ScriptedServerOver(t, "box", revision, "http"))
			conn := mcptest.NewHTTP(g.URL)
			c := mcptest.NewClient(conn, revision)
			harness.Handshake(t, c)
			body := c.Request(`"flood"`,
				"tools/call", `{"name":"box__progress","arguments":{"n":20000},"_meta":{"progressToken":"`+strings.Repeat("x", 1000)+`"}}`)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL,
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range map[string]string{"Content-Type": "application/json",
				"Accept": "application/json, text/event-stream", "Mcp-Session-Id": conn.Session()} {
				r.Header.Set(k, v)
			}
			r.Header.Set("Mcp-Protocol-Version", revision)
			if revision == mcptest.Modern {
				r.Header.Del("Mcp-Session-Id")
				r.Header.Set("Mcp-Method", "tools/call")
				r.Header.Set("Mcp-Name", "box__progress")
			}
			// The response has 20 MB, and its body is never read.
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

func TestListNamesUnavailableServerAndHasToolsOfOthers(t *testing.T) {
	for name, dead := range map[string]string{
		"exits at once":       harness.ScriptedServer("dead", "-exit", "3"),
		"does not exist":      harness.StdioServer("dead", []string{"/no/such/program"}),
		"refuses connections": harness.HTTPServer("dead", "http://127.0.0.1:9/mcp"),
	} {
		t.Run(name, func(t *testing.T) {
			harness.EachTransport(t, dead+harness.ScriptedServer("live"),
				"2025-11-25", func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
					harness.Handshake(t, c)
					m := harness.Request(t, c, "tools/list", `{}`)
					if n := strings.Count(string(m.Raw), `"live__`); n != 14 {
						t.Errorf("the list has %d tools of the live server, want 14", n)
					}
					if partial := string(mcptest.At(m.Result,
						"_meta", "gatekit/partial")); !strings.Contains(partial, "dead") {
						t.Errorf("the list has the _meta %s, want gatekit/partial with the server "+
							"\"dead\"", mcptest.At(m.Result, "_meta"))
					}
					m = harness.Request(t, c, "tools/call", `{"name":"dead__echo"}`)
					if string(mcptest.At(m.Error, "code")) != "-32603" ||
						!strings.Contains(mcptest.Text(m.Error, "message"), "dead") {
						t.Errorf("a call of the dead server got %s, want -32603 and the "+
							"server's name", m.Raw)
					}
					harness.CallTool(t, c, "live__echo", ``)
					g.WantRecords("to_client response tools/call live echo pass")
				})
		})
	}
}

// withTimeout returns the configuration of a server with the given timeout.
func withTimeout(server, timeout string) string {
	return strings.Replace(server, "\n", fmt.Sprintf("\ntimeout = %q\n", timeout), 1)
}

func TestCallTimesOutWhenServerDoesNotAnswer(t *testing.T) {
	harness.Long(t, "waits for timeouts")
	t.Parallel()
	harness.EachTransport(t, withTimeout(harness.ScriptedServer("box"), "4s"),
		"2025-11-25", func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
			harness.Handshake(t, c)
			m := harness.Request(t, c, "tools/call", `{"name":"box__wait","arguments":{"tag":"t"}}`)
			if string(mcptest.At(m.Error, "code")) != "-32603" ||
				!strings.Contains(mcptest.Text(m.Error, "message"), "4s") {
				t.Errorf("the call got %s, want -32603 and the timeout", m.Raw)
			}
			harness.CallTool(t, c, "box__cancelled", `{"tag":"t"}`)
			g.WantRecords("to_server notification notifications/cancelled box - answer")
		})
}
