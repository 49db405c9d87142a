package audit_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
)

// TestTornCheckpointInAnchorIsSkipped cuts an anchor file at every seventh byte of its last
// checkpoint, as a crash or a full disk would, and continues the log.
func TestTornCheckpointInAnchorIsSkipped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	anchor := file + ".anchor"
	writeSession := func() {
		l := open(t, audit.Options{File: file, AnchorFile: anchor})
		record(t, l, event(""))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	writeSession()
	writeSession()
	publicKey := readPublicKey(t, file)
	whole := readFile(t, anchor)
	if bytes.HasPrefix(whole, []byte("\n")) || bytes.Contains(whole, []byte("\n\n\n")) {
		t.Errorf("the anchor file has more empty lines than needed:\n%s", whole)
	}
	last := bytes.LastIndex(whole, []byte("\n\n"+checkpoint(t, file).Origin)) + 2
	for cut := last + 1; cut <= len(whole); cut += 7 {
		if err := os.WriteFile(anchor, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		writeSession()
		all, torn, err := audit.OpenCheckpoints(readFile(t, anchor), publicKey)
		if err != nil {
			t.Fatalf("cut at %d of %d: %v in\n%s", cut, len(whole), err, readFile(t, anchor))
		}
		isLast := func(c *audit.Checkpoint) bool { return c.Root == fullCheckpoint(t, file).Root }
		if got, want := len(all)+torn, 4; got != want || !slices.ContainsFunc(all, isLast) ||
			torn > 1 || torn == 0 && cut < len(whole)-2 {
			t.Errorf("cut at %d of %d: got %d whole and %d torn checkpoints; want %d in total, "+
				"at most one of them torn, and the log's last checkpoint whole", cut, len(whole),
				len(all), torn, want)
		}
	}
}

func TestLostAnchorIsRecordedAndReportedByHealth(t *testing.T) {
	for _, retention := range []audit.Retention{{}, {For: 24 * time.Hour}} {
		testLostAnchor(t, retention)
	}
}

func testLostAnchor(t *testing.T, retention audit.Retention) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file, anchor := filepath.Join(dir, "gatekit.jsonl"), filepath.Join(dir,
			"elsewhere", "anchor")
		l := open(t, audit.Options{File: file, AnchorFile: anchor, Keep: retention})
		if err := l.Health(); err != nil {
			t.Errorf("health: %v, want nil, because nothing has failed yet", err)
		}
		if err := os.RemoveAll(filepath.Dir(anchor)); err != nil {
			t.Fatal(err)
		}
		writeLines(t, filepath.Dir(anchor), []byte("a file in its place"))
		record(t, l, event(""))
		time.Sleep(90 * time.Second)
		if err := l.Health(); err == nil || !strings.Contains(err.Error(), "anchor a checkpoint") {
			t.Errorf("health: %v, want the error of the anchor file", err)
		}
		if err := os.Remove(filepath.Dir(anchor)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // a failed write is tried again after a second
		if err := l.Health(); err != nil {
			t.Errorf("health: %v, want nil, because the anchor file is back", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var actions []string
		for _, line := range allLines(t, file) {
			r, err := audit.ParseRecord(line)
			if err != nil {
				t.Fatal(err)
			}
			actions = append(actions, r.Action)
		}
		if want := []string{"test", "anchor lost", "anchor back"}; !slices.Equal(actions, want) {
			t.Errorf("the records are %q, want %q", actions, want)
		}
		if checkpoints, torn, err := audit.OpenCheckpoints(readFile(t, anchor),
			readPublicKey(t, file)); err != nil || torn > 0 ||
			checkpoints[len(checkpoints)-1].Root != fullCheckpoint(t, file).Root {
			t.Errorf("the last checkpoint in the anchor file is not that of the log: %v", err)
		}
	})
}

// TestOpenReportsMissingFiles opens a log after some of its files were removed.
func TestOpenReportsMissingFiles(t *testing.T) {
	dir, anchor := t.TempDir(), filepath.Join(t.TempDir(), "anchor")
	write := func(dir string, n int) (logged string, err error) {
		t.Helper()
		var log bytes.Buffer
		l, err := audit.Open(audit.Options{File: filepath.Join(dir, "gatekit.jsonl"),
			AnchorFile: anchor, SegmentBytes: 2000, Logger: slog.New(slog.NewTextHandler(&log,
				nil))})
		if err != nil {
			return log.String(), err
		}
		for range n {
			record(t, l, event(""))
		}
		return log.String(), l.Close()
	}
	if logged, err := write(dir, 50); logged != "" || err != nil {
		t.Fatalf("a new log: error %v, logged %q; want neither", err, logged)
	}
	olderCopy := copyFolder(t, dir)
	if logged, err := write(dir, 1); logged != "" || err != nil {
		t.Fatalf("an undamaged log: error %v, logged %q; want neither", err, logged)
	}
	copyWithout := func(patterns ...string) string {
		t.Helper()
		copied := copyFolder(t, dir)
		for _, pattern := range patterns {
			all, err := filepath.Glob(filepath.Join(copied, pattern))
			if err != nil || len(all) == 0 {
				t.Fatalf("%s matches the files %q, error %v; want at least one file", pattern, all,
					err)
			}
			for _, path := range all {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
		}
		return copied
	}
	segments, err := audit.Segments(filepath.Join(dir, "gatekit.jsonl"))
	if err != nil || len(segments) < 4 {
		t.Fatalf("the files are %q, error %v; want at least four files", segments, err)
	}
	var firstSeqs []uint64
	for _, s := range segments {
		r, err := audit.ParseRecord(bytes.SplitN(readFile(t, s), []byte("\n"), 2)[0])
		if err != nil {
			t.Fatal(err)
		}
		firstSeqs = append(firstSeqs, r.Seq)
	}
	for _, tt := range []struct{ name, dir, logged, err string }{
		{"the whole log is an older copy", olderCopy, "", "the log ends at record 50, but a " +
			"checkpoint in its anchor " + anchor + " covers 51 records: an older copy replaced " +
			"the log"},
		{"a segment in the middle is missing", copyWithout(filepath.Base(segments[1])),
			fmt.Sprintf("from=%d through=%d", firstSeqs[1], firstSeqs[2]-1), ""},
		{"all files but the key are missing", copyWithout("gatekit.jsonl*.tree", "gatekit.jsonl",
			"gatekit-*"),
			"the key of an older one exists", ""},
		{"all files but the private key are missing", copyWithout("gatekit.jsonl*.tree",
			"gatekit.jsonl", "gatekit-*", "gatekit.jsonl.pub"), "the key of an older one exists",
			""},
		{"all files are missing", t.TempDir(), "the anchor file belongs to another audit log", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			logged, err := write(tt.dir, 0)
			if !strings.Contains(logged, tt.logged) || tt.logged == "" && logged != "" {
				t.Errorf("logged %q, want a text with %q (\"\": want no text)", logged, tt.logged)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil ||
				!strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(),
				"\nhint: ")) {
				t.Errorf("error %v, want one with %q and a hint (\"\": want no error)", err,
					tt.err)
			}
		})
	}
}
