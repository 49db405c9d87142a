package audit_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
)

// TestRetentionAppliesToIdleLog writes 256 records, and then waits until they expire.
func TestRetentionAppliesToIdleLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, Keep: audit.Retention{For: time.Hour}})
		o := event("")
		for range 256 {
			o.Time = time.Now()
			record(t, l, o)
		}
		time.Sleep(30 * time.Minute)
		if n := len(allLines(t, file)); n != 256 {
			t.Errorf("after half an hour there are %d records, want 256", n)
		}
		time.Sleep(45 * time.Minute)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := audit.ParseRecord(allLines(t, file)[0])
		if err != nil || r.Seq != 257 || r.Action != "prune" || r.From != 1 || r.Through != 256 {
			t.Errorf("after more than an hour the log begins with %+v, %v; want a record of the "+
				"removal of 1 to 256", r, err)
		}
		v := audit.Verification{File: file}
		if done, err := v.Run(t.Context()); err != nil || done.First != 257 {
			t.Errorf("verification: %+v, %v; want the first record 257", done, err)
		}
	})
}

// TestForwardClockJumpRemovesNoSegment writes records and files whose times are 60 hours ago, as if
// the clock had just jumped forward. Only the time for which the log was open must count for
// keep_for.
func TestForwardClockJumpRemovesNoSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		options := audit.Options{File: file, SegmentBytes: 10 << 10,
			Keep: audit.Retention{For: 30 * time.Hour}}
		l := open(t, options)
		o := event("")
		o.Time = time.Now().Add(-60 * time.Hour)
		for range 300 {
			record(t, l, o)
		}
		segments, err := audit.Segments(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range segments {
			if err := os.Chtimes(s, o.Time, o.Time); err != nil {
				t.Fatal(err)
			}
		}
		wantFirst := func(want uint64, when string) {
			t.Helper()
			if r, err := audit.ParseRecord(allLines(t, file)[0]); err != nil || r.Seq != want {
				t.Errorf("%s the log begins with record %d, %v; want %d", when, r.Seq, err, want)
			}
		}
		time.Sleep(29 * time.Hour)
		wantFirst(1, "after 29 hours")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Hour) // of these 60 hours, 3 count
		l = open(t, options)
		time.Sleep(2 * time.Minute)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, line := range allLines(t, file) {
			if r, err := audit.ParseRecord(line); err == nil && r.Action == "clock" {
				reasons = append(reasons, r.Reason)
			}
		}
		want := "the clock is 60h0m0s ahead of the time when the log was last open: keep_for " +
			"counts only 3h0m0s of this difference"
		if !slices.Contains(reasons, want) {
			t.Errorf("the clock records have the reasons %q, want %q", reasons, want)
		}
		if n := len(allLines(t, file)); n > 250 {
			t.Errorf("after 32 hours there are %d records, want the first 256 removed", n)
		}
		v := audit.Verification{File: file}
		if _, err := v.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestKeepForCountsPartOfStop opens a log five times, each time 60 days after it was closed. Each
// stop counts for one hour.
func TestKeepForCountsPartOfStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		options := audit.Options{File: file, SegmentBytes: 10 << 10,
			Keep: audit.Retention{For: 10 * time.Hour}}
		l := open(t, options)
		for range 300 {
			record(t, l, event(""))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(60 * 24 * time.Hour)
			l = open(t, options)
			time.Sleep(2 * time.Minute)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := audit.ParseRecord(allLines(t, file)[0]); err != nil || r.Seq != 1 {
			t.Errorf("the log begins with record %d, %v; want 1", r.Seq, err)
		}
	})
}

func TestUnreadableAgesStopRetentionAndAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		open(t, audit.Options{File: file}).Close()
		if err := os.WriteFile(file+".tree/ages", []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, audit.Options{File: file, Keep: audit.Retention{For: time.Hour}})
		time.Sleep(2 * time.Minute)
		if err := l.Health(); err == nil ||
			!strings.Contains(err.Error(), "hint: remove this file") {
			t.Errorf("Health returned %v, want the file and a hint", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
