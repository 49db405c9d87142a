package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gatekit/audit/format"
	"gatekit/core/atomicfile"
)

// FileOptions say where a file is and what is in it.
type FileOptions struct {
	Path    string // made, with its folder, where absent, else continued
	Encoder format.Encoder
	// the size from which a file is renamed, to one with the time in its name, and another begun; 0
	// is never
	SegmentBytes int64
	KeepFiles    int // how many of those renamed are kept; 0 is all
}

// NewFile answers a receiver that appends to a file, and has each batch on the disk before it says
// so. A file that was moved away, by logrotate or by hand, is begun again, with its header. It
// takes no checkpoints: for a file of those there is audit.Options.AnchorFile.
func NewFile(o FileOptions) Receiver { return &file{FileOptions: o} }

var errNoCheckpoints = errors.New("here go records alone, no checkpoints")

type file struct {
	FileOptions
	write uninterrupted // on a disk that hangs; while something is under way, the rest is its
	open  *os.File      // nil when it is not
	size  int64
	buf   []byte
}

func (f *file) Send(ctx context.Context, b Batch) error {
	if b.Checkpoint != nil {
		return errNoCheckpoints
	}
	if err := f.write.wait(ctx); err != nil {
		return err
	}
	header := f.Encoder.Header()
	f.buf = append(f.buf[:0], header...)
	for i := range b.Records {
		f.buf = formOf(f.Encoder, b.Short).Append(f.buf, &b.Records[i])
	}
	return f.write.do(ctx, func() error { return f.append(len(header)) })
}

// append writes what is in buf, where there is something before it without its header, of so many
// bytes.
func (f *file) append(header int) error {
	if err := f.ready(); err != nil {
		return err
	}
	text := f.buf
	if f.size > 0 {
		text = text[header:]
	}
	_, err := f.open.Write(text)
	if err == nil {
		err = f.open.Sync()
	}
	if err != nil {
		// All of it comes again: a part of it would be there twice, and end in half a line.
		err = errors.Join(err, f.open.Truncate(f.size), f.close())
		return fmt.Errorf("write a sink's file: %w", err)
	}
	f.size += int64(len(text))
	if cap(f.buf) > 4*batchBytes {
		f.buf = nil
	}
	return nil
}

// ready has the file open that is at the path, and one that is not too large.
func (f *file) ready() error {
	if f.open != nil {
		here, err := f.open.Stat()
		there, gone := os.Stat(f.Path)
		if err != nil || gone != nil || !os.SameFile(here, there) {
			f.close()
		}
	}
	if f.open == nil {
		if err := f.reopen(); err != nil {
			return err
		}
	}
	if f.SegmentBytes == 0 || f.size < f.SegmentBytes {
		return nil
	}
	f.close()
	if err := f.rotate(); err != nil {
		return err
	}
	return f.reopen()
}

func (f *file) reopen() error {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return fmt.Errorf("make the folder of a sink's file: %w", err)
	}
	// a pipe would hold up who opens it
	if i, err := os.Stat(f.Path); err == nil && !i.Mode().IsRegular() {
		return fmt.Errorf("open a sink's file: %s is no regular file", f.Path)
	}
	open, err := os.OpenFile(f.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open a sink's file: %w", err)
	}
	end, err := open.Seek(0, io.SeekEnd)
	if err == nil && end > 0 {
		var last [1]byte
		// a line that was torn; its record comes again
		if _, err = open.ReadAt(last[:], end-1); err == nil && last[0] != '\n' {
			if end, err = lineEnd(open, end); err == nil {
				err = open.Truncate(end)
			}
		}
	}
	if err == nil {
		// else a file that was made, or put aside, may be gone with what it has
		err = atomicfile.Sync(filepath.Dir(f.Path))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open a sink's file: %w", err), open.Close())
	}
	f.open, f.size = open, end
	return nil
}

// lineEnd is where the last whole line before end ends.
func lineEnd(f *os.File, end int64) (int64, error) {
	part := make([]byte, 64<<10)
	for end > 0 {
		part = part[:min(end, int64(cap(part)))]
		if _, err := f.ReadAt(part, end-int64(len(part))); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return end - int64(len(part)) + int64(i) + 1, nil
		}
		end -= int64(len(part))
	}
	return 0, nil
}

// rotate puts the file aside, and removes the oldest of those that are.
func (f *file) rotate() error {
	ext := filepath.Ext(f.Path)
	stem := strings.TrimSuffix(f.Path, ext) + "-"
	if err := os.Rename(f.Path, stem+time.Now().UTC().Format(asideLayout)+ext); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put a sink's file aside: %w", err)
	}
	if f.KeepFiles == 0 {
		return nil
	}
	entries, err := os.ReadDir(filepath.Dir(f.Path))
	if err != nil {
		return fmt.Errorf("look for a sink's old files: %w", err)
	}
	var old []string
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(f.Path), e.Name())
		at, ours := strings.CutPrefix(strings.TrimSuffix(name, ext), stem)
		if _, err := time.Parse(asideLayout, at); ours && err == nil {
			old = append(old, name)
		}
	}
	slices.Sort(old)
	for _, name := range old[:max(0, len(old)-f.KeepFiles)] {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("remove a sink's old file: %w", err)
		}
	}
	return nil
}

// asideLayout sorts as time does.
const asideLayout = "20060102T150405.000000000Z"

func (f *file) Close() error {
	if !f.write.idle() {
		return errors.New("close a sink's file: its disk hangs")
	}
	return f.close()
}

func (f *file) close() error {
	if f.open == nil {
		return nil
	}
	err := f.open.Close()
	f.open = nil
	return err
}
