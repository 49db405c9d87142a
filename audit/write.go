package audit

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// write appends the lines of a batch to the output, all or none. The caller holds l.writing.
func (l *Log) write(b *batch) error {
	err := l.tryWrite(b.lines)
	switch {
	case err != nil:
		err = fmt.Errorf("write the audit log: %w", err)
		if l.writeErr == nil {
			l.logger.Error("audit log write failed; messages are denied", "error", err)
		}
	case l.writeErr != nil:
		l.logger.Info("audit log written again")
	}
	l.writeErr = err
	if err == nil {
		if l.maintenance != nil {
			l.maintenance.addLeaves(b.leaves, int64(len(b.lines)))
		}
		l.committed.Store(b.last)
		l.noteGapRecorded(b.gap)
	}
	return err
}

func (l *Log) tryWrite(lines []byte) error {
	if err := errors.Join(l.fileErr, l.truncateTorn()); err != nil {
		return err
	}
	if l.files != nil {
		if err := l.makeRoom(int64(len(lines))); err != nil {
			return err
		}
	}
	checkDue := l.files != nil && (l.durability == DurabilityFsync ||
		time.Since(l.lastFileCheck) >= fileCheckInterval)
	if checkDue {
		if err := l.checkFile(); err != nil {
			return err
		}
	}
	n, err := l.out.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err == nil && l.durability == DurabilityFsync {
		err = l.out.Sync()
	}
	if err == nil && l.files != nil {
		lost := l.files.checkSize(l.size + int64(n))
		if lost == nil && checkDue {
			lost = l.files.checkIdentity()
		}
		if lost != nil {
			l.loseFile(lost)
			// the write of these lines counts as failed, so they must not stay in the file
			return errors.Join(lost, l.files.cutOwn(lines))
		}
	}
	if err != nil {
		l.torn = true
		truncateErr := l.truncateTorn()
		if n == 0 && errors.Is(truncateErr, errors.ErrUnsupported) {
			// nothing was written, so nothing has to be cut off
			l.torn, truncateErr = false, nil
		}
		return errors.Join(err, truncateErr)
	}
	l.size += int64(len(lines))
	if l.files != nil {
		l.last = append(l.last[:0], lines[max(0, len(lines)-tailBytes):]...)
	}
	return nil
}

// tailBytes is how many bytes at the end of the active file are compared.
const tailBytes = 256

// fileCheckInterval is how long a check of the active file's identity and last bytes stays valid,
// except with DurabilityFsync: a check costs as much as a write. The length is checked after each
// write.
const fileCheckInterval = 100 * time.Millisecond

// checkFile returns an error when somebody else has moved, removed, replaced or changed the active
// file. Nothing is written from then on. The caller holds l.writing.
func (l *Log) checkFile() error {
	if l.fileErr != nil {
		return l.fileErr
	}
	l.lastFileCheck = time.Now()
	err := l.files.checkIdentity()
	if err == nil && !l.torn {
		err = l.files.checkContent(l.size, l.last)
	}
	if err != nil {
		l.loseFile(err)
	}
	return l.fileErr
}

// loseFile ends the log because of err: somebody else moved, replaced or changed the active file.
// loseFile does not change the file.
func (l *Log) loseFile(err error) {
	l.fileErr, l.torn = err, false
	l.maintenance.reportLostFile(err)
}

// makeRoom starts the next file if the active file would be too large with size more bytes.
func (l *Log) makeRoom(size int64) error {
	if err := l.maintenance.checkUnsigned(); err != nil {
		return err
	}
	if l.size == 0 || l.size+size <= l.segmentBytes {
		return nil
	}
	return l.rotate()
}

// rotate starts the next file. The caller holds l.writing.
func (l *Log) rotate() error {
	// rotation renames by path, so the path must still name the file that is open
	if err := l.checkFile(); err != nil {
		return err
	}
	rotated, err := l.files.rotate()
	if rotated {
		l.size, l.last = 0, l.last[:0]
		l.maintenance.noteRotation()
	}
	if err != nil {
		return fmt.Errorf("rotate: %w", err)
	}
	return nil
}

// truncateTorn cuts off the partial lines that a failed write may have left.
func (l *Log) truncateTorn() error {
	if !l.torn {
		return nil
	}
	if err := l.out.Truncate(l.size); err != nil {
		return fmt.Errorf("cut off a partial write: %w", err)
	}
	l.torn = false
	return nil
}

// isWhole reports whether the output holds the committed lines and nothing else.
func (l *Log) isWhole() bool {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	return !l.torn && l.fileErr == nil
}
