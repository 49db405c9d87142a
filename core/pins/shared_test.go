package pins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
)

// sharedReplica is a guard of one of several replicas.
type sharedReplica struct {
	*guardTest
	shared     *Shared
	path       string // of its lock file
	server     GuardedServer
	trusted    []string // the recorded names
	err        error    // of the recorder
	accepted   []string // the names that other replicas approved
	acceptErr  error
	notWritten int
}

// newReplica returns a replica. The lock file has the items, unless there are none.
func newReplica(t testing.TB, values shared.Values, items ...*Item) *sharedReplica {
	t.Helper()
	r := &sharedReplica{guardTest: &guardTest{TB: t}, path: filepath.Join(t.TempDir(), "l"),
		server: GuardedServer{Name: "s", First: Trust, Start: Start{Command: "server"}}}
	r.shared = &Shared{Values: values, Accept: func(_ string, _ *Overlay, items []*Item) error {
		if r.acceptErr != nil {
			return r.acceptErr
		}
		for _, i := range items {
			r.accepted = append(r.accepted, i.Name())
		}
		return nil
	}}
	if len(items) > 0 {
		r.lock(items...)
	}
	r.reload()
	return r
}

// lock writes the items into the lock file.
func (r *sharedReplica) lock(items ...*Item) {
	r.Helper()
	if _, err := Update(r.path, func(l *Lock) error {
		s := &Server{Start: r.server.Start}
		for _, i := range items {
			s.Add(i)
		}
		l.Servers["s"] = s
		return nil
	}); err != nil {
		r.Fatal(err)
	}
}

// reload makes a guard, as a start or a reload does.
func (r *sharedReplica) reload() {
	r.Helper()
	lock, err := Read(r.path)
	if err != nil {
		r.Fatal(err)
	}
	_, err = r.shared.Load(r.Context(), "s")
	server := r.server
	server.Unread = err != nil
	r.use(NewGuard(GuardOptions{Lock: lock, Kinds: allKinds, Servers: []GuardedServer{server},
		Shared: r.shared, Trusted: func(_ string, items []*Item, digest string) error {
			for _, i := range items {
				r.trusted = append(r.trusted, i.Name())
			}
			return r.err
		}, NotWritten: func(string, error) error { r.notWritten++; return nil }}))
}

// look uses what the other replicas have approved.
func (r *sharedReplica) look() error {
	r.Helper()
	changed, err := r.shared.Look(r.Context(), []string{"s"})
	if len(changed) > 0 {
		r.reload()
	}
	return err
}

func (r *sharedReplica) mustLook() {
	r.Helper()
	if err := r.look(); err != nil {
		r.Fatal(err)
	}
}

// approve approves an item, as gatekit pin approve does.
func (r *sharedReplica) approve(i *Item) error {
	r.Helper()
	lock, err := Read(r.path)
	if err != nil {
		r.Fatal(err)
	}
	return r.shared.Update(r.Context(), "s", lock.Servers["s"],
		func(approved *Server) (*Server, error) {
			if approved == nil {
				approved = &Server{Start: r.server.Start}
			}
			approved.Replace(i)
			return approved, nil
		}, nil)
}

func TestReplicasTrustWhatOneHasSeenFirst(t *testing.T) {
	var values shared.Memory
	a, b := newReplica(t, &values), newReplica(t, &values)
	a.wantListed("tools/list", []string{`{"name":"x"}`}, "x")
	b.wantListed("tools/list", []string{`{"name":"x","title":"evil"}`, `{"name":"y"}`}, "y")
	if !b.isDenied("tools/call", `{"name":"x"}`) {
		t.Error("the tool that has another definition can be used")
	}
	b.wantListed("tools/list", []string{`{"name":"x"}`}, "x")
	a.mustLook()
	a.wantListed("tools/list", []string{`{"name":"y","title":"evil"}`})
	if got := fmt.Sprint(a.trusted, a.accepted, b.trusted, b.accepted); got != "[x] [y] [y] [x]" {
		t.Errorf("trusted and accepted: %s", got)
	}
	for _, r := range []*sharedReplica{a, b} {
		if _, err := os.Stat(r.path); err == nil {
			t.Error("a lock file was written")
		}
	}
	// what Update has adopted is announced by the next Look
	if changed, err := b.shared.Look(t.Context(), []string{"s"}); err != nil ||
		!slices.Equal(changed, []string{"s"}) {
		t.Errorf("the changed servers are %v (%v)", changed, err)
	}
}

