package sessions_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// everyHeader names, for a Connection header, the headers that Gatekit or the protocol adds in
// either direction. A proxy that treats them as hop-by-hop headers would remove them.
const everyHeader = "close, Mcp-Session-Id, Mcp-Method, Mcp-Name, MCP-Protocol-Version, " +
	"Content-Type, Cache-Control, X-Api-Key, X-Content-Type-Options, Accept, traceparent"

// TestConnectionHeaderStripsNothing sends requests whose Connection header names other headers. The
// request must be understood as before, the server must get every header that Gatekit adds, and the
// client must get every header that a response has without such a Connection header.
func TestConnectionHeaderStripsNothing(t *testing.T) {
	for _, revision := range harness.Revisions {
		t.Run(revision, func(t *testing.T) {
			box := mcptest.Toolbox("box", revision)
			var mu sync.Mutex
			var got http.Header // of the latest tools/call
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), "tools/call") {
					mu.Lock()
					got = r.Header.Clone()
					mu.Unlock()
				}
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				box.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			g := harness.StartHTTP(t, harness.HTTPServer("box", server.URL)+
				"headers = { X-Api-Key = \"k1\" }\n")

			// the same exchange without and with the names in the Connection header
			var toServer, toClient [2]http.Header
			for i, connection := range []string{"close", everyHeader} {
				headers := "Connection: " + connection + "\r\n"
				meta := ""
				if revision == mcptest.Modern {
					headers += "Mcp-Method: tools/call\r\nMcp-Name: box__echo\r\n" +
						"MCP-Protocol-Version: " + revision + "\r\n"
					meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + revision +
						`","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
						`"io.modelcontextprotocol/clientCapabilities":{}}`
				} else {
					opened, _ := postRaw(t, g.URL, headers, `{"jsonrpc":"2.0","id":1,`+
						`"method":"initialize","params":{"protocolVersion":"`+revision+
						`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
					session := opened.Get("Mcp-Session-Id")
					if session == "" {
						t.Fatalf("with Connection: %s, initialize returned no Mcp-Session-Id",
							connection)
					}
					headers += "Mcp-Session-Id: " + session + "\r\nMCP-Protocol-Version: " +
						revision + "\r\n"
					postRaw(t, g.URL, headers,
						`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				}
				response, body := postRaw(t, g.URL, headers, `{"jsonrpc":"2.0","id":2,`+
					`"method":"tools/call","params":{"name":"box__echo","arguments":{}`+meta+`}}`)
				if !strings.Contains(body, `"result"`) {
					t.Fatalf("with Connection: %s, the call got %s, want a result", connection,
						body)
				}
				mu.Lock()
				toServer[i], toClient[i] = got, response
				mu.Unlock()
			}
			wantNames := []string{"X-Api-Key", "Accept", "Content-Type"}
			if revision == mcptest.Modern {
				wantNames = append(wantNames, "Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version")
			} else {
				wantNames = append(wantNames, "Mcp-Session-Id", "Mcp-Protocol-Version")
			}
			for _, name := range wantNames {
				if toServer[1].Get(name) == "" {
					t.Errorf("the server got no %s, want it: %v", name, toServer[1])
				}
			}
			if c := toServer[1].Get("Connection"); c != "" {
				t.Errorf("the server got Connection: %s, want no such header", c)
			}
			for direction, both := range map[string][2]http.Header{"server": toServer,
				"client": toClient} {
				for name := range both[0] {
					if both[1].Get(name) == "" {
						t.Errorf("with names in the Connection header, the %s got no %s, want it",
							direction, name)
					}
				}
			}
			g.WantRecords("to_server request tools/call box echo pass",
				"to_client response tools/call box echo pass")
		})
	}
}

// postRaw sends a POST to a URL over a connection of its own. headers are further header lines,
// each with CR and LF. postRaw returns the headers and the body of the response.
func postRaw(t *testing.T, target, headers, body string) (http.Header, string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if deadline, ok := harness.Context(t).Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nCookie: canary=%s\r\n"+
		"Content-Length: %d\r\n%s\r\n%s", u.Path, u.Host, mcptest.Canary, len(body), headers, body)
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode >= 300 {
		t.Fatalf("got status %s and %s, want a success", r.Status, answer)
	}
	return r.Header, string(answer)
}
