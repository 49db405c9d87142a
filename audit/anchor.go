package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"

	"gatekit/core/atomicfile"
	"gatekit/core/regularfile"
)

// anchorInterval is how often the anchor file gets a checkpoint while records are written. A
// checkpoint covers all records before it, so nothing is lost when some checkpoints are skipped.
const anchorInterval = time.Minute

// anchors are the destinations of checkpoints outside of the log.
type anchors struct {
	file string
	// These five fields are guarded by maintenance.runMu.
	pending   []byte     // newest checkpoint that the file does not have; nil for none
	lastWrite time.Time  // when the file last got a checkpoint
	writing   []byte     // the checkpoint that a goroutine is writing; nil for none
	result    chan error // gets the error of that goroutine
	err       error      // error of the last write; a change also needs maintenance.mu

	publish func([]byte)
	// These two fields are guarded by maintenance.mu.
	toPublish  []byte        // newest checkpoint that publish has not got
	publishing chan struct{} // closed when publishLoop ends; nil while it does not run
}

// anchorFirst writes c to the anchor file if that file is empty or missing. c is the checkpoint
// from which the log continues. If the anchor file is missing later, somebody has removed it.
func (m *maintenance) anchorFirst(c *Checkpoint) {
	m.runMu.Lock()
	defer m.runMu.Unlock()
	if m.anchors.file == "" {
		return
	}
	if info, err := os.Stat(m.anchors.file); err != nil || info.Mode().IsRegular() &&
		info.Size() == 0 {
		m.anchors.pending = c.Note
		m.writeAnchorFile()
	}
}

// checkAnchor refuses a log that has fewer records than the newest checkpoint in its anchor file
// covers: an older copy has replaced the log and its checkpoint. checkAnchor warns about an anchor
// file of another log. Verification reports other faults of the anchor file. checkAnchor refuses a
// symbolic link, and does not read a file that is not regular.
func (m *maintenance) checkAnchor(origin string, key note.Verifier, last uint64) error {
	if info, err := os.Lstat(m.anchors.file); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("the anchor file %s is a link, so checkpoints would be written to "+
			"another file\nhint: configure the file itself", m.anchors.file)
	}
	info, err := os.Stat(m.anchors.file)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	end, err := readTail(m.anchors.file)
	if err != nil {
		return nil
	}
	notes, _ := splitNotes(end)
	if len(notes) == 0 {
		return nil
	}
	c, err := OpenCheckpoint(notes[len(notes)-1], key)
	if err == nil && c.Origin != origin {
		err = fmt.Errorf("the newest checkpoint in the anchor file is of the log %s", c.Origin)
	}
	if err != nil {
		m.logger.Warn("the anchor file belongs to another audit log, so verification will fail; "+
			"move it away or configure another", "file", m.anchors.file, "error", err)
		return nil
	}
	if uint64(c.Size) > last {
		return fmt.Errorf("the log ends at record %d, but a checkpoint in its anchor %s covers %d "+
			"records: an older copy replaced the log, or records were removed\nhint: restore the "+
			"missing files; if they are lost, %s", last, m.anchors.file, c.Size,
			newLogHint(m.path))
	}
	return nil
}

// readTail reads the last 64 KiB of an anchor file, which contain the last checkpoint.
func readTail(path string) ([]byte, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	end := make([]byte, min(size, 64<<10))
	_, err = f.ReadAt(end, size-int64(len(end)))
	return end, err
}

// queueAnchor queues a checkpoint for the anchor file and for publish.
func (m *maintenance) queueAnchor(signed []byte) {
	if m.anchors.file != "" {
		m.anchors.pending = signed
	}
	if m.anchors.publish == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.anchors.toPublish = signed
	if m.anchors.publishing == nil {
		m.anchors.publishing = make(chan struct{})
		go m.publishLoop()
	}
}

