package sessions

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

func TestRevisionIsNegotiated(t *testing.T) {
	for _, tt := range []struct{ requested, want string }{
		{"2024-11-05", "2024-11-05"}, {"2025-03-26", "2025-03-26"}, {"2025-06-18", "2025-06-18"},
		{"2025-11-25", "2025-11-25"},
		{"2099-01-01", "2025-11-25"}, {"1999-01-01", "2025-11-25"}, {mcptest.Modern, "2025-11-25"},
	} {
		t.Run(tt.requested, func(t *testing.T) {
			harness.EachTransport(t, harness.ScriptedServer("box"), "2025-11-25", func(t *testing.T,
				g *harness.Gatekit, c *mcptest.Client) {
				m := harness.Request(t, c, "initialize",
					fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"x","version":"1"}}`, tt.requested))
				if got := mcptest.Text(m.Result, "protocolVersion"); got != tt.want {
					t.Errorf("the result has the revision %s, want %s: %s", got, tt.want, m.Raw)
				}
				c.Notify("notifications/initialized", `{}`)
				harness.CallTool(t, c, "box__echo", ``)
				g.WantRecords("to_server request initialize box - pass",
					"to_server request tools/call box echo pass")
			})
		})
	}
}

// TestCallsToOneServerRunConcurrently makes 20 calls that wait. While they wait, another call and
// the cancellations reach the server.
func TestCallsToOneServerRunConcurrently(t *testing.T) {
	harness.EachTransport(t, harness.ScriptedServer("box"), "2025-11-25", func(t *testing.T,
		g *harness.Gatekit, c *mcptest.Client) {
		harness.Handshake(t, c)
		for i := range 20 {
			harness.StartWaitingCall(t, c, "box", fmt.Sprint(100+i), fmt.Sprint("t", i))
		}
		harness.CallTool(t, c, "box__echo", ``)
		for i := range 20 {
			c.Notify("notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, 100+i))
		}
		for i := range 20 {
			harness.CallTool(t, c, "box__cancelled", fmt.Sprintf(`{"tag":"t%d"}`, i))
		}
		g.WantRecords("to_server notification notifications/cancelled box - pass")
	})
}

// TestServerRequestMayHaveTheIDOfACall makes a server send a request whose id equals the id of the
// call in flight. Gatekit must not mistake the request for the answer.
func TestServerRequestMayHaveTheIDOfACall(t *testing.T) {
	harness.EachTransport(t, harness.ScriptedServer("box"), "2025-11-25", func(t *testing.T,
		g *harness.Gatekit, c *mcptest.Client) {
		harness.Handshake(t, c)
		mark := c.Mark()
		c.Send(c.Request(`"q"`, "tools/call",
			`{"name":"box__raw","arguments":{"lines":["{\"jsonrpc\":\"2.0\",\"id\":$ID,\"method\":\"roots/list\"}"]}}`))
		if _, err := c.AwaitMethod(harness.Context(t), mark, "roots/list"); err != nil {
			t.Errorf("the client got no roots/list: %v", err)
		}
		harness.CallTool(t, c, "box__echo", ``)
		c.Notify("notifications/cancelled", `{"requestId":"q"}`)
		harness.WantNoAnswer(t, c, `"q"`)
		g.WantRecords("to_client request roots/list box - pass")
		// The client answers in the background, so the record may come later.
		harness.WaitUntilAtMost(t, "answers that are not recorded", 0, func() int {
			if slices.ContainsFunc(g.Records(), func(r harness.Record) bool {
				return r.String() == "to_server response roots/list box - pass"
			}) {
				return 0
			}
			return 1
		})
	})
}

// TestBatchIsAnswered sends a batch with requests, a notification and an invalid message. Only
// revision 2025-03-26 has batches.
func TestBatchIsAnswered(t *testing.T) {
	harness.EachTransport(t, harness.ScriptedServer("box"), "2025-03-26", func(t *testing.T,
		g *harness.Gatekit, c *mcptest.Client) {
		harness.Handshake(t, c)
		mark := c.Mark()
		c.Send(`[{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"box__echo","arguments":{"tag":"a"}}},{"jsonrpc":"2.0","method":"notifications/roots/list_changed"},{"jsonrpc":"2.0","id":"b","method":"ping"},{"id":"c"}]`)
		// The answers may come as one array or as one message each.
		answers := harness.AwaitMessages(t, c, mark, func(seen string) bool {
			return strings.Count(seen, `"id":"`) == 3
		})
		for _, want := range []string{`"tag":"a"`, `"id":"b"`, `"id":"c"`, `-32600`} {
			if !strings.Contains(answers, want) {
				t.Errorf("the batch got the answers %s, want answers with %s", answers, want)
			}
		}
		g.WantRecords("to_server request tools/call box echo pass")
	})
}

func TestConfiguredVendorMethodIsForwarded(t *testing.T) {
	config := strings.Replace(harness.ScriptedServer("one"), "\n", "\nmethods = [\"acme/*\"]\n",
		1) + harness.ScriptedServer("two")
	harness.EachTransport(t, config, "2025-11-25", func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		harness.Handshake(t, c)
		m := harness.Request(t, c, "acme/vendor", `{"x":1.0}`)
		if got := string(mcptest.At(m.Result, "params")); got != `{"x":1.0}` ||
			mcptest.Text(m.Result, "server") != "one" {
			t.Errorf("acme/vendor got %s, want the params {\"x\":1.0} from the server \"one\"",
				m.Raw)
		}
		g.WantRecords("to_server request acme/vendor one - pass")
	})
}

