package policies_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"
)

// TestSizeOfSessions fills one session to the bound for all sessions, and to one byte more. Above
// the bound, the session is forgotten with its label.
func TestSizeOfSessions(t *testing.T) {
	const hides = `hide contains item.name if { input.method == "tools/list"; some item in input.items }
`
	ping := request("ping", `{}`, "")
	for name, c := range map[string]struct {
		rego string
		m    *mcp.Message
		size int
	}{
		"roots": {"", reply(fromServer(mcp.Request, "roots/list", `{}`), mcp.NewResponse("1",
			[]byte(`{"roots":["0123456789"]}`))), len(`["0123456789"]`)},
		"client": {"", request("initialize", `{"clientInfo":"0123456789"}`, ""),
			len(`"0123456789"`) + 32},
		"capabilities": {"", request("initialize", `{"capabilities":"0123456789"}`, ""),
			len(`"0123456789"`) + 32},
		"calls": {"", called("x", `{}`), 3*len("a x") + 64 + 32}, // of a tool that was not listed
		"calls in a minute": {`deny contains "no" if input.session.minute["a x"] > 9` + "\n",
			called("x", `{}`), 3*len("a x") + 64 + 32 + 56},
		"hidden items": {hides, answered(request("tools/list", `{}`, ""),
			`{"tools":[{"name":"x"}]}`), len("/tools a x")},
		"nothing": {"", ping, 0},
	} {
		for _, missing := range []int{0, 1} {
			s, err := policies.Load(policies.Options{Files: loaded(t, c.rego+
				`label contains "l" if input.method == "ping"
note contains count(input.session.labels) if input.method == "resources/list"`).Files(),
				Sessions: &policies.SessionStore{MaxStateBytes: int64(c.size + 1 - missing)}})
			if err != nil {
				t.Fatal(err)
			}
			if name == "nothing" && missing == 1 {
				continue // 0 is the default bound
			}
			for _, m := range []*mcp.Message{ping, c.m} {
				if got := verdictOf(t, s, m); !strings.HasPrefix(got, "{") {
					t.Fatalf("%s: %s", name, got)
				}
			}
			want := fmt.Sprint(1 - missing)
			if got := noteOf(t, s, request("resources/list", `{}`, "")); got != want {
				t.Errorf("%s, %d bytes above the bound: %s labels are left, want %s", name,
					missing, got, want)
			}
		}
	}
}

// TestLeastRecentlyUsedOf10000SessionsIsForgotten checks the maximal number of sessions.
func TestLeastRecentlyUsedOf10000SessionsIsForgotten(t *testing.T) {
	file := loaded(t, `label contains "l" if input.method == "ping"
note contains count(input.session.labels) if input.method == "resources/list"`).Files()
	for others, want := range map[int]string{9_999: "1", 10_000: "0"} {
		s, err := policies.Load(policies.Options{Files: file})
		if err != nil {
			t.Fatal(err)
		}
		verdictOf(t, s, request("ping", `{}`, ""))
		for i := range others {
			_, err := s.Inspect(t.Context(), in(request("prompts/list", `{}`, ""), "",
				fmt.Sprint(i)))
			must(t, err)
		}
		if got := noteOf(t, s, request("resources/list", `{}`, "")); got != want {
			t.Errorf("with %d other sessions: %s labels, want %s", others, got, want)
		}
	}
}

