package audit

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// write writes whole lines to the end, or leaves out as it was. The caller has l.writing.
func (l *Log) write(b *batch) error {
	err := l.tryWrite(b.lines)
	switch {
	case err != nil:
		err = fmt.Errorf("write the audit log: %w", err)
		if l.writeErr == nil {
			l.logger.Error("the audit log cannot be written, messages are denied", "error", err)
		}
	case l.writeErr != nil:
		l.logger.Info("the audit log is written again")
	}
	l.writeErr = err
	if err == nil {
		if l.maintenance != nil {
			l.maintenance.addLeaves(b.leaves)
		}
		l.committed.Store(b.last)
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
	n, err := l.out.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err == nil && l.durability == DurabilityFsync {
		err = l.out.Sync()
	}
	if err == nil && l.files != nil && (l.durability == DurabilityFsync ||
		time.Since(l.lastFileCheck) >= fileCheckInterval) {
		err = l.checkFile()
	}
	if err != nil {
		l.torn = true
		back := l.truncateTorn()
		if n == 0 && errors.Is(back, errors.ErrUnsupported) {
			l.torn, back = false, nil // a writer that took nothing has nothing to give back
		}
		return errors.Join(err, back)
	}
	l.size += int64(len(lines))
	return nil
}

// fileCheckInterval is how long, but with Fsync, the file is taken to be the log's once that was seen: to
// look costs as much as to write.
const fileCheckInterval = 100 * time.Millisecond

// checkFile is an error when the file that is written is no longer the log's, and nothing is written any
// more. The caller has l.writing.
func (l *Log) checkFile() error {
	if l.fileErr == nil {
		l.lastFileCheck = time.Now()
		if l.fileErr = l.files.checkIdentity(); l.fileErr != nil {
			l.maintenance.reportLostFile(l.fileErr)
		}
	}
	return l.fileErr
}

// makeRoom begins another file when this one would grow too large.
func (l *Log) makeRoom(more int64) error {
	if err := l.maintenance.checkUnsigned(); err != nil {
		return err
	}
	if l.size == 0 || l.size+more <= l.segmentBytes {
		return nil
	}
	return l.rotate()
}

// rotate begins another file. The caller has l.writing.
func (l *Log) rotate() error {
	if err := l.checkFile(); err != nil { // it is renamed by its name
		return err
	}
	rotated, err := l.files.rotate()
	if rotated {
		l.size = 0
		l.maintenance.noteRotation()
	}
	if err != nil {
		return fmt.Errorf("begin another file: %w", err)
	}
	return nil
}

// truncateTorn cuts off what a failed write may have left behind.
func (l *Log) truncateTorn() error {
	if !l.torn {
		return nil
	}
	if err := l.out.Truncate(l.size); err != nil {
		return fmt.Errorf("take back what was written in part: %w", err)
	}
	l.torn = false
	return nil
}

// isWhole says whether the file holds nothing but what was answered for.
func (l *Log) isWhole() bool {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	return !l.torn
}
