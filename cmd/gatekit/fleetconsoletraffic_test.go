package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/transport/console"
)

func TestFleetTrafficIsMergedByTime(t *testing.T) {
	dir := t.TempDir()
	if err := writeFleet(dir); err != nil {
		t.Fatal(err)
	}
	traffic := &consoleFleetTraffic{newTestFleet(dir)}
	list, err := traffic.Calls(t.Context(), console.FleetQuery{Filter: "--tool read"}, "")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"gatekit-2:2 read", "gatekit-1:2 read", "gatekit-0:3 read"}
	if got := namesOf(list); !slices.Equal(got, want) || list.Before != "" ||
		!slices.Equal(list.Words, []string{"tool read"}) || !slices.Equal(list.Replicas,
		[]string{"gatekit-0", "gatekit-1", "gatekit-2"}) || list.Failures != nil {
		t.Errorf("got %q, want %q; the list is %+v", got, want, list)
	}
	list, err = traffic.Calls(t.Context(), console.FleetQuery{Filter: "--tool read",
		Replica: "gatekit-1"}, "")
	if got := namesOf(list); err != nil || !slices.Equal(got, want[1:2]) ||
		len(list.Replicas) != 3 {
		t.Errorf("of one replica: %q, error %v, want %q", got, err, want[1:2])
	}
	_, err = traffic.Calls(t.Context(), console.FleetQuery{Replica: "gatekit-9"}, "")
	if err == nil || !strings.Contains(err.Error(), `no log of a replica "gatekit-9"`) {
		t.Errorf("of a replica that is not there: error %v", err)
	}
	_, err = traffic.Calls(t.Context(), console.FleetQuery{Filter: "--wrong"}, "")
	if _, ok := errors.AsType[*console.FilterError](err); !ok {
		t.Errorf("with a wrong filter: error %v, want a FilterError", err)
	}
	for _, before := range []string{"x", "a-1.b", strings.Repeat("a-1.", 5) + "-", "a--1"} {
		if _, err = traffic.Calls(t.Context(), console.FleetQuery{}, before); err == nil ||
			!strings.Contains(err.Error(), "open the page Traffic again") {
			t.Errorf("with the position %q: error %v", before, err)
		}
	}
}

// All calls are shown once and in order, however different the logs are: one is quiet, one is busy,
// and the clock of one was set back.
func TestFleetTrafficHasAllCallsInPages(t *testing.T) {
	dir, start := t.TempDir(), time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	busy, quiet, skewed := replicaLog(t, dir, "busy"), replicaLog(t, dir, "quiet"),
		replicaLog(t, dir, "skewed")
	refuse(t, busy, "echo", every(start, time.Second, 2_000)...)
	refuse(t, quiet, "echo", every(start.Add(-time.Hour), time.Minute, 90)...)
	refuse(t, skewed, "echo", every(start.Add(10*time.Minute), time.Second, 300)...)
	refuse(t, skewed, "echo", every(start.Add(5*time.Minute), time.Second, 300)...)
	closeLog(t, busy, quiet, skewed)
	traffic := &consoleFleetTraffic{newTestFleet(dir)}
	seen := map[string]bool{}
	pages := 0
	for before := ""; ; pages++ {
		list, err := traffic.Calls(t.Context(), console.FleetQuery{Filter: "--tool echo"}, before)
		if err != nil || len(list.Failures) > 0 || pages > 50 {
			t.Fatalf("page %d: %v, %+v", pages, err, list)
		}
		for _, name := range namesOf(list) {
			if seen[name] {
				t.Fatalf("%s comes twice", name)
			}
			seen[name] = true
		}
		if before = list.Before; before == "" {
			break
		}
	}
	if len(seen) != 2_000+90+600 {
		t.Errorf("%d calls in %d pages, want %d", len(seen), pages+1, 2_000+90+600)
	}
	calls, _ := pagesOf(t, &consoleFleetTraffic{newTestFleet(dir)},
		console.FleetQuery{Filter: "--tool echo", Replica: "quiet"})
	if len(calls) != 90 {
		t.Errorf("%d calls of the quiet replica, want 90", len(calls))
	}
}

