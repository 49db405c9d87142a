package sessions

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// bad are messages that must not get anywhere. All of them leave the session alive.
var bad = []struct {
	name, send string
	id         string // of the answer; "" is one without an id, or null
	code       string // of the error; "" is no answer at all
	says       string // in the error's message
}{
	{"a duplicate name in the envelope",
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, "?", "-32600", `method`},
	{"a duplicate name in the arguments",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"box__echo","arguments":{"a":1,"a":2}}}`, "?", "-32600", ``},
	{"a duplicate name spelt with an escape",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"box__echo","na\u006de":"box__die"}}`, "?", "-32600", ``},
	{"a name that folds to one of the envelope",
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, "?", "-32600", ``},
	{"no version", `{"id":"a","method":"ping"}`, `"a"`, "-32600", ``},
	{"another version", `{"jsonrpc":"1.0","id":"a","method":"ping"}`, `"a"`, "-32600", ``},
	{"an id of null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "", "-32600", ``},
	{"an id that is an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, "", "-32600", ``},
	{"an id with a fraction", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "", "-32600", ``},
	{"a method that is a number", `{"jsonrpc":"2.0","id":"a","method":1}`, `"a"`, "-32600", ``},
	{"params that are an array (D21)",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":[]}`, `"a"`, "-3260?", ``},
	{"params that are a text (D21)",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":"x"}`, `"a"`, "-3260?", ``},
	{"a call without params (D21)", `{"jsonrpc":"2.0","id":"a","method":"tools/call"}`,
		`"a"`, "-32602", ``},
	{"a call without a name (D21)", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{}}`,
		`"a"`, "-32602", `name`},
	{"a name that is a number (D21)",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":7}}`, `"a"`, "-32602",
		`name`},
	{"an empty name", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":""}}`,
		`"a"`, "-32602", ``},
	{"a name without a server",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo"}}`,
		`"a"`, "-32602", ``},
	{"a name with nothing before the separator",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"__echo"}}`,
		`"a"`, "-32602", ``},
	{"a name with nothing behind the separator",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"box__"}}`,
		`"a"`, "-32602", ``},
	{"a server that is not there",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"nobody__echo"}}`,
		`"a"`, "-32602", ``},
	{"a server's name in capitals",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"BOX__echo"}}`,
		`"a"`, "-32602", ``},
	{"a separator of three underscores (D29)",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"box___echo"}}`,
		`"a"`, "-32602", ``},
	{"a tool that is not there",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"box__nothing"}}`,
		`"a"`, "-32602", `nothing`},
	{"a prompt that is not there",
		`{"jsonrpc":"2.0","id":"a","method":"prompts/get","params":{"name":"box__nothing"}}`,
		`"a"`, "-32602", `nothing`},
	{"a URI of nobody", `{"jsonrpc":"2.0","id":"a","method":"resources/read","params":{"uri":"nobody+test://x"}}`, `"a"`, "-32602", ``},
	{"a URI that is no URI", `{"jsonrpc":"2.0","id":"a","method":"resources/read","params":{"uri":"\u0000"}}`, `"a"`, "-32602", ``},
	{"a subscription to nothing",
		`{"jsonrpc":"2.0","id":"a","method":"resources/subscribe","params":{}}`, `"a"`, "-32602",
		`uri`},
	{"a completion without a ref",
		`{"jsonrpc":"2.0","id":"a","method":"completion/complete","params":{}}`, `"a"`, "-32602",
		`ref`},
	{"a completion with a ref of no kind",
		`{"jsonrpc":"2.0","id":"a","method":"completion/complete","params":{"ref":{"type":"ref/else","name":"box__greet"}}}`, `"a"`, "-32602", `ref`},
	{"a cursor that Gatekit did not make",
		`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":"page-2"}}`,
		`"a"`, "-32602", `cursor`},
	{"an empty cursor", `{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":""}}`,
		`"a"`, "-32602", `cursor`},
	{"a cursor that is a number",
		`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":2}}`, `"a"`, "-32602",
		`cursor`},
	{"a log level that is none",
		`{"jsonrpc":"2.0","id":"a","method":"logging/setLevel","params":{"level":"loud"}}`,
		`"a"`, "-32602", `level`},
	{"a method that does not exist",
		`{"jsonrpc":"2.0","id":"a","method":"tools/destroy","params":{}}`, `"a"`, "-32601",
		`tools/destroy`},
	{"a vendor's method that nobody passes on",
		`{"jsonrpc":"2.0","id":"a","method":"acme/other","params":{}}`, `"a"`, "-32601",
		`acme/other`},
	{"a method that servers call",
		`{"jsonrpc":"2.0","id":"a","method":"sampling/createMessage","params":{}}`, `"a"`, "-32601",
		``},
	{"a second initialize", `{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, `"a"`, "-32600", ``},
	{"an unknown notification", `{"jsonrpc":"2.0","method":"notifications/acme"}`, "", "", ``},
	{"a cancellation of nothing",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nothing"}}`,
		"", "", ``},
	{"a cancellation without an id",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`, "", "", ``},
	{"progress of nothing", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"nothing","progress":1}}`, "", "", ``},
	{"an answer to nothing (D19)", `{"jsonrpc":"2.0","id":"ask-1","result":{}}`, "", "", ``},
	{"an error about nothing (D19)", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`,
		"", "", ``},
	{"nesting beyond the limit",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"box__echo","arguments":{"v":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}}}`, "?", "-32?00", ``},
	{"a batch, which this revision has not", `[{"jsonrpc":"2.0","id":"a","method":"ping"}]`,
		"", "-32600", ``},
}

