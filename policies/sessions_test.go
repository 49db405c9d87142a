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

func TestDefinitionsAreBoundedByDroppingLeastRecentlyUsed(t *testing.T) {
	memory := &policies.SessionStore{MaxDefinitionBytes: 10_000}
	rego := filepath.Join(t.TempDir(), "t.rego")
	err := os.WriteFile(rego, []byte(`package gatekit.t
deny contains "not listed" if { input.kind == "request"; input.method == "tools/call"; not input.item }`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s, err := policies.Load(policies.Options{Files: []string{rego}, Sessions: memory})
	if err != nil {
		t.Fatal(err)
	}
	of := func(session int, m *mcp.Message) *mcp.Message {
		m.Session = fmt.Sprint(session)
		return m
	}
	list := func(session int) {
		verdictOf(t, s, of(session, answered(sent(mcp.NewRequest("1", "tools/list", nil),
			mcp.ToServer,
			""), `{"tools":[{"name":"x","description":"`+strings.Repeat("d", 1000)+`"}]}`)))
	}
	known := func(session int) bool {
		return !strings.HasPrefix(verdictOf(t, s, of(session, called("x", `{}`))), "denied")
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
func TestNewDefinitionReplacesOldOne(t *testing.T) {
	s := loaded(t, `deny contains "it writes" if { input.method == "tools/call"; input.kind == "request"; not input.item.annotations.readOnlyHint }`)
	list := sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, "")
	for i, reads := range []bool{true, true, false, false, true} {
		m := answered(list, fmt.Sprintf(
			`{"tools":[{"name":"x","annotations":{"readOnlyHint":%v}}]}`, reads))
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
	s, err := policies.Load(policies.Options{Rules: []string{"limits/rate"},
		Config: map[string]map[string]any{"limits/rate": {"per_minute": most}},
		Now:    func() time.Time { return now }})
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

// What a client says of itself, and its roots, is kept while it is short: beyond that it is not
// known, and rules that need it refuse.
func TestLongClientInformationIsIgnored(t *testing.T) {
	long := strings.Repeat("c", 100<<10)
	clientInfo := func(name string) string { return `{"name":"` + name + `","version":"1"}` }
	introduced := func(name string) *mcp.Message {
		return sent(mcp.NewRequest("1", "initialize", []byte(`{"clientInfo":`+clientInfo(name)+
			`}`)), mcp.ToServer, "")
	}
	with := func(name string) *mcp.Message {
		return sent(mcp.NewRequest("1",
			"tools/list", []byte(`{"_meta":{"io.modelcontextprotocol/clientInfo":`+clientInfo(name)+
				`}}`)), mcp.ToServer, "")
	}
	rooted := func(name string) *mcp.Message {
		return answered(sent(mcp.NewRequest("1", "roots/list", nil), mcp.ToClient, ""),
			`{"roots":[{"uri":"file:///data","name":"`+name+`"}]}`)
	}
	const unknown = `deny contains "who is it" if { input.method == "tools/call"; not input.session.client.name }`
	for name, c := range map[string]struct {
		rego    string
		said    func(string) *mcp.Message
		refused bool // without
	}{
		"in initialize":   {unknown, introduced, true},
		"in its _meta":    {unknown, with, true},
		"of its roots":    {`deny contains "where is it" if { input.method == "tools/call"; not input.roots }`, rooted, true},
		"and nobody asks": {`deny contains "never" if { input.method == "tools/call"; input.name == "y" }`, rooted, false},
	} {
		for _, text := range []string{"c", long} {
			s := loaded(t, c.rego)
			verdictOf(t, s, c.said(text))
			if got, want := refused(t, s, called("x", `{}`)), c.refused &&
				text == long; got != want {
				t.Errorf("%s, %d bytes: refused %v", name, len(text), got)
			}
		}
	}
	s, err := policies.Load(policies.Options{Rules: []string{"roots/traversal"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"c", long, "c"} {
		verdictOf(t, s, rooted(text))
		if got := refused(t, s, called("x", `{"path":"/data/x"}`)); got != (text == long) {
			t.Errorf("a path within roots of %d bytes: refused %v", len(text), got)
		}
	}
}

// Names of tools can be of any length: a session cannot have more of them counted than there is
// room for, and nothing is called uncounted.
func TestTooManyCalledNamesAreDenied(t *testing.T) {
	s := loaded(t, `deny contains "too often" if { input.method == "tools/call"; input.kind == "request"; input.session.calls["a x"] >= 2 }`)
	verdictOf(t, s, called("x", `{}`))
	passed := 0
	for i := range 100 {
		if !refused(t, s, called(strings.Repeat("n", 10_000)+fmt.Sprint(i), `{}`)) {
			passed++
		}
	}
	if passed == 0 || passed > 20 {
		t.Errorf("%d calls of names of 10,000 bytes pass", passed)
	}
	if refused(t, s, called("x", `{}`)) || !refused(t, s, called("x", `{}`)) {
		t.Error("a name that is counted is not counted on")
	}
}

func TestLongLabelIsDenied(t *testing.T) {
	s := loaded(t, `label contains input.params.arguments.text if input.kind == "request"`)
	if refused(t, s, called("x", `{"text":"short"}`)) ||
		!refused(t, s, called("x", `{"text":"`+strings.Repeat("l", 2000)+`"}`)) {
		t.Error("it is not the long label that is refused")
	}
}

// Sessions are bounded in bytes: the largest are forgotten, and nobody's small one for them.
func TestLargestSessionsAreForgotten(t *testing.T) {
	rego := filepath.Join(t.TempDir(), "t.rego")
	err := os.WriteFile(rego, []byte(`package gatekit.t
label contains "seen" if input.kind == "response"
deny contains "again" if { input.method == "tools/call"; input.kind == "request"; "seen" in input.session.labels }`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s, err := policies.Load(policies.Options{Files: []string{rego},
		Sessions: &policies.SessionStore{MaxStateBytes: 200_000}})
	if err != nil {
		t.Fatal(err)
	}
	of := func(session string, m *mcp.Message) *mcp.Message {
		m.Session = session
		return m
	}
	verdictOf(t, s, of("small", answered(called("x", `{}`), `{}`)))
	for i := range 20 {
		verdictOf(t, s, of(fmt.Sprint(i), answered(sent(mcp.NewRequest("1", "roots/list", nil),
			mcp.ToClient, ""), `{"roots":[{"uri":"file:///`+strings.Repeat("r", 50_000)+`"}]}`)))
	}
	if !refused(t, s, of("small", called("x", `{}`))) {
		t.Error("a small session has lost its labels")
	}
	known := 0
	for i := range 20 {
		if refused(t, s, of(fmt.Sprint(i), called("x", `{}`))) {
			known++
		}
	}
	if known < 1 || known > 3 {
		t.Errorf("%d sessions of 50,000 bytes are known, where there is room for 3", known)
	}
}
