package policies_test

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/policies"
	"gatekit/policies/library"
)

// TestVendorMethodsRuleKnowsAllMethods compares the list of methods in the rule vendor/methods with
// the table in core/mcp.
func TestVendorMethodsRuleKnowsAllMethods(t *testing.T) {
	rule, err := fs.ReadFile(library.FS, "vendor/methods/rule.rego")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("../core/mcp/methods.go")
	if err != nil {
		t.Fatal(err)
	}
	named := func(pattern string, text []byte) (names []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		slices.Sort(names)
		return names
	}
	_, defined, _ := strings.Cut(string(rule), "defined := {")
	if got, want := named(`"([^"]+)"`,
		[]byte(defined)), named(`\{"([^"]+)", (?:Request|Notification),`, table); !slices.Equal(got,
		want) {
		t.Errorf("the rule defines %v\nwant the methods of the table %v", got, want)
	}
}

// TestLimitsHoldForConcurrentCalls checks that concurrent calls cannot exceed a limit.
func TestLimitsHoldForConcurrentCalls(t *testing.T) {
	s := fromLibrary(t, "limits/rate", map[string]any{"per_session": 3})
	passed := make(chan bool)
	for range 20 {
		go func() {
			v, err := s.Inspect(t.Context(), called("x", `{}`))
			passed <- err == nil && v.Action != 0
		}()
	}
	n := 0
	for range 20 {
		if <-passed {
			n++
		}
	}
	if n > 3 {
		t.Errorf("%d concurrent calls passed, want at most 3", n)
	}
	for range 5 { // denied calls are not counted, so calls up to the limit pass now
		if !refused(t, s, called("x", `{}`)) {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d calls passed, want 3", n)
	}
}

func TestCallsOfTheLastMinute(t *testing.T) {
	now := time.Unix(0, 0)
	s, err := policies.Load(policies.Options{Rules: []string{"limits/rate", "sampling/gate"},
		Now: func() time.Time { return now }, Config: map[string]map[string]any{
			"limits/rate": {"tools": []any{map[string]any{"tools": []any{"x"}, "per_minute": 2}},
				"per_minute": 3},
			"sampling/gate": {"servers": []any{"a"}, "per_minute": 1},
		}})
	if err != nil {
		t.Fatal(err)
	}
	sampling := sent(mcp.NewRequest("1", "sampling/createMessage", []byte(`{"maxTokens":1}`)),
		mcp.ToClient, "")
	for i, step := range []struct {
		after time.Duration
		m     *mcp.Message
		pass  bool
	}{
		{0, called("x", `{}`), true},
		{0, sampling, true}, // sampling does not count as a tool call
		{30 * time.Second, called("x", `{}`), true},
		{0, called("x", `{}`), false},
		{0, sampling, false},
		{0, called("y", `{}`), true},
		{0, called("y", `{}`), false}, // the limit for all tools
		{30 * time.Second, called("x", `{}`), true},
		{0, called("x", `{}`), false},
		{0, sampling, true},
	} {
		now = now.Add(step.after)
		if got := !refused(t, s, step.m); got != step.pass {
			t.Errorf("step %d, %s: passed %v, want %v", i, step.m.Method, got, step.pass)
		}
	}
}

func TestResourcesAreRedacted(t *testing.T) {
	s := fromLibrary(t, "resources/redact",
		map[string]any{"rules": []any{map[string]any{"uris": []any{"file:///*.env"},
			"pattern": "KEY=.*", "with": "KEY=[gone]"}}})
	if got, want := verdictOf(t, s, answered(reading("file:///a.env"),
		`{"contents":[{"uri":"file:///a.env","text":"A=1\nKEY=2\nB=3"}]}`)),
		`{"contents":[{"uri":"file:///a.env","text":"A=1\nKEY=[gone]\nB=3"}]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
