package sessions

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// unusualValues are JSON values that a proxy would change if it decoded and encoded them.
var unusualValues = []struct{ name, value string }{
	{"an integer beyond 64 bits", `12345678901234567890123`},
	{"an integer beyond 2^53", `9007199254740993`},
	{"fractions", `[1.0,1.50,-0,-0.0,0.1e1]`},
	{"exponents", `[1e400,1E+2,1e-7]`},
	{"key order and an empty key", `{"z":1,"a":2,"":3,"m":{"y":1,"x":2}}`},
	{"unknown members that equal known members in another case",
		`{"NAME":"x","Name":"y","Arguments":{},"Method":"m"}`},
	{"empty containers", `{"o":{},"a":[],"n":null,"f":false,"s":"","aa":[[],{}]}`},
	{"escapes", `"\u00e9\/\b\f\t\u003c\u2028\ud83d\ude00"`},
	{"a lone surrogate", `"\ud800 and \udc00"`},
	{"lone surrogates in names", `{"\ud800":1,"cut \uD83D":{"\udc00 x":2}}`},
	{"a NUL character", `"\u0000"`},
	{"unescaped text that some encoders escape",
		"\"<script>&amp;\u2028\u2029\u00a0\u200b\U0001F600\x7f\""},
	{"an escaped member name", `{"na\u006de":1,"\u0000":2}`},
	{"deep nesting", strings.Repeat("[", 150) + strings.Repeat("]", 150)},
	{"unknown fields and content types",
		`{"content":[{"type":"hologram","beam":1.0},{"type":"text","text":"","x":{}}],"isError":false,"acme/x":[null]}`},
	{"1 MiB of text", `"` + strings.Repeat(`0123456789\u00e9\n<&>é`, 1<<20/20) + `"`},
}

func TestUnusualMessagesAreForwardedUnchanged(t *testing.T) {
	harness.Long(t, "large messages over every route")
	for _, route := range harness.Routes {
		t.Run(route.Name, func(t *testing.T) {
			config := harness.ScriptedServerOver(t, "box", route.Revision, route.Back)
			harness.EachTransport(t, config, route.Revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				harness.Handshake(t, c)
				for _, v := range unusualValues {
					t.Run(v.name, func(t *testing.T) { wantUnchanged(t, c, v.value) })
				}
				g.WantRecords("to_server request tools/call box echo pass",
					"to_client response tools/call box raw pass",
					"to_client error tools/call box raw pass",
					"to_client notification notifications/progress box - pass",
					"to_client request elicitation/create box - pass",
					"to_server response elicitation/create box - pass")
			})
		})
	}
}

