package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewestCheckpointIsWrittenAfterSlowWrite is an internal test: it begins when the write of an
// older checkpoint, which took longer than its time limit, has ended.
func TestNewestCheckpointIsWrittenAfterSlowWrite(t *testing.T) {
	for _, tt := range []struct {
		older error // of the older write
		file  string
	}{
		{nil, "newest\n\n"},
		{errors.New("disk full"), ""},
	} {
		file := filepath.Join(t.TempDir(), "anchor")
		a := anchors{file: file, pending: []byte("newest\n"), writing: []byte("older\n"),
			result: make(chan error, 1)}
		a.result <- tt.older
		if err := a.write(false); !errors.Is(err, tt.older) {
			t.Errorf("error %v, want %v", err, tt.older)
		}
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if string(b) != tt.file {
			t.Errorf("after the error %v of the older write, the file holds %q, want %q", tt.older,
				b, tt.file)
		}
	}
}

// TestAnchorFileHasOneEmptyLineBetweenCheckpoints appends to files that end in different ways.
func TestAnchorFileHasOneEmptyLineBetweenCheckpoints(t *testing.T) {
	for before, want := range map[string]string{
		"":              "new\n\n",
		"\n":            "\n\n\nnew\n\n",
		"old\n\n":       "old\n\nnew\n\n",
		"old\n":         "old\n\n\nnew\n\n",
		"a part of old": "a part of old\n\nnew\n\n",
	} {
		file := filepath.Join(t.TempDir(), "anchor")
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := appendNote(file, []byte("new\n")); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != want {
			t.Errorf("the file with %q is now %q, error %v; want %q", before,
				strings.TrimPrefix(string(b), before), err, want)
		}
	}
}
