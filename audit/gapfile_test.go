package audit

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/pipeline"
)

// TestRecordedGapIsNotSaved is an internal test, because it holds up the write of the gap file
// until the record of the gap is written.
func TestRecordedGapIsNotSaved(t *testing.T) {
	o := Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl")}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	good := l.out
	l.out = failingOutput{discard{good}}
	l.gapFile.mu.Lock()
	failed := make(chan error)
	go func() {
		_, err := l.Record(t.Context(), pipeline.Outcome{Action: "lost"})
		failed <- err
	}()
	for !isBlockedIn("saveGap") {
		runtime.Gosched()
	}
	l.mu.Lock()
	l.gap, l.missed = gap{}, gap{} // the record of the gap was written
	l.mu.Unlock()
	l.gapFile.mu.Unlock()
	if err := <-failed; !errors.Is(err, errWrite) {
		t.Errorf("error %v, want %v", err, errWrite)
	}
	l.out, l.torn = good, false
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, saved, err := openGapFile(o.File + ".tree"); saved != nil || err != nil {
		t.Errorf("the gap file has %+v, error %v; want no gap, because the log has a record of "+
			"the gap", saved, err)
	}
}

// TestGapIsSavedOncePerSecond reads the gap file while records fail.
func TestGapIsSavedOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl")}
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		good, began := l.out, time.Now()
		l.out = failingOutput{discard{good}}
		for _, tt := range []struct {
			after   time.Duration
			records int // in the file, after one more record has failed
		}{{0, 1}, {0, 1}, {time.Second - 1, 1}, {1, 4}, {time.Second / 2, 4}, {time.Second, 6}} {
			time.Sleep(tt.after)
			if _, err := l.Record(t.Context(), pipeline.Outcome{Action: "lost",
				Reason: strings.Repeat("x", 500)}); !errors.Is(err, errWrite) {
				t.Errorf("error %v, want %v", err, errWrite)
			}
			b, err := os.ReadFile(o.File + ".tree/gap")
			if err != nil {
				t.Fatal(err)
			}
			var saved savedGap
			if err := json.Unmarshal(b, &saved); err != nil || len(b) != gapFileBytes ||
				saved.Records != tt.records || !saved.Since.Equal(began) ||
				!strings.HasPrefix(saved.Error, "write the audit log: ") {
				t.Errorf("%s after the first failure, the gap file has %d bytes with %+v, error "+
					"%v; want %d bytes with %d records since %s, and the cause", time.Since(began),
					len(b), saved, err, gapFileBytes, tt.records, began)
			}
		}
		l.out, l.torn = good, false
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSavedGapIsRecordedWithItsCause opens a log whose gap file is complete, or was cut short by a
// crash.
func TestSavedGapIsRecordedWithItsCause(t *testing.T) {
	for _, tt := range []struct{ saved, reason, cause string }{
		{`{"records":3,"since":"2026-01-02T03:04:05Z","error":"no space left on device"}`,
			"at least 3 records could not be written since 2026-01-02T03:04:05.000000Z, until " +
				"Gatekit ended: their messages were denied", "no space left on device"},
		{`{"records":0,"since":"2026-01-02T03:04:05Z"}`, "at least 1 record could not be written, " +
			"until Gatekit ended: its message was denied", ""},
		{`{"records":3,"since":"2026-01-0`, "at least 1 record could not be written, until Gatekit " +
			"ended: its message was denied", ""},
	} {
		o := Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl")}
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.gapFile.write([]byte(tt.saved)); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if l, err = Open(o); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var records int
		for r, err := range (&Reader{File: o.File}).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			records++
			if r.Action != "gap" || r.Reason != tt.reason || r.Error != tt.cause {
				t.Errorf("recorded %s %q, error %q; want gap %q, error %q", r.Action, r.Reason,
					r.Error, tt.reason, tt.cause)
			}
		}
		if records != 1 {
			t.Errorf("%d records, want one", records)
		}
	}
}

// discard is an output that drops all lines.
type discard struct{ output }

func (discard) Write(b []byte) (int, error) { return 0, nil }

// isBlockedIn reports whether a goroutine waits for a mutex in the function, or in one that the
// function calls.
func isBlockedIn(function string) bool {
	b := make([]byte, 1<<20)
	b = b[:runtime.Stack(b, true)]
	for stack := range strings.SplitSeq(string(b), "\n\n") {
		if strings.Contains(stack, "lockSlow") && strings.Contains(stack, function) {
			return true
		}
	}
	return false
}
