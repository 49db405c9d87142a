package audit

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/core/pipeline"
)

// TestClockSetBackWhileClosedIsRecorded is an internal test, because no other can set a clock back.
func TestClockSetBackWhileClosedIsRecorded(t *testing.T) {
	l, err := Open(Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	for _, forward := range []time.Duration{0, time.Hour, -time.Hour} {
		l.maintenance.runMu.Lock()
		// the clock at the last run
		l.maintenance.lastClock = time.Now().Round(0).Add(forward)
		l.maintenance.runMu.Unlock()
		l.maintenance.run()
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(),
			Action: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	r := Reader{File: l.files.path}
	for record, err := range r.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, record.Action)
		if record.Action == "clock" && !strings.HasPrefix(record.Reason,
			"the clock was set back by 59m59") && !strings.HasPrefix(record.Reason,
			"the clock was set back by 1h0m0s: ") {
			t.Errorf("the reason is %q", record.Reason)
		}
	}
	if strings.Join(got, " ") != "test clock test test" {
		t.Errorf("the log holds %q", got)
	}
	v := Verification{File: l.files.path}
	if _, err := v.Run(t.Context()); err != nil {
		t.Error(err)
	}
}
