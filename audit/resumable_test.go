package audit_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/audit"
)

// continued calls Continue, and checks that it verified the records 1 to last.
func continued(t *testing.T, v *audit.ResumableVerification, last uint64) {
	t.Helper()
	result, complete, err := v.Continue(t.Context())
	if err != nil || !complete || result.First != 1 || result.Last != last ||
		result.Checkpoint.Size != int64(last) {
		t.Fatalf("Continue: %+v, complete %v, error %v; want the records 1 to %d", result,
			complete, err, last)
	}
}

// change replaces the last text old in the log by its upper case.
func (e *signedLog) change(old string) (seq uint64, segment string) {
	e.Helper()
	for i, s := range slices.Backward(e.segments) {
		at := bytes.LastIndex(e.content[s], []byte(old))
		if at < 0 {
			continue
		}
		changed := bytes.Clone(e.content[s])
		copy(changed[at:], bytes.ToUpper([]byte(old)))
		if err := os.WriteFile(s, changed, 0o600); err != nil {
			e.Fatal(err)
		}
		return e.first(i) + uint64(bytes.Count(e.content[s][:at], []byte("\n"))), s
	}
	e.Fatalf("the log does not have %q", old)
	return 0, ""
}

func TestResumableVerificationContinuesAfterLastRecord(t *testing.T) {
	e := newSignedLog(t, 200)
	v := &audit.ResumableVerification{Verification: audit.Verification{File: e.file}}
	continued(t, v, 200)
	continued(t, v, 200)
	e.write(150)
	e.change("reason 180\"") // was verified before, and is not read again
	continued(t, v, 350)
	e.restore()
	e.write(3)
	continued(t, v, 353)
}

