package audit_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
)

// TestRetentionAppliesToIdleLog writes a few records, and then none.
func TestRetentionAppliesToIdleLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, Keep: audit.Retention{For: time.Hour}})
		o := event("")
		for range 256 {
			o.Time = time.Now()
			record(t, l, o)
		}
		// the test's clock is not that of the file system
		if err := os.Chtimes(file, o.Time, o.Time); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		if n := len(allLines(t, file)); n != 256 {
			t.Errorf("after half an hour there are %d records", n)
		}
		time.Sleep(45 * time.Minute)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := audit.ParseRecord(allLines(t, file)[0])
		if err != nil || r.Seq != 257 || r.Action != "prune" || r.From != 1 || r.Through != 256 {
			t.Errorf("after more than an hour the log begins with %+v, %v", r, err)
		}
		v := audit.Verification{File: file}
		if done, err := v.Run(t.Context()); err != nil || done.First != 257 {
			t.Errorf("%+v, %v", done, err)
		}
	})
}
