package policies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/core/identity"
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
	if !known(0) { // this call makes it the most recently used session
		t.Fatal("there is room for nine sessions, but the first has lost its definitions")
	}
	list(9)
	list(10)
	for session, want := range map[int]bool{0: true, 1: false, 2: false, 3: true, 10: true} {
		if known(session) != want {
			t.Errorf("the definitions of session %d are known: %v, want %v", session, !want, want)
		}
	}
	if list(1); !known(1) {
		t.Error("a session that lists again has no definitions")
	}
}

// TestReplacedDefinitionsDoNotCount lists one tool many times in a session. The definitions that
// were replaced must not displace the definition of another session.
func TestReplacedDefinitionsDoNotCount(t *testing.T) {
	s, err := policies.Load(policies.Options{Files: loaded(t,
		`deny contains "not listed" if { input.kind == "request"; input.method == "tools/call"; not input.item }`).Files(),
		Sessions: &policies.SessionStore{MaxDefinitionBytes: 10_000}})
	if err != nil {
		t.Fatal(err)
	}
	list := answered(request("tools/list", `{}`, ""), `{"tools":[{"name":"x","description":"`+
		strings.Repeat("d", 1000)+`"}]}`)
	verdictOf(t, s, in(list, "", "other"))
	for range 20 {
		verdictOf(t, s, list)
	}
	if refused(t, s, in(called("x", `{}`), "", "other")) {
		t.Error("another session has lost its definition")
	}
}

// TestNewDefinitionReplacesOldOne checks the cache of Rego values: a new definition from a later
// list must replace the cached one.
func TestNewDefinitionReplacesOldOne(t *testing.T) {
	s := loaded(t, `deny contains "it writes" if { input.method == "tools/call"; input.kind == "request"; not input.item.annotations.readOnlyHint }`)
	list := sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, "")
	for i, readOnly := range []bool{true, true, false, false, true} {
		m := answered(list, fmt.Sprintf(
			`{"tools":[{"name":"x","annotations":{"readOnlyHint":%v}}]}`, readOnly))
		if refused(t, s, m) {
			t.Fatal("the list is refused")
		}
		for range 2 {
			if got := refused(t, s, called("x", `{}`)); got == readOnly {
				t.Errorf("after list %d the call is denied: %v, want %v", i, got, !readOnly)
			}
		}
	}
}

