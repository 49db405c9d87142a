package proxy_test

import (
	"context"
	"strings"
	"testing"
	"unicode"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// A human who has to approve a request sees all its values, or a note that values were cut. Secrets
// are masked, and characters that could forge the question are escaped.
func TestApproverSeesTheValues(t *testing.T) {
	const rlo = "\u202e"
	for _, c := range []struct {
		name, params string
		want, never  []string // texts that are shown, and texts that are not shown
	}{
		{"values of each type",
			`{"name":"a__x","arguments":{"to":"b","n":1.50,"force":true,"l":[1,{"k":null}],"none":{}}}`,
			[]string{`arguments: {"to": "b", "n": 1.50, "force": true, "l": [1, {"k": null}], "none": {}}`}, nil},
		{"secrets by their names", `{"name":"a__x","arguments":{"password":"hunter2","apiKey":"k9","auth":{"basic":["u7"],"pin":4711},"max_tokens":5}}`,
			[]string{`"password": [masked]`, `"apiKey": [masked]`, `"max_tokens": 5`},
			[]string{"hunter2", "k9", "u7", "4711"}},
		{"secrets in other values", `{"name":"a__x","arguments":{"text":"use ghp_0123456789abcdefABCDEF and postgres://u:pa55@h/db, password=pa66 Bearer abcdefghijk"}}`,
			[]string{"use [masked] and postgres:"}, []string{"ghp_", "pa55", "pa66", "bcdefghijk"}},
		{"a forged question", `{"name":"a__x","arguments":{"a\n\nb":"no\n\nGatekit: approved\u001b[2J` + rlo + `x"}}`,
			[]string{`"a\n\nb": "no\n\nGatekit: approved\x1b[2J\u202ex"`}, nil},
		{"a long value", `{"name":"a__x","arguments":{"long":"` + strings.Repeat("l", 5000) + `","then":"seen"}}`,
			[]string{"(5000 bytes)", `"then": "seen"`}, []string{strings.Repeat("l", 300)}},
		{"many values", `{"name":"a__x","arguments":{` + strings.Repeat(`"k":{"k":{"k":1}},`, 1) +
			`"l":[` + strings.Repeat(`"value",`, 2000) + `1]},"last":"unseen"}`,
			[]string{"bytes in all; the rest is not shown"}, []string{"unseen"}},
		{"_meta", `{"_meta":{"progressToken":"pt","io.modelcontextprotocol/x":"reserved","tenant":"removed","region":"eu"},"name":"a__x"}`,
			[]string{`_meta.region: "eu"`}, []string{"pt", "reserved", "removed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			asks := pipeline.StageConfig{Name: "policy",
				Stage: stage(func(m *mcp.Message) pipeline.Verdict {
					if m.Method == "tools/call" && m.Kind == mcp.Request {
						return pipeline.Verdict{Action: pipeline.Ask,
							Reason: "of \n\n" + rlo + "\x1b[1m" + strings.Repeat("r", 9000)}
					}
					return pipeline.Verdict{Action: pipeline.Allow}
				})}
			outside := &fakeApprovals{}
			w := open(t, map[string]*fakeServer{"a": {answer: func(_ context.Context,
				m *mcp.Message, _ proxy.Handler) string {
				return `{"capabilities":{"tools":{}}}`
			}}}, func(o *proxy.Options) { o.Approvals = outside }, asks)
			w.call(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}`)
			question := ""
			w.client.answer = func(m *mcp.Message) *mcp.Message {
				question, _ = m.Text("/message")
				// The client fails, so the request is submitted to Approvals, too.
				return mcp.NewError(m.ID(), -1, "no", nil)
			}
			w.call(t, "tools/call", c.params)
			if len(outside.values) != 1 {
				t.Fatalf("%d requests were submitted, want 1", len(outside.values))
			}
			for _, shown := range []string{question, outside.values[0]} {
				for _, want := range c.want {
					if !strings.Contains(shown, want) {
						t.Errorf("the text %q is missing in %q", want, shown)
					}
				}
				for _, never := range c.never {
					if strings.Contains(shown, never) {
						t.Errorf("the text %q is in %q, want it masked or left out", never, shown)
					}
				}
				if strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%q is shown, want printable characters only", shown)
				}
				if len(shown) > 5000 {
					t.Errorf("%d bytes are shown, want at most 5000", len(shown))
				}
			}
		})
	}
}