// What is approved stands over the lock file until the lock file changes.
func TestANewerLockFileStandsOverWhatReplicasApprove(t *testing.T) {
	const old, approved, newer = `{"name":"x"}`, `{"name":"x","title":"1"}`,
		`{"name":"x","title":"2"}`
	var values shared.Memory
	a := newReplica(t, &values, item(t, Tool, old))
	b := newReplica(t, &values, item(t, Tool, old))
	a.server.First, b.server.First = Ask, Ask
	if err := a.approve(item(t, Tool, approved)); err != nil {
		t.Fatal(err)
	}
	b.mustLook()
	b.wantListed("tools/list", []string{approved}, "x")
	b.wantListed("tools/list", []string{old})
	b.lock(item(t, Tool, newer), item(t, Tool, `{"name":"z"}`))
	b.reload()
	b.wantListed("tools/list", []string{newer}, "x")
	b.wantListed("tools/list", []string{approved})
	// b approves something else; a, with the older lock file, has both approvals
	if err := b.approve(item(t, Tool, `{"name":"w"}`)); err != nil {
		t.Fatal(err)
	}
	a.mustLook()
	a.wantListed("tools/list", []string{approved, `{"name":"w"}`}, "x", "w")
	// b no longer has the server in its lock file
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	b.reload()
	b.wantListed("tools/list", []string{approved, `{"name":"w"}`})
}

