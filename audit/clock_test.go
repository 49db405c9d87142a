package audit

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/core/pipeline"
)

// TestClockChangeWhileOpenIsRecorded is an internal test: it changes the clock time of the last
// maintenance run, because a test cannot set the clock of the system.
func TestClockChangeWhileOpenIsRecorded(t *testing.T) {
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
		text, change, changed := strings.Cut(record.Reason, " by ")
		if changed {
			change, _, _ = strings.Cut(change, ":")
			if d, err := time.ParseDuration(change); err != nil ||
				(d-time.Hour).Abs() > time.Minute {
				t.Errorf("the reason is %q, want a change of an hour", record.Reason)
			}
		}
		got = append(got, strings.TrimSpace(record.Action+" "+text))
	}
	if want := []string{"test", "clock the clock was set back", "test",
		"clock the clock was set forward", "test"}; !slices.Equal(got, want) {
		t.Errorf("the log has the records %q, want %q", got, want)
	}
	v := Verification{File: l.files.path}
	if _, err := v.Run(t.Context()); err != nil {
		t.Error(err)
	}
}
