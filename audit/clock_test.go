package audit

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/core/pipeline"
)

// TestClockSetBackWhileOpenIsRecorded is an internal test: it changes the clock time of the last
// maintenance run, because a test cannot set the clock of the system back.
func TestClockSetBackWhileOpenIsRecorded(t *testing.T) {
	l, err := Open(Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []time.Duration{0, time.Hour, -time.Hour} {
		l.maintenance.runMu.Lock()
		l.maintenance.lastClock = time.Now().Round(0).Add(offset)
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
			t.Errorf("the reason is %q, want that the clock was set back by an hour", record.Reason)
		}
	}
	if strings.Join(got, " ") != "test clock test test" {
		t.Errorf("the log has the actions %q", got)
	}
	v := Verification{File: l.files.path}
	if _, err := v.Run(t.Context()); err != nil {
		t.Error(err)
	}
}
