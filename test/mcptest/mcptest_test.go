package mcptest_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

func TestMain(m *testing.M) {
	if os.Getenv("MCPTEST_SERVE") == "1" {
		mcptest.Main()
		return
	}
	os.Exit(m.Run())
}

// limitedContext returns a context that ends with the test, or after two minutes.
func limitedContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// connections are the ways in which tests connect a client to a Toolbox.
var connections = map[string]func(t *testing.T, revision string) mcptest.Conn{
	"in process": func(t *testing.T, revision string) mcptest.Conn {
		a, b := mcptest.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			mcptest.Toolbox("box", revision).Serve(t.Context(), b,
				nil)
		}()
		t.Cleanup(func() { a.Close(); <-done })
		return a
	},
	"child": func(t *testing.T, revision string) mcptest.Conn {
		cmd := exec.Command(os.Args[0], "-revisions", revision)
		cmd.Env = []string{"MCPTEST_SERVE=1"}
		p, err := mcptest.Command(cmd)
		if err != nil {
			t.Fatal(err)
		}
		return p
	},
	"http": func(t *testing.T, revision string) mcptest.Conn {
		s := httptest.NewServer(mcptest.Toolbox("box", revision))
		t.Cleanup(s.Close)
		c := mcptest.NewHTTP(s.URL)
		c.Header.Del("Cookie") // there is no gateway that removes the canary
		return c
	},
}

// A server refuses what a gateway must not send on, so that each test with both ends checks it.
func TestServerRefusesTheCanary(t *testing.T) {
	s := httptest.NewServer(mcptest.Toolbox("box", "2025-11-25"))
	t.Cleanup(s.Close)
	c := mcptest.NewClient(mcptest.NewHTTP(s.URL), "2025-11-25")
	t.Cleanup(func() { c.Close() })
	if m, err := c.Open(limitedContext(t)); err == nil && m.Error == nil {
		t.Errorf("got %s, want that the server refuses the request", m.Raw)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MCPTEST_SERVE=1", "TOKEN="+mcptest.Canary)
	if out, err := cmd.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "has a credential of a client") {
		t.Errorf("with the canary in its environment, the server ended with %v:\n%s", err, out)
	}
}

func TestClientAndToolboxUnderstandEachOther(t *testing.T) {
	for name, connect := range connections {
		for _, revision := range []string{"2024-11-05", "2025-11-25", mcptest.Modern} {
			t.Run(name+" "+revision, func(t *testing.T) {
				ctx := limitedContext(t)
				c := mcptest.NewClient(connect(t, revision), revision)
				defer c.Close()
				call := func(tool, args string) string {
					t.Helper()
					m, err := c.Tool(ctx, tool, args)
					if err != nil {
						t.Fatal(err)
					}
					return string(m.Raw)
				}
				if m, err := c.Open(ctx); err != nil || m.Error != nil {
					t.Fatalf("open: %s, %v", m.Raw, err)
				}
				for _, c := range []struct{ tool, args, want string }{
					{"echo", `{"tag":7}`, `"tag":7`},
					{"result", `{"result":"{\"content\":[],\"x\":1.0}"}`, `"x":1.0`},
					{"ask", `{"method":"roots/list","params":{}}`, `"file:///work"`},
					{"ask", `{"method":"elicitation/create","params":{"message":"?"}}`, `"accept"`},
					{"raw", `{"lines":["{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"odd\":1e0}}"]}`, `"odd":1e0`},
					{"log", ``, `"done"`},
					{"change", ``, `"done"`},
					{"nothing", ``, `unknown tool`},
				} {
					if got := call(c.tool, c.args); !strings.Contains(got, c.want) {
						t.Errorf("%s: got %s, want an answer that contains %s", c.tool, got, c.want)
					}
				}
				mark := c.Mark()
				m, err := c.Call(ctx, "tools/call",
					`{"name":"progress","arguments":{"n":4},"_meta":{"progressToken":"p"}}`)
				if err != nil || m.Error != nil {
					t.Fatalf("progress: %s, %v", m.Raw, err)
				}
				n := 0
				for _, f := range c.Frames()[mark:] {
					if f.Method == "notifications/progress" && mcptest.Text(f.Params,
						"progressToken") == "p" {
						n++
					}
				}
				if n != 4 {
					t.Errorf("got %d progress notifications, want 4", n)
				}
			})
		}
	}
}

