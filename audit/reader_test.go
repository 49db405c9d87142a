package audit_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
	"gatekit/core/pipeline"
)

// writeLog writes a log of n records, and returns its file and its lines with their line feeds.
func writeLog(t *testing.T, n int) (file string, lines [][]byte) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "gatekit.jsonl")
	l, err := audit.Open(audit.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
			Action: "start"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, bytes.SplitAfter(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
}

// writeLines replaces a file of the log by these lines, and adds a missing line feed at the end.
func writeLines(t *testing.T, name string, lines ...[]byte) {
	t.Helper()
	b := bytes.Join(lines, nil)
	if len(lines) > 0 && !bytes.HasSuffix(b, []byte("\n")) {
		b = append(b, '\n')
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReaderReadsAllFilesFromAnyRecord(t *testing.T) {
	file, lines := writeLog(t, 9)
	first := filepath.Join(filepath.Dir(file), "gatekit-00000000000000000001.jsonl")
	second := filepath.Join(filepath.Dir(file), "gatekit-00000000000000000004.jsonl")
	writeLines(t, first, lines[:3]...)
	writeLines(t, second, lines[3:6]...)
	writeLines(t, file, lines[6:]...)
	writeLines(t, filepath.Join(filepath.Dir(file), "gatekit-4.jsonl"), []byte("another's"))
	if got, err := audit.Segments(file); err != nil || !slices.Equal(got, []string{first, second,
		file}) {
		t.Fatalf("the files are %q, error %v; want %q", got, err, []string{first, second, file})
	}
	for from := range uint64(11) {
		r := audit.Reader{File: file, From: from}
		want := max(from, 1)
		for record, err := range r.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if record.Seq != want || record.Action != "start" || !bytes.Equal(record.Line,
				bytes.TrimSpace(lines[want-1])) {
				t.Fatalf("Reader.From %d: got record %d, want %d: %s", from, record.Seq, want,
					record.Line)
			}
			if at := (audit.Position{File: []string{first, second, file}[(want-1)/3],
				Line: int((want-1)%3) + 1}); r.Position() != at {
				t.Errorf("record %d: position %s, want %s", want, r.Position(), at)
			}
			want++
		}
		if want != max(10, from) {
			t.Errorf("Reader.From %d: reading ended before record %d, want before %d", from, want,
				max(10, from))
		}
	}
}

func TestFollowSurvivesRotationTornLinesAndTruncation(t *testing.T) {
	_, lines := writeLog(t, 9)
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	lastReadable := uint64(2)
	steps := map[uint64]func(){ // by the seq of the record after which the function runs
		2: func() { // record 3 is written, but not committed, and is taken back
			writeLines(t, file, lines[0], lines[1], lines[7])
			time.AfterFunc(30*time.Millisecond, func() { writeLines(t, file, lines[:4]...) })
		},
		4: func() {
			if err := os.Rename(file, filepath.Join(filepath.Dir(file),
				"gatekit-00000000000000000001.jsonl")); err != nil {
				t.Error(err)
			}
			nextLine := lines[5]
			if err := os.WriteFile(file, slices.Concat(lines[4], nextLine[:20]),
				0o600); err != nil {
				t.Error(err)
			}
			time.AfterFunc(30*time.Millisecond, func() { writeLines(t, file, lines[4:9]...) })
		},
		9: stop,
	}
	// the file does not exist yet
	time.AfterFunc(20*time.Millisecond, func() { writeLines(t, file, lines[:2]...) })
	r := audit.Reader{File: file, Poll: 5 * time.Millisecond, Limit: func() uint64 {
		if b, err := os.ReadFile(file); err == nil && bytes.HasPrefix(b, slices.Concat(lines[0],
			lines[1], lines[2])) {
			lastReadable = 9
		}
		return lastReadable
	}}
	var want uint64
	for record, err := range r.Follow(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if want++; record.Seq != want || !bytes.Equal(record.Line, bytes.TrimSpace(lines[want-1])) {
			t.Fatalf("got record %d, want %d", record.Seq, want)
		}
		if step := steps[want]; step != nil {
			step()
		}
	}
	if want != 9 {
		t.Errorf("got %d records, want 9", want)
	}
}

func TestFollowMissesNothingDuringFrequentRotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log.jsonl")
	l, err := audit.Open(audit.Options{File: file, SegmentBytes: 300})
	if err != nil {
		t.Fatal(err)
	}
	const records = 1000
	var writer sync.WaitGroup
	writer.Go(func() {
		for range records {
			if _, err := l.Record(context.Background(), pipeline.Outcome{Time: time.Now(),
				Action: "test"}); err != nil {
				t.Error(err)
			}
		}
	})
	last := uint64(0)
	for r, err := range (&audit.Reader{File: file, Poll: time.Microsecond,
		Limit: l.Committed}).Follow(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Seq != last+1 {
			t.Errorf("got record %d after record %d, want %d", r.Seq, last, last+1)
		}
		if last = r.Seq; last == records {
			break
		}
	}
	writer.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestFollowReadsRecordThatReplacesAnother takes back a record after it was read, as after a failed
// write, and writes a longer record with the same seq.
func TestFollowReadsRecordThatReplacesAnother(t *testing.T) {
	file, lines := writeLog(t, 4)
	synctest.Test(t, func(t *testing.T) {
		writeLines(t, file, lines[:3]...)
		longer := func(line []byte) []byte {
			return bytes.Replace(line, []byte(`"start"`), []byte(`"a longer action"`), 1)
		}
		time.AfterFunc(time.Second, func() { writeLines(t, file, lines[:2]...) })
		time.AfterFunc(2*time.Second, func() {
			writeLines(t, file, lines[0], lines[1], longer(lines[2]), longer(lines[3]))
		})
		var got []uint64
		for r, err := range (&audit.Reader{File: file}).Follow(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, r.Seq); r.Seq == 4 {
				break
			}
		}
		if !slices.Equal(got, []uint64{1, 2, 3, 4}) {
			t.Errorf("got the records %d, want 1 to 4", got)
		}
	})
}

func TestFollowWaitsForPollInterval(t *testing.T) {
	file, _ := writeLog(t, 1)
	for poll, want := range map[time.Duration]time.Duration{0: 200 * time.Millisecond,
		time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			for line, err := range (&audit.Reader{File: file, Poll: poll}).FollowLines(
				t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if line == nil {
					break
				}
			}
			if got := time.Since(began); got != want {
				t.Errorf("with Poll %s, the first poll came after %s, want %s", poll, got, want)
			}
		})
	}
}

