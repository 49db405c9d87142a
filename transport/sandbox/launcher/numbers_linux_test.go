//go:build amd64 || arm64

package launcher

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The compiler compares the numbers with those of golang.org/x/sys, for each architecture: an index
// that is not 0 is out of range.
var (
	_ = [1]int{}[sysCloseRange-unix.SYS_CLOSE_RANGE]
	_ = [1]int{}[sysLandlockRestrictSelf-unix.SYS_LANDLOCK_RESTRICT_SELF]
	_ = [1]int{}[sysSeccomp-unix.SYS_SECCOMP]
	_ = [1]int{}[closeRangeCloexec-unix.CLOSE_RANGE_CLOEXEC]
	_ = [1]int{}[prSetNoNewPrivs-unix.PR_SET_NO_NEW_PRIVS]
	_ = [1]int{}[prCapbsetDrop-unix.PR_CAPBSET_DROP]
	_ = [1]int{}[prCapAmbient-unix.PR_CAP_AMBIENT]
	_ = [1]int{}[prCapAmbientClearAll-unix.PR_CAP_AMBIENT_CLEAR_ALL]
	_ = [1]int{}[seccompSetModeFilter-unix.SECCOMP_SET_MODE_FILTER]
	_ = [1]int{}[capLastCap-unix.CAP_LAST_CAP]
)

func TestKeptCapabilities(t *testing.T) {
	want := []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID,
		unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_NET_BIND_SERVICE}
	if !slices.Equal(keptCapabilities[:], want) {
		t.Errorf("got %d, want %d", keptCapabilities, want)
	}
}
