package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
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

// TestRemovalWaitsForItsRecord is in package audit to replace the output of the log. With
// DurabilityAsync, the record of a removal may wait to be written.
func TestRemovalWaitsForItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl"),
			Durability: DurabilityAsync}
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		good := l.out
		l.out = failingOutput{discard{good}}
		seq, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(), Action: "test"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the write has failed
		began := time.Now()
		if err := l.maintenance.waitForCheckpoint(seq); err == nil ||
			!strings.Contains(err.Error(), "still waiting to be written") {
			t.Errorf("error %v, want that the record is still waiting", err)
		}
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("the error came after %s, want 5s", waited)
		}
		l.writing <- struct{}{}
		l.out, l.torn = good, false
		<-l.writing
		time.AfterFunc(time.Second, func() {
			l.Record(t.Context(), pipeline.Outcome{Time: time.Now(), Action: "refused"})
		})
		if err := l.maintenance.waitForCheckpoint(seq); err != nil || l.maintenance.signedSize < 1 {
			t.Errorf("error %v, a checkpoint of %d records; want a checkpoint of the record", err,
				l.maintenance.signedSize)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// movedOutput moves the file of the log before each write.
type movedOutput struct {
	output
	path string
}

func (s movedOutput) Write(b []byte) (int, error) {
	if err := os.Rename(s.path, s.path+".1"); err != nil {
		return 0, err
	}
	return s.output.Write(b)
}

// TestFileThatIsMovedDuringWriteEndsLog is in package audit to move the file between the check
// before a write and the write.
func TestFileThatIsMovedDuringWriteEndsLog(t *testing.T) {
	o := Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl"), Durability: DurabilityFsync}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	l.out = movedOutput{l.out, o.File}
	if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
		Action: "test"}); err == nil || !strings.Contains(err.Error(), "no longer the file") {
		t.Errorf("error %v, want that the file was moved", err)
	}
	if err := l.Close(); err == nil {
		t.Error("Close returned no error, although the file was moved")
	}
	if b, err := os.ReadFile(o.File + ".1"); err != nil || len(b) > 0 {
		t.Errorf("the moved file holds %q, error %v; want no line, because Record failed", b, err)
	}
}

// TestIdleLogRunsNoMaintenance is in package audit to see when maintenance last ran. After a
// failure, it runs once a second.
func TestIdleLogRunsNoMaintenance(t *testing.T) {
	for _, failing := range []string{"", "the anchor", "checkpoints"} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			o := Options{File: filepath.Join(dir, "gatekit.jsonl"), Bodies: BodiesNone,
				AnchorFile: filepath.Join(dir, "anchor", "file")}
			l, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			broken := map[string]string{"": "", "the anchor": filepath.Dir(o.AnchorFile),
				"checkpoints": l.maintenance.dir}[failing]
			if broken != "" {
				if err := errors.Join(os.Rename(broken, broken+"~"),
					os.WriteFile(broken, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute) // a write of the anchor is due
			}
			for range 3000 {
				if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
					Action: "test"}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10*time.Second + 500*time.Millisecond)
			least, most := 9*time.Second, time.Minute
			if failing != "" {
				least, most = 100*time.Millisecond, time.Second
			}
			l.maintenance.mu.Lock()
			idle := time.Since(l.maintenance.lastRunEnd)
			l.maintenance.mu.Unlock()
			if idle < least || idle > most {
				t.Errorf("failing: %q; maintenance last ran %s ago, want %s to %s", failing, idle,
					least, most)
			}
			if broken != "" {
				if err := errors.Join(os.Remove(broken), os.Rename(broken+"~",
					broken)); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
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
