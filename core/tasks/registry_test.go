package tasks_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"gatekit/core/tasks"
)

// many is more tasks than a Registry keeps.
const many = 60_000

func TestPrincipalWithManyTasksLosesOnlyItsOwnTasks(t *testing.T) {
	for name, principal := range map[string]func(int) string{
		"one principal":   func(int) string { return "mallory" },
		"some principals": func(i int) string { return fmt.Sprint("mallory", i%10) },
	} {
		t.Run(name, func(t *testing.T) {
			var r tasks.Registry
			r.Add("a", "alice's", "alice", "x")
			for i := range many {
				r.Add("a", fmt.Sprint(i), principal(i), "x")
			}
			if !r.BelongsToOther("a", "alice's", "mallory") {
				t.Error("the task of alice is forgotten, want it kept")
			}
			if name, ok := r.Name("a", "alice's", "alice"); name != "x" || !ok {
				t.Errorf("Name of the task of alice returned %q, %v; want x, true", name, ok)
			}
			if _, ok := r.Name("a", "0", principal(0)); ok {
				t.Error("the oldest of many tasks is kept, want it forgotten")
			}
			if _, ok := r.Name("a", fmt.Sprint(many-1), principal(many-1)); !ok {
				t.Error("the newest of many tasks is forgotten, want it kept")
			}
		})
	}
}

func TestTasksOfManyPrincipalsAreBounded(t *testing.T) {
	var r tasks.Registry
	known := 0
	const principals = 40_000 // with names of 200 bytes
	of := func(i int) string { return fmt.Sprintf("%0200d", i) }
	for i := range principals {
		r.Add("a", fmt.Sprint(i), of(i), "")
	}
	for i := range principals {
		if _, ok := r.Name("a", fmt.Sprint(i), of(i)); ok {
			known++
		}
	}
	if known < 10_000 || known >= principals {
		t.Errorf("%d of %d tasks are kept, want at least 10000 and not all", known, principals)
	}
}

func TestLongIDsAndNamesAreBounded(t *testing.T) {
	var r tasks.Registry
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 100 {
		r.Add("a", strings.Repeat("i", 1<<20)+fmt.Sprint(i), "p", strings.Repeat("n", 1<<20))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 20<<20 {
		t.Errorf("the registry holds %d bytes, want at most 20 MiB", held)
	}
	if !r.BelongsToOther("a", strings.Repeat("i", 1<<20)+"99", "q") {
		t.Error("a task with a long id has no owner, want p")
	}
}

func TestTwoPrincipalsHaveTasksWithTheSameID(t *testing.T) {
	var r tasks.Registry
	r.Add("a", "1", "p", "x")
	r.Add("a", "1", "q", "y")
	r.Add("a", "1", "p", "z") // the server uses the id for a second task of p
	for _, c := range []struct {
		server, principal, name string
		other                   bool
	}{{"a", "p", "z", false}, {"a", "q", "y", false}, {"a", "r", "", true}, {"b", "p", "", false}} {
		name, _ := r.Name(c.server, "1", c.principal)
		other := r.BelongsToOther(c.server, "1", c.principal)
		if name != c.name || other != c.other {
			t.Errorf("task 1 at server %s, for %s: name %q, want %q; BelongsToOther %v, want %v",
				c.server, c.principal, name, c.name, other, c.other)
		}
	}
}
