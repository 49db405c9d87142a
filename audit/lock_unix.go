//go:build unix

package audit

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock takes an exclusive lock on f, which lasts until f is closed. Child processes do not inherit
// the lock, because Go opens files close-on-exec. lock retries for 90 ms, because isLocked holds a
// shared lock for a moment.
func lock(f *os.File) error {
	for tries := 1; ; tries++ {
		if err := flock(f, unix.LOCK_EX); !errors.Is(err, errInUse) || tries == 10 {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// isLocked reports whether a process has the log open for writing. Its own shared lock is released
// at once, so that other processes can open the log.
func isLocked(file string) bool {
	f, err := os.Open(file + ".lock")
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(flock(f, unix.LOCK_SH), errInUse)
}

// flock takes a lock on f without waiting. The error is errInUse if another process prevents that.
// how is unix.LOCK_EX or unix.LOCK_SH.
func flock(f *os.File, how int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	if err := raw.Control(func(fd uintptr) {
		lockErr = unix.Flock(int(fd),
			how|unix.LOCK_NB)
	}); err != nil {
		return err
	}
	if errors.Is(lockErr, unix.EWOULDBLOCK) {
		return errInUse
	}
	if lockErr != nil {
		return fmt.Errorf("lock the file: %w\nhint: put the audit log on a file system that "+
			"supports locks", lockErr)
	}
	return nil
}

// fileID identifies a file regardless of its name.
type fileID struct{ dev, ino uint64 }

// fileIDOf returns the identity of the file at path.
func fileIDOf(path string) (fileID, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return fileID{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileID{uint64(s.Dev), uint64(s.Ino)}, nil
}
