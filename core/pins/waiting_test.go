package pins

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/core/pipeline"
)

// waitTest is a guard with a store.
type waitTest struct {
	*guardTest
	store    *WaitingStore
	approved *Server
	reported []string
}

func newWaitTest(t testing.TB, items ...*Item) *waitTest {
	w := &waitTest{guardTest: &guardTest{TB: t}, approved: &Server{Start: Start{Command: "server"}},
		store: &WaitingStore{Dir: filepath.Join(t.TempDir(), "pins"), Name: "a.json", Lock: "/l",
			Log: "/log"}}
	for _, i := range items {
		w.approved.Add(i)
	}
	w.restart(w.approved.Start, nil)
	return w
}

// restart makes another guard, as after a restart of Gatekit.
func (w *waitTest) restart(start Start, previous *Guard) {
	w.reported = nil
	w.use(NewGuard(GuardOptions{Lock: &Lock{Servers: map[string]*Server{"s": w.approved}},
		Kinds: allKinds, Servers: []GuardedServer{{Name: "s", Start: start}}, Previous: previous,
		Store: w.store, Report: func(_ string, items []string, err error) {
			if err != nil {
				w.Errorf("the guard reports %v", err)
			}
			slices.Sort(items)
			w.reported = append(w.reported, strings.Join(items, ", "))
		}}))
}

// want checks the items in the store: kind, name and definition.
func (w *waitTest) want(want ...string) {
	w.Helper()
	waiting, err := w.store.Read()
	if err != nil {
		w.Fatal(err)
	}
	var got []string
	if s := waiting.Servers["s"]; s != nil {
		for _, seen := range s.Items {
			if _, err := seen.Item(); err != nil {
				w.Error(err)
			}
			got = append(got, fmt.Sprint(seen.Kind, " ", string(seen.Definition)))
		}
	}
	if !slices.Equal(got, want) {
		w.Errorf("the store has %q, want %q", got, want)
	}
}

// What is held back is in the store as it was seen last, and held back after a restart before a
// client lists it. What is as approved again, or was approved, no longer waits.
func TestWhatWaitsIsKept(t *testing.T) {
	const first, second = `{"name":"a","title":"x"}`, `{"name":"a","title":"y"}`
	w := newWaitTest(t, item(t, Tool, `{"name":"a"}`), item(t, Tool, `{"name":"b"}`))
	w.wantListed("tools/list", []string{first, `{"name":"b"}`, `{"name":"c"}`}, "b")
	w.want("tool "+first, `tool {"name":"c"}`)
	w.wantListed("tools/list", []string{second, `{"name":"b"}`, `{"name":"c"}`}, "b")
	w.want("tool "+second, `tool {"name":"c"}`)
	if got := strings.Join(w.reported, "; "); got != "tool a, tool c; tool a" {
		t.Errorf("reported %q, want each definition once", got)
	}
	waiting, err := w.store.Read()
	if err != nil || waiting.Lock != "/l" || waiting.Log != "/log" {
		t.Errorf("the store has the lock %q and the log %q (%v)", waiting.Lock, waiting.Log, err)
	}
	info, err := os.Stat(filepath.Join(w.store.Dir, w.store.Name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v (%v), want 0600", info.Mode(), err)
	}

	w.restart(w.approved.Start, nil)
	if got := w.guard.Waiting()["s"]; got != 2 {
		t.Errorf("after a restart, %d items wait, want 2", got)
	}
	if got := w.guard.WaitingItems()["s"]; !slices.Equal(got, []string{"tool a", "tool c"}) {
		t.Errorf("after a restart, %q wait", got)
	}
	for name, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if got := w.isDenied("tools/call", `{"name":"`+name+`"}`); got != want {
			t.Errorf("after a restart, the call of %s is denied: %v, want %v", name, got, want)
		}
	}
	w.wantListed("tools/list", []string{`{"name":"a"}`, `{"name":"c"}`}, "a")
	w.want(`tool {"name":"c"}`)

	w.approved = w.approved.Clone()
	w.approved.Add(item(t, Tool, `{"name":"c"}`))
	w.hidden = pipeline.HiddenItems{}
	w.restart(w.approved.Start, w.guard)
	w.want()
	if w.isDenied("tools/call", `{"name":"c"}`) {
		t.Error("the approved tool is denied")
	}
}

