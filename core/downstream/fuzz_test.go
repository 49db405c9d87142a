package downstream_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"gatekit/core/downstream"
	"gatekit/core/mcp"
)

// FuzzPost: whatever is posted gets one reply, which is nothing, a stream, or JSON-RPC; and the
// session is alive after it.
func FuzzPost(f *testing.F) {
	for _, body := range []string{
		initialize(mcp.Rev20250326), initialized, request(1, "tools/call", `{"name":"x"}`),
		modern(1, "tools/call", `"name":"x"`), modern(1, "server/discover", ""),
		`[` + request(1, "ping", "{}") + `,` + cancelled(1) + `]`, `[]`, `{`,
		``, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}`,
		request(1, "notifications/initialized", "{}"), request(`"\ud800"`, "tools/list", `[]`),
		`{"jsonrpc":"2.0","method":"tools/call"}`,
	} {
		f.Add(body, "2026-07-28", "tools/call", "x", false)
		f.Add(body, "", "", "", true)
		f.Add(body, "2025-03-26", "", "=?base64?!?=", true)
	}
	f.Fuzz(func(t *testing.T, body, version, method, name string, inSession bool) {
		w := newWorld(t, &server{}, downstream.Limits{})
		defer w.close(t)
		c := w.client("")
		session := http.Header{}
		if inSession {
			c.initialize(t, mcp.Rev20250326)
			session = c.header.Clone()
		}
		for header, value := range map[string]string{"Mcp-Protocol-Version": version,
			"Mcp-Method": method, "Mcp-Name": name} {
			if value != "" {
				c.header.Set(header, value)
			}
		}
		x := c.begin(t, c.front.Post, body)
		if strings.Contains(body, "subscriptions/listen") {
			x.drop() // it would last
		}
		<-x.done
		if x.calls != 1 {
			t.Fatalf("the reply was used %d times", x.calls)
		}
		if x.body != "" && !json.Valid([]byte(x.body)) {
			t.Errorf("the answer is no JSON: %q", x.body)
		}
		for _, e := range x.events {
			if len(e.Data) > 0 && !json.Valid(e.Data) {
				t.Errorf("an event is no JSON: %q", e.Data)
			}
		}
		if inSession {
			c.header = session
			equal(t, "a ping after it", c.post(t, request(`"after"`, "ping", "{}")),
				`200 {"jsonrpc":"2.0","id":"after","result":{}}`)
		}
	})
}
