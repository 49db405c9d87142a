package audit_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/audit"
)

// seqsOf returns the seqs of the records that a reader returns, and the last position.
func seqsOf(t *testing.T, r *audit.Reader) (seqs []uint64, err error) {
	t.Helper()
	for record, err := range r.All(t.Context()) {
		if err != nil {
			return seqs, err
		}
		seqs = append(seqs, record.Seq)
	}
	return seqs, nil
}

// longLog writes a log of n records, in which every tenth line is longer than a block that is
// searched, and returns its file.
func longLog(t *testing.T, n int) string {
	t.Helper()
	file, lines := writeLog(t, n)
	for i := range lines {
		size := 300 + i%7*100
		if i%10 == 3 {
			size = 150_000
		}
		lines[i] = bytes.Replace(lines[i], []byte(`"action":"start"`),
			[]byte(`"action":"start","reason":"`+strings.Repeat("x", size)+`"`), 1)
	}
	writeLines(t, file, lines...)
	return file
}

func TestSeekingReaderReturnsTheSameRecords(t *testing.T) {
	const n = 400
	file := longLog(t, n)
	for from := uint64(0); from <= n+2; from++ {
		want, err := seqsOf(t, &audit.Reader{File: file, From: from, Through: from + 3})
		if err != nil {
			t.Fatal(err)
		}
		r := &audit.Reader{File: file, From: from, Through: from + 3, Seek: true}
		got, err := seqsOf(t, r)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("from %d: got records %d, error %v, want %d", from, got, err, want)
		}
		last := min(int(from)+3, n)
		if from > 0 && len(want) > 0 && r.Position().Line < last {
			t.Fatalf("from %d: position %s, want line %d or the next", from, r.Position(), last)
		}
	}
}

func TestSeekingReaderReadsSeveralFiles(t *testing.T) {
	file, lines := writeLog(t, 9)
	writeLines(t, filepath.Join(filepath.Dir(file), "gatekit-00000000000000000001.jsonl"),
		lines[:3]...)
	writeLines(t, file, lines[3:]...)
	got, err := seqsOf(t, &audit.Reader{File: file, From: 2, Through: 5, Seek: true})
	if want := "[2 3 4 5]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("got records %d, error %v, want %s", got, err, want)
	}
}

func TestSeekingReaderReportsPositionOfDamage(t *testing.T) {
	file := longLog(t, 400)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	lines[396] = []byte("{}\n")
	writeLines(t, file, lines[:400]...)
	got, err := seqsOf(t, &audit.Reader{File: file, From: 395, Seek: true})
	if err == nil || !strings.Contains(err.Error(), file+":397: ") ||
		fmt.Sprint(got) != "[395 396]" {
		t.Errorf("got records %d, error %v, want records 395 and 396, and an error in line 397",
			got, err)
	}
}

func TestSeekingReaderSkipsMostLines(t *testing.T) {
	file := longLog(t, 400)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	lines[5] = []byte("{}\n") // a reader that reads all lines fails here
	writeLines(t, file, lines[:400]...)
	if got, err := seqsOf(t, &audit.Reader{File: file, From: 399, Seek: true}); err != nil ||
		fmt.Sprint(got) != "[399 400]" {
		t.Errorf("got records %d, error %v, want records 399 and 400", got, err)
	}
	if _, err := seqsOf(t, &audit.Reader{File: file, From: 399}); err == nil {
		t.Error("a reader without Seek does not report the damage before its first record")
	}
}
