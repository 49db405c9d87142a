package audit

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/core/pipeline"
)

// stubborn takes what is written, says that it has not, and gives nothing back.
type stubborn struct{ output }

var errStubborn = errors.New("input/output error")

func (s stubborn) Write(b []byte) (int, error) {
	n, _ := s.output.Write(b)
	return n, errStubborn
}
func (stubborn) Truncate(int64) error { return errStubborn }

// TestTornLogIsNotMarkedClosed is in the package, since no file system that tests
// have is such a one.
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
	l.out = stubborn{l.out}
	if _, err := l.Record(t.Context(), outcome); !errors.Is(err, errStubborn) {
		t.Fatalf("error %v, want %v", err, errStubborn)
	}
	if err := l.Close(); err == nil || !strings.Contains(err.Error(), "cut off a partial write") {
		t.Errorf("close: %v", err)
	}
	if l, err = Open(o); err != nil { // as records that others have written after it was closed
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	v := Verification{File: o.File}
	if done, err := v.Run(t.Context()); err != nil || len(done.Recovered) != 1 ||
		done.Recovered[0] != (SeqRange{2, 2}) {
		t.Errorf("%+v, %v, want that record 2 had no checkpoint", done, err)
	}
}

// TestRecordRefusesLineTooLongToRead is in the package, since a body that is so large takes a
// gigabyte to be encoded.
func TestRecordRefusesLineTooLongToRead(t *testing.T) {
	l, err := Open(Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.record(&entry{rest: make([]byte, maxLineBytes)}); err == nil ||
		!strings.Contains(err.Error(), "\nhint: ") {
		t.Errorf("error %v", err)
	}
	if seq, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
		Action: "test"}); err != nil || seq != 2 {
		t.Errorf("record %d, %v, want 2, after the one that says what is missing", seq, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
