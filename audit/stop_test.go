package audit

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/core/pipeline"
)

// failingOutput writes each line but reports that the write failed. It cannot be truncated.
type failingOutput struct{ output }

var errWrite = errors.New("input/output error")

func (s failingOutput) Write(b []byte) (int, error) {
	n, _ := s.output.Write(b)
	return n, errWrite
}
func (failingOutput) Truncate(int64) error { return errWrite }

// TestTornLogIsNotMarkedClosed is in package audit to replace the output of the log: no file system
// fails in this way on demand.
func TestTornLogIsNotMarkedClosed(t *testing.T) {
	o := Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl")}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	outcome := pipeline.Outcome{Time: time.Now(), Action: "test"}
	if _, err := l.Record(t.Context(), outcome); err != nil {
		t.Fatal(err)
	}
	l.out = failingOutput{l.out}
	if _, err := l.Record(t.Context(), outcome); !errors.Is(err, errWrite) {
		t.Fatalf("error %v, want %v", err, errWrite)
	}
	if err := l.Close(); err == nil || !strings.Contains(err.Error(), "cut off a partial write") {
		t.Errorf("close: error %v, want that the partial write cannot be cut off", err)
	}
	// If the checkpoint were marked closed, Open would refuse the record after the checkpoint.
	if l, err = Open(o); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	v := Verification{File: o.File}
	if done, err := v.Run(t.Context()); err != nil || len(done.Recovered) != 1 ||
		done.Recovered[0] != (SeqRange{2, 2}) {
		t.Errorf("verification: %+v, error %v; want that record 2 had no checkpoint", done, err)
	}
}

// TestRecordRefusesLineTooLongToRead is in package audit to call Log.record with an encoded record:
// encoding a body that makes the line too long would take a gigabyte of memory.
func TestRecordRefusesLineTooLongToRead(t *testing.T) {
	l, err := Open(Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.record(&entry{rest: make([]byte, maxLineBytes)}); err == nil ||
		!strings.Contains(err.Error(), "\nhint: ") {
		t.Errorf("error %v, want one with a hint", err)
	}
	if seq, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
		Action: "test"}); err != nil || seq != 2 {
		t.Errorf("got seq %d, error %v; want 2, because record 1 is the gap record", seq, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
