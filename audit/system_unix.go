//go:build unix

package audit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock makes f ours until it is closed, also against other processes that lock. A child does not inherit it: Go opens files close-on-exec.
func lock(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	if err := raw.Control(func(fd uintptr) { locked = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
		return err
	}
	if errors.Is(locked, unix.EWOULDBLOCK) {
		return errInUse
	}
	if locked != nil {
		return fmt.Errorf("lock it: %w\nhint: put the audit log on a file system that can lock files", locked)
	}
	return nil
}

// syncPath makes sure that a file is on the disk; of a folder, that its files are found again.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
