package main

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/transport/console"
)

const (
	tailStart     = 5_000 // records when the viewers come
	tailPerSecond = 1_000
	tailSeconds   = 10
)

// writeTailLog writes a log of refused requests, each of which is a call. Every tenth is of the
// tool "rare".
func writeTailLog(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := audit.Open(audit.Options{File: file, Durability: audit.DurabilityAsync,
		QueueBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range tailStart + (tailSeconds+1)*tailPerSecond {
		m := &mcp.Message{Direction: mcp.ToServer, Kind: mcp.Request, Method: "tools/call",
			Name: "echo", Server: "box"}
		if i%10 == 0 {
			m.Name = "rare"
		}
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(), Before: m,
			Action: "deny"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// followed collects the updates of one viewer.
type followed struct {
	mu      sync.Mutex
	calls   []*console.LiveCall
	skipped uint64
	through uint64
}

func (f *followed) add(n console.NewCalls) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, n.Calls...)
	f.skipped += n.Skipped
	f.through = n.Through
	return nil
}

// followTail calls follow in a bubble with a log that grows. The test fails if a goroutine is left.
func followTail(t *testing.T, file string, follow func(ctx context.Context, c *consoleTraffic)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), tailSeconds*time.Second)
		defer cancel()
		follow(ctx, newConsoleTraffic(file, func() uint64 {
			return tailStart + uint64(time.Since(began).Seconds()*tailPerSecond)
		}))
	})
}

// 32 viewers get the same calls, each of which exists once, and as many as one viewer alone.
func TestViewersShareTheRecordsThatAreRead(t *testing.T) {
	file := writeTailLog(t)
	got := make([]followed, 33) // the first is alone
	for _, viewers := range [][]followed{got[:1], got[1:]} {
		followTail(t, file, func(ctx context.Context, c *consoleTraffic) {
			var running sync.WaitGroup
			for i := range viewers {
				running.Go(func() { c.Follow(ctx, "", tailStart, viewers[i].add) })
			}
			running.Wait()
		})
	}
	alone := &got[0]
	if n := len(alone.calls); n < tailSeconds*followRecords/2 ||
		n > tailSeconds*followRecords+followBurst {
		t.Errorf("a viewer alone got %d calls", n)
	}
	for i := range got {
		g := &got[i]
		if len(g.calls) < len(alone.calls)*9/10 || i > 0 && !slices.Equal(g.calls, got[1].calls) {
			t.Errorf("viewer %d got %d calls, or other ones than the others", i, len(g.calls))
		}
		if all := uint64(len(g.calls)) + g.skipped; all != g.through-tailStart {
			t.Errorf("viewer %d got %d calls, and %d were skipped, of %d", i, len(g.calls),
				g.skipped, g.through-tailStart)
		}
	}
}

// A viewer who takes nothing for five seconds holds up nobody, and then learns how many records
// were left out.
func TestSlowViewerSkips(t *testing.T) {
	var slow, other followed
	followTail(t, writeTailLog(t), func(ctx context.Context, c *consoleTraffic) {
		var running sync.WaitGroup
		blocked := time.Now().Add(5 * time.Second)
		running.Go(func() {
			c.Follow(ctx, "", tailStart, func(n console.NewCalls) error {
				time.Sleep(time.Until(blocked))
				return slow.add(n)
			})
		})
		running.Go(func() { c.Follow(ctx, "", tailStart, other.add) })
		time.Sleep(4 * time.Second)
		other.mu.Lock()
		n := len(other.calls)
		other.mu.Unlock()
		if n < 200 {
			t.Errorf("the other viewer got %d calls while one was slow", n)
		}
		running.Wait()
	})
	if slow.skipped == 0 || slow.through != other.through {
		t.Errorf("the slow viewer skipped %d records and is at %d, the other one at %d",
			slow.skipped, slow.through, other.through)
	}
	if all := uint64(len(slow.calls)) + slow.skipped; all != slow.through-tailStart {
		t.Errorf("the slow viewer got %d calls and skipped %d records of %d", len(slow.calls),
			slow.skipped, slow.through-tailStart)
	}
}

// Viewers with different filters share the reader, and each gets its own calls.
func TestViewersHaveTheirOwnFilters(t *testing.T) {
	var all, rare, late followed
	followTail(t, writeTailLog(t), func(ctx context.Context, c *consoleTraffic) {
		var running sync.WaitGroup
		running.Go(func() { c.Follow(ctx, "", tailStart, all.add) })
		running.Go(func() { c.Follow(ctx, "--tool rare", tailStart, rare.add) })
		time.Sleep(6 * time.Second)
		running.Go(func() { c.Follow(ctx, "", tailStart+6*tailPerSecond, late.add) })
		running.Wait()
	})
	n := len(rare.calls)
	if n < len(all.calls)/20 || n > len(all.calls)/5 {
		t.Errorf("the viewer of one tool in ten got %d calls of %d", n, len(all.calls))
	}
	for _, c := range rare.calls {
		if !slices.Contains(all.calls, c) {
			t.Fatal("the viewers got different copies of a call")
		}
	}
	if n := len(late.calls); n < followRecords ||
		n > 5*followRecords {
		t.Errorf("a viewer who came four seconds before the end got %d calls", n)
	}
}

// A request that waits for an approval ends a moment after its record. It is sent although no other
// record is written.
func TestLastCallIsSentWithoutFurtherRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := audit.Open(audit.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"deny", "ask"} {
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(), Action: action,
			Before: &mcp.Message{Direction: mcp.ToServer, Kind: mcp.Request, Session: "s",
				Exchange: action, Method: "tools/call", Name: "echo", Server: "box"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var got followed
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		committed := func() uint64 {
			if time.Since(began) < time.Second {
				return 1
			}
			return 2
		}
		newConsoleTraffic(file, committed).Follow(ctx, "", 1, got.add)
	})
	if len(got.calls) != 1 || got.through != 2 {
		t.Errorf("got %d calls up to record %d, want the call of record 2", len(got.calls),
			got.through)
	}
}

// What is kept for slow viewers is bounded, however many calls a batch has.
func TestKeptBatchesAreBounded(t *testing.T) {
	r := &tailRun{changed: make(chan struct{})}
	for i := range 100 {
		r.add(tailBatch{from: uint64(i + 1), through: uint64(i + 1), records: 90,
			calls: make([]*console.LiveCall, 30)})
	}
	batches, next, _, _ := r.since(0)
	if n := len(batches); n == 0 || n*30 > followKeptCalls || next != 100 ||
		batches[n-1].through != 100 {
		t.Errorf("%d batches with 30 calls are kept, and the next one is %d", n, next)
	}
	r.add(tailBatch{from: 101, through: 101, records: followKeptRecords + 1})
	if batches, _, _, _ = r.since(0); len(batches) != 1 {
		t.Errorf("%d batches are kept with one that has too many records, want 1", len(batches))
	}
	if batches, _, _, _ = r.since(101); len(batches) != 0 {
		t.Errorf("a viewer who has everything got %d batches", len(batches))
	}
}
