//go:build unix

package audit

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock makes f ours until it is closed, also against other processes that lock. A child does not
// inherit it: Go opens files close-on-exec. Who looks whether it is locked, see inUse, holds it for
// a moment, which is waited for.
func lock(f *os.File) error {
	for tries := 1; ; tries++ {
		if err := flock(f, unix.LOCK_EX); !errors.Is(err, errInUse) || tries == 10 {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// inUse says whether a process writes the log. It keeps no other from looking, and none from
// writing.
func inUse(file string) bool {
	f, err := os.Open(file + ".lock")
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(flock(f, unix.LOCK_SH), errInUse)
}

// flock locks f, or says at once that it cannot.
func flock(f *os.File, how int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	if err := raw.Control(func(fd uintptr) {
		locked = unix.Flock(int(fd),
			how|unix.LOCK_NB)
	}); err != nil {
		return err
	}
	if errors.Is(locked, unix.EWOULDBLOCK) {
		return errInUse
	}
	if locked != nil {
		return fmt.Errorf("lock it: %w\nhint: put the audit log on a file system that can lock "+
			"files", locked)
	}
	return nil
}

// identity is what a file is, whatever its name.
type identity struct{ dev, ino uint64 }

// identityOf is that of the file with this name.
func identityOf(path string) (identity, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{uint64(s.Dev), uint64(s.Ino)}, nil
}