// TestSizeOfDefinitions lists tools whose definitions have together the maximal size of a session,
// several times. A definition for which there is no room is not kept.
func TestSizeOfDefinitions(t *testing.T) {
	tool := func(name string, size int) string {
		start := `{"name":"` + name + `","d":"`
		return start + strings.Repeat("d", size-len(start)-2) + `"}`
	}
	const most, one = 4 << 20, 1_000_000
	for _, bound := range []int64{0, most} {
		s, err := policies.Load(policies.Options{Files: loaded(t,
			`deny contains "not listed" if { input.method == "tools/call"; not input.item }`).Files(),
			Sessions: &policies.SessionStore{MaxDefinitionBytes: bound}})
		if err != nil {
			t.Fatal(err)
		}
		known := func(name string) bool {
			return !strings.HasPrefix(verdictOf(t, s, called(name, `{}`)), "denied")
		}
		list := func(tools ...string) {
			verdictOf(t, s, answered(request("tools/list", `{}`, ""), `{"tools":[`+
				strings.Join(tools, ",")+`]}`))
		}
		four := []string{tool("a", one), tool("b", one), tool("c", one), tool("d", one)}
		for i, c := range []struct {
			size int
			want bool // whether there is room for the definition of e
		}{{most - 4*one, true}, {most - 4*one, true}, {most - 4*one + 1, false},
			{most - 4*one, true}, {100, true}, {most - 4*one + 1, false}} {
			list(append(four, tool("e", c.size))...)
			if !known("a") || !known("d") || known("e") != c.want {
				t.Errorf("list %d: a is known: %v, e is known: %v, want true, %v", i, known("a"),
					known("e"), c.want)
			}
			// an item of another session, which is dropped first if there is no room
			if i == 1 {
				verdictOf(t, s, in(answered(request("tools/list", `{}`, ""), `{"tools":[]}`), "",
					"other"))
			}
		}
		if list(tool("a", one+1)); known("a") {
			t.Error("a definition above the maximal size is kept")
		}
	}
}

// TestDefinitionsOfCasesAreBounded evaluates cases with the definition of a tool. When the
// definitions are together above the bound, that of the least recently used session is dropped. A
// definition that replaces another one counts once.
func TestDefinitionsOfCasesAreBounded(t *testing.T) {
	const size = 1000
	definition := `{"name":"x","d":"` + strings.Repeat("d", size-len(`{"name":"x","d":""}`)) + `"}`
	for _, c := range []struct {
		bound int64
		want  string // what is known in the sessions of the cases
	}{{3 * size, "known known known"}, {3*size - 1, "unknown known known"}} {
		s, err := policies.Load(policies.Options{Files: loaded(t, `
note contains "known" if input.item
note contains "unknown" if not input.item`).Files(),
			Sessions: &policies.SessionStore{MaxDefinitionBytes: c.bound}})
		if err != nil {
			t.Fatal(err)
		}
		evaluate := func(session, item string) string {
			o := s.Evaluate(t.Context(), parsedCase(t, `{"method":"tools/call","server":"a",`+
				`"params":{"name":"x"},"session":{"id":"`+session+`"}`+item+`}`))
			if o.Err != nil || len(o.Steps) != 1 || len(o.Steps[0].Findings) != 1 {
				t.Fatalf("the outcome is %+v, want one note", o)
			}
			note, _ := strings.CutPrefix(o.Steps[0].Findings[0].Type, "t: ")
			return strings.Trim(note, `"`)
		}
		for _, session := range []string{"1", "2", "2", "3"} {
			evaluate(session, `,"item":`+definition)
		}
		if got := evaluate("1", "") + " " + evaluate("2", "") + " " +
			evaluate("3", ""); got != c.want {
			t.Errorf("bound %d: got %s, want %s", c.bound, got, c.want)
		}
	}
}

