package audit_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
)

// TestRetentionAppliesToIdleLog writes 256 records, and then waits until they expire.
func TestRetentionAppliesToIdleLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, Keep: audit.Retention{For: time.Hour}})
		o := event("")
		for range 256 {
			o.Time = time.Now()
			record(t, l, o)
		}
		// the file system does not use the clock of synctest
		if err := os.Chtimes(file, o.Time, o.Time); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		if n := len(allLines(t, file)); n != 256 {
			t.Errorf("after half an hour there are %d records, want 256", n)
		}
		time.Sleep(45 * time.Minute)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := audit.ParseRecord(allLines(t, file)[0])
		if err != nil || r.Seq != 257 || r.Action != "prune" || r.From != 1 || r.Through != 256 {
			t.Errorf("after more than an hour the log begins with %+v, %v; want a record of the "+
				"removal of 1 to 256", r, err)
		}
		v := audit.Verification{File: file}
		if done, err := v.Run(t.Context()); err != nil || done.First != 257 {
			t.Errorf("verification: %+v, %v; want the first record 257", done, err)
		}
	})
}
