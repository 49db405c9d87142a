package audit

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSuspendedTimeIsPartOfTimeSinceBoot is an internal test, because suspendedTime has an effect
// on a log only on a machine that was suspended.
func TestSuspendedTimeIsPartOfTimeSinceBoot(t *testing.T) {
	var boot, running unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &running); err != nil {
		t.Fatal(err)
	}
	suspended := suspendedTime()
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		t.Fatal(err)
	}
	if most := time.Duration(boot.Nano() - running.Nano()); suspended > most ||
		suspended < most-2*time.Second {
		t.Errorf("the machine was suspended for %s, want about %s", suspended, most)
	}
}
