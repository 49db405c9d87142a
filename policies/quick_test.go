package policies_test

import (
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"
	"gatekit/policies/library"
)

// TestQuickInspection checks which calls are inspected quickly, and that each call counts once.
func TestQuickInspection(t *testing.T) {
	quickly := func(s *policies.Stage, m *mcp.Message) bool {
		t.Helper()
		v, ok, err := s.InspectQuickly(t.Context(), m)
		if err != nil || ok && v.Action != pipeline.Allow {
			t.Fatalf("got %v, %v", v, err)
		}
		return ok
	}
	s := fromLibrary(t, "roots/traversal", library.DefaultRules()["roots/traversal"])
	call := called("read", `{"path":"/srv/a.txt"}`)
	callOf := func(bytes int) *mcp.Message {
		rest := bytes - len(called("read", `{"x":""}`).Body())
		return called("read", `{"x":"`+strings.Repeat("x", rest)+`"}`)
	}
	for name, c := range map[string]struct {
		m    *mcp.Message
		want bool
	}{
		"a call":        {call, true},
		"its result":    {answered(call, `{"content":[]}`), true},
		"a hidden path": {called("read", `{"path":"..%2f..%2fetc/passwd"}`), false},
		"a large call":  {callOf(128<<10 + 1), false},
		"another method": {sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
			false},
		"a call of 128 KiB": {callOf(128 << 10), true},
	} {
		if got := quickly(s, c.m); got != c.want {
			t.Errorf("%s is inspected quickly: %v, want %v", name, got, c.want)
		}
	}
	if got := quickly(loaded(t, `hide contains item.name if { some item in input.items }`),
		call); got {
		t.Error("a call is inspected quickly, although a rule may hide its tool")
	}

	counting := loaded(t, `deny contains "too often" if {
	input.method == "tools/call"
	input.name == "write"
	input.session.calls["a read"] >= 3
}`)
	for range 2 {
		if !quickly(counting, call) {
			t.Error("a call that no rule judges is not inspected quickly")
		}
	}
	if refused(t, counting, called("write", `{}`)) {
		t.Error("a call counts twice")
	}
	if quickly(counting, call); !refused(t, counting, called("write", `{}`)) {
		t.Error("a call that is inspected quickly does not count")
	}
}
