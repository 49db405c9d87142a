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

// malformedMessages are messages of a client that Gatekit must not forward. The session survives
// each of them.
var malformedMessages = []struct {
	name    string
	message string
	id      string // the id of the answer; "" for no id or null, "?" for any id
	code    string // the code of the error, ? stands for any digit; "" when no answer is expected
	text    string // a part of the error's message
}{
	{"a duplicate member in the envelope",
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, "?", "-32600", `method`},
	{"a duplicate member in the arguments",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"box__echo","arguments":{"a":1,"a":2}}}`, "?", "-32600", ``},
	{"a duplicate member written with an escape",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"box__echo","na\u006de":"box__die"}}`, "?", "-32600", ``},
	{"an unknown member that equals a member of the envelope in another case",
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, "?", "-32600", ``},
	{"no JSON-RPC version", `{"id":"a","method":"ping"}`, `"a"`, "-32600", ``},
	{"another JSON-RPC version", `{"jsonrpc":"1.0","id":"a","method":"ping"}`, `"a"`, "-32600", ``},
	{"an id of null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "", "-32600", ``},
	{"an id that is an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, "", "-32600", ``},
	{"an id that is a fraction", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "", "-32600", ``},
	{"a method that is a number", `{"jsonrpc":"2.0","id":"a","method":1}`, `"a"`, "-32600", ``},
	{"params that are an array",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":[]}`, `"a"`, "-3260?", ``},
	{"params that are a string",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":"x"}`, `"a"`, "-3260?", ``},
	{"a call without params", `{"jsonrpc":"2.0","id":"a","method":"tools/call"}`,
		`"a"`, "-32602", ``},
	{"a call without a name", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{}}`,
		`"a"`, "-32602", `name`},
	{"a name that is a number",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":7}}`, `"a"`, "-32602",
		`name`},
	{"an empty name", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":""}}`,
		`"a"`, "-32602", ``},
	{"a name without a server",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo"}}`,
		`"a"`, "-32602", ``},
	{"a name with no server before the separator",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"__echo"}}`,
		`"a"`, "-32602", ``},
	{"a name with no tool after the separator",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"box__"}}`,
		`"a"`, "-32602", ``},
	{"a server that is not configured",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"nobody__echo"}}`,
		`"a"`, "-32602", ``},
	{"a server's name in capitals",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"BOX__echo"}}`,
		`"a"`, "-32602", ``},
	{"a separator of three underscores",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"box___echo"}}`,
		`"a"`, "-32602", ``},
	{"a tool that does not exist",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"box__nothing"}}`,
		`"a"`, "-32602", `nothing`},
	{"a prompt that does not exist",
		`{"jsonrpc":"2.0","id":"a","method":"prompts/get","params":{"name":"box__nothing"}}`,
		`"a"`, "-32602", `nothing`},
	{"a URI of a server that is not configured",
		`{"jsonrpc":"2.0","id":"a","method":"resources/read","params":{"uri":"nobody+test://x"}}`,
		`"a"`, "-32002", ``},
	{"an invalid URI", `{"jsonrpc":"2.0","id":"a","method":"resources/read","params":{"uri":"\u0000"}}`, `"a"`, "-32002", ``},
	{"a subscription without a URI",
		`{"jsonrpc":"2.0","id":"a","method":"resources/subscribe","params":{}}`, `"a"`, "-32602",
		`uri`},
	{"a completion without a ref",
		`{"jsonrpc":"2.0","id":"a","method":"completion/complete","params":{}}`, `"a"`, "-32602",
		`ref`},
	{"a completion with an unknown type of ref",
		`{"jsonrpc":"2.0","id":"a","method":"completion/complete","params":{"ref":{"type":"ref/else","name":"box__greet"}}}`, `"a"`, "-32602", `ref`},
	{"a cursor that Gatekit did not make",
		`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":"page-2"}}`,
		`"a"`, "-32602", `cursor`},
	{"an empty cursor", `{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":""}}`,
		`"a"`, "-32602", `cursor`},
	{"a cursor that is a number",
		`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":2}}`, `"a"`, "-32602",
		`cursor`},
	{"an unknown log level",
		`{"jsonrpc":"2.0","id":"a","method":"logging/setLevel","params":{"level":"loud"}}`,
		`"a"`, "-32602", `level`},
	{"a method that does not exist",
		`{"jsonrpc":"2.0","id":"a","method":"tools/destroy","params":{}}`, `"a"`, "-32601",
		`tools/destroy`},
	{"a vendor's method that is not configured",
		`{"jsonrpc":"2.0","id":"a","method":"acme/other","params":{}}`, `"a"`, "-32601",
		`acme/other`},
	{"a method that only servers may call",
		`{"jsonrpc":"2.0","id":"a","method":"sampling/createMessage","params":{}}`, `"a"`, "-32601",
		``},
	{"a second initialize", `{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, `"a"`, "-32600", ``},
	{"an unknown notification", `{"jsonrpc":"2.0","method":"notifications/acme"}`, "", "", ``},
	{"a cancellation of an unknown request",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nothing"}}`,
		"", "", ``},
	{"a cancellation without an id",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`, "", "", ``},
	{"progress with an unknown token",
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"nothing","progress":1}}`, "", "", ``},
	{"a result that answers no request", `{"jsonrpc":"2.0","id":"ask-1","result":{}}`, "", "", ``},
	{"an error that answers no request", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`,
		"", "", ``},
	{"nesting above the limit",
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"box__echo","arguments":{"v":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}}}`, "?", "-32?00", ``},
	{"a batch, which this revision does not have", `[{"jsonrpc":"2.0","id":"a","method":"ping"}]`,
		"", "-32600", ``},
}

