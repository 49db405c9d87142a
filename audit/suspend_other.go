//go:build !linux

package audit

import "time"

// suspendedTime returns 0: the time in which the machine was suspended is not known here, and
// does not count.
func suspendedTime() time.Duration { return 0 }