// TestNumberAndSizeOfLabels sets as many labels as there is room for, and one more.
func TestNumberAndSizeOfLabels(t *testing.T) {
	for _, byPrincipal := range []bool{false, true} {
		s, err := policies.Load(policies.Options{Files: loaded(t,
			`label contains input.name`).Files(), LabelsByPrincipal: byPrincipal})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			label string
			want  bool // whether it is refused
		}{{strings.Repeat("l", 1001), true}, {strings.Repeat("l", 1000), false}} {
			if got := refused(t, s, called(c.label, `{}`)); got != c.want {
				t.Errorf("a label of %d bytes is refused: %v, want %v", len(c.label), got, c.want)
			}
		}
		for i := range 100 { // one label is set already
			if got := refused(t, s, called(fmt.Sprint(i), `{}`)); got != (i == 99) {
				t.Errorf("label %d is refused: %v", i+2, got)
			}
		}
		if got := refused(t, s, in(called("more", `{}`), "", "s2")); got != byPrincipal {
			t.Errorf("a label of another session is refused: %v, want %v", got, byPrincipal)
		}
		if refused(t, s, in(called("7", `{}`), "", "s3")) {
			t.Error("a label that the principal has is refused")
		}
	}
	// the labels and names of all principals may have 64 MiB
	s, err := policies.Load(policies.Options{Files: loaded(t, `label contains input.name`).Files(),
		LabelsByPrincipal: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 65 {
		m := called(string(rune('0'+i)), `{}`)
		m.Principal = identity.FromID(strings.Repeat("p", 1<<20-1))
		if i == 63 {
			long := in(called("xx", `{}`), "", "s2") // one byte more than there is room for
			long.Principal = m.Principal
			if !refused(t, s, long) {
				t.Error("a label that is one byte too long is not refused")
			}
		}
		if got := refused(t, s, m); got != (i == 64) {
			t.Errorf("label %d of 1 MiB with its principal is refused: %v", i+1, got)
		}
	}
}

// hookedContext is a context that calls hook each time it is asked for a value.
type hookedContext struct {
	context.Context
	hook func()
}

func (c hookedContext) Value(key any) any {
	c.hook()
	return c.Context.Value(key)
}

// TestDeniedCallLeavesTheMinuteOfOthers makes a call while another call is evaluated that is then
// denied. Only the denied call must be removed from the count, whatever the order of their times.
func TestDeniedCallLeavesTheMinuteOfOthers(t *testing.T) {
	file := loaded(t, `deny contains "no" if { input.params.arguments.deny; input.session.minute }
note contains object.get(input.session.minute, "a x", 0) if input.method == "ping"`).Files()
	for name, c := range map[string]struct {
		counted bool // whether the denied call is counted first
		later   time.Duration
	}{"a later second": {true, 2 * time.Second}, "an earlier message that is counted later": {false,
		time.Millisecond}} {
		now, started := time.Unix(0, 0), false
		var s *policies.Stage
		other := func() {
			if started {
				return
			}
			started = true
			now = now.Add(c.later)
			if refused(t, s, called("x", `{}`)) {
				t.Errorf("%s: the other call is refused", name)
			}
		}
		read := false
		s, err := policies.Load(policies.Options{Files: file, Now: func() time.Time {
			at := now
			if read = true; !c.counted {
				other()
			}
			return at
		}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := s.Inspect(hookedContext{t.Context(), func() {
			if read && c.counted {
				other()
			}
		}}, called("x", `{"deny":true}`))
		if err != nil || v.Action != pipeline.Deny {
			t.Errorf("%s: the verdict is %+v, error %v; want a denial", name, v, err)
		}
		now = time.Unix(60, 0).Add(c.later / 2)
		if got := noteOf(t, s, request("ping", `{}`, "")); got != "1" {
			t.Errorf("%s: %s calls in the last minute, want 1", name, got)
		}
	}
}

// TestMinuteOfACase evaluates cases that contain the calls of the last minute. This is the minute
// before the time of the case.
func TestMinuteOfACase(t *testing.T) {
	s := loaded(t, `deny contains sprintf("%d names, %v", [count(input.session.minute), object.get(input.session.minute, "", 0)])`)
	var many []string
	for i := range 20_001 {
		many = append(many, fmt.Sprintf(`"elicitation/create %d":1`, i))
	}
	for minute, want := range map[string]string{
		`{"":9,"a x":2,"b y":1,"c z":0,"d":-1}`: "t: 3 names, 3",
		`{` + strings.Join(many, ",") + `}`:     "t: 20000 names, 0",
	} {
		o := s.Evaluate(t.Context(), parsedCase(t, `{"method":"ping","time":"2026-01-01T00:00:00Z",`+
			`"session":{"minute":`+minute+`}}`))
		if o.Reason != want {
			t.Errorf("%.50s: the reason is %q, error %v; want %q", minute, o.Reason, o.Err, want)
		}
	}
}

// TestCallsOfTheLastMinuteAreBounded fills the counters of the last minute from a case. A call for
// which there is no counter is denied. Counters of calls that are a minute old, or that
// were denied, are free again.
func TestCallsOfTheLastMinuteAreBounded(t *testing.T) {
	many := func(n, calls int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"a %d":%d`, i, calls))
		}
		return `{` + strings.Join(all, ",") + `}`
	}
	const full = "the session has called too many different tools to count its calls"
	type call struct{ time, tool, want string }
	for name, c := range map[string]struct {
		minute string
		calls  []call
	}{
		"no counter is left": {many(20_000, 1), []call{{"00:00:59", "x", full},
			{"00:01:00", "x", ""}}},
		"names without calls": {many(20_000, 0), []call{{"00:00:01", "x", ""}}},
		"one counter is left": {many(19_999, 1), []call{{"00:00:01", "deny", "t: no"},
			{"00:00:02", "x", ""}, {"00:00:03", "y", full}}},
	} {
		s := loaded(t, `deny contains "no" if { input.name == "deny"; input.session.minute }`)
		s.Evaluate(t.Context(), parsedCase(t, `{"method":"ping","time":"2026-01-01T00:00:00Z",`+
			`"session":{"minute":`+c.minute+`}}`))
		for _, one := range c.calls {
			o := s.Evaluate(t.Context(), parsedCase(t, `{"method":"tools/call","server":"a",`+
				`"params":{"name":"`+one.tool+`"},"time":"2026-01-01T`+one.time+`Z"}`))
			if o.Err != nil || o.Reason != one.want {
				t.Errorf("%s: %s at %s: %q, error %v; want %q", name, one.tool, one.time, o.Reason,
					o.Err, one.want)
			}
		}
	}
}

// TestCallExpiresAfterAMinute makes two calls with a pause of one second. Each of them expires
// after a minute.
func TestCallExpiresAfterAMinute(t *testing.T) {
	now := time.Unix(0, 0)
	s, err := policies.Load(policies.Options{Files: loaded(t,
		`note contains object.get(input.session.minute, "a x", 0) if input.method == "ping"`).Files(),
		Now: func() time.Time { return now }})
	must(t, err)
	verdictOf(t, s, called("x", `{}`))
	now = time.Unix(1, 0)
	verdictOf(t, s, called("x", `{}`))
	for at, want := range map[int64]string{59: "2", 60: "1", 61: "0"} {
		now = time.Unix(at, 0)
		if got := noteOf(t, s, request("ping", `{}`, "")); got != want {
			t.Errorf("after %d seconds, %s calls are counted, want %s", at, got, want)
		}
	}
}

// TestAllApprovalsAreBounded submits a request when 999 and when 1000 requests of others wait.
func TestAllApprovalsAreBounded(t *testing.T) {
	a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals")}
	how, err := a.Submit(called("x", `{}`), "it is large", "")
	if err != nil || !strings.Contains(how, "within 10 minutes") {
		t.Fatalf("%s, error %v; want that it waits 10 minutes", how, err)
	}
	all, err := a.List()
	must(t, err)
	b, err := os.ReadFile(filepath.Join(a.Dir, all[0].ID+".json"))
	must(t, err)
	const letters = "abcdefghijklmnop"
	for i := range 998 {
		id := strings.Repeat("a", 23) + string([]byte{letters[i/256], letters[i/16%16],
			letters[i%16]})
		must(t, os.WriteFile(filepath.Join(a.Dir, id+".json"), b, 0o600))
	}
	for i, want := range []bool{false, true} {
		m := called("x", fmt.Sprintf(`{"n":%d}`, i))
		m.Principal = identity.FromID("bob")
		if _, err := a.Submit(m, "it is large", ""); (err != nil) != want {
			t.Errorf("request %d: error %v, want one: %v", 1000+i, err, want)
		}
	}
	if _, err := a.Approve(strings.Repeat("z", 26)); err == nil || !strings.Contains(err.Error(),
		"expired after 10 minutes") {
		t.Errorf("Approve of an unknown request: error %v, want that it expired after 10 minutes",
			err)
	}
}
