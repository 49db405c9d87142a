package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
	"gatekit/audit/query"
	"gatekit/core/pipeline"
)

// TestFollowReturnsExistingCallsByTime follows two logs with records, and other logs that fail. All
// records of the one log are older than those of the other. The calls are returned in the order of
// their starts, although other logs fail, or appear, before the two logs were read to their end.
func TestFollowReturnsExistingCallsByTime(t *testing.T) {
	const records = 300 // in each of the two logs
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		before map[string]string // the further logs that exist from the beginning
		after  map[string]string // is appended to the further logs at the first error
		errors int
	}{
		{"a log fails at once", map[string]string{"a": "no record\n"}, nil, 1},
		{"logs fail after they were read to their end",
			map[string]string{"a": "no record\n", "d": "", "e": ""},
			map[string]string{"d": "no record\n", "e": "no record\n"}, 3},
		{"logs appear later", map[string]string{"a": "no record\n"},
			map[string]string{"d": "", "e": "", "f": "no record\n"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(texts map[string]string) {
				for name, text := range texts {
					f, err := os.OpenFile(filepath.Join(dir, name+".jsonl"),
						os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
					if err == nil {
						_, err = f.WriteString(text)
						f.Close()
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			write(c.before)
			var want []time.Time
			for _, name := range []string{"c", "b"} { // the records of c are the older ones
				l, err := audit.Open(audit.Options{File: filepath.Join(dir, name+".jsonl"),
					Durability: audit.DurabilityAsync, QueueBytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				for range records {
					want = append(want, start.Add(time.Duration(len(want))*time.Second))
					if _, err := l.Record(t.Context(), pipeline.Outcome{
						Time: want[len(want)-1], Action: "start"}); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			source := &logSource{args: []string{dir}}
			logs, err := source.logs()
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var got []time.Time
				failed := 0
				for call, err := range followCalls(ctx, source, logs, &query.Filter{},
					query.Options{}) {
					if err == nil {
						got = append(got, call.Start)
						continue
					}
					if failed++; failed == 1 {
						time.Sleep(newLogsInterval / 2) // so that the further logs are read
						write(c.after)
					}
					time.Sleep(newLogsInterval) // until the logs are listed again
				}
				if failed != c.errors {
					t.Errorf("%d logs failed, want %d", failed, c.errors)
				}
				if len(got) != len(want) {
					t.Errorf("%d calls were returned, want %d", len(got), len(want))
				}
				for i := range min(len(got), len(want)) {
					if !got[i].Equal(want[i]) {
						t.Fatalf("call %d began after %v, want %v", i, got[i].Sub(start),
							want[i].Sub(start))
					}
				}
			})
		})
	}
}
