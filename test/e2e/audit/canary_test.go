package audit

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// The value has a run of x, so that a tool can make the server send it: the request has $PAD there.
const canaryValue, canaryPadded = "cnry-xxxxxxxx-Q7zW/m2K+9t", "cnry-$PAD-Q7zW/m2K+9t"

// TestCanaries sends a planted value in each kind of message, in both directions.
func TestCanaries(t *testing.T) {
	for _, revision := range harness.Revisions {
		for _, action := range []string{"deny", "record"} {
			t.Run(revision+", "+action, func(t *testing.T) { testCanaries(t, revision, action) })
		}
	}
}

func testCanaries(t *testing.T, revision, action string) {
	file := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(file, []byte(canaryValue+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	admin, url := adminEndpoint(t, "")
	g := harness.StartHTTP(t, harness.ScriptedServerOver(t, "box", revision, "stdio")+admin+
		fmt.Sprintf("[canary.backup]\nvalues = [\"${file:%s}\"]\naction = %q\n", file, action)+
		"[audit]\nfile = \"audit.jsonl\"\nbodies = \"redacted\"\n[log]\nlevel = \"debug\"\n")
	c := g.Client(revision)
	call := func(tool, arguments string) { // denied or not: the records are compared below
		if _, err := c.Tool(harness.Context(t), "box__"+tool, arguments); err != nil {
			t.Error(err)
		}
	}
	raw := func(lines ...string) {
		for i := range lines {
			lines[i] = mcptest.Quote(lines[i])
		}
		call("raw", fmt.Sprintf(`{"n":8,"lines":[%s]}`,
			strings.Join(lines, ",")))
	}
	last := `{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","content":[]}}`

	call("echo", `{"tag":"honest"}`)
	call("echo", fmt.Sprintf(`{"tag":%q}`,
		base64.StdEncoding.EncodeToString([]byte("file: "+canaryValue+"\n"))))
	c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":"t","progress":1,`+
		`"message":%q}`, canaryValue))
	raw(`{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","content":[{"type":"text",` +
		`"text":"` + canaryPadded + `"}]}}`)
	raw(`{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"` + canaryPadded + `"}}`)
	raw(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,`+
		`"progress":1,"message":"`+canaryPadded+`"}}`, last)
	ask := `{"messages":[{"role":"user","content":{"type":"text","text":"` + canaryPadded +
		`"}}],"maxTokens":9}`
	if revision == mcptest.Modern {
		raw(`{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"input_required","inputRequests":{` +
			`"q":{"method":"sampling/createMessage","params":` + ask + `}}}}`)
	} else {
		raw(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":`+ask+`}`, last)
	}

	counts := map[string]int{}
	for i, r := range g.Records() {
		line := g.LogLines()[i]
		if strings.Contains(line, `"canary:backup"`) {
			counts[r.Direction+" "+r.Kind]++
			want := map[string]string{"deny": "deny", "record": "would_deny"}[action]
			if r.Action != want || r.Reason != "planted value in the message: canary backup" {
				t.Errorf("got the record %s (%s), want %s", r, r.Reason, want)
			}
		}
	}
	for _, kind := range []string{"to_server request", "to_client response", "to_client error",
		"to_client request"} {
		if counts[kind] == 0 {
			t.Errorf("no record of a canary in a %s; there are %v", kind, counts)
		}
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	found := seriesValues(scrape(t, url)["gatekit_canaries_found_total"], "gatekit_canary")
	if found["backup"] != total {
		t.Errorf("gatekit_canaries_found_total is %v, want %d like the audit log", found, total)
	}
	_, metrics := get(t, url+"/metrics")
	g.Stop()
	if n := strings.Count(g.Stderr.String(), "planted value in the message"); n < total {
		t.Errorf("stderr has %d lines of alarms, want %d:\n%s", n, total, g.Stderr.String())
	}
	for what, text := range map[string]string{"stderr": g.Stderr.String(), "metrics": metrics,
		"the audit log": strings.Join(g.LogLines(), "\n")} {
		if strings.Contains(text, canaryValue) {
			t.Errorf("%s has the value", what)
		}
	}
	if action == "record" {
		return
	}
	for _, f := range c.Frames() {
		if strings.Contains(string(f.Raw), canaryValue) && !f.Sent {
			t.Errorf("the client got the value: %s", f.Raw)
		}
	}
}
