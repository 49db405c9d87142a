package main

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/transport/console"
)

// The 32 viewers together get no more lines than a few viewers alone, and each still gets some.
func TestViewersShareTheRecordsThatAreRead(t *testing.T) {
	const start, perSecond, seconds = 5_000, 1_000, 10
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := audit.Open(audit.Options{File: file, Durability: audit.DurabilityAsync,
		QueueBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for range start + (seconds+1)*perSecond {
		m := &mcp.Message{Direction: mcp.ToServer, Kind: mcp.Request, Method: "tools/call",
			Name: "echo", Server: "box"}
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(), Before: m,
			Action: "deny"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	follow := func(viewers int) (total, least int64) {
		sent := make([]atomic.Int64, viewers)
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			traffic := &consoleTraffic{file: file, committed: func() uint64 {
				return start + uint64(time.Since(began).Seconds()*perSecond)
			}}
			ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
			defer cancel()
			for i := range viewers {
				go traffic.Follow(ctx, "", start, func(n console.NewCalls) error {
					sent[i].Add(int64(len(n.Calls)))
					return nil
				})
			}
			<-ctx.Done()
			synctest.Wait()
		})
		least = sent[0].Load()
		for i := range sent {
			total += sent[i].Load()
			least = min(least, sent[i].Load())
		}
		return total, least
	}
	alone, _ := follow(1)
	together, least := follow(32)
	if alone < seconds*followRecords/2 {
		t.Errorf("a viewer alone got %d calls", alone)
	}
	if together > 2*followShared*alone {
		t.Errorf("32 viewers got %d calls, one alone got %d", together, alone)
	}
	if least < seconds {
		t.Errorf("a viewer of 32 got %d calls in %d s", least, seconds)
	}
	t.Logf("one viewer got %d calls; 32 viewers got %d, at least %d each", alone, together, least)
}