// publishLoop calls publish with the newest checkpoint until there is no new one.
func (m *maintenance) publishLoop() {
	for {
		m.mu.Lock()
		next := m.anchors.toPublish
		m.anchors.toPublish = nil
		if next == nil {
			close(m.anchors.publishing)
			m.anchors.publishing = nil
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		m.anchors.publish(bytes.Clone(next))
	}
}

// writeAnchorFile writes the pending checkpoint to the anchor file if a write is due. It records
// the first failure, and the first success after failures.
func (m *maintenance) writeAnchorFile() error {
	before := m.anchors.err
	if m.anchors.pending == nil || before == nil && !m.stopped &&
		time.Since(m.anchors.lastWrite) < anchorInterval {
		return before
	}
	err := m.anchors.write(m.stopped)
	if err == nil {
		m.anchors.pending, m.anchors.lastWrite = nil, time.Now()
	}
	m.mu.Lock()
	m.anchors.err = err
	m.mu.Unlock()
	var recordErr error
	switch {
	case err != nil && before == nil:
		m.logger.Error("audit anchor write failed", "file", m.anchors.file, "error", err)
		recordErr = m.log.recordEvent("anchor lost",
			fmt.Sprintf("checkpoints cannot be written to %s",
				m.anchors.file))
	case err == nil && before != nil:
		m.logger.Info("audit anchor written again", "file", m.anchors.file)
		recordErr = m.log.recordEvent("anchor back",
			fmt.Sprintf("checkpoints are written to %s again",
				m.anchors.file))
	}
	if recordErr != nil && !errors.Is(recordErr, errClosed) {
		m.logger.Error("record of the anchor's state failed", "error", recordErr)
	}
	return err
}

// write appends the pending checkpoint to the file, in a goroutine. If the file system hangs, write
// gives up after anchorTimeout, and the goroutine stays blocked. Later calls only check whether
// that goroutine has sent its result. If last is set, write waits up to anchorTimeout again.
func (a *anchors) write(last bool) error {
	for {
		wait := anchorTimeout
		if a.writing == nil {
			a.writing, a.result = a.pending, make(chan error, 1)
			go func(signed []byte, result chan<- error) {
				result <- appendNote(a.file, signed)
			}(a.writing, a.result)
		} else if !last {
			wait = time.Millisecond
		}
		select {
		case err := <-a.result:
			newest := bytes.Equal(a.writing, a.pending)
			a.writing, a.result = nil, nil
			if err != nil || newest {
				return err
			}
		case <-time.After(wait):
			return fmt.Errorf("no write completed within %s", anchorTimeout)
		}
	}
}

// nextAnchorWrite returns the time until the next write of the anchor file, or 0 if no checkpoint
// is pending.
func (m *maintenance) nextAnchorWrite() time.Duration {
	switch {
	case m.anchors.pending == nil:
		return 0
	case m.anchors.err != nil:
		return checkpointInterval
	}
	return max(time.Millisecond, anchorInterval-time.Since(m.anchors.lastWrite))
}

// appendNote appends a checkpoint and an empty line to a file, and flushes them to the disk. It
// truncates a partial write. If that is not possible (an append-only file, a crash), empty lines
// separate the fragment from the next checkpoint.
func appendNote(path string, signed []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b := append(bytes.Clone(signed), '\n')
	if !info.Mode().IsRegular() {
		_, err = f.Write(b)
		return err
	}
	if info.Size() > 0 && !endsInEmptyLine(path, info.Size()) {
		b = append([]byte("\n\n"), b...)
	}
	if n, err := f.Write(b); err != nil {
		if n > 0 {
			err = errors.Join(err, f.Truncate(info.Size()))
		}
		return err
	}
	if err = f.Sync(); err == nil && info.Size() == 0 {
		err = atomicfile.Sync(filepath.Dir(path))
	}
	return err
}

// endsInEmptyLine reports whether the file is known to end with an empty line.
func endsInEmptyLine(path string, size int64) bool {
	f, err := regularfile.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	end := make([]byte, 2)
	n, err := f.ReadAt(end, max(0, size-int64(len(end))))
	return (err == nil || err == io.EOF) && string(end[:n]) == "\n\n"
}
