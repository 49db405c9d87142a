package everymessage

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestLogMessagesBelowTheLevelOfTheClientAreDropped has a server log at several levels during one
// call. The client has set the level "error", or no level.
func TestLogMessagesBelowTheLevelOfTheClientAreDropped(t *testing.T) {
	const unfiltered = "[limits]\nfilter_logs = false\n"
	logged := []string{"debug", "error", "odd", "warning", "alert"}
	atError := []string{"error", "odd", "alert"} // "odd" is no level, so it is below no level
	for _, test := range []struct {
		name, client, server, level, config string
		want                                []string // levels of the messages that the client gets
	}{
		{"legacy, level error", mcp.Rev20251125, mcp.Rev20251125, "error", "", atError},
		{"legacy, no level", mcp.Rev20251125, mcp.Rev20251125, "", "", logged},
		{"legacy, filter off", mcp.Rev20251125, mcp.Rev20251125, "error", unfiltered, logged},
		{"modern, level error", mcp.Rev20260728, mcp.Rev20260728, "error", "", atError},
		{"modern, no level", mcp.Rev20260728, mcp.Rev20260728, "", "", nil},
		{"modern, filter off", mcp.Rev20260728, mcp.Rev20260728, "error", unfiltered, logged},
		{"legacy client, modern server", mcp.Rev20251125, mcp.Rev20260728, "error", "", atError},
		{"modern client, legacy server", mcp.Rev20260728, mcp.Rev20251125, "error", "",
			[]string{"error", "alert"}}, // the bridge drops messages of unknown levels
		{"modern client, legacy server, no level", mcp.Rev20260728, mcp.Rev20251125, "", "", nil},
	} {
		harness.EachTransport(t, test.config+harness.ScriptedServer("box", "-revisions",
			test.server), test.client, func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
			t.Run(test.name, func(t *testing.T) {
				harness.Handshake(t, c)
				meta := ""
				switch {
				case test.level == "":
				case test.client == mcp.Rev20260728:
					meta = fmt.Sprintf(`,%q:%q`, mcp.MetaLogLevel, test.level)
				default:
					harness.Request(t, c, "logging/setLevel", fmt.Sprintf(`{"level":%q}`,
						test.level))
				}
				var lines []string
				for _, level := range logged {
					lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","method":`+
						`"notifications/message","params":{"level":%q,"data":1}}`, level))
				}
				resultType := ""
				if test.server == mcp.Rev20260728 {
					resultType = `,"resultType":"complete"`
				}
				encoded, _ := json.Marshal(append(lines,
					`{"jsonrpc":"2.0","id":$ID,"result":{"content":[]`+resultType+`}}`))
				mark := c.Mark()
				harness.Request(t, c, "tools/call", fmt.Sprintf(
					`{"name":"box__raw","arguments":{"lines":%s},"_meta":{"progressToken":1%s}}`,
					encoded, meta))
				if n := len(test.want); n > 0 { // over HTTP, they may come after the answer
					c.Await(harness.Context(t), mark, func(m mcptest.Message) bool {
						if m.Method == "notifications/message" {
							n--
						}
						return n == 0
					})
				}
				var got []string
				for _, f := range c.Frames()[mark:] {
					if f.Method == "notifications/message" {
						got = append(got, mcptest.Text(f.Params, "level"))
					}
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("the client got log messages of the levels %q, want %q", got,
						test.want)
				}
				const dropped = "to_client notification notifications/message box - drop"
				isDropped := func(r harness.Record) bool { return r.String() == dropped }
				for end := time.Now().Add(10 * time.Second); len(test.want) < len(logged) &&
					!slices.ContainsFunc(g.Records(), isDropped); {
					if time.Now().After(end) {
						t.Fatalf("the audit log has no record %s", dropped)
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		})
	}
}

// TestPoliciesReadTheLogLevel denies a tool to clients that set the level "debug".
func TestPoliciesReadTheLogLevel(t *testing.T) {
	config := harness.ScriptedServer("box") + harness.PolicyFile(t,
		`deny contains "no" if {
	input.method == "tools/call"
	input.session.log_level == "debug"
}
`)
	harness.EachTransport(t, config, mcp.Rev20251125, func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		harness.Handshake(t, c)
		harness.CallTool(t, c, "box__echo", `{}`)
		harness.Request(t, c, "logging/setLevel", `{"level":"loud"}`)
		harness.CallTool(t, c, "box__echo", `{}`)
		harness.Request(t, c, "logging/setLevel", `{"level":"debug"}`)
		harness.WantDenied(t, c, "tools/call", `{"name":"box__echo"}`)
		harness.Request(t, c, "logging/setLevel", `{"level":"error"}`)
		harness.CallTool(t, c, "box__echo", `{}`)
	})
	harness.EachTransport(t, config, mcp.Rev20260728, func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		harness.Handshake(t, c)
		harness.CallTool(t, c, "box__echo", `{}`)
		harness.WantDenied(t, c, "tools/call",
			`{"name":"box__echo","_meta":{"`+mcp.MetaLogLevel+`":"debug"}}`)
	})
}