// codeMatches reports whether an error code matches a pattern, in which ? is any digit.
func codeMatches(pattern, code string) bool {
	ok, _ := filepath.Match(pattern, code)
	return ok
}

func TestMalformedMessagesGetAnErrorAndTheSessionSurvives(t *testing.T) {
	harness.Long(t, "many malformed messages over both transports")
	harness.EachTransport(t, "[limits]\nmessage_bytes = 4194304\n"+harness.ScriptedServer("box"),
		"2025-11-25", func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
			harness.Handshake(t, c)
			for _, b := range malformedMessages {
				t.Run(b.name, func(t *testing.T) {
					mark := c.Mark()
					if err := c.Send(b.message); err != nil && g.URL == "" {
						t.Fatal(err)
					}
					if b.code != "" {
						m, err := c.Await(harness.Context(t), mark, func(m mcptest.Message) bool {
							return m.Error != nil || m.Result != nil
						})
						if err != nil {
							t.Fatalf("got no answer: %v", err)
						}
						if id := string(m.ID); b.id != "?" && id != b.id &&
							!(b.id == "" && id == "null") {
							t.Errorf("the answer has the id %s, want %s", m.ID, b.id)
						}
						if !codeMatches(b.code, string(mcptest.At(m.Error, "code"))) ||
							!strings.Contains(mcptest.Text(m.Error, "message"), b.text) ||
							mcptest.Text(m.Error, "message") == "" {
							t.Errorf("got the answer %s, want an error with the code %s and "+
								"the text %q", m.Raw, b.code, b.text)
						}
					}
					harness.CallTool(t, c, "box__echo", `{"tag":1}`)
				})
			}
		})
}

// TestInvalidJSONIsRefused sends all files of the JSON test suite that a parser must reject. Each
// file is one message.
func TestInvalidJSONIsRefused(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "core", "mcp", "testdata",
		"json-test-suite", "n_*.json"))
	if err != nil || len(files) < 180 {
		t.Fatalf("found %d files of the JSON test suite (%v), want 188", len(files), err)
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
				continue // over stdio, such a file is more than one message, or no message
			}
			mark := c.Mark()
			if g.URL != "" {
				wantPostError(t, g, c, b, http.StatusBadRequest)
			} else {
				c.Send(string(b))
				m, err := c.Await(harness.Context(t), mark, func(m mcptest.Message) bool {
					return m.Error != nil
				})
				if err != nil || !codeMatches("-32[67]00", string(mcptest.At(m.Error, "code"))) {
					t.Errorf("%s: got %s, %v; want a JSON-RPC error", filepath.Base(file), m.Raw,
						err)
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
			t.Errorf("the audit log has records of %d refused messages, want 100 or more: %v",
				refused, g.Records())
		}
	})
}

// wantPostError posts a body in the client's session and fails the test unless the response is a
// JSON-RPC error with the given HTTP status.
func wantPostError(t *testing.T, g *harness.Gatekit, c *mcptest.Client, body []byte, status int) {
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
	r.Header.Set("Cookie", "canary="+mcptest.Canary)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	m, err := mcptest.Parse(answer)
	if resp.StatusCode != status || err != nil || m.Error == nil {
		t.Errorf("POST %s: got status %s and the body %s, want %d and a JSON-RPC error",
			harness.Clip(body), resp.Status, answer, status)
	}
}

