package policies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/policies"
)

func TestDefinitionsOfAllSessionsAreBoundedAndTheQuietestLoseThem(t *testing.T) {
	memory := &policies.Memory{Definitions: 10_000}
	rego := filepath.Join(t.TempDir(), "t.rego")
	err := os.WriteFile(rego, []byte(`package gatekit.t
deny contains "not listed" if { input.kind == "request"; input.method == "tools/call"; not input.item }`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s, err := policies.Load(policies.Options{Files: []string{rego}, Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	of := func(session int, m *mcp.Message) *mcp.Message {
		m.Session = fmt.Sprint(session)
		return m
	}
	list := func(session int) {
		judged(t, s, of(session, answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""), `{"tools":[{"name":"x","description":"`+strings.Repeat("d", 1000)+`"}]}`)))
	}
	known := func(session int) bool {
		return !strings.HasPrefix(judged(t, s, of(session, called("x", `{}`))), "denied")
	}
	for session := range 9 { // of a little over 1000 bytes each
		list(session)
	}
	if !known(0) { // which makes it the one that was heard of last
		t.Fatal("there is room for nine, and the first has lost its definitions")
	}
	list(9)
	list(10)
	for session, want := range map[int]bool{0: true, 1: false, 2: false, 3: true, 10: true} {
		if known(session) != want {
			t.Errorf("the definitions of session %d are known: %v", session, !want)
		}
	}
	if list(1); !known(1) {
		t.Error("a session that lists again has no definitions")
	}
}

// The definition of a tool is read once, and again when it is another.
func TestAToolThatIsDefinedAnewIsJudgedAnew(t *testing.T) {
	s := loaded(t, `deny contains "it writes" if { input.method == "tools/call"; input.kind == "request"; not input.item.annotations.readOnlyHint }`)
	list := sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, "")
	for i, reads := range []bool{true, true, false, false, true} {
		m := answered(list, fmt.Sprintf(`{"tools":[{"name":"x","annotations":{"readOnlyHint":%v}}]}`, reads))
		if refused(t, s, m) {
			t.Fatal("the list is refused")
		}
		for range 2 {
			if got := refused(t, s, called("x", `{}`)); got == reads {
				t.Errorf("list %d: refused %v", i, got)
			}
		}
	}
}

// A session that calls without end is counted: the calls of a second take the room of one.
func TestManyCallsInAMinuteAreCounted(t *testing.T) {
	now := time.Unix(0, 0)
	const most = 21_000
	s, err := policies.Load(policies.Options{Rules: []string{"limits/rate"}, Config: map[string]map[string]any{"limits/rate": {"per_minute": most}}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range most {
		now = now.Add(time.Millisecond)
		if m := called("x", `{}`); refused(t, s, m) {
			t.Fatalf("call %d is refused", i)
		}
	}
	if !refused(t, s, called("x", `{}`)) {
		t.Error("one more than may be is not refused")
	}
	if now = now.Add(time.Minute); refused(t, s, called("x", `{}`)) {
		t.Error("a minute later it is refused")
	}
}
