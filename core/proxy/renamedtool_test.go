package proxy_test

import (
	"context"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// The client uses the tool's new name. The server, the stages and the records use the server's own
// name.
func TestRenamedToolHasOneNameForClients(t *testing.T) {
	a := &fakeServer{answer: func(_ context.Context, m *mcp.Message, _ proxy.Handler) string {
		switch m.Method {
		case "tools/list":
			return `{"tools":[{"name":"create_issue"},{"name":"read"}]}`
		case "completion/complete":
			return `{"completion":{"values":[]}}`
		}
		if name, _ := m.Text("/name"); name != "create_issue" {
			return "!-32602 Unknown tool"
		}
		if _, answered := m.Get("/inputResponses"); !answered {
			return `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"m"}}},"requestState":"mine"}`
		}
		return `{"resultType":"complete","content":[]}`
	}}
	w := open(t, map[string]*fakeServer{"a": a}, nil, pipeline.StageConfig{
		Name: "names", Stage: stage(func(m *mcp.Message) pipeline.Verdict {
			return pipeline.Verdict{Action: pipeline.Allow}
		}),
		Renames: pipeline.Renames{Tools: map[string]string{"create_issue": "open_issue"},
			Prompts: map[string]string{"ask": "question"}},
	})
	w.client.takesInputRequests = true
	equal(t, "the list", w.call(t, "tools/list", `{}`),
		`{"tools":[{"name":"a__open_issue"},{"name":"a__read"}]}`)
	equal(t, "a call by the old name", w.call(t, "tools/call", `{"name":"a__create_issue"}`),
		`!-31000 refused by policy`)
	equal(t, "a completion", w.call(
		t, "completion/complete",
		`{"ref":{"type":"ref/prompt","name":"a__question"},"argument":{"name":"x","value":""}}`),
		`{"completion":{"values":[]}}`)

	first := w.call(t, "tools/call", `{"name":"a__open_issue"}`)
	state, _ := mcp.NewResponse("", []byte(first)).Text("/requestState")
	if state == "" {
		t.Fatalf("the first call: got %s, want an input request", first)
	}
	second := w.call(t, "tools/call",
		`{"name":"a__open_issue","inputResponses":{"k":{"action":"accept"}},"requestState":"`+state+
			`"}`)
	equal(t, "the call with the input response", second, `{"resultType":"complete","content":[]}`)
	equal(t, "the server saw", strings.Join(a.seen(), "\n"), strings.Join([]string{
		`tools/list {}`,
		`completion/complete {"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"x","value":""}}`,
		`tools/call {"name":"create_issue"}`,
		`tools/call {"name":"create_issue","inputResponses":{"k":{"action":"accept"}},"requestState":"mine"}`,
	}, "\n"))
	w.record.expect(t,
		"modify to_server request tools/call a create_issue",
		"deny to_server request tools/call a create_issue",
		"modify to_server request completion/complete a ask",
		"pass to_client response tools/call a create_issue",
		"modify to_client response tools/list a",
	)
}
