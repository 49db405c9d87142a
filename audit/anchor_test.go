package audit_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
)

// TestATornCheckpointDoesNotSpoilTheAnchor cuts the last checkpoint of an anchor at each byte, as a crash or a full disk would, and goes on with the log.
func TestATornCheckpointDoesNotSpoilTheAnchor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	anchor := file + ".anchor"
	session := func() {
		l := open(t, audit.Options{File: file, AnchorFile: anchor})
		record(t, l, event(""))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	session()
	session()
	k := key(t, file)
	whole := read(t, anchor)
	last := bytes.LastIndex(whole, []byte("\n\n"+checkpoint(t, file).Origin)) + 2
	for cut := last + 1; cut <= len(whole); cut += 7 {
		if err := os.WriteFile(anchor, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		session()
		all, torn, err := audit.OpenCheckpoints(read(t, anchor), k)
		if err != nil {
			t.Fatalf("cut at %d of %d: %v in\n%s", cut, len(whole), err, read(t, anchor))
		}
		isLast := func(c *audit.Checkpoint) bool { return c.Root == inTree(t, file).Root }
		if got, want := len(all)+torn, 4; got != want || !slices.ContainsFunc(all, isLast) || torn > 1 || torn == 0 && cut < len(whole)-2 {
			t.Errorf("cut at %d of %d: %d checkpoints and %d torn, want four in all, and the last among them", cut, len(whole), len(all), torn)
		}
	}
}

func TestAnAnchorThatIsLostIsARecordAndAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file, anchor := filepath.Join(dir, "gatekit.jsonl"), filepath.Join(dir, "elsewhere", "anchor")
		l := open(t, audit.Options{File: file, AnchorFile: anchor})
		if err := l.Fault(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(filepath.Dir(anchor)); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Dir(anchor), []byte("a file in its place"))
		record(t, l, event(""))
		time.Sleep(2 * time.Minute)
		if err := l.Fault(); err == nil || !strings.Contains(err.Error(), "anchor a checkpoint") {
			t.Errorf("the fault is %v", err)
		}
		if err := os.Remove(filepath.Dir(anchor)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if err := l.Fault(); err != nil {
			t.Errorf("the fault is %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var actions []string
		for _, line := range all(t, file) {
			r, err := audit.ParseRecord(line)
			if err != nil {
				t.Fatal(err)
			}
			actions = append(actions, r.Action)
		}
		if want := []string{"test", "anchor lost", "anchor back"}; !slices.Equal(actions, want) {
			t.Errorf("the records are %q, want %q", actions, want)
		}
		if checkpoints, torn, err := audit.OpenCheckpoints(read(t, anchor), key(t, file)); err != nil || torn > 0 || checkpoints[len(checkpoints)-1].Root != inTree(t, file).Root {
			t.Errorf("the anchor is not what the log is: %v", err)
		}
	})
}
