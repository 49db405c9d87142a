package audit

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/pipeline"
)

// TestSmallestRecordedClockChange is an internal test for the same reason as the test below.
func TestSmallestRecordedClockChange(t *testing.T) {
	for _, tt := range []struct {
		// since the last run, the clock has advanced by clock, the log ran for ran, and the machine
		// was suspended for suspended
		clock, ran, suspended time.Duration
		want                  string // part of the reason; "" for no record
	}{
		{0, 0, 0, ""},
		{-1, 0, 0, "set back by 0s"},
		{-time.Second, 0, 0, "set back by 1s"},
		{time.Minute, 0, 0, "set forward by 1m0s"},
		{time.Minute - 1, 0, 0, ""},
		{70 * time.Second, 10 * time.Second, 0, "set forward by 1m0s"},
		{time.Hour, 0, time.Hour, ""},
		{2 * time.Hour, 0, time.Hour, "set forward by 1h0m0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var logged bytes.Buffer
			o := Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl"),
				Logger: slog.New(slog.NewTextHandler(&logged, nil))}
			l, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			m := l.maintenance
			m.lastClock, m.lastRun = time.Now().Round(0).Add(-tt.clock), time.Now().Add(-tt.ran)
			m.lastSuspended = suspendedTime() - tt.suspended
			m.run()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(o.File)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(b), tt.want) || (tt.want == "") != (len(b) == 0) {
				t.Errorf("%+v: the log is %q, want a record with %q (\"\": no record)", tt, b,
					tt.want)
			}
			if logged.Len() > 0 {
				t.Errorf("%+v: the log reported %s, want nothing", tt, &logged)
			}
		})
	}
}

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
