package audit

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// TestReceiptsOfRealServers calls tools of three published servers in both eras. The receipts name
// the servers without the prefixes, and cover results with prefixes. Results that ask the client
// for input have no receipts.
func TestReceiptsOfRealServers(t *testing.T) {
	real := harness.NewRealServers(t)
	calls := []struct{ server, tool, arguments string }{
		{"everything", "echo", `{"message":"grüß"}`},
		{"everything", "get-sum", `{"a":1.50,"b":2e0}`},
		{"everything", "get-structured-content", `{"location":"Chicago"}`},
		{"everything", "get-resource-links", `{"count":2}`},
		{"everything", "trigger-elicitation-request", `{}`},
		{"everything", "echo", `{"message":5}`}, // a result with isError
		{"files", "read_text_file", `{"path":"` + filepath.Join(real.Dir, "a.txt") + `"}`},
		{"memory", "read_graph", `{}`},
	}
	for _, front := range harness.Revisions {
		t.Run(front, func(t *testing.T) {
			harness.EachTransport(t, real.Config()+receiptsOn, front, func(t *testing.T,
				g *harness.Gatekit, c *mcptest.Client) {
				c.Answer["elicitation/create"] = func(mcptest.Message) string {
					return `{"action":"accept","content":{"name":"Ada"}}`
				}
				real.Handshake(t, c)
				for _, call := range calls {
					m := harness.CallTool(t, c, call.server+"__"+call.tool, call.arguments)
					wantReceipt(t, g, m, call.server, call.tool, call.arguments)
				}
				questions := 0
				for _, f := range c.Frames() {
					if mcptest.Text(f.Result, "resultType") != "input_required" {
						continue
					}
					if questions++; strings.Contains(string(f.Raw), "gatekit/receipt") {
						t.Errorf("a result that asks for input has a receipt: %s", f.Raw)
					}
				}
				if (questions > 0) != (front == mcptest.Modern) {
					t.Errorf("%d results ask for input", questions)
				}
			})
		})
	}
}

// A legacy client gets a receipt for the answer that a call has made a task. The result of the task
// has none. For a modern client, Gatekit waits for the task, and the receipt is for its result.
func TestReceiptsOfTasks(t *testing.T) {
	server := harness.StdioServer("everything",
		harness.NewRealServers(t).Commands["everything"]) + receiptsOn
	const (
		tool      = "simulate-research-query"
		arguments = `{"topic":"python"}`
		report    = "# Research Report: python"
	)
	t.Run("legacy", func(t *testing.T) {
		g, c := harness.StartStdio(t, server, "2025-11-25")
		m := harness.Request(t, c, "tools/call", `{"name":"everything__`+tool+
			`","task":{"ttl":60000},"arguments":`+arguments+`}`)
		wantReceipt(t, g, m, "everything", tool, arguments)
		m = harness.Request(t, c, "tasks/result", `{"taskId":`+
			string(mcptest.At(m.Result, "task", "taskId"))+`}`)
		if strings.Contains(string(m.Raw), "gatekit/receipt") ||
			!strings.Contains(string(m.Result), report) {
			t.Errorf("the task's result is %s, want the report without a receipt", m.Raw)
		}
		if !slices.ContainsFunc(g.Records(), func(r harness.Record) bool {
			return r.Kind == "response" && r.Method == "tasks/result" && r.Action == "pass"
		}) {
			t.Error("the audit log has no record of the task's result")
		}
	})
	t.Run("modern", func(t *testing.T) {
		g, c := harness.StartStdio(t, server, mcptest.Modern)
		m := harness.CallTool(t, c, "everything__"+tool, arguments)
		if !strings.Contains(string(m.Result), report) {
			t.Errorf("got %s, want the report", m.Raw)
		}
		wantReceipt(t, g, m, "everything", tool, arguments)
	})
}

// wantReceipt fails the test unless both verifiers accept the receipt of a result that passed, and
// unless the receipt names the record.
func wantReceipt(t *testing.T, g *harness.Gatekit, m mcptest.Message, server, tool,
	arguments string) {
	t.Helper()
	for name, v := range verifyReceipt(t, filepath.Join(g.Dir, "audit.jsonl.pub"),
		string(m.Result), arguments, "--server", server, "--tool", tool) {
		if !v.Valid || v.Receipt.Decision != "pass" {
			t.Errorf("%s found %+v in %s, want a valid receipt", name, v, m.Raw)
			continue
		}
		want := "to_client response tools/call " + server + " " + tool + " pass"
		got := g.Records()[v.Receipt.Record-1]
		if got.Seq != v.Receipt.Record || got.String() != want {
			t.Errorf("record %d is %s, want %s", v.Receipt.Record, got, want)
		}
	}
}
