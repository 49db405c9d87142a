package audit_test

import (
	"bytes"
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

// firstSeq returns the seq of the first record that a log still has.
func firstSeq(t *testing.T, file string) uint64 {
	t.Helper()
	r, err := audit.ParseRecord(bytes.TrimSpace(allLines(t, file)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return r.Seq
}

// TestKeepForBeginsWithLastRecordOfSegment writes the segments five hours after the log was opened,
// and then a record every half hour. A copy of the log is opened as after a crash.
func TestKeepForBeginsWithLastRecordOfSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		options := audit.Options{File: file, SegmentBytes: 10 << 10,
			Keep: audit.Retention{For: 10 * time.Hour}}
		logs := []*audit.Log{open(t, options)}
		began := time.Now()
		time.Sleep(5 * time.Hour)
		for range 600 {
			record(t, logs[0], event(""))
		}
		files := []string{file}
		for time.Since(began) < 16*time.Hour {
			time.Sleep(30 * time.Minute)
			for _, l := range logs {
				record(t, l, event(""))
			}
			age := time.Since(began)
			if age == 12*time.Hour {
				options.File = filepath.Join(copyFolder(t, filepath.Dir(file)), "gatekit.jsonl")
				files = append(files, options.File)
				logs = append(logs, open(t, options))
			}
			for i, file := range files {
				if first := firstSeq(t, file); (first > 1) != (age > 15*time.Hour) {
					t.Errorf("%s after the start, copy %d of the log begins with record %d; want "+
						"the first record to be removed after 15h", age, i, first)
				}
			}
		}
		for _, l := range logs {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestShortRunsCountForKeepFor opens a log for a moment every day. Each stop counts for an hour.
func TestShortRunsCountForKeepFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		options := audit.Options{File: file, SegmentBytes: 10 << 10}
		l := open(t, options)
		for range 300 {
			record(t, l, event(""))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		options.Keep = audit.Retention{For: 10 * time.Hour}
		for range 12 {
			if err := open(t, options).Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(24 * time.Hour)
		}
		if first := firstSeq(t, file); first != 1 {
			t.Errorf("the log begins with record %d, want 1: retention never ran", first)
		}
		l = open(t, options)
		time.Sleep(2 * time.Second)
		if first := firstSeq(t, file); first == 1 {
			t.Error("the log begins with record 1, want the first records removed after 12 stops")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBoundsOfRetentionMustBeExceeded reaches each bound exactly.
func TestBoundsOfRetentionMustBeExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, SegmentBytes: 10 << 10})
		for range 600 {
			record(t, l, event(""))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		segments, err := audit.Segments(file)
		if err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, s := range segments[:len(segments)-1] {
			size += int64(len(readFile(t, s)))
		}
		for _, tt := range []struct {
			keep    audit.Retention
			removed bool
		}{
			{audit.Retention{Files: len(segments) - 1, Bytes: size}, false},
			{audit.Retention{Files: len(segments) - 2}, true},
			{audit.Retention{Bytes: size - 1}, true},
		} {
			options := audit.Options{Keep: tt.keep, SegmentBytes: 1 << 20,
				File: filepath.Join(copyFolder(t, filepath.Dir(file)), "gatekit.jsonl")}
			l := open(t, options)
			time.Sleep(2 * time.Second)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if first := firstSeq(t, options.File); (first > 1) != tt.removed {
				t.Errorf("with %+v, %d segments and %d bytes, the log begins with record %d; want "+
					"records removed: %v", tt.keep, len(segments)-1, size, first, tt.removed)
			}
		}
	})
}

// TestAgesAreSavedEveryHundredthOfKeepFor reads the file of the ages while the log is open.
func TestAgesAreSavedEveryHundredthOfKeepFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, Keep: audit.Retention{For: 10 * time.Hour}})
		began := time.Now()
		record(t, l, event(""))
		for _, tt := range []struct {
			after time.Duration
			want  string
		}{
			{5 * time.Minute, ""},
			{8 * time.Minute, `"open_seconds":361,`},
			{11 * time.Minute, `"open_seconds":361,`},
			{12*time.Minute + 30*time.Second, `"open_seconds":721,`},
		} {
			time.Sleep(tt.after - time.Since(began))
			b, err := os.ReadFile(file + ".tree/ages")
			if (err == nil) != (tt.want != "") || !strings.Contains(string(b), tt.want) {
				t.Errorf("after %s the file of the ages has %q, error %v; want %q (\"\": no file)",
					tt.after, b, err, tt.want)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFileIsRotatedWhenItsFirstRecordIsOlderThanKeepFor looks for a segment when the first record
// is exactly as old as Retention.For, and a minute later.
func TestFileIsRotatedWhenItsFirstRecordIsOlderThanKeepFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, Keep: audit.Retention{For: time.Hour}})
		for range 256 {
			record(t, l, event(""))
		}
		time.Sleep(time.Hour + 2*time.Second)
		if segments, err := audit.Segments(file); err != nil || len(segments) != 1 {
			t.Errorf("after an hour the files are %q, error %v; want one", segments, err)
		}
		if first := firstSeq(t, file); first != 1 {
			t.Errorf("after an hour the log begins with record %d, want record 1", first)
		}
		time.Sleep(time.Minute)
		if first := firstSeq(t, file); first == 1 {
			t.Error("after an hour and a minute the log begins with record 1, want it removed")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRecordDoesNotDelayRetention adds a record 50 seconds after retention was applied. Ten seconds
// later it is applied again, and then after a minute, when the first record has expired.
func TestRecordDoesNotDelayRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, Keep: audit.Retention{For: time.Hour}})
		record(t, l, event(""))
		time.Sleep(time.Hour - 10*time.Second)
		record(t, l, event(""))
		for _, c := range []struct {
			sleep time.Duration
			files int
		}{{12 * time.Second, 1}, {time.Minute, 2}} {
			time.Sleep(c.sleep)
			if segments, err := audit.Segments(file); err != nil || len(segments) != c.files {
				t.Errorf("after %v the files are %q, error %v; want %d", c.sleep, segments, err,
					c.files)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSegmentIsRemovedWhenItIsOlderThanKeepFor looks at segments that are exactly as old as
// Retention.For, and a minute later.
func TestSegmentIsRemovedWhenItIsOlderThanKeepFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, SegmentBytes: 10 << 10,
			Keep: audit.Retention{For: time.Hour}})
		for range 600 {
			record(t, l, event(""))
		}
		time.Sleep(time.Hour + 2*time.Second)
		if first := firstSeq(t, file); first != 1 {
			t.Errorf("after an hour the log begins with record %d, want 1", first)
		}
		time.Sleep(time.Minute)
		if first := firstSeq(t, file); first == 1 {
			t.Error("after an hour and a minute the log begins with record 1, want it removed")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSegmentStaysIfItsTilesAreLost removes the tile of the last record that retention is about to
// remove. Without this tile, the hashes of the removed records would be lost.
func TestSegmentStaysIfItsTilesAreLost(t *testing.T) {
	for _, tile := range []string{"0/000", "0/001"} {
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "gatekit.jsonl")
			options := audit.Options{File: file, SegmentBytes: 10 << 10}
			l := open(t, options)
			for range 600 {
				record(t, l, event(""))
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(file + ".tree/tile/" + tile); err != nil {
				t.Fatal(err)
			}
			options.Keep.Files = 3 // the last expired record is between 257 and 511
			l = open(t, options)
			time.Sleep(2 * time.Second)
			if err := l.Health(); err == nil || !strings.Contains(err.Error(),
				"remove expired segments") || !strings.Contains(err.Error(), tile) {
				t.Errorf("Health returned %v, want that the tile %s cannot be read", err, tile)
			}
			if first := firstSeq(t, file); first != 1 {
				t.Errorf("the log begins with record %d, want 1", first)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestLongStopIsRecorded opens a log when a minute of the time since the last stop does not count
// for keep_for, and when a little less does not count.
func TestLongStopIsRecorded(t *testing.T) {
	for stop, want := range map[time.Duration]int{time.Hour + time.Minute: 1,
		time.Hour + time.Minute - 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "gatekit.jsonl")
			options := audit.Options{File: file, Keep: audit.Retention{For: 10 * time.Hour}}
			open(t, options).Close()
			time.Sleep(stop)
			open(t, options).Close()
			if got := bytes.Count(readFile(t, file), []byte(`"action":"clock"`)); got != want {
				t.Errorf("after a stop of %s the log has %d clock records, want %d", stop, got,
					want)
			}
		})
	}
}

func TestAgesFileIsBounded(t *testing.T) {
	const limit = 16 << 20
	for size, want := range map[int]string{limit: "",
		limit + 1: "it has more than 16777216 bytes"} {
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "gatekit.jsonl")
			open(t, audit.Options{File: file}).Close()
			b := append([]byte("{}"), bytes.Repeat([]byte("\n"), size-2)...)
			if err := os.WriteFile(file+".tree/ages", b, 0o600); err != nil {
				t.Fatal(err)
			}
			l := open(t, audit.Options{File: file, Keep: audit.Retention{For: time.Hour}})
			time.Sleep(2 * time.Second)
			if err := l.Health(); (err == nil) != (want == "") || err != nil &&
				!strings.Contains(err.Error(), want) {
				t.Errorf("with %d bytes of ages, Health returned %v, want %q (\"\": no error)",
					size, err, want)
			}
			l.Close()
		})
	}
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
