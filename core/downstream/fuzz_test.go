package downstream_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/test/downstreamtest"
)

// FuzzPost checks that every POST gets exactly one reply: an empty body, a stream, or JSON-RPC. The
// session must still answer a ping after that.
func FuzzPost(f *testing.F) {
	for _, body := range []string{
		downstreamtest.Initialize(mcp.Rev20250326), downstreamtest.Initialized,
		downstreamtest.Request(1, "tools/call", `{"name":"x"}`),
		downstreamtest.ModernRequest(1, "tools/call", `"name":"x"`), downstreamtest.ModernRequest(1,
			"server/discover", ""),
		`[` + downstreamtest.Request(1, "ping", "{}") + `,` + downstreamtest.Cancelled(1) + `]`,
		`[]`, `{`,
		``, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}`,
		downstreamtest.Request(1, "notifications/initialized", "{}"),
		downstreamtest.Request(`"\ud800"`, "tools/list", `[]`),
		`{"jsonrpc":"2.0","method":"tools/call"}`,
	} {
		f.Add(body, "2026-07-28", "tools/call", "x", false)
		f.Add(body, "", "", "", true)
		f.Add(body, "2025-03-26", "", "=?base64?!?=", true)
	}
	f.Fuzz(func(t *testing.T, body, version, method, name string, inSession bool) {
		w := downstreamtest.New(t, &downstreamtest.Server{}, downstream.Limits{})
		defer w.Close(t)
		c := w.HTTPClient("")
		session := http.Header{}
		if inSession {
			c.Initialize(t, mcp.Rev20250326)
			session = c.Header.Clone()
		}
		for header, value := range map[string]string{"Mcp-Protocol-Version": version,
			"Mcp-Method": method, "Mcp-Name": name} {
			if value != "" {
				c.Header.Set(header, value)
			}
		}
		x := c.Begin(t, c.Endpoint.Post, body)
		if strings.Contains(body, "subscriptions/listen") {
			x.Drop() // a subscription would not end
		}
		<-x.Done
		if x.Replies != 1 {
			t.Fatalf("the request got %d replies, want 1", x.Replies)
		}
		if x.Body != "" && !json.Valid([]byte(x.Body)) {
			t.Errorf("the answer is not JSON: %q", x.Body)
		}
		for _, e := range x.Events {
			if len(e.Data) > 0 && !json.Valid(e.Data) {
				t.Errorf("an event is not JSON: %q", e.Data)
			}
		}
		if inSession {
			c.Header = session
			downstreamtest.Equal(t, "the answer to a ping",
				c.Post(t, downstreamtest.Request(`"after"`, "ping", "{}")),
				`200 {"jsonrpc":"2.0","id":"after","result":{}}`)
		}
	})
}