// A rejected definition stays held back, and does not wait. Another definition of the item waits.
func TestRejectedDefinitions(t *testing.T) {
	w := newWaitTest(t, item(t, Tool, `{"name":"a"}`))
	evil := []string{`{"name":"a","title":"x"}`}
	w.wantListed("tools/list", evil)
	if err := w.store.Update(func(all *Waiting) {
		all.Servers["s"].Find(Tool, "a").Rejected = true
	}); err != nil {
		t.Fatal(err)
	}
	w.hidden = pipeline.HiddenItems{}
	w.restart(w.approved.Start, w.guard)
	w.wantListed("tools/list", evil)
	if got := w.guard.Waiting()["s"]; got != 0 || len(w.reported) > 0 {
		t.Errorf("%d items wait, and %q was reported, want none", got, w.reported)
	}
	if !w.isDenied("tools/call", `{"name":"a"}`) {
		t.Error("the rejected tool can be used")
	}
	w.wantListed("tools/list", []string{`{"name":"a","title":"y"}`})
	if got := w.guard.Waiting()["s"]; got != 1 || !slices.Equal(w.reported, []string{"tool a"}) {
		t.Errorf("%d items wait, and %q was reported, want the tool", got, w.reported)
	}
	all, err := w.store.Read()
	if err != nil {
		t.Fatal(err)
	}
	if seen := all.Servers["s"].Find(Tool, "a"); seen == nil || seen.Rejected {
		t.Errorf("the store has %+v, want a definition that is not rejected", seen)
	}
}

// A server that is started in another way waits as a whole. What was seen of another launch is
// forgotten.
func TestAnotherLaunchWaits(t *testing.T) {
	w := newWaitTest(t, item(t, Tool, `{"name":"a"}`), item(t, Tool, `{"name":"b"}`))
	w.restart(Start{Command: "other"}, nil)
	w.wantListed("tools/list", []string{`{"name":"a"}`, `{"name":"b","title":"x"}`})
	w.want(`tool {"name":"b","title":"x"}`)
	all, err := w.store.Read()
	if err != nil {
		t.Fatal(err)
	}
	live, err := all.Servers["s"].Live(w.approved)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range w.approved.Compare(live) {
		got = append(got, strings.TrimSpace(string(c.Class)+" "+c.Name))
	}
	if want := []string{"text b", "launch"}; !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
	w.restart(w.approved.Start, nil)
	w.want()
}

// The store is bounded, whatever a server sends, and what is not stored is held back all the same.
func TestTheStoreIsBounded(t *testing.T) {
	w := newWaitTest(t, item(t, Tool, `{"name":"a"}`))
	other := newWaitTest(t) // another Gatekit with the same store
	other.store = w.store
	other.restart(other.approved.Start, nil)
	var items []string
	for i := range maxSeen + 10 {
		items = append(items, fmt.Sprintf(`{"name":"new-%d"}`, i))
	}
	w.wantListed("tools/list", items)
	other.wantListed("tools/list", []string{`{"name":"other"}`})
	w.wantListed("tools/list", []string{`{"name":"a","title":"` +
		strings.Repeat("x", maxSeenBytes) + `"}`})
	all, err := w.store.Read()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(all.Servers["s"].Items); n != maxSeen {
		t.Errorf("the store has %d items, want %d", n, maxSeen)
	}
	if all.Servers["s"].Find(Tool, "a") != nil {
		t.Error("the store has a definition that is too long")
	}
	if got := w.guard.Waiting()["s"]; got != maxSeen+11 {
		t.Errorf("%d items wait, want %d", got, maxSeen+11)
	}
}

// A file that others can write, or that was edited, approves nothing.
func TestAStoreThatCannotBeUsed(t *testing.T) {
	w := newWaitTest(t)
	w.wantListed("tools/list", []string{`{"name":"a"}`})
	file := filepath.Join(w.store.Dir, w.store.Name)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(b), `{"name":"a"}`, `{"name":"a","title":"evil"}`, 1)
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := w.store.Read()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.Servers["s"].Live(nil); err == nil {
		t.Error("an edited definition can be approved")
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Read(); err == nil || !strings.Contains(err.Error(), "has mode 0666") {
		t.Errorf("a file that others can write: %v, want an error", err)
	}
}

// Holes of the approved definition stay holes in what waits.
func TestWhatWaitsKeepsItsHoles(t *testing.T) {
	learned, ok := item(t, Tool, `{"name":"a","title":"build 17","description":"x"}`).
		Learn(item(t, Tool, `{"name":"a","title":"build 18","description":"x"}`), Surroundings{})
	if !ok {
		t.Fatal("the number is no hole")
	}
	w := newWaitTest(t, learned)
	w.wantListed("tools/list", []string{`{"name":"a","title":"build 19","description":"y"}`})
	w.want(`tool {"description":"y","name":"a","title":"build ${number}"}`)
}