func TestReaderSkipsMissingSegment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log.jsonl")
	l, err := audit.Open(audit.Options{File: file, SegmentBytes: 300})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
			Action: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := audit.Segments(file)
	if err != nil || len(segments) < 5 {
		t.Fatalf("the log has %d files, error %v; want at least 5 files", len(segments), err)
	}
	if err := os.Remove(segments[2]); err != nil {
		t.Fatal(err)
	}
	n, last := 0, uint64(0)
	for r, err := range (&audit.Reader{File: file}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n, last = n+1, r.Seq
	}
	if n >= 20 || n < 10 || last != 20 {
		t.Errorf("got %d records, the last is %d; want 10 to 19 records, the last 20", n, last)
	}
}

func TestReaderErrorsHavePosition(t *testing.T) {
	file, lines := writeLog(t, 3)
	read := func() (n int, err error) {
		r := audit.Reader{File: file}
		for _, err = range r.All(t.Context()) {
			n++
		}
		return n, err
	}
	writeLines(t, file, lines[0], []byte("rubbish\n"), lines[2])
	if n, err := read(); n != 2 || err == nil ||
		err.Error() != file+":2: the line does not begin with seq, time and prev" {
		t.Errorf("an invalid line: got %d results, error %v; want 2, and the position in the error",
			n, err)
	}
	writeLines(t, file, lines[0], slices.Concat(bytes.TrimSuffix(lines[1], []byte("}\n")),
		[]byte(",\"action\":\"deny\"}\n")))
	if n, err := read(); n != 2 || err == nil {
		t.Errorf("a duplicate member: got %d results, error %v; want 2 and an error", n, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: error %v, want %v", err, fs.ErrNotExist)
	}
}