func TestWaitingCallIsCancelled(t *testing.T) {
	for name, connect := range connections {
		for _, revision := range []string{"2025-11-25", mcptest.Modern} {
			t.Run(name+" "+revision, func(t *testing.T) {
				ctx, conn := limitedContext(t), connect(t, revision)
				c := mcptest.NewClient(conn, revision)
				defer c.Close()
				if _, err := c.Open(ctx); err != nil {
					t.Fatal(err)
				}
				c.Send(c.Request(`"x"`, "tools/call",
					`{"name":"wait","arguments":{"tag":"t"},"_meta":{"progressToken":1}}`))
				if _, err := c.AwaitMethod(ctx, 0, "notifications/progress"); err != nil {
					t.Fatal(err)
				}
				if h, ok := conn.(*mcptest.HTTP); ok && revision == mcptest.Modern {
					h.Drop(`"x"`)
				} else {
					c.Notify("notifications/cancelled", `{"requestId":"x"}`)
				}
				if m, err := c.Tool(ctx, "cancelled", `{"tag":"t"}`); err != nil || m.Error != nil {
					t.Errorf("the tool cancelled got %s, %v, want a result", m.Raw, err)
				}
			})
		}
	}
}

// The go-sdk is the reference implementation. The client of the go-sdk must be able to use the
// Toolbox, and the scripted client must be able to use the server of the go-sdk.

func TestTheSDKsClientUnderstandsTheToolbox(t *testing.T) {
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		for _, way := range []string{"child", "http"} {
			t.Run(way+" "+revision, func(t *testing.T) {
				ctx := limitedContext(t)
				var transport mcp.Transport
				if way == "http" {
					s := httptest.NewServer(mcptest.Toolbox("box", revision))
					t.Cleanup(s.Close)
					transport = &mcp.StreamableClientTransport{Endpoint: s.URL}
				} else {
					cmd := exec.Command(os.Args[0], "-revisions", revision)
					cmd.Env = []string{"MCPTEST_SERVE=1"}
					transport = &mcp.CommandTransport{Command: cmd}
				}
				client := mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"},
					&mcp.ClientOptions{
						ElicitationHandler: func(context.Context,
							*mcp.ElicitRequest) (*mcp.ElicitResult, error) {
							return &mcp.ElicitResult{Action: "decline"}, nil
						},
					})
				s, err := client.Connect(ctx, transport, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				tools := 0
				for _, err := range s.Tools(ctx, nil) {
					if tools++; err != nil {
						t.Fatal(err)
					}
				}
				if tools != 14 {
					t.Errorf("the list has %d tools, want 14", tools)
				}
				r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "ask",
					Arguments: map[string]any{
						"method": "elicitation/create",
						"params": map[string]any{"mode": "form", "message": "?",
							"requestedSchema": map[string]any{"type": "object",
								"properties": map[string]any{}}},
					}})
				if err != nil || !strings.Contains(fmt.Sprint(r.StructuredContent), "decline") {
					t.Errorf("the tool ask got %+v, %v, want a result with \"decline\"", r, err)
				}
			})
		}
	}
}

func TestTheClientUnderstandsTheSDKsServer(t *testing.T) {
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			p, err := mcptest.Command(exec.Command(peers.Tool(t, "everything-server")))
			if err != nil {
				t.Fatal(err)
			}
			// The time limit starts here, after peers.Tool has built the server.
			ctx, c := limitedContext(t), mcptest.NewClient(p, revision)
			defer c.Close()
			if m, err := c.Open(ctx); err != nil || m.Error != nil {
				t.Fatalf("open: %s, %v", m.Raw, err)
			}
			if m, err := c.Call(
				ctx, "tools/call", `{"name":"test_simple_text","arguments":{}}`); err != nil ||
				m.Error != nil {
				t.Errorf("call: %s, %v", m.Raw, err)
			}
		})
	}
}
