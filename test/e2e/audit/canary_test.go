package audit

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// The value has a run of x, so that a tool can make the server send it: the request has $PAD there.
const canaryValue, canaryPadded = "cnry-xxxxxxxx-Q7zW/m2K+9t", "cnry-$PAD-Q7zW/m2K+9t"

// canaryBase64 is the value as a part of a file in base64.
var canaryBase64 = base64.StdEncoding.EncodeToString([]byte("file: " + canaryValue + "\n"))

const canaryReason = "planted value in the message: canary backup"

// canaryCase is a revision with an action of [canary], and what it must record.
type canaryCase struct {
	revision, action string
	want             []string // the records with a canary, in the form of [harness.Record.String]
	findings         int      // in these records
}

// TestCanaries sends a planted value in each kind of message, in both directions.
func TestCanaries(t *testing.T) {
	denied := []string{
		"to_server request tools/call box echo deny",
		"to_server request tools/call - - deny", // the value is the name of the tool
		"to_server request resources/read box - deny",
		"to_server request - - - deny", // the value is in the method
		"to_server notification notifications/progress - - deny",
		"to_client response tools/call box raw deny",
		"to_client error tools/call box raw deny",
		"to_client notification notifications/progress box - deny",
		"to_client request sampling/createMessage box - deny",
		"to_server response elicitation/create box - deny",
	}
	var recorded []string
	for _, r := range denied {
		recorded = append(recorded, strings.Replace(r, " deny", " would_deny", 1))
	}
	recorded = append(recorded,
		"to_client response tools/call box echo would_deny",
		"to_client error tools/call - - answer", // Gatekit quotes the name of the tool
		"to_client response resources/read box - would_deny",
		"to_client error - - - answer", // Gatekit quotes the method
		"to_client response tools/call box ask would_deny")
	for _, tt := range []canaryCase{
		{"2025-11-25", "deny", denied, 10},
		{"2025-11-25", "record", recorded, 17},
		// The question of a modern server is a part of its result.
		{mcptest.Modern, "deny", slices.Concat(denied,
			[]string{"to_client response tools/call box raw deny"}), 11},
		// The answer to the question is a part of the second request of the client.
		{mcptest.Modern, "record", slices.Concat(recorded, []string{
			"to_client response tools/call box raw would_deny",
			"to_server request tools/call box ask would_deny"}), 19},
	} {
		t.Run(tt.revision+", "+tt.action, func(t *testing.T) { testCanaries(t, tt) })
	}
}

func testCanaries(t *testing.T, tt canaryCase) {
	file := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(file, []byte(canaryValue+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	admin, url := adminEndpoint(t, "")
	sent := filepath.Join(t.TempDir(), "sink.json")
	g := harness.StartHTTP(t, harness.ScriptedServerOver(t, "box", tt.revision, "stdio")+admin+
		fmt.Sprintf("[canary.backup]\nvalues = [\"${file:%s}\"]\naction = %q\n", file, tt.action)+
		fmt.Sprintf("[[audit.sink]]\nname = \"siem\"\nkind = \"file\"\nformat = \"ocsf\"\n"+
			"path = %q\n", sent)+
		"[audit]\nfile = \"audit.jsonl\"\nbodies = \"redacted\"\n[log]\nlevel = \"debug\"\n")
	c := g.Connect(tt.revision)
	// Without an answer of the client to sampling, a modern call ends with the server's question.
	delete(c.Answer, "sampling/createMessage")
	c.Answer["elicitation/create"] = func(mcptest.Message) string {
		return `{"action":"accept","content":{"key":"` + canaryValue + `"}}`
	}
	harness.Handshake(t, c)
	call := func(method, params string) { // denied or not: the records are compared below
		t.Helper()
		if _, err := c.Call(harness.Context(t), method, params); err != nil {
			t.Error(err)
		}
	}
	raw := func(lines ...string) {
		t.Helper()
		for i := range lines {
			lines[i] = mcptest.Quote(lines[i])
		}
		call("tools/call", fmt.Sprintf(`{"name":"box__raw","arguments":{"n":8,"lines":[%s]},`+
			`"_meta":{"progressToken":"t"}}`, strings.Join(lines, ",")))
	}
	last := `{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","content":[]}}`

	call("tools/call", `{"name":"box__echo","arguments":{"tag":"honest"}}`)
	call("tools/call", fmt.Sprintf(`{"name":"box__echo","arguments":{"tag":%q}}`, canaryBase64))
	call("tools/call", fmt.Sprintf(`{"name":%q}`, canaryValue))
	call("resources/read", fmt.Sprintf(`{"uri":"test://box/%s"}`, canaryValue))
	call("acme/"+canaryValue, `{}`)
	c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":"u","progress":1,`+
		`"message":%q}`, canaryValue))
	raw(`{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","content":[{"type":"text",` +
		`"text":"` + canaryPadded + `"}]}}`)
	raw(`{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"` + canaryPadded + `"}}`)
	raw(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,`+
		`"progress":1,"message":"`+canaryPadded+`"}}`, last)
	question := `{"messages":[{"role":"user","content":{"type":"text","text":"` + canaryPadded +
		`"}}],"maxTokens":9}`
	if tt.revision == mcptest.Modern {
		raw(`{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"input_required","inputRequests":{` +
			`"q":{"method":"sampling/createMessage","params":` + question + `}}}}`)
	} else {
		raw(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":`+question+`}`,
			last)
	}
	call("tools/call", `{"name":"box__ask","arguments":{"method":"elicitation/create","params":`+
		`{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{}}}}}`)

	counted := func() int {
		found := scrape(t, url)["gatekit_canaries_found_total"]
		return seriesValues(found, "gatekit_canary")["backup"]
	}
	harness.WaitUntilAtMost(t, "missing findings in the metrics", 0, func() int {
		return tt.findings - counted()
	})
	metric := counted()
	_, metrics := get(t, url+"/metrics")
	g.Stop()

	var got []string
	inLog := 0
	for i, r := range g.Records() {
		n := strings.Count(g.LogLines()[i], `"canary:backup"`)
		if inLog += n; n == 0 {
			continue
		}
		got = append(got, r.String())
		if r.Reason != canaryReason && r.Action != "answer" {
			t.Errorf("the record %s has the reason %q, want %q", r, r.Reason, canaryReason)
		}
		if strings.Contains(g.LogLines()[i], `"body"`) {
			t.Errorf("the record %s has a body", r)
		}
	}
	want := slices.Sorted(slices.Values(tt.want))
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got the records\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if inLog != tt.findings || metric != tt.findings {
		t.Errorf("got %d findings in the log and %d in the metrics, want %d", inLog, metric,
			tt.findings)
	}
	if n := strings.Count(g.Stderr.String(), canaryReason); n != len(want) {
		t.Errorf("stderr has %d lines of alarms, want %d", n, len(want))
	}
	sink, err := os.ReadFile(sent)
	if n := strings.Count(string(sink), canaryReason); err != nil || n < len(want) {
		t.Errorf("the sink got %d alarms, want %d: %v", n, len(want), err)
	}
	for what, text := range map[string]string{"stderr": g.Stderr.String(), "the metrics": metrics,
		"the sink": string(sink), "the audit log": strings.Join(g.LogLines(), "\n")} {
		if strings.Contains(text, canaryValue) || strings.Contains(text, canaryBase64) {
			t.Errorf("%s has the value", what)
		}
	}
	for _, f := range c.Frames() {
		if tt.action == "deny" && !f.Sent && strings.Contains(string(f.Raw), canaryValue) {
			t.Errorf("the client got the value: %s", f.Raw)
		}
	}
}
