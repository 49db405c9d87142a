package audit

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspendedTime returns for how long the machine has been suspended since it started. Go's
// monotonic clock does not count that time.
func suspendedTime() time.Duration {
	var withSuspend, without unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &withSuspend) != nil ||
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &without) != nil {
		return 0
	}
	// the two clocks are read one after the other, so differences below a second mean nothing
	return time.Duration(withSuspend.Nano() - without.Nano()).Truncate(time.Second)
}
