package mcp_test

import (
	"testing"

	"gatekit/core/mcp"
)

func TestIsIdentifier(t *testing.T) {
	const blocks = `{"content":[{"type":"text","text":"x","uri":"x"},` +
		`{"type":"resource_link","uri":"x","name":"x"},` +
		`{"type":"resource","resource":{"uri":"x","text":"x"}},` +
		`{"type":"tool_result","content":[{"type":"resource_link","uri":"x"}]},` +
		`{"type":"text","text":"x","content":[{"type":"resource_link","uri":"x"}],` +
		`"other":{"type":"resource_link","uri":"x"}}],` +
		`"structuredContent":{"uri":"x","content":[{"type":"resource_link","uri":"x"}]},` +
		`"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"x"},"mine":"x"}}`
	for _, c := range []struct {
		method    string
		kind      mcp.Kind
		direction mcp.Direction
		body      string
		want      []string
	}{
		{"tools/call", mcp.Response, mcp.ToClient, blocks, []string{"/content/1/uri",
			"/content/2/resource/uri", "/content/3/content/0/uri",
			"/_meta/io.modelcontextprotocol~1related-task/taskId"}},
		{"tools/call", mcp.Request, mcp.ToServer, `{"name":"x","arguments":{"name":"x","uri":"x",` +
			`"cursor":"x"},"_meta":{"progressToken":"x"}}`, []string{"/name",
			"/_meta/progressToken"}},
		{"resources/list", mcp.Response, mcp.ToClient, `{"resources":[{"uri":"x","name":"x"}],` +
			`"nextCursor":"x"}`, []string{"/resources/0/uri", "/nextCursor"}},
		{"resources/read", mcp.Response, mcp.ToClient, `{"contents":[{"uri":"x","text":"x"}]}`,
			[]string{"/contents/0/uri"}},
		{"roots/list", mcp.Response, mcp.ToServer, `{"roots":[{"uri":"x","name":"x"}]}`,
			[]string{"/roots/0/uri"}},
		{"no/such", mcp.Request, mcp.ToServer, `{"uri":"x","name":"x"}`, nil},
	} {
		m := mcp.NewRequest("1", c.method, []byte(c.body))
		if c.kind == mcp.Response {
			m = mcp.NewResponse("1", []byte(c.body))
		}
		m.Method, m.Kind, m.Direction = c.method, c.kind, c.direction
		want := map[string]bool{}
		for _, pointer := range c.want {
			want[pointer] = true
		}
		m.Leaves(func(l mcp.Leaf) bool {
			pointer := l.Pointer()
			if l.Kind != mcp.StringLeaf {
				return true // the name of a member has the same pointer as its value
			}
			if got := mcp.IsIdentifier(m, pointer); l.Text() == "x" && got != want[pointer] {
				t.Errorf("IsIdentifier(%s) in a %s %s = %t, want %t", pointer, c.method, c.kind,
					got, want[pointer])
			}
			delete(want, pointer)
			return true
		})
		if len(want) > 0 {
			t.Errorf("the body %s lacks the wanted places %v", c.body, want)
		}
	}
}
