package audit_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
)

// TestVerificationBeginsAgainAfterRetention lets Gatekit remove segments while a verification reads
// the first segment.
func TestVerificationBeginsAgainAfterRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, SegmentBytes: 10 << 10})
		for range 700 {
			record(t, l, event(""))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = open(t, audit.Options{File: file, SegmentBytes: 10 << 10,
			Keep: audit.Retention{Files: 1}})
		v := audit.Verification{File: file}
		done, err := v.Run(&afterLines{Context: t.Context(), n: 1, do: func() {
			time.Sleep(2 * time.Second) // retention removes segments
		}})
		if err != nil || done.First == 1 || !done.InUse {
			t.Errorf("verification: %+v, error %v; want the records that are left verified", done,
				err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// everyPass is a context that calls do at the first line of each pass of a verification. A pass
// verifies lines lines.
type everyPass struct {
	context.Context
	lines, n int
	do       func()
}

func (c *everyPass) Err() error {
	if c.n%c.lines == 0 {
		c.do()
	}
	c.n++
	return c.Context.Err()
}

// TestVerificationGivesUp verifies a log whose first segment somebody has removed, while Gatekit
// writes records and checkpoints.
func TestVerificationGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, SegmentBytes: 10 << 10})
		for range 100 {
			record(t, l, event(""))
		}
		time.Sleep(2 * time.Second)
		segments, err := audit.Segments(file)
		if err != nil || len(segments) < 2 {
			t.Fatalf("the files are %q, error %v; want at least two", segments, err)
		}
		if err := os.Remove(segments[0]); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		passes := 0
		hook := &everyPass{Context: ctx, lines: len(allLines(t, file))}
		hook.do = func() {
			if passes++; passes > 3 {
				cancel()
			}
			record(t, l, event(""))
			hook.lines++
			hook.n = 0
			time.Sleep(2 * time.Second) // a new checkpoint
		}
		v := audit.Verification{File: file}
		if _, err := v.Run(hook); err == nil || !strings.Contains(err.Error(),
			"the records up to 74 are missing") || passes != 3 {
			t.Errorf("after %d passes, error %v; want that records are missing, after 3 passes",
				passes, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestVerificationOfLogThatIsOpenedMeanwhile opens a closed log, and adds a record, while a
// verification reads the log. Nobody else has written that record.
func TestVerificationOfLogThatIsOpenedMeanwhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: file})
	for range 3 {
		record(t, l, event(""))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	v := audit.Verification{File: file}
	done, err := v.Run(&afterLines{Context: t.Context(), n: 1, do: func() {
		l = open(t, audit.Options{File: file})
		record(t, l, event("meanwhile"))
	}})
	if err != nil || done.Last != 4 || done.Checkpoint.Size != 3 {
		t.Errorf("verification: %+v, error %v; want 4 records, of which the checkpoint covers 3",
			done, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// afterLines is a context that calls do when a verification verifies line n.
type afterLines struct {
	context.Context
	n  int
	do func()
}

func (c *afterLines) Err() error {
	if c.n--; c.n == 0 {
		c.do()
	}
	return c.Context.Err()
}
