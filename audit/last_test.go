package audit_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/audit"
)

func TestLastSeq(t *testing.T) {
	file, lines := writeLog(t, 9)
	segment := filepath.Join(filepath.Dir(file), "gatekit-00000000000000000001.jsonl")
	long := func(line []byte, n int) []byte {
		return bytes.Replace(line, []byte(`"action":"start"`),
			[]byte(`"action":"start","reason":"`+strings.Repeat("x", n)+`"`), 1)
	}
	for _, test := range []struct {
		name            string
		segment, active [][]byte // nil: the file does not exist
		want            uint64
		err             string
	}{
		{name: "one file", active: lines, want: 9},
		{name: "one record", active: lines[:1], want: 1},
		{name: "a segment", segment: lines[:3], active: lines[3:5], want: 5},
		{name: "the active file is new", segment: lines[:3], active: [][]byte{}, want: 3},
		{name: "the active file was renamed", segment: lines[:3], want: 3},
		{name: "an empty log", active: [][]byte{}, want: 0},
		{name: "a long last line", active: [][]byte{lines[0], long(lines[1], 200_000)}, want: 2},
		{name: "a long line before it", active: [][]byte{long(lines[0], 200_000), lines[1]},
			want: 2},
		{name: "no record", active: [][]byte{lines[0], []byte(`{"text":"not a record"}`)},
			err: "the last line is not a record"},
		{name: "nothing but an empty line", active: [][]byte{[]byte("\n")},
			err: "the last line is not a record"},
		{name: "an empty line", active: [][]byte{lines[0], []byte("\n")},
			err: "the last line is not a record"},
	} {
		t.Run(test.name, func(t *testing.T) {
			os.Remove(segment)
			os.Remove(file)
			if test.segment != nil {
				writeLines(t, segment, test.segment...)
			}
			if test.active != nil {
				writeLines(t, file, test.active...)
			}
			got, err := audit.LastSeq(file)
			if got != test.want || (err == nil) != (test.err == "") ||
				err != nil && (!strings.Contains(err.Error(), test.err) ||
					!strings.Contains(err.Error(), file)) {
				t.Errorf("LastSeq: %d, error %v, want %d, error %q", got, err, test.want, test.err)
			}
		})
	}
}

func TestLastSeqSkipsIncompleteLine(t *testing.T) {
	file, _ := writeLog(t, 3)
	whole := readFile(t, file)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for cut := range len(lines[2]) + len(lines[1]) {
		if err := os.WriteFile(file, whole[:len(whole)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := uint64(3)
		if cut > 0 {
			want = 2
		}
		if cut > len(lines[2]) {
			want = 1
		}
		if got, err := audit.LastSeq(file); err != nil || got != want {
			t.Fatalf("with %d bytes less: %d, error %v, want %d", cut, got, err, want)
		}
	}
	if err := os.WriteFile(file, whole[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := audit.LastSeq(file); err != nil || got != 0 {
		t.Errorf("without a complete line: %d, error %v, want 0", got, err)
	}
}

func TestLastSeqOfNoLog(t *testing.T) {
	dir := t.TempDir()
	if _, err := audit.LastSeq(filepath.Join(dir, "gatekit.jsonl")); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("LastSeq: error %v, want fs.ErrNotExist", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "gatekit.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.LastSeq(filepath.Join(dir, "gatekit.jsonl")); err == nil {
		t.Error("LastSeq of a folder succeeded, want an error")
	}
}