// wantUnchanged sends a value in every kind of message. It fails the test unless the value arrives
// unchanged.
func wantUnchanged(t *testing.T, c *mcptest.Client, value string) {
	small := value // used for further copies in a message that already contains a large value
	if len(value) > 64<<10 {
		small = `"small"`
	}

	// A request: the server returns the received params as text.
	params := fmt.Sprintf(
		`{"acme":%s,"arguments":{"v":%s,"tag":%s},"name":"box__echo","_meta":{"acme/x":%s}}`, small,
		small, value, small)
	mark := c.Mark()
	m := harness.Request(t, c, "tools/call", params)
	sent := c.Frames()[mark].Params // includes the _meta that a modern client adds
	want := strings.Replace(string(sent), `"box__echo"`, `"echo"`, 1)
	if got := mcptest.Text(m.Result, "content", 0,
		"text"); got != want {
		t.Errorf("the server got the params\n%s\nwant\n%s", harness.Clip([]byte(got)),
			harness.Clip([]byte(want)))
	}
	if got := mcptest.At(m.Result, "structuredContent", "tag"); string(got) != value {
		t.Errorf("the result has the tag %s, want %s", harness.Clip(got),
			harness.Clip([]byte(value)))
	}

	// Answers: the server writes each line as it is.
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"","v":%[2]s}],"structuredContent":%[1]s,"_meta":{"v":%[2]s},"resultType":"complete"}}`,
		`{"result":{"v":%[1]s,"content":[],"resultType":"complete"},"acme":%[2]s,"jsonrpc":"2.0","id":$ID}`,
		`{"jsonrpc":"2.0","id":$ID,"error":{"acme":%[2]s,"message":"m","data":%[1]s,"code":-32000}}`,
		`{"error":{"code":7,"message":"","data":null},"id":$ID,"jsonrpc":"2.0"}`,
	} {
		line = strings.ReplaceAll(strings.ReplaceAll(line, "%[1]s", value), "%[2]s", small)
		got := harness.SendRaw(t, c, line)
		if want := strings.Replace(line, "$ID", string(got.ID), 1); string(got.Raw) != want {
			t.Errorf("the client got the answer\n%s\nwant\n%s", harness.Clip(got.Raw),
				harness.Clip([]byte(want)))
		}
	}

	// A notification.
	progress := `{"params":{"acme":` + value +
		`,"progressToken":$TOKEN,"progress":1.50},"jsonrpc":"2.0","method":"notifications/progress"}`
	mark = c.Mark()
	harness.SendRaw(t, c, progress,
		`{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"resultType":"complete"}}`)
	got, err := c.AwaitMethod(harness.Context(t), mark, "notifications/progress")
	// 9007199254740993 is the progress token of SendRaw.
	if want := strings.Replace(progress, "$TOKEN", "9007199254740993", 1); err != nil ||
		string(got.Raw) != want {
		t.Errorf("the client got the progress\n%s\nwant\n%s (%v)", harness.Clip(got.Raw),
			harness.Clip([]byte(want)), err)
	}

	// A request of the server and its answer.
	request := fmt.Sprintf(
		`{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{}},"acme":%s}`, value)
	answer := fmt.Sprintf(`{"action":"accept","content":{"v":%s},"acme":%s}`, value, small)
	var received json.RawMessage
	c.Answer["elicitation/create"] = func(m mcptest.Message) string {
		received = m.Params
		return answer
	}
	m = harness.Request(t, c, "tools/call",
		fmt.Sprintf(`{"name":"box__ask","arguments":{"method":"elicitation/create","params":%s}}`,
			request))
	if string(received) != request {
		t.Errorf("the client got the elicitation\n%s\nwant\n%s", harness.Clip(received),
			harness.Clip([]byte(request)))
	}
	if got := mcptest.At(m.Result, "structuredContent", "result"); string(got) != answer {
		t.Errorf("the server got the answer\n%s\nwant\n%s", harness.Clip(got),
			harness.Clip([]byte(answer)))
	}
}

// TestPrettyPrintedBodyIsAccepted posts a body with line breaks between its tokens. This is valid
// over HTTP. Over stdio it would not be valid, because each message must be one line.
func TestPrettyPrintedBodyIsAccepted(t *testing.T) {
	for _, back := range []string{"stdio", "http"} {
		t.Run(back, func(t *testing.T) {
			g := harness.StartHTTP(t, harness.ScriptedServerOver(t, "box", "2025-11-25", back))
			c := g.Client("2025-11-25")
			mark := c.Mark()
			c.Send("{\r\n\t\"jsonrpc\": \"2.0\",\n \"id\": \"pretty\",\n \"method\": " +
				"\"tools/call\",\n \"params\": {\n  \"name\": \"box__echo\",\n  \"arguments\": " +
				"{\n   \"tag\": [ 1.0,\n 2 ]\n  }\n }\n}\n")
			m, err := c.Reply(harness.Context(t), mark, `"pretty"`)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(strings.Fields(string(mcptest.At(m.Result, "structuredContent",
				"tag"))), ""); got != "[1.0,2]" {
				t.Errorf("the result has the tag %s, want [1.0,2]", got)
			}
			g.WantRecords("to_server request tools/call box echo pass")
		})
	}
}
