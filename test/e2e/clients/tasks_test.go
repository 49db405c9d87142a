package clients

import (
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// server-everything has a tool that runs as a task only (2025-11-25), and asks while it does.
func TestAModernClientUsesAToolThatRunsAsATask(t *testing.T) {
	harness.EachTransport(t, harness.StdioServer("everything",
		harness.NewRealServers(t).Commands["everything"]), mcptest.Modern,
		func(t *testing.T, g *harness.Gatekit, c *mcptest.Client) {
			harness.Handshake(t, c)
			m := harness.CallTool(t, c, "everything__simulate-research-query",
				`{"topic":"python","ambiguous":true}`)
			if text := string(m.Result); !strings.Contains(text, "# Research Report: python") ||
				!strings.Contains(text, "After receiving clarification") {
				t.Errorf("it answered %s", m.Raw)
			}
			if mcptest.Text(m.Result, "resultType") != "complete" {
				t.Errorf("its result is of type %q", mcptest.Text(m.Result, "resultType"))
			}
			g.WantRecords("to_server request tools/call everything simulate-research-query pass",
				"to_client request elicitation/create everything - pass",
				"to_server response elicitation/create everything - pass",
				"to_client response tools/call everything simulate-research-query pass")
		})
}
