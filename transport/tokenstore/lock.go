package tokenstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"gatekit/core/backoff"

	"golang.org/x/sys/unix"
)

// lockRetry is how often lock tries again while another process holds the lock.
const lockRetry = 20 * time.Millisecond

// lock takes an exclusive lock on the file at path. The file is never removed: otherwise two
// processes could lock two files of this name.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the tokens: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock the tokens: %w\nhint: put the token folder on a file "+
				"system that supports locks", err)
		case !backoff.Sleep(ctx, lockRetry):
			f.Close()
			return nil, context.Cause(ctx)
		}
	}
}