// TestConfigurationChangeKeepsTheSession changes the configuration three times while a call is in
// flight: it adds a server, writes an invalid configuration, and removes the server again.
func TestConfigurationChangeKeepsTheSession(t *testing.T) {
	harness.EachTransport(t, harness.ScriptedServer("one"), "2025-11-25", func(t *testing.T,
		g *harness.Gatekit, c *mcptest.Client) {
		harness.Handshake(t, c)
		harness.StartWaitingCall(t, c, "one", `"w"`, "w")
		listen := ""
		if g.URL != "" {
			listen = fmt.Sprintf("[listen]\nhttp = %q\n",
				strings.TrimSuffix(strings.TrimPrefix(g.URL, "http://"), "/mcp"))
		}
		mark := c.Mark()
		g.Configure(listen + harness.ScriptedServer("one") + harness.ScriptedServer("two"))
		if _, err := c.AwaitMethod(harness.Context(t), mark,
			"notifications/tools/list_changed"); err != nil {
			t.Fatalf("the client got no list_changed for the added server: %v", err)
		}
		m := harness.Request(t, c, "tools/list", `{}`)
		if listed := strings.Count(string(m.Raw), `"name":"two__`); listed != 14 {
			t.Errorf("the list has %d tools of the new server, want 14: %s", listed,
				harness.Clip(m.Raw))
		}
		harness.CallTool(t, c, "two__echo", ``)

		mark = c.Mark()
		// The invalid configuration is reported, and the previous configuration stays active.
		g.Configure(listen + harness.ScriptedServer("one") + "[server.two]\ncomand = \"x\"\n")
		g.WaitForLog("comand", 1)
		harness.CallTool(t, c, "two__echo", ``)

		g.Configure(listen + harness.ScriptedServer("one"))
		if _, err := c.AwaitMethod(harness.Context(t), mark,
			"notifications/tools/list_changed"); err != nil {
			t.Fatalf("the client got no list_changed for the removed server: %v", err)
		}
		if m := harness.Request(t, c,
			"tools/call", `{"name":"two__echo"}`); string(mcptest.At(m.Error,
			"code")) != "-32602" {
			t.Errorf("a call of the removed server got %s, want -32602", m.Raw)
		}
		// The first call is still in flight.
		c.Notify("notifications/cancelled", `{"requestId":"w"}`)
		harness.CallTool(t, c, "one__cancelled", `{"tag":"w"}`)
		g.WantRecords("- - - - - reload", "to_server request tools/call two echo pass")
	})
}

// TestInvalidHTTPRequestsAreRefused sends HTTP requests with invalid methods, headers or sessions.
// The client's session still works after each of them.
func TestInvalidHTTPRequestsAreRefused(t *testing.T) {
	g := harness.StartHTTP(t, harness.ScriptedServer("box"))
	c := g.Client("2025-11-25")
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	modern := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"box__echo","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	session := [2]string{"Mcp-Session-Id", c.Session()}
	for _, b := range []struct {
		name, method, body string
		header             [][2]string
		status             int
	}{
		{"a foreign origin", "POST", ping, [][2]string{session,
			{"Origin", "https://evil.example"}}, 403},
		{"a foreign host (DNS rebinding)", "POST", ping, [][2]string{session,
			{"Host", "evil.example"}}, 403},
		{"an unknown session", "POST", ping, [][2]string{{"Mcp-Session-Id", "made-up"}}, 404},
		{"no session", "POST", ping, nil, 400},
		{"another content type", "POST", ping, [][2]string{session, {"Content-Type", "text/plain"}},
			415},
		{"an unknown revision", "POST", ping, [][2]string{session,
			{"Mcp-Protocol-Version", "1999-01-01"}}, 400},
		{"a modern request whose header names another tool", "POST", modern,
			[][2]string{{"Mcp-Protocol-Version", "2026-07-28"}, {"Mcp-Method", "tools/call"},
				{"Mcp-Name", "box__die"}}, 400},
		{"a modern request without its headers", "POST", modern, nil, 400},
		{"an HTTP method that MCP does not use", "PUT", ping, [][2]string{session}, 405},
		{"a GET stream of an unknown session", "GET", "", [][2]string{{"Mcp-Session-Id", "made-up"},
			{"Accept", "text/event-stream"}}, 404},
		{"a DELETE of an unknown session", "DELETE", "", [][2]string{{"Mcp-Session-Id", "made-up"}},
			404},
	} {
		t.Run(b.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(harness.Context(t), b.method, g.URL,
				strings.NewReader(b.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			for _, h := range b.header {
				r.Header.Set(h[0], h[1])
				if h[0] == "Host" {
					r.Host = h[1]
				}
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != b.status {
				t.Errorf("got the status %s, want %d", resp.Status, b.status)
			}
			harness.CallTool(t, c, "box__echo", ``)
		})
	}
	for _, r := range g.Records() {
		if r.Name == "die" {
			t.Errorf("a refused request was forwarded: %s", r)
		}
	}
}
