package builtin_test

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/builtin"
)

// The tool definitions of published servers are ordinary text. With its default configuration, each
// plugin that inspects text may change, hide or deny at most 1 % of the tools.
func TestToolsOfPublishedServersPass(t *testing.T) {
	f, err := os.Open("injection/testdata/servers.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var tools []json.RawMessage
	servers := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for ; lines.Scan(); servers++ {
		var s struct {
			Result struct{ Tools []json.RawMessage }
		}
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		tools = append(tools, s.Result.Tools...)
	}
	if err := lines.Err(); err != nil || servers < 20 {
		t.Fatalf("read %d servers with the error %v, want at least 20", servers, err)
	}
	for _, p := range builtin.All() {
		if !slices.Contains([]string{"injection", "pii", "secrets"}, p.Name) {
			continue
		}
		stage, err := p.New([]byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		affected := 0
		for _, tool := range tools {
			request := mcp.NewRequest("1", "tools/list", nil)
			request.Direction, request.Server = mcp.ToServer, "a"
			m := mcp.NewResponse("1", slices.Concat([]byte(`{"tools":[`), tool, []byte(`]}`)))
			m.Direction, m.Server, m.Method, m.Request = mcp.ToClient, "a", "tools/list", request
			v, err := stage.Inspect(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if v.Action != pipeline.Allow { // findings alone do not change the list
				affected++
			}
		}
		t.Logf("%s acts on %d of %d tools of %d servers", p.Name, affected, len(tools), servers)
		if affected*100 > len(tools) {
			t.Errorf("%s acts on %d of %d tools, want at most 1 %%", p.Name, affected, len(tools))
		}
	}
}