// TestManyCallsInAMinuteAreCounted checks that very many calls of a session are counted exactly.
// All calls within a second share one counter.
func TestManyCallsInAMinuteAreCounted(t *testing.T) {
	now := time.Unix(0, 0)
	const limit = 21_000
	s, err := policies.Load(policies.Options{Rules: []string{"limits/rate"},
		Config: map[string]map[string]any{"limits/rate": {"per_minute": limit}},
		Now:    func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range limit {
		now = now.Add(time.Millisecond)
		if m := called("x", `{}`); refused(t, s, m) {
			t.Fatalf("call %d is refused", i)
		}
	}
	if !refused(t, s, called("x", `{}`)) {
		t.Error("a call above the limit is allowed")
	}
	if now = now.Add(time.Minute); refused(t, s, called("x", `{}`)) {
		t.Error("a call is denied although the counted calls are a minute old")
	}
}

// TestLongClientInformationIsIgnored sends client information and roots above the maximal length.
// They must be undefined in the input, and rules that need them must deny.
func TestLongClientInformationIsIgnored(t *testing.T) {
	long := strings.Repeat("c", 100<<10)
	clientInfo := func(name string) string { return `{"name":"` + name + `","version":"1"}` }
	initialize := func(name string) *mcp.Message {
		return sent(mcp.NewRequest("1", "initialize", []byte(`{"clientInfo":`+clientInfo(name)+
			`}`)), mcp.ToServer, "")
	}
	listWithMeta := func(name string) *mcp.Message {
		return sent(mcp.NewRequest("1",
			"tools/list", []byte(`{"_meta":{"io.modelcontextprotocol/clientInfo":`+clientInfo(name)+
				`}}`)), mcp.ToServer, "")
	}
	rootsResult := func(name string) *mcp.Message {
		return answered(sent(mcp.NewRequest("1", "roots/list", nil), mcp.ToClient, ""),
			`{"roots":[{"uri":"file:///data","name":"`+name+`"}]}`)
	}
	const unknown = `deny contains "who is it" if { input.method == "tools/call"; not input.session.client.name }`
	for name, c := range map[string]struct {
		rego    string
		message func(string) *mcp.Message // has client information or roots with the given text
		denied  bool                      // whether the call is denied if the text is too long
	}{
		"in initialize":   {unknown, initialize, true},
		"in _meta":        {unknown, listWithMeta, true},
		"in roots":        {`deny contains "where is it" if { input.method == "tools/call"; not input.roots }`, rootsResult, true},
		"read by no rule": {`deny contains "never" if { input.method == "tools/call"; input.name == "y" }`, rootsResult, false},
	} {
		for _, text := range []string{"c", long} {
			s := loaded(t, c.rego)
			verdictOf(t, s, c.message(text))
			if got, want := refused(t, s, called("x", `{}`)), c.denied &&
				text == long; got != want {
				t.Errorf("%s, %d bytes: the call is denied: %v, want %v", name, len(text), got,
					want)
			}
		}
	}
	s, err := policies.Load(policies.Options{Rules: []string{"roots/traversal"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"c", long, "c"} {
		verdictOf(t, s, rootsResult(text))
		if got := refused(t, s, called("x", `{"path":"/data/x"}`)); got != (text == long) {
			t.Errorf("a path within roots of %d bytes is denied: %v, want %v", len(text), got,
				text == long)
		}
	}
}

// TestTooManyCalledNamesAreDenied calls tools with long names, until a session has no room for
// further counters. A call that cannot be counted must be denied.
func TestTooManyCalledNamesAreDenied(t *testing.T) {
	s := loaded(t, `deny contains "too often" if { input.method == "tools/call"; input.kind == "request"; input.session.calls["a x"] >= 2 }`)
	verdictOf(t, s, called("x", `{}`))
	passed := 0
	for i := range 100 {
		if !refused(t, s, called(strings.Repeat("n", 10_000)+fmt.Sprint(i), `{}`)) {
			passed++
		}
	}
	// each name needs twice its size, and all names of a session may need 256 KiB
	if passed != 13 {
		t.Errorf("%d calls of names of 10,000 bytes pass, want 13", passed)
	}
	if refused(t, s, called("x", `{}`)) || !refused(t, s, called("x", `{}`)) {
		t.Error("calls of a name that already has a counter are not counted correctly")
	}
}

// TestDeniedCallIsNotCounted denies calls of a counted tool, and of many other tools. The denied
// calls must leave the counters as they were, and must not use up the room for counters.
func TestDeniedCallIsNotCounted(t *testing.T) {
	s := loaded(t, `deny contains "no" if input.params.arguments.deny
note contains sprintf("%d %v", [count(input.session.calls), object.get(input.session.calls, "a x", 0)]) if input.kind == "request"`)
	if got := noteOf(t, s, called("x", `{}`)); got != "0 0" {
		t.Errorf("the first call sees %s counters and calls, want none", got)
	}
	noteOf(t, s, called("x", `{}`))
	if !refused(t, s, called("x", `{"deny":true}`)) {
		t.Error("the call is not denied")
	}
	for i := range 100 {
		v, err := s.Inspect(t.Context(), called(strings.Repeat("n", 10_000)+fmt.Sprint(i),
			`{"deny":true}`))
		if err != nil || v.Reason != "t: no" {
			t.Fatalf("call %d: %s, error %v; want that the rule denies", i, v.Reason, err)
		}
	}
	// one counter for the tool and one for all tools
	if got := noteOf(t, s, request("ping", `{}`, "")); got != "2 2" {
		t.Errorf("after two calls, the session has %s counters and calls, want 2 2", got)
	}
}

func TestLongLabelIsDenied(t *testing.T) {
	s := loaded(t, `label contains input.params.arguments.text if input.kind == "request"`)
	if refused(t, s, called("x", `{"text":"short"}`)) ||
		!refused(t, s, called("x", `{"text":"`+strings.Repeat("l", 2000)+`"}`)) {
		t.Error("want the short label allowed and the long label denied")
	}
}

// TestLargestSessionsAreForgotten fills the memory for all sessions. The largest sessions must be
// forgotten, and small sessions kept.
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
		t.Errorf("%d sessions of 50,000 bytes are known, want 1 to 3, for which there is room",
			known)
	}
}

// TestLabelsOfAPrincipal checks which sessions see a label when labels are kept by session, and
// when they are kept by principal.
func TestLabelsOfAPrincipal(t *testing.T) {
	for _, byPrincipal := range []bool{false, true} {
		rego := filepath.Join(t.TempDir(), "t.rego")
		err := os.WriteFile(rego, []byte(`package gatekit.t
label contains "tainted" if { input.kind == "response"; input.method == "tools/call" }
deny contains "tainted" if { input.name == "send"; "tainted" in input.session.labels }`), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		memory := &policies.SessionStore{}
		reload := func(byPrincipal bool) *policies.Stage {
			s, err := policies.Load(policies.Options{Files: []string{rego}, Sessions: memory,
				LabelsByPrincipal: byPrincipal})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := reload(byPrincipal)
		verdictOf(t, s, answered(called("read", `{}`), `{}`))
		denied := func(s *policies.Stage, session, principal string) bool {
			m := in(called("send", `{}`), "", session)
			m.Principal = identity.FromID(principal)
			return refused(t, s, m)
		}
		if !denied(s, "s1", "ann") {
			t.Error("the session that got the label has lost it")
		}
		if got := denied(s, "s2", "ann"); got != byPrincipal {
			t.Errorf("the label is on another session of the principal: %v, want %v", got,
				byPrincipal)
		}
		if denied(s, "s1", "bob") {
			t.Error("the label is on the session of another principal")
		}
		for i := range 10_001 { // more sessions than are remembered
			denied(s, fmt.Sprint("other", i), "ann")
		}
		if got := denied(s, "s1", "ann"); got != byPrincipal {
			t.Errorf("the label is kept when its session is forgotten: %v, want %v", got,
				byPrincipal)
		}
		if s = reload(true); denied(s, "s3", "ann") != byPrincipal {
			t.Errorf("after a reload the label is on a new session: %v, want %v", !byPrincipal,
				byPrincipal)
		}
		verdictOf(t, s, answered(called("read", `{}`), `{}`))
		if s = reload(false); denied(s, "s4", "ann") {
			t.Error("with labels kept by session, a new session has the label of its principal")
		}
		if s = reload(true); !denied(s, "s4", "ann") {
			t.Error("the labels of the principal are lost by a reload")
		}
	}
}

// TestLabelsOfPrincipalsAreBounded sets labels for more principals than there is room for. A
// message whose label cannot be kept is denied.
func TestLabelsOfPrincipalsAreBounded(t *testing.T) {
	rego := filepath.Join(t.TempDir(), "t.rego")
	err := os.WriteFile(rego, []byte(`package gatekit.t
label contains input.name if input.name`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s, err := policies.Load(policies.Options{Files: []string{rego}, LabelsByPrincipal: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10_001 {
		m := called("x", `{}`)
		m.Principal = identity.FromID(fmt.Sprint("p", i))
		if got, want := refused(t, s, m), i == 10_000; got != want {
			t.Fatalf("the label of principal %d is refused: %v, want %v", i, got, want)
		}
	}
	m := called("y", `{}`)
	m.Principal = identity.FromID("p0")
	if refused(t, s, m) {
		t.Error("a known principal gets no more labels")
	}
}