// A log in which a filter finds nothing for long holds back the older calls of the others, and
// nothing is lost.
func TestFleetTrafficIsInOrderWithRareCalls(t *testing.T) {
	dir, start := t.TempDir(), time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	busy, quiet := replicaLog(t, dir, "busy"), replicaLog(t, dir, "quiet")
	refuse(t, busy, "rare", start)
	refuse(t, busy, "echo", every(start.Add(time.Second), time.Millisecond, 120_000)...)
	refuse(t, quiet, "rare", start.Add(-time.Minute), start.Add(time.Second),
		start.Add(time.Hour))
	closeLog(t, busy, quiet)
	calls, pages := pagesOf(t, &consoleFleetTraffic{newTestFleet(dir)},
		console.FleetQuery{Filter: "--tool rare"})
	want := []string{"quiet:4 rare", "quiet:3 rare", "busy:2 rare", "quiet:2 rare"}
	if !slices.Equal(calls, want) || pages < 2 {
		t.Errorf("got %q in %d pages, want %q in several", calls, pages, want)
	}
}

func TestFleetTrafficShowsWhichLogCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if err := writeFleet(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gatekit-1", "gatekit.jsonl"), []byte("text\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := newTestFleet(dir)
	list, err := (&consoleFleetTraffic{f}).Calls(t.Context(), console.FleetQuery{
		Filter: "--tool read"}, "")
	want := []string{"gatekit-2:2 read", "gatekit-0:3 read"}
	if got := namesOf(list); err != nil || !slices.Equal(got, want) || len(list.Failures) != 2 ||
		!strings.HasPrefix(list.Failures[0], "The log of empty cannot be read: its folder has") ||
		!strings.HasPrefix(list.Failures[1], "The log of gatekit-1 cannot be read: ") {
		t.Errorf("got %q, error %v, failures %q", got, err, list.Failures)
	}
	stats := &consoleStats{source: f.stats}
	report, err := stats.Stats(t.Context(), "--tool read")
	if err != nil || report.Calls.All != 2 || len(report.Failures) != 2 {
		t.Errorf("stats: %+v, error %v, want 2 calls and 2 failures", report, err)
	}
	states, err := (&consoleFleetAudit{fleet: f}).States(t.Context())
	if err != nil || len(states) != 4 {
		t.Fatalf("audit: %+v, error %v", states, err)
	}
	for i, s := range states {
		isGood := i == 1 || i == 3
		if isGood != (s.Unreadable == "" && s.Failure == "" && s.Complete) {
			t.Errorf("audit: the log of %s has the state %+v", s.Replica, s)
		}
	}
}

// fleetFollowed collects what one viewer of a fleet gets.
type fleetFollowed struct {
	mu       sync.Mutex
	calls    int
	skipped  uint64
	failures []string
	through  string
}

func (f *fleetFollowed) add(n console.FleetNewCalls) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls += len(n.Calls)
	f.skipped += n.Skipped
	f.through = n.Through
	if n.Failure != "" {
		f.failures = append(f.failures, n.Replica+": "+n.Failure)
	}
	return nil
}

// follow runs during, while a viewer follows from the current ends.
func (f *fleetFollowed) follow(t *testing.T, dir, replica string, during func()) {
	t.Helper()
	traffic := &consoleFleetTraffic{newTestFleet(dir)}
	q := console.FleetQuery{Replica: replica, Filter: "--tool echo"}
	list, err := traffic.Calls(t.Context(), q, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := traffic.Follow(ctx, q, list.Through, f.add); err != nil {
			t.Errorf("Follow: %v", err)
		}
	})
	during()
	cancel()
	running.Wait()
}

