package audit

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestVaryingSuspendedTimeIsCountedOnce is an internal test, because it replaces suspendedTime.
// That function truncates to seconds. So when the machine was suspended for about 101 s, it returns
// 100 s at one time and 101 s at another.
func TestVaryingSuspendedTimeIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suspended := 100 * time.Second
		a := &ages{openAt: time.Now(), suspended: suspended,
			suspendedTime: func() time.Duration { return suspended }}
		for range 100 {
			suspended = 201*time.Second - suspended // 100 and 101 in turn
			time.Sleep(10 * time.Millisecond)
			a.update(0)
		}
		if a.open != 2*time.Second {
			t.Errorf("the log was open for %s, want 2s: 1s passed, and 1s was suspended", a.open)
		}
		suspended += time.Hour
		a.update(0)
		if a.open < time.Hour {
			t.Errorf("the log was open for %s, want the hour in which the machine was suspended",
				a.open)
		}
	})
}
