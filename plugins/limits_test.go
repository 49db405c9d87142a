package plugins

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/plugins/proto"
)

// What is left of the memory of a process holds messages, each of which takes forty times its size.
func TestLargeMessagesHaveAFortiethOfTheMemory(t *testing.T) {
	const unit = 256 << 10 // the limit counts in these units
	for _, c := range []struct {
		maxMemory int64
		units     int // of all messages together
		largest   int
	}{
		{baseMemory + 40*100*unit, 100, 75 * unit},
		{baseMemory + 40*100*unit - 1, 99, 74 * unit},
		{1 << 30, 95, 71 * unit},
		{-1, 95, math.MaxInt}, // as with 1 GiB, but any message may be judged
		{72 << 20, 1, unit},   // a quarter of the memory, at least
		{4 * 40 * unit * 2, 2, unit},
		{1, 1, unit},
	} {
		limit, largest := newByteLimit(c.maxMemory)
		if largest != c.largest {
			t.Errorf("%d bytes of memory: the largest message has %d bytes, want %d", c.maxMemory,
				largest, c.largest)
		}
		want := proto.NewByteLimit(int64(c.units) * unit).Largest()
		if got := limit.Largest(); got != want {
			t.Errorf("%d bytes of memory: one sender may have %d bytes, want %d", c.maxMemory, got,
				want)
		}
	}
}

// One failure of a stage is logged in a minute. The next log line has the number of the others.
func TestFailuresInAMinuteAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		h := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		s := &Stage{spec: Spec{Name: "x"}, process: &supervisor{host: h}}
		for i, c := range []struct {
			after time.Duration
			want  string // of the log line; "" is none
		}{
			{0, "plugin=x error=no\n"}, {0, ""}, {time.Minute - 1, ""},
			{1, "plugin=x error=no not_logged=2\n"}, {time.Minute, "plugin=x error=no\n"},
			{time.Second, ""}, {time.Hour, "plugin=x error=no not_logged=1\n"},
		} {
			time.Sleep(c.after)
			log.Reset()
			s.logFailure(errors.New("no"))
			got := log.String()
			if (got == "") != (c.want == "") || !strings.HasSuffix(got, c.want) {
				t.Errorf("failure %d: logged %q, want %q", i, got, c.want)
			}
		}
	})
}
