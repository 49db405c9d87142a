package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/note"

	"gatekit/core/atomicfile"
)

// anchorEvery is how often the anchor file gets a checkpoint, which speaks for all before it, while
// the log is written.
const anchorEvery = time.Minute

// anchors are where checkpoints go.
type anchors struct {
	file  string
	waits []byte    // the newest checkpoint that file has not; working is held for these five
	wrote time.Time // when it got one
	// what is being written, by a goroutine that says on written how that went; nil when nothing is
	under   []byte
	written chan error
	err     error // of the last try; mu is held for it, and for the rest

	call  func([]byte)
	next  []byte        // for call, when it returns
	calls chan struct{} // closed when it has returned from the last; nil while it is not called
}

// begin anchors the checkpoint that the log goes on from where the file has none: from then on, a
// file that is not there was taken away.
func (u *upkeep) begin(from *Checkpoint) {
	u.working.Lock()
	defer u.working.Unlock()
	if u.anchors.file == "" {
		return
	}
	if info, err := os.Stat(u.anchors.file); err != nil || info.Mode().IsRegular() &&
		info.Size() == 0 {
		u.anchors.waits = from.Note
		u.anchorFile()
	}
}

// heldToAnchor sees that the log, which ends with record last, has what the newest checkpoint in
// its anchor speaks of: one that was set back, its own checkpoint with it, is refused. An anchor
// that is another log's is said. What is no file is not read, and what else is in one is for who
// verifies the log.
func (u *upkeep) heldToAnchor(origin string, key note.Verifier, last uint64) error {
	info, err := os.Stat(u.anchors.file)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	end, err := endOfNotes(u.anchors.file)
	if err != nil {
		return nil
	}
	notes, _ := splitNotes(end)
	if len(notes) == 0 {
		return nil
	}
	c, err := OpenCheckpoint(notes[len(notes)-1], key)
	if err == nil && c.Origin != origin {
		err = fmt.Errorf("its newest checkpoint is of %s", c.Origin)
	}
	if err != nil {
		u.report.Warn("the anchor is not this audit log's, and verifying it will fail: move the "+
			"anchor away, or name another", "file", u.anchors.file, "error", err)
		return nil
	}
	if uint64(c.Size) > last {
		return fmt.Errorf("it ends at record %d, and its anchor %s has a checkpoint of %d: it "+
			"was set back, or records were taken away\n"+
			"hint: put the missing files back; where they are lost, %s", last, u.anchors.file,
			c.Size, afresh(u.path))
	}
	return nil
}

// endOfNotes is the end of a file of checkpoints, with the last of them.
func endOfNotes(path string) ([]byte, error) {
	f, err := os.Open(path)
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

// anchor sends a checkpoint away.
func (u *upkeep) anchor(signed []byte) {
	if u.anchors.file != "" {
		u.anchors.waits = signed
	}
	if u.anchors.call == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.anchors.next = signed
	if u.anchors.calls == nil {
		u.anchors.calls = make(chan struct{})
		go u.callAnchor()
	}
}

// callAnchor gives Anchor the newest checkpoint until there is none that it has not had.
func (u *upkeep) callAnchor() {
	for {
		u.mu.Lock()
		next := u.anchors.next
		u.anchors.next = nil
		if next == nil {
			close(u.anchors.calls)
			u.anchors.calls = nil
			u.mu.Unlock()
			return
		}
		u.mu.Unlock()
		u.anchors.call(bytes.Clone(next))
	}
}

// anchorFile gives the file the checkpoint that waits for it, if it is time. That it fails, and
// that it works again, are records.
func (u *upkeep) anchorFile() error {
	before := u.anchors.err
	if u.anchors.waits == nil || before == nil && !u.ended &&
		time.Since(u.anchors.wrote) < anchorEvery {
		return before
	}
	err := u.anchors.write(u.ended)
	if err == nil {
		u.anchors.waits, u.anchors.wrote = nil, time.Now()
	}
	u.mu.Lock()
	u.anchors.err = err
	u.mu.Unlock()
	var said error
	switch {
	case err != nil && before == nil:
		u.report.Error("a checkpoint of the audit log cannot be anchored", "file", u.anchors.file,
			"error", err)
		said = u.log.event("anchor lost", fmt.Sprintf("checkpoints cannot be written to %s",
			u.anchors.file))
	case err == nil && before != nil:
		u.report.Info("checkpoints of the audit log are anchored again", "file", u.anchors.file)
		said = u.log.event("anchor back", fmt.Sprintf("checkpoints are written to %s again",
			u.anchors.file))
	}
	if said != nil && !errors.Is(said, errClosed) {
		u.report.Error("record how it is with the anchor", "error", said)
	}
	return err
}

// write gives the file the checkpoint that waits. A file system that hangs is waited for once, and
// at the last: one write is left with it, and asked after later.
func (a *anchors) write(last bool) error {
	for {
		wait := anchorWait
		if a.under == nil {
			a.under, a.written = a.waits, make(chan error, 1)
			go func(signed []byte, written chan<- error) {
				written <- appendNote(a.file,
					signed)
			}(a.under, a.written)
		} else if !last {
			wait = time.Millisecond
		}
		select {
		case err := <-a.written:
			newest := bytes.Equal(a.under, a.waits)
			a.under, a.written = nil, nil
			if err != nil || newest {
				return err
			}
		case <-time.After(wait):
			return fmt.Errorf("it takes nothing within %s", anchorWait)
		}
	}
}

// anchorIn is how long it is until the file is to get a checkpoint; 0 when none waits.
func (u *upkeep) anchorIn() time.Duration {
	switch {
	case u.anchors.waits == nil:
		return 0
	case u.anchors.err != nil:
		return checkpointEvery
	}
	return max(time.Millisecond, anchorEvery-time.Since(u.anchors.wrote))
}

// appendNote appends a checkpoint and an empty line, and sees to it that they are on the disk. What
// a write leaves in part is taken back; where it cannot be, as the file takes nothing but more, or
// where a crash has left it, empty lines keep it apart from what follows.
func appendNote(path string, signed []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
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

// endsInEmptyLine says whether it is known that what follows is a paragraph of its own.
func endsInEmptyLine(path string, size int64) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	end := make([]byte, 2)
	n, err := f.ReadAt(end, max(0, size-int64(len(end))))
	return (err == nil || err == io.EOF) && string(end[:n]) == "\n\n"
}
