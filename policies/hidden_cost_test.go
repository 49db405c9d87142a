package policies_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"gatekit/core/mcp"
)

// large is a list of one tool, x, with as many properties.
func large(properties int) *mcp.Message {
	var all []string
	for i := range properties {
		all = append(all, fmt.Sprintf(`"p%d":{"type":"string","description":"what it is for"}`, i))
	}
	return answered(sent(mcp.NewRequest("1", "tools/list", nil), mcp.ToServer, ""),
		`{"tools":[{"name":"x","inputSchema":{"properties":{`+strings.Join(all, ",")+`}}}]}`)
}

const hidesDestructive = `hide contains item.name if { input.method == "tools/list"; some item in input.items; item.annotations.destructiveHint }`

// A rule that hides is asked about the use of a tool with its definition, which is not read again
// for each call.
func TestHideRuleDoesNotDecodeDefinitionForEachCall(t *testing.T) {
	s := loaded(t, hidesDestructive)
	verdictOf(t, s, large(1500))
	m := called("x", `{}`)
	if n := testing.AllocsPerRun(10, func() {
		if _, err := s.Inspect(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}); n > 1000 {
		t.Errorf("a call takes %.0f allocations", n)
	}
}

// A result that names one tool many times, by its tasks, costs no more than its own size.
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
		t.Errorf("it took %d MiB", mib)
	}
	if !strings.Contains(got, `"t"`) {
		t.Errorf("the list is %s", got)
	}
}

// What names more than the rules can be asked about is refused.
func TestMessageWithTooManyNamesIsDenied(t *testing.T) {
	s := loaded(t, `hide contains item.uri if { input.method == "resources/list"; some item in input.items; item.uri == "note://7" }`)
	for n, refused := range map[int]bool{100: false, 10_001: true} {
		var uris []string
		for i := range n {
			uris = append(uris, fmt.Sprintf(`"note://%d"`, i))
		}
		got := verdictOf(t, s, sent(mcp.NewRequest("1", "subscriptions/listen",
			[]byte(`{"notifications":{"resourceSubscriptions":[`+strings.Join(uris, ",")+`]}}`)),
			mcp.ToServer, ""))
		if strings.HasPrefix(got, "error: ") != refused || strings.Contains(got, `"note://7"`) {
			t.Errorf("%d: %.100s", n, got)
		}
	}
}
