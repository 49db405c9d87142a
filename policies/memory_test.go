package policies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