func TestOversizedMessageIsRefused(t *testing.T) {
	harness.EachTransport(t, "[limits]\nmessage_bytes = 1048576\n"+harness.ScriptedServer("box"),
		"2025-11-25", func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
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
				t.Errorf("got the error %s, want an error that names the limit", m.Raw)
			}
			harness.CallTool(t, c, "box__echo", `{"tag":1}`)
			t.Run("from a server", func(t *testing.T) {
				m := harness.Request(t, c, "tools/call",
					`{"name":"box__raw","arguments":{"n":2000000,"lines":["{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"content\":[],\"x\":\"$PAD\"}}"]}}`)
				if !strings.Contains(mcptest.Text(m.Error, "message"), "large") {
					t.Errorf("a result of 2 MB: got %s, want an error with the word \"large\"",
						harness.Clip(m.Raw))
				}
				// The next call must get an answer. If the server has to be restarted, the answer
				// may be an error.
				if _, err := c.Tool(harness.Context(t), "box__echo", `{"tag":2}`); err != nil {
					t.Error(err)
				}
			})
		})
}

// TestMalformedServerMessagesAffectOnlyTheirCall makes a server send malformed messages during a
// call. Only this call may fail. The server's next call and the calls of another server succeed.
func TestMalformedServerMessagesAffectOnlyTheirCall(t *testing.T) {
	harness.Long(t, "many malformed messages")
	const done = `{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"ok":1}}`
	for _, tt := range []struct {
		name     string
		lines    []string // the lines that the server writes
		want     string   // a part of the answer that the client gets
		unwanted string   // text that the client must not receive
	}{
		{"noise on stdout", []string{"Listening…", "", "42", `"text"`, done},
			`"ok":1`, "Listening"},
		{"half a message", []string{`{"jsonrpc":"2.0","id":`, done}, `"ok":1`, ""},
		{"a lone surrogate", []string{"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"\\ud800\"}}", done}, `"ok":1`, ""},
		{"two answers", []string{done, strings.Replace(done, `"ok":1`, `"ok":2`, 1)},
			`"ok":1`, `"ok":2`},
		{"an answer without a request",
			[]string{`{"jsonrpc":"2.0","id":987654,"result":{"stray":1}}`,
				done}, `"ok":1`, "stray"},
		{"an answer whose id is a string",
			[]string{`{"jsonrpc":"2.0","id":"$ID","result":{"stray":1}}`, done}, `"ok":1`, "stray"},
		{"an error without an id while one call is in flight",
			[]string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`},
			`"what?"`, ""},
		{"an unknown notification",
			[]string{`{"jsonrpc":"2.0","method":"notifications/stderr","params":{"stray":1}}`,
				done}, `"ok":1`, "stray"},
		{"a request with an unknown method",
			[]string{`{"jsonrpc":"2.0","id":5,"method":"host/run","params":{"stray":1}}`, done},
			`"ok":1`, "stray"},
		{"progress with an unknown token",
			[]string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"stray","progress":1}}`, done}, `"ok":1`, "stray"},
		{"a result with a duplicate member",
			[]string{`{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"a":"stray","a":2}}`},
			`"error"`, "stray"},
		{"an answer with a result and an error",
			[]string{`{"jsonrpc":"2.0","id":$ID,"result":{"stray":1},"error":{"code":1,"message":"stray"}}`}, `"error"`, "stray"},
		{"an answer without a result or an error", []string{`{"jsonrpc":"2.0","id":$ID}`},
			`"error"`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, c := harness.StartStdio(t, withTimeout(harness.ScriptedServer("box",
				"-noise", "20"), "4s")+harness.ScriptedServer("other"),
				"2025-11-25")
			harness.StartWaitingCall(t, c, "other", `"w"`, "w")
			mark := c.Mark()
			m := harness.SendRaw(t, c, tt.lines...)
			if !strings.Contains(string(m.Raw), tt.want) {
				t.Errorf("the call got %s, want an answer with %s", m.Raw, tt.want)
			}
			harness.CallTool(t, c, "box__echo", `{"tag":1}`)
			harness.CallTool(t, c, "other__echo", `{"tag":1}`)
			for _, f := range c.Frames()[mark:] {
				if !f.Sent && tt.unwanted != "" && bytes.Contains(f.Raw, []byte(tt.unwanted)) &&
					!bytes.Contains(f.Raw, []byte(`"lines"`)) {
					t.Errorf("the client received %s, want nothing with %q", f.Raw, tt.unwanted)
				}
				if string(f.ID) == `"w"` {
					t.Errorf("the other server's call got an answer: %s", f.Raw)
				}
			}
			c.Notify("notifications/cancelled", `{"requestId":"w"}`)
			harness.CallTool(t, c, "other__cancelled", `{"tag":"w"}`)
			g.WantRecords("to_server request tools/call box raw pass")
		})
	}
}