func TestReplicasApproveALaunch(t *testing.T) {
	var values shared.Memory
	a := newReplica(t, &values, item(t, Tool, `{"name":"x"}`))
	b := newReplica(t, &values, item(t, Tool, `{"name":"x"}`))
	for _, r := range []*sharedReplica{a, b} {
		r.server.Start = Start{Command: "other"}
		r.reload()
		r.wantListed("tools/list", []string{`{"name":"x"}`})
	}
	lock, err := Read(a.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.shared.Update(t.Context(), "s", lock.Servers["s"],
		func(s *Server) (*Server, error) { s.Start = a.server.Start; return s, nil },
		nil); err != nil {
		t.Fatal(err)
	}
	b.mustLook()
	b.wantListed("tools/list", []string{`{"name":"x"}`}, "x")
	if o, err := b.shared.Load(t.Context(), "s"); err != nil || o.Launch() != "other" {
		t.Errorf("the approved launch is %q (%v)", o.Launch(), err)
	}
}

func TestGuardWithoutTheStore(t *testing.T) {
	values := sharedtest.NewFaulty(&shared.Memory{})
	a, b := newReplica(t, values), newReplica(t, values)
	a.wantListed("tools/list", []string{`{"name":"x"}`}, "x")
	b.mustLook()
	values.Fail(shared.ErrUnavailable)
	if err := b.look(); !errors.Is(err, shared.ErrUnavailable) {
		t.Errorf("Look without the store: %v", err)
	}
	b.wantListed("tools/list", []string{`{"name":"x"}`, `{"name":"y"}`}, "x")
	if !strings.Contains(b.last.Reason, "not trusted at first use: ") {
		t.Errorf("the reason is %q", b.last.Reason)
	}
	if b.isDenied("tools/call", `{"name":"x"}`) {
		t.Error("a tool that was read is denied")
	}
	if !b.isDenied("tools/call", `{"name":"unseen"}`) ||
		!strings.Contains(b.last.Reason, unreadReason) {
		t.Errorf("a tool that was not seen passes: %q", b.last.Reason)
	}
	if err := b.approve(item(t, Tool, `{"name":"y"}`)); !errors.Is(err, shared.ErrUnavailable) {
		t.Errorf("an approval without the store: %v", err)
	}
	if len(b.trusted) > 0 {
		t.Errorf("%q were recorded as trusted", b.trusted)
	}

	// nothing was read
	c := newReplica(t, values, item(t, Tool, `{"name":"x"}`))
	c.server.Changed = Warn
	c.reload()
	c.wantListed("tools/list", []string{`{"name":"x"}`})
	if !strings.Contains(c.last.Reason, unreadReason) {
		t.Errorf("the reason of a list is %q", c.last.Reason)
	}
	if !c.isDenied("tools/call", `{"name":"x"}`) || !c.isDenied("tools/call", `{"name":"z"}`) ||
		!strings.Contains(c.last.Reason, unreadReason) {
		t.Errorf("a tool of a server that was not read passes: %q", c.last.Reason)
	}
	values.Fail(nil)
	c.mustLook()
	c.wantListed("tools/list", []string{`{"name":"x"}`}, "x")
	if len(c.accepted) != 1 {
		t.Errorf("%q were accepted of a server that was read late, want x", c.accepted)
	}
}

// Clients have to list again when it is known what the replicas approve, although that is nothing:
// what was held back may be trusted from now on.
func TestAServerThatWasReadLateIsApprovedAnew(t *testing.T) {
	values := sharedtest.NewFaulty(&shared.Memory{})
	values.Fail(shared.ErrUnavailable)
	r := newReplica(t, values)
	before := r.guard
	r.wantListed("tools/list", []string{`{"name":"x"}`})
	values.Fail(nil)
	r.mustLook()
	if r.guard.Approves(before, "s") {
		t.Error("the guard approves the same as the one that did not know what is approved")
	}
	r.wantListed("tools/list", []string{`{"name":"x"}`}, "x")
}

// What the store has lost is stored again, and nothing is trusted anew meanwhile.
func TestLostPinsAreStoredAgain(t *testing.T) {
	for _, name := range []string{"by Look", "by Update"} {
		t.Run(name, func(t *testing.T) {
			values := sharedtest.NewFaulty(&shared.Memory{})
			a := newReplica(t, values)
			a.wantListed("tools/list", []string{`{"name":"x"}`}, "x")
			values.Lose()
			if err := a.look(); !errors.Is(err, shared.ErrLost) {
				t.Fatalf("Look after a loss: %v", err)
			}
			if name == "by Look" {
				a.mustLook()
			} else {
				a.wantListed("tools/list", []string{`{"name":"y"}`}, "y")
			}
			b := newReplica(t, values)
			b.wantListed("tools/list", []string{`{"name":"x","title":"evil"}`})
			a.wantListed("tools/list", []string{`{"name":"x"}`}, "x")
		})
	}
}

// What cannot be recorded is not used.
func TestSharedPinsAreRecordedFirst(t *testing.T) {
	var values shared.Memory
	a, b := newReplica(t, &values), newReplica(t, &values)
	a.err = errors.New("the log is full")
	a.wantListed("tools/list", []string{`{"name":"x"}`})
	if v, generation, err := values.Get(t.Context(), overlayKey("s")); generation != 0 {
		t.Errorf("what was not recorded is stored: %s (%v)", v, err)
	}
	a.err = nil
	a.wantListed("tools/list", []string{`{"name":"x"}`}, "x")
	b.acceptErr = errors.New("the log is full")
	if err := b.look(); err == nil {
		t.Error("Look does not return the error")
	}
	b.wantListed("tools/list", []string{`{"name":"x"}`, `{"name":"y"}`})
	b.acceptErr = nil
	b.mustLook()
	b.wantListed("tools/list", []string{`{"name":"x"}`, `{"name":"y"}`}, "x", "y")
}

// swapFails is a store whose values of the kind pins cannot be changed.
type swapFails struct{ *shared.Memory }

func (s swapFails) Swap(ctx context.Context, k shared.Key, was uint64, value []byte,
	ttl time.Duration) (uint64, error) {
	if k.Kind == overlayKind {
		return 0, shared.ErrChanged
	}
	return s.Memory.Swap(ctx, k, was, value, ttl)
}

func TestPinsThatAreRecordedAndNotStored(t *testing.T) {
	r := newReplica(t, swapFails{&shared.Memory{}})
	r.wantListed("tools/list", []string{`{"name":"x"}`})
	if len(r.trusted) != 1 || r.notWritten != 1 {
		t.Errorf("%d records of trust, %d that it failed; want 1 and 1", len(r.trusted),
			r.notWritten)
	}
	if err := r.approve(item(t, Tool, `{"name":"x"}`)); !errors.Is(err, ErrChanged) {
		t.Errorf("the error is %v, want ErrChanged", err)
	}
}

func TestPinsThatAreTooLargeAreNotRecorded(t *testing.T) {
	r := newReplica(t, &shared.Memory{})
	// a number, because a search for holes in such a long text takes a while
	r.wantListed("tools/list", []string{fmt.Sprintf(`{"name":"x","_meta":{"n":%s}}`,
		strings.Repeat("1", shared.MaxValue))})
	if len(r.trusted) > 0 || !strings.Contains(r.last.Reason, "shared state is full") {
		t.Errorf("trusted: %q, reason: %s", r.trusted, r.last.Reason)
	}
}

// Without its marker, a change is read after a while.
func TestChangeWithoutAMarkerIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var values shared.Memory
		a, b := newReplica(t, &values), newReplica(t, &values)
		b.mustLook()
		a.wantListed("tools/list", []string{`{"name":"x"}`}, "x")
		if _, _, err := values.Take(t.Context(), shared.Key{Kind: markerKind, Name: "s",
			Listed: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rereadInterval)
		b.mustLook()
		b.wantListed("tools/list", []string{`{"name":"x","title":"evil"}`})
	})
}

func TestReplicasThatTrustAtTheSameTime(t *testing.T) {
	var values shared.Memory
	var all []*sharedReplica
	for range 4 {
		all = append(all, newReplica(t, &values))
	}
	var wg sync.WaitGroup
	listed := make([][]string, len(all))
	for i, r := range all {
		wg.Go(func() {
			listed[i] = r.listed("tools/list", fmt.Sprintf(`{"name":"x","title":"%d"}`, i))
		})
	}
	wg.Wait()
	if n := len(slices.Concat(listed...)); n != 1 {
		t.Errorf("%d definitions are trusted, want 1", n)
	}
}

func TestForgedSharedPinsAreRefused(t *testing.T) {
	for name, value := range map[string]string{
		"not JSON": "{", "another member": `{"server":{},"bases":{},"more":1}`,
		"another digest": `{"server":{"tools":{"x":{"digest":"sha256:00",` +
			`"definition":{"name":"x"}}}},"bases":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var values shared.Memory
			if _, err := values.Swap(t.Context(), overlayKey("s"), 0, []byte(value),
				0); err != nil {
				t.Fatal(err)
			}
			s := &Shared{Values: &values}
			if _, err := s.Load(t.Context(), "s"); !errors.Is(err, shared.ErrUnavailable) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