// codeIs matches a code with ? for any digit.
func codeIs(pattern, code string) bool {
	ok, _ := filepath.Match(pattern, code)
	return ok
}

func TestBadMessagesGetAClearErrorAndTheSessionLives(t *testing.T) {
	harness.Long(t, "many malformed messages over both transports")
	harness.EachTransport(t, "[limits]\nmessage_bytes = 4194304\n"+harness.ScriptedServer("box"),
		"2025-11-25", func(t *testing.T,
			g *harness.Gatekit, c *mcptest.Client) {
			harness.Handshake(t, c)
			for _, b := range bad {
				t.Run(b.name, func(t *testing.T) {
					mark := c.Mark()
					if err := c.Send(b.send); err != nil && g.URL == "" {
						t.Fatal(err)
					}
					if b.code != "" {
						m, err := c.Await(harness.Context(t), mark, func(m mcptest.Message) bool {
							return m.Error != nil || m.Result != nil
						})
						if err != nil {
							t.Fatalf("no answer: %v", err)
						}
						if id := string(m.ID); b.id != "?" && id != b.id &&
							!(b.id == "" && id == "null") {
							t.Errorf("the answer's id is %s, want %s", m.ID, b.id)
						}
						if !codeIs(b.code, string(mcptest.At(m.Error, "code"))) ||
							!strings.Contains(mcptest.Text(m.Error, "message"), b.says) ||
							mcptest.Text(m.Error, "message") == "" {
							t.Errorf("it got %s, want an error %s that says %q", m.Raw, b.code,
								b.says)
						}
					}
					harness.CallTool(t, c, "box__echo", `{"tag":1}`)
				})
			}
		})
}

// All files that the JSON test suite wants refused, as whole messages.
func TestNoFileOfBadJSONGetsAnywhere(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "core", "mcp", "testdata",
		"json-test-suite", "n_*.json"))
	if err != nil || len(files) < 180 {
		t.Fatalf("%d files of the JSON test suite (%v), want 188", len(files), err)
	}
	harness.EachTransport(t, harness.ScriptedServer("box"), "2025-11-25", func(t *testing.T,
		g *harness.Gatekit, c *mcptest.Client) {
		harness.Handshake(t, c)
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if g.URL == "" && (bytes.ContainsAny(b, "\r\n") || len(bytes.TrimSpace(b)) == 0) {
				continue // on stdio this is several lines, or none
			}
			mark := c.Mark()
			if g.URL != "" {
				post(t, g, c, b, http.StatusBadRequest)
			} else {
				c.Send(string(b))
				m, err := c.Await(harness.Context(t), mark, func(m mcptest.Message) bool {
					return m.Error != nil
				})
				if err != nil || !codeIs("-32[67]00", string(mcptest.At(m.Error, "code"))) {
					t.Errorf("%s: %s, %v", filepath.Base(file), m.Raw, err)
				}
			}
		}
		harness.CallTool(t, c, "box__echo", `{"tag":1}`)
		refused := 0
		for _, r := range g.Records() {
			if r.String() == "to_client error - - - answer" {
				refused++
			}
		}
		if refused < 100 {
			t.Errorf("%d of the refused messages are recorded: %v", refused, g.Records())
		}
	})
}

