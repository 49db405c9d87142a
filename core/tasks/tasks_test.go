package tasks_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"gatekit/core/tasks"
)

// many is more tasks than there is room for.
const many = 60_000

func TestWhoBeginsManyTasksLosesTheirOwnAlone(t *testing.T) {
	for name, principal := range map[string]func(int) string{
		"one principal":   func(int) string { return "mallory" },
		"some principals": func(i int) string { return fmt.Sprint("mallory", i%10) },
	} {
		t.Run(name, func(t *testing.T) {
			var b tasks.Registry
			b.Add("a", "alice's", "alice", "x")
			for i := range many {
				b.Add("a", fmt.Sprint(i), principal(i), "x")
			}
			if !b.BelongsToOther("a", "alice's", "mallory") {
				t.Error("the task of another is forgotten")
			}
			if name, ok := b.Name("a", "alice's", "alice"); name != "x" || !ok {
				t.Errorf("the task was begun with %q %v", name, ok)
			}
			if _, ok := b.Name("a", "0", principal(0)); ok {
				t.Error("the oldest of many is not forgotten")
			}
			if _, ok := b.Name("a", fmt.Sprint(many-1), principal(many-1)); !ok {
				t.Error("the youngest of many is forgotten")
			}
		})
	}
}

func TestManyPrincipalsAreBounded(t *testing.T) {
	var b tasks.Registry
	known := 0
	const principals = 40_000 // with names of 200 bytes
	of := func(i int) string { return fmt.Sprintf("%0200d", i) }
	for i := range principals {
		b.Add("a", fmt.Sprint(i), of(i), "")
	}
	for i := range principals {
		if _, ok := b.Name("a", fmt.Sprint(i), of(i)); ok {
			known++
		}
	}
	if known < 10_000 || known >= principals {
		t.Errorf("of %d tasks %d are known", principals, known)
	}
}

func TestLongIDsAndNamesTakeNoMoreThanTheirShare(t *testing.T) {
	var b tasks.Registry
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 100 {
		b.Add("a", strings.Repeat("i", 1<<20)+fmt.Sprint(i), "p", strings.Repeat("n", 1<<20))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 20<<20 {
		t.Errorf("%d bytes are kept", held)
	}
	if !b.BelongsToOther("a", strings.Repeat("i", 1<<20)+"99", "q") {
		t.Error("a task with a long id is nobody's")
	}
}

func TestOneIDOfSeveral(t *testing.T) {
	var b tasks.Registry
	b.Add("a", "1", "p", "x")
	b.Add("a", "1", "q", "y")
	b.Add("a", "1", "p", "z") // the server uses the id again
	for _, c := range []struct {
		server, principal, name string
		foreign                 bool
	}{{"a", "p", "z", false}, {"a", "q", "y", false}, {"a", "r", "", true}, {"b", "p", "", false}} {
		if name, _ := b.Name(c.server, "1", c.principal); name != c.name ||
			b.BelongsToOther(c.server, "1", c.principal) != c.foreign {
			t.Errorf("at %s of %s it is %q, foreign %v", c.server, c.principal, name, !c.foreign)
		}
	}
}