func TestResumableVerificationReadsInParts(t *testing.T) {
	e := newSignedLog(t, 200)
	v := &audit.ResumableVerification{Verification: audit.Verification{File: e.file}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	result, complete, err := v.Continue(ended)
	if err != nil || complete || result.Last != 0 {
		t.Fatalf("with a context that has ended: %+v, complete %v, error %v", result, complete, err)
	}
	continued(t, v, 200)
	e.write(10)
	result, complete, err = v.Continue(ended)
	if err != nil || complete || result.Last != 200 || result.First != 1 {
		t.Fatalf("with a context that has ended: %+v, complete %v, error %v", result, complete, err)
	}
	continued(t, v, 210)
}

func TestResumableVerificationFindsChangedRecord(t *testing.T) {
	for _, tampering := range []struct {
		name   string
		change func(e *signedLog) (seq uint64)
	}{
		{"a record of the next part", func(e *signedLog) uint64 {
			e.write(100)
			seq, _ := e.change("reason 57\"")
			return seq
		}},
		{"a record at the end of the next part", func(e *signedLog) uint64 {
			e.write(1)
			last := e.segments[len(e.segments)-1]
			lines := e.lines(last)
			lines[len(lines)-1] = bytes.Replace(lines[len(lines)-1], []byte("reason 0"),
				[]byte("reason 1"), 1)
			if err := os.WriteFile(last, bytes.Join(lines, nil), 0o600); err != nil {
				e.Fatal(err)
			}
			return 201
		}},
		{"the first record of the next part is missing", func(e *signedLog) uint64 {
			e.write(100)
			last := e.segments[len(e.segments)-1]
			for i, s := range e.segments {
				if e.first(i) <= 201 {
					last = s
				}
			}
			i := 0
			for j, s := range e.segments {
				if s == last {
					i = int(201 - e.first(j))
				}
			}
			lines := e.lines(last)
			lines = append(lines[:i:i], lines[i+1:]...)
			if err := os.WriteFile(last, bytes.Join(lines, nil), 0o600); err != nil {
				e.Fatal(err)
			}
			return 201
		}},
	} {
		t.Run(tampering.name, func(t *testing.T) {
			e := newSignedLog(t, 200)
			v := &audit.ResumableVerification{Verification: audit.Verification{File: e.file}}
			continued(t, v, 200)
			e.T = t
			seq := tampering.change(e)
			for range 2 { // also when it begins with the first record again
				_, _, err := v.Continue(t.Context())
				found, ok := errors.AsType[*audit.RecordError](err)
				if !ok || found.Seq != seq {
					t.Errorf("error %v, want a *RecordError for record %d", err, seq)
				}
			}
			e.restore()
			continued(t, v, e.first(len(e.segments)-1)-1+
				uint64(len(e.lines(e.segments[len(e.segments)-1]))))
		})
	}
}

func TestResumableVerificationFindsOtherCheckpoint(t *testing.T) {
	e := newSignedLog(t, 200)
	path := filepath.Join(e.file+".tree", "checkpoint")
	old := readFile(t, path)
	e.write(10)
	v := &audit.ResumableVerification{Verification: audit.Verification{File: e.file}}
	continued(t, v, 210)
	newer := readFile(t, path)
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Continue(t.Context()); err == nil {
		t.Error("a checkpoint of fewer records than before is accepted")
	}
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	continued(t, v, 210)
	other := newSignedLog(t, 210)
	if err := os.WriteFile(path, readFile(t, filepath.Join(other.file+".tree", "checkpoint")),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Continue(t.Context()); err == nil {
		t.Error("the checkpoint of another log is accepted")
	}
}

// The hash that the tree has for a record tells a changed record from the one after it.
func TestResumableVerificationNamesChangedRecordOfSecondTile(t *testing.T) {
	e := newSignedLog(t, 260)
	v := &audit.ResumableVerification{Verification: audit.Verification{File: e.file}}
	continued(t, v, 260)
	e.write(50)
	seq, _ := e.change("reason 27\"")
	_, _, err := v.Continue(t.Context())
	if found, ok := errors.AsType[*audit.RecordError](err); !ok || found.Seq != seq {
		t.Errorf("error %v, want a *RecordError for record %d", err, seq)
	}
}

// TestResumableVerificationGoesOnAfterExpiredRecords verifies a log from which records expired
// before they were verified.
func TestResumableVerificationGoesOnAfterExpiredRecords(t *testing.T) {
	e := newSignedLog(t, 200)
	v := &audit.ResumableVerification{Verification: audit.Verification{File: e.file}}
	continued(t, v, 200)
	l := open(e, audit.Options{File: e.file, SegmentBytes: 16 << 10, AnchorFile: e.anchorFile(),
		Keep: audit.Retention{Files: 2}})
	for range 600 {
		record(e, l, event("reason"))
	}
	for range 1000 { // a goroutine of the log removes the segments
		if left, err := audit.Segments(e.file); err != nil || len(left) <= 3 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, v := range []*audit.ResumableVerification{v,
		{Verification: audit.Verification{File: e.file}}} {
		result, complete, err := v.Continue(t.Context())
		if err != nil || !complete || result.First <= 201 || result.Last < 800 {
			t.Errorf("Continue: %+v, complete %v, error %v; want records after the first 201",
				result, complete, err)
		}
	}
}

// TestResumableVerificationFindsOtherTreeOfEqualSize replaces the checkpoint by one of other
// records that is signed with the same key.
func TestResumableVerificationFindsOtherTreeOfEqualSize(t *testing.T) {
	e := newSignedLog(t, 100)
	other := &signedLog{T: t, file: filepath.Join(t.TempDir(), filepath.Base(e.file)),
		content: map[string][]byte{}}
	if err := os.CopyFS(filepath.Dir(other.file), os.DirFS(filepath.Dir(e.file))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(other.file+".key", 0o600); err != nil {
		t.Fatal(err)
	}
	e.write(100)
	other.write(60)
	other.write(40)
	v := &audit.ResumableVerification{Verification: audit.Verification{File: e.file}}
	continued(t, v, 200)
	if err := os.WriteFile(filepath.Join(e.file+".tree", "checkpoint"),
		readFile(t, filepath.Join(other.file+".tree", "checkpoint")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := v.Continue(t.Context())
	if err == nil || strings.Contains(err.Error(), "another log") {
		t.Errorf("error %v, want one about another tree", err)
	}
}