// post sends a body within the client's session and wants a JSON-RPC error with that status.
func post(t *testing.T, g *harness.Gatekit, c *mcptest.Client, body []byte, status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(harness.Context(t), http.MethodPost, g.URL,
		bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", c.Revision)
	r.Header.Set("Mcp-Session-Id", c.Session())
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	m, err := mcptest.Parse(answer)
	if resp.StatusCode != status || err != nil || m.Error == nil {
		t.Errorf("%s got %s: %s, want a JSON-RPC error with status %d", harness.Clip(body),
			resp.Status,
			answer, status)
	}
}

func TestAMessageBeyondTheLimitIsRefused(t *testing.T) {
	harness.EachTransport(t, "[limits]\nmessage_bytes = 1048576\n"+harness.ScriptedServer("box"),
		"2025-11-25", func(t *testing.T,
			g *harness.Gatekit, c *mcptest.Client) {
			harness.Handshake(t, c)
			big := fmt.Sprintf(
				`{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"name":"box__echo","arguments":{"v":%q}}}`, strings.Repeat("x", 2<<20))
			mark := c.Mark()
			c.Send(big)
			m, err := c.Await(harness.Context(t), mark, func(m mcptest.Message) bool {
				return m.Error != nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if message := mcptest.Text(m.Error, "message"); !strings.Contains(message, "1048576") &&
				!strings.Contains(message, "MiB") {
				t.Errorf("the error does not say what the limit is: %s", m.Raw)
			}
			harness.CallTool(t, c, "box__echo", `{"tag":1}`)
			t.Run("from a server", func(t *testing.T) {
				m := harness.Request(t, c, "tools/call",
					`{"name":"box__raw","arguments":{"n":2000000,"lines":["{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"content\":[],\"x\":\"$PAD\"}}"]}}`)
				if !strings.Contains(mcptest.Text(m.Error, "message"), "large") {
					t.Errorf("a message of 2 MB got %s, want an error that says that it is too "+
						"large",
						harness.Clip(m.Raw))
				}
				// the server may have been started anew
				if _, err := c.Tool(harness.Context(t), "box__echo", `{"tag":2}`); err != nil {
					t.Error(err)
				}
			})
		})
}

// What a server may send by mistake or malice must hurt nobody but its own call.
func TestBadMessagesOfAServerHurtNobodyElse(t *testing.T) {
	harness.Long(t, "many malformed messages")
	const done = `{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"ok":1}}`
	for _, c := range []struct {
		name  string
		lines []string
		want  string // in the answer
		not   string // in anything that the client sees
	}{
		{"noise on stdout", []string{"Listening…", "", "42", `"text"`, done},
			`"ok":1`, "Listening"},
		{"half a message", []string{`{"jsonrpc":"2.0","id":`, done}, `"ok":1`, ""},
		{"bad UTF-8", []string{"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"\\ud800\"}}", done}, `"ok":1`, ""},
		{"two answers", []string{done, strings.Replace(done, `"ok":1`, `"ok":2`, 1)},
			`"ok":1`, `"ok":2`},
		{"an answer to nobody (D19)", []string{`{"jsonrpc":"2.0","id":987654,"result":{"stray":1}}`,
			done}, `"ok":1`, "stray"},
		{"an answer with a text for an id",
			[]string{`{"jsonrpc":"2.0","id":"$ID","result":{"stray":1}}`, done}, `"ok":1`, "stray"},
		{"an error without an id, which can only be about the one call of this server",
			[]string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`},
			`"what?"`, ""},
		{"an unknown notification",
			[]string{`{"jsonrpc":"2.0","method":"notifications/stderr","params":{"stray":1}}`,
				done}, `"ok":1`, "stray"},
		{"a request that does not exist",
			[]string{`{"jsonrpc":"2.0","id":5,"method":"host/run","params":{"stray":1}}`, done},
			`"ok":1`, "stray"},
		{"progress of nobody", []string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"stray","progress":1}}`, done}, `"ok":1`, "stray"},
		{"a result with a duplicate name",
			[]string{`{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"a":"stray","a":2}}`},
			`"error"`, "stray"},
		{"a result that is both",
			[]string{`{"jsonrpc":"2.0","id":$ID,"result":{"stray":1},"error":{"code":1,"message":"stray"}}`}, `"error"`, "stray"},
		{"an answer that is neither", []string{`{"jsonrpc":"2.0","id":$ID}`}, `"error"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, cl := harness.StartStdio(t, withTimeout(harness.ScriptedServer("box",
				"-noise", "20"), "4s")+harness.ScriptedServer("other"),
				"2025-11-25")
			harness.StartWaitingCall(t, cl, "other", `"w"`, "w")
			mark := cl.Mark()
			m := harness.SendRaw(t, cl, c.lines...)
			if !strings.Contains(string(m.Raw), c.want) {
				t.Errorf("the call got %s, want %s in it", m.Raw, c.want)
			}
			harness.CallTool(t, cl, "box__echo", `{"tag":1}`)
			harness.CallTool(t, cl, "other__echo", `{"tag":1}`)
			for _, f := range cl.Frames()[mark:] {
				if !f.Sent && c.not != "" && bytes.Contains(f.Raw, []byte(c.not)) &&
					!bytes.Contains(f.Raw, []byte(`"lines"`)) {
					t.Errorf("the client saw %s", f.Raw)
				}
				if string(f.ID) == `"w"` {
					t.Errorf("the other server's call was answered: %s", f.Raw)
				}
			}
			cl.Notify("notifications/cancelled", `{"requestId":"w"}`)
			harness.CallTool(t, cl, "other__cancelled", `{"tag":"w"}`)
			g.WantRecords("to_server request tools/call box raw pass")
		})
	}
}

func TestADeadServerIsNamedAndTheOthersServe(t *testing.T) {
	for name, dead := range map[string]string{
		"exits at once":       harness.ScriptedServer("dead", "-exit", "3"),
		"is not there":        harness.StdioServer("dead", []string{"/no/such/program"}),
		"refuses connections": harness.HTTPServer("dead", "http://127.0.0.1:9/mcp"),
	} {
		t.Run(name, func(t *testing.T) {
			harness.EachTransport(t, dead+harness.ScriptedServer("live"),
				"2025-11-25", func(t *testing.T, g *harness.Gatekit,
					c *mcptest.Client) {
					harness.Handshake(t, c)
					m := harness.Request(t, c, "tools/list", `{}`)
					if n := strings.Count(string(m.Raw), `"live__`); n != 14 {
						t.Errorf("it listed %d tools of the live server, want 14", n)
					}
					if partial := string(mcptest.At(m.Result,
						"_meta", "gatekit/partial")); !strings.Contains(partial, "dead") {
						t.Errorf("the list does not say that it lacks a server: _meta is %s",
							mcptest.At(m.Result, "_meta"))
					}
					m = harness.Request(t, c, "tools/call", `{"name":"dead__echo"}`)
					if string(mcptest.At(m.Error, "code")) != "-32603" ||
						!strings.Contains(mcptest.Text(m.Error, "message"), "dead") {
						t.Errorf("the dead server's tool got %s", m.Raw)
					}
					harness.CallTool(t, c, "live__echo", ``)
					g.WantRecords("to_client response tools/call live echo pass")
				})
		})
	}
}

// withTimeout is a server's configuration with a time-out.
func withTimeout(server, timeout string) string {
	return strings.Replace(server, "\n", fmt.Sprintf("\ntimeout = %q\n", timeout), 1)
}

func TestAMuteServerTimesOut(t *testing.T) {
	harness.Long(t, "waits for time-outs")
	harness.EachTransport(t, withTimeout(harness.ScriptedServer("box"), "4s"),
		"2025-11-25", func(t *testing.T, g *harness.Gatekit,
			c *mcptest.Client) {
			harness.Handshake(t, c)
			m := harness.Request(t, c, "tools/call", `{"name":"box__wait","arguments":{"tag":"t"}}`)
			if string(mcptest.At(m.Error, "code")) != "-32603" ||
				!strings.Contains(mcptest.Text(m.Error, "message"), "4s") {
				t.Errorf("it got %s, want -32603 that names the time-out", m.Raw)
			}
			harness.CallTool(t, c, "box__cancelled", `{"tag":"t"}`)
			g.WantRecords("to_server notification notifications/cancelled box - answer")
		})
}
