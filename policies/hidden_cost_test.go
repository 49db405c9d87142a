package policies_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"gatekit/core/mcp"
)

// large returns a list of one tool, x, whose input schema has the given number of properties.
func large(properties int) *mcp.Message {
	var all []string
	for i := range properties {
		all = append(all, fmt.Sprintf(`"p%d":{"type":"string","description":"what it is for"}`, i))
	}
	return answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
		`{"tools":[{"name":"x","inputSchema":{"properties":{`+strings.Join(all, ",")+`}}}]}`)
}

const hidesDestructive = `hide contains item.name if { input.method == "tools/list"; some item in input.items; item.annotations.destructiveHint }`

// TestHideRuleDoesNotDecodeDefinitionForEachCall checks that the Rego value of a tool's definition
// is cached, because hide rules get the definition for each call of the tool.
func TestHideRuleDoesNotDecodeDefinitionForEachCall(t *testing.T) {
	s := loaded(t, hidesDestructive)
	verdictOf(t, s, large(1500))
	m := called("x", `{}`)
	if n := testing.AllocsPerRun(10, func() {
		if _, err := s.Inspect(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}); n > 1000 {
		t.Errorf("a call takes %.0f allocations, want at most 1000", n)
	}
}

// TestManyTasksOfOneToolAreCheckedOnce checks how much memory is allocated for a tasks/list result
// with many tasks of one tool. The hide rules must be evaluated for the tool only once.
func TestManyTasksOfOneToolAreCheckedOnce(t *testing.T) {
	s := loaded(t, hidesDestructive)
	verdictOf(t, s, large(1500))
	verdictOf(t, s, answered(called("x", `{}`), `{"task":{"taskId":"t"}}`))
	list := answered(sent(mcp.NewRequest("1", "tasks/list", nil), mcp.ToServer, ""),
		`{"tasks":[`+strings.Repeat(`{"taskId":"t"},`, 1999)+`{"taskId":"t"}]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := verdictOf(t, s, list)
	runtime.ReadMemStats(&after)
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 20 {
		t.Errorf("the check allocated %d MiB, want at most 20", mib)
	}
	if !strings.Contains(got, `"t"`) {
		t.Errorf("the list is %s, want the task t in it", got)
	}
}

// TestMessageWithTooManyNamesIsDenied sends a message with more names than can be checked.
func TestMessageWithTooManyNamesIsDenied(t *testing.T) {
	s := loaded(t, `hide contains item.uri if { input.method == "resources/list"; some item in input.items; item.uri == "note://7" }`)
	for n, denied := range map[int]bool{10_000: false, 10_001: true} {
		var uris []string
		for i := range n {
			uris = append(uris, fmt.Sprintf(`"note://%d"`, i))
		}
		got := verdictOf(t, s, sent(mcp.NewRequest("1", "subscriptions/listen",
			[]byte(`{"notifications":{"resourceSubscriptions":[`+strings.Join(uris, ",")+`]}}`)),
			mcp.ToServer, ""))
		if strings.HasPrefix(got, "error: ") != denied || strings.Contains(got, `"note://7"`) {
			t.Errorf("%d names: got %.100s; want no note://7, and the message denied: %v", n, got,
				denied)
		}
	}
}
