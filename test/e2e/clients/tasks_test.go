package clients

import (
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestModernClientUsesTaskOnlyTool calls a tool of server-everything that runs only as a task of
// revision 2025-11-25. During the task the server sends an elicitation.
func TestModernClientUsesTaskOnlyTool(t *testing.T) {
	harness.EachTransport(t, harness.StdioServer("everything",
		harness.NewRealServers(t).Commands["everything"]), mcptest.Modern,
		func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
			harness.Handshake(t, c)
			m := harness.CallTool(t, c, "everything__simulate-research-query",
				`{"topic":"python","ambiguous":true}`)
			if text := string(m.Result); !strings.Contains(text, "# Research Report: python") ||
				!strings.Contains(text, "After receiving clarification") {
				t.Errorf("got the result %s, want the report after the clarification", m.Raw)
			}
			if got := mcptest.Text(m.Result, "resultType"); got != "complete" {
				t.Errorf("got the resultType %q, want \"complete\"", got)
			}
			g.WantRecords("to_server request tools/call everything simulate-research-query pass",
				"to_client request elicitation/create everything - pass",
				"to_server response elicitation/create everything - pass",
				"to_client response tools/call everything simulate-research-query pass")
		})
}
