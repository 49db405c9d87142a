package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/config"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/test/mcptest"
)

// refuser denies the messages of one direction: the requests of a server to the client, or the
// responses of the client.
type refuser struct{ to mcp.Direction }

func (r refuser) Inspect(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	if m.Direction == r.to {
		return pipeline.Verdict{Action: pipeline.Deny, Reason: "no"}, nil
	}
	return pipeline.Verdict{Action: pipeline.Allow}, nil
}

// TestOneStageDeniesServerRequestsInAllEras combines all eras and transports of the client and of
// the server. In each combination, a stage can deny the requests of the server, or the client's
// responses to these requests.
func TestOneStageDeniesServerRequestsInAllEras(t *testing.T) {
	questions := []struct{ method, params, want string }{
		{"elicitation/create", `{"message":"who?","requestedSchema":{"type":"object","properties":{}}}`, `{"action":"decline"}`},
		{"roots/list", `{}`, `{"roots":[]}`},
		{"sampling/createMessage", `{"messages":[],"maxTokens":9}`, ``},
	}
	for _, stage := range []struct {
		name string
		to   mcp.Direction
	}{{"requests denied", mcp.ToClient}, {"responses denied", mcp.ToServer}} {
		for _, server := range []string{"2025-11-25", mcptest.Modern} {
			for _, back := range []string{"stdio", "http"} {
				for _, front := range []string{"stdio", "http"} {
					for _, client := range []string{"2025-11-25", mcptest.Modern} {
						t.Run(fmt.Sprintf("%s: client %s on %s, server %s on %s", stage.name,
							client, front, server, back), func(t *testing.T) {
							c, asked, record := connectThroughStage(t, client, front, server, back,
								pipeline.StageConfig{Name: "refuser", Stage: refuser{stage.to},
									Wants: pipeline.Wants{Methods: []string{"elicitation/create",
										"roots/list", "sampling/createMessage"}}})
							for _, q := range questions {
								m, err := c.Tool(t.Context(),
									"box__ask", fmt.Sprintf(`{"method":%q,"params":%s}`, q.method,
										q.params))
								if err != nil {
									t.Fatal(err)
								}
								got := string(mcptest.At(m.Result, "structuredContent", "result"))
								switch {
								case q.want != "" && got != q.want:
									t.Errorf("%s: the server got the answer %s, want %s", q.method,
										m.Raw, q.want)
								case q.want == "" && server != mcptest.Modern &&
									string(mcptest.At(m.Result, "structuredContent", "error",
										"code")) != "-1":
									t.Errorf("%s: the server got the answer %s, want error -1",
										q.method, m.Raw)
								case q.want == "" && server == mcptest.Modern &&
									string(mcptest.At(m.Error, "code")) != "-31000":
									// A modern server cannot get an error, so the call is denied.
									t.Errorf("%s: the call got %s, want a denial",
										q.method, m.Raw)
								}
							}
							if n := len(*asked); (n > 0) != (stage.to == mcp.ToServer) {
								t.Errorf("the client got the requests %q; want requests only if "+
									"the stage denies responses", *asked)
							}
							rows := record()
							for _, q := range questions {
								kind, direction := "request", "to_client"
								if stage.to == mcp.ToServer {
									kind, direction = "response", "to_server"
								}
								if want := fmt.Sprintf("deny %s %s %s box", direction, kind,
									q.method); !strings.Contains(rows, want) {
									t.Errorf("there is no record %s; the records are\n%s", want,
										rows)
								}
							}
						})
					}
				}
			}
		}
	}
}

// connectThroughStage opens a gateway with a stage and a scripted server, and connects a client.
// The parameters client and server are revisions. The parameters front and back are the transports
// of the client and of the server. The result asked collects the methods of the requests that the
// client gets. The function record closes the gateway and returns the records.
func connectThroughStage(t *testing.T, client, front, server, back string,
	stage pipeline.StageConfig) (c *mcptest.Client, asked *[]string, record func() string) {
	t.Helper()
	dir := t.TempDir()
	var conf string
	if back == "stdio" {
		conf = fmt.Sprintf("[server.box]\ncommand = %q\nargs = [\"-name\", \"box\", "+
			"\"-revisions\", %q]\nenv = { MCPTEST_SERVE = \"1\" }\n", os.Args[0], server)
	} else {
		s := httptest.NewServer(mcptest.Toolbox("box", server))
		t.Cleanup(s.Close)
		conf = fmt.Sprintf("[server.box]\nurl = %q\n", s.URL)
	}
	file := filepath.Join(dir, "gatekit.toml")
	if err := os.WriteFile(file,
		[]byte("[listen]\nhttp = \"127.0.0.1:0\"\n"+conf+"[audit]\nfile = \"audit.jsonl\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	parsed, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	g, err := openGateway(t.Context(), parsed, slog.New(slog.DiscardHandler), nil, stage)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	var conn mcptest.Conn
	if front == "stdio" {
		near, far := mcptest.Pipe()
		conn = near
		go func() { served <- g.endpoint.ServePipe(ctx, joiningConn{far}, nil) }()
	} else {
		f, err := g.listen(parsed, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		conn = mcptest.NewHTTP("http://" + f.Addr().String() + "/mcp")
		go func() { served <- f.Serve(ctx) }()
	}
	c = mcptest.NewClient(conn, client)
	asked = new([]string)
	for method, answer := range c.Answer {
		c.Answer[method] = func(m mcptest.Message) string {
			*asked = append(*asked, method)
			return answer(m)
		}
	}
	if m, err := c.Open(t.Context()); err != nil || m.Error != nil {
		t.Fatalf("the handshake got %s, %v, want a result", m.Raw, err)
	}
	end := func() {
		c.Close()
		g.endSessions()
		stop()
		<-served
		if err := g.close(); err != nil {
			t.Error(err)
		}
	}
	return c, asked, func() string {
		end()
		return recordRows(t, filepath.Join(dir, "audit.jsonl"))
	}
}

// joiningConn joins the parts of a message before it writes them.
type joiningConn struct{ mcptest.Conn }

func (p joiningConn) Write(ctx context.Context, parts ...[]byte) error {
	var b []byte
	for _, part := range parts {
		b = append(b, part...)
	}
	return p.Conn.Write(ctx, b)
}

// recordRows returns a line "ACTION DIRECTION KIND METHOD SERVER" for each record of an audit log.
func recordRows(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for line := range strings.Lines(string(b)) {
		var r struct{ Action, Direction, Kind, Method, Server string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&rows, r.Action, r.Direction, r.Kind, r.Method, r.Server)
	}
	return rows.String()
}