func TestFleetFollowSendsNewCallsOfAllLogs(t *testing.T) {
	dir := t.TempDir()
	if err := writeFleet(dir); err != nil {
		t.Fatal(err)
	}
	// write writes calls with a process of its own, as replicas do.
	write := func(t *testing.T, replica string, n int) {
		l := replicaLog(t, dir, replica)
		refuse(t, l, "echo", every(time.Now(), time.Millisecond, n)...)
		closeLog(t, l)
	}
	synctest.Test(t, func(t *testing.T) {
		var all fleetFollowed
		all.follow(t, dir, "", func() {
			time.Sleep(2 * time.Second)
			write(t, "gatekit-0", 1)
			write(t, "gatekit-2", 2)
			time.Sleep(2 * time.Second)
			write(t, "gatekit-3", 3) // a replica that is new
			time.Sleep(4 * time.Second)
		})
		if all.calls != 6 || all.skipped != 0 || len(all.failures) > 0 ||
			strings.Count(all.through, ".") != 3 {
			t.Errorf("got %d calls, %d skipped records, failures %q, positions %q; want 6 calls",
				all.calls, all.skipped, all.failures, all.through)
		}
		var one fleetFollowed
		one.follow(t, dir, "gatekit-2", func() {
			write(t, "gatekit-0", 1)
			write(t, "gatekit-2", 2)
			time.Sleep(4 * time.Second)
		})
		if one.calls != 2 || strings.Count(one.through, ".") != 0 {
			t.Errorf("of one replica: %d calls, positions %q, want 2", one.calls, one.through)
		}
	})
}

// A copy that is replaced by a longer one, as rsync does, has new calls.
func TestFleetFollowReadsReplacedCopies(t *testing.T) {
	dir := t.TempDir()
	l := replicaLog(t, dir, "r")
	refuse(t, l, "echo", every(time.Now(), time.Millisecond, 9)...) // the records 2 to 10
	closeLog(t, l)
	file := filepath.Join(dir, "r", "gatekit.jsonl")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	replace := func(records int) {
		copied := file + ".tmp"
		if err := os.WriteFile(copied, bytes.Join(lines[:records], nil), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(copied, file); err != nil {
			t.Fatal(err)
		}
	}
	replace(6)
	synctest.Test(t, func(t *testing.T) {
		var got fleetFollowed
		got.follow(t, dir, "", func() {
			for _, records := range []int{9, 10} {
				time.Sleep(3 * time.Second)
				replace(records)
			}
			time.Sleep(3 * time.Second)
		})
		if got.calls != 4 || got.skipped != 0 || len(got.failures) > 0 {
			t.Errorf("got %d calls, skipped %d, failures %q, want 4 calls", got.calls, got.skipped,
				got.failures)
		}
	})
}

// A log that cannot be read is named, does not hold up the others, and is read again later. The
// reader finds the line that is no record, unless it waits because the log has become shorter.
func TestFleetFollowTellsWhichLogCannotBeRead(t *testing.T) {
	for name, isEmptied := range map[string]bool{"at once": false, "after it was emptied": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := writeFleet(dir); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "gatekit-1", "gatekit.jsonl")
			good, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			replace := func(text []byte) {
				if err := os.WriteFile(file, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				var got fleetFollowed
				got.follow(t, dir, "", func() {
					time.Sleep(1200 * time.Millisecond)
					if isEmptied {
						replace(nil)
						time.Sleep(time.Second)
					}
					replace(append(slices.Clone(good), "text\n"...))
					time.Sleep(2 * time.Second)
					l := replicaLog(t, dir, "gatekit-0")
					refuse(t, l, "echo", time.Now())
					closeLog(t, l)
					time.Sleep(2 * time.Second)
					replace(good)
					l = replicaLog(t, dir, "gatekit-1")
					refuse(t, l, "echo", time.Now())
					closeLog(t, l)
					time.Sleep(2 * retryFollow)
				})
				if got.calls != 2 || len(got.failures) == 0 ||
					!strings.HasPrefix(got.failures[0], "gatekit-1: ") {
					t.Errorf("got %d calls, failures %q, want 2 calls and a failure of gatekit-1",
						got.calls, got.failures)
				}
			})
		})
	}
}

// Follow ends when a viewer takes no more calls.
func TestFleetFollowEndsWhenSendFails(t *testing.T) {
	dir := t.TempDir()
	if err := writeFleet(dir); err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the viewer is gone")
	sent := 0
	err := (&consoleFleetTraffic{newTestFleet(dir)}).Follow(t.Context(), console.FleetQuery{}, "",
		func(console.FleetNewCalls) error {
			sent++
			return gone
		})
	if !errors.Is(err, gone) || sent != 1 {
		t.Errorf("Follow returned %v after %d updates, want the error of the first", err, sent)
	}
}
