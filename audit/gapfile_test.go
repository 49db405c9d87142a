package audit

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

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

// TestSavedGapIsRecordedWithItsCause opens a log whose gap file is complete, or was cut short by a
// crash.
func TestSavedGapIsRecordedWithItsCause(t *testing.T) {
	for _, tt := range []struct{ saved, reason, cause string }{
		{`{"records":3,"since":"2026-01-02T03:04:05Z","error":"no space left on device"}`,
			"at least 3 records could not be written since 2026-01-02T03:04:05.000000Z, until " +
				"Gatekit ended: their messages were denied", "no space left on device"},
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
