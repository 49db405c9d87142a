package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestDelayDoublesUpToTheLongest(t *testing.T) {
	for _, c := range []struct {
		failures int
		want     time.Duration
	}{
		{-1, 0}, {0, 0}, {1, 200 * time.Millisecond}, {2, 400 * time.Millisecond},
		{5, 3200 * time.Millisecond}, {9, 30 * time.Second}, {1 << 40, 30 * time.Second},
	} {
		if got := Delay(200*time.Millisecond, 30*time.Second, c.failures); got != c.want {
			t.Errorf("after %d failures, the delay is %v, want %v", c.failures, got, c.want)
		}
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if !Sleep(ctx, 900*time.Millisecond) {
			t.Error("Sleep reported that its context ended before the delay")
		}
		if Sleep(ctx, time.Hour) {
			t.Error("Sleep reported that an hour passed within a second")
		}
	})
}
