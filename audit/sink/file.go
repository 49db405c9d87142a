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

// FileOptions configure a file receiver.
type FileOptions struct {
	Path    string // the file and its folder are created if they do not exist
	Encoder format.Encoder
	// a file of this size or more is renamed to a name with the time, and a new file is started; 0
	// for never
	SegmentBytes int64
	KeepFiles    int // number of rotated files that are kept; 0 for all
}

// NewFile returns a receiver that appends to a file, and flushes each batch to the disk. If the
// file was moved or removed, by logrotate or by hand, it is created again, with its header. The
// receiver refuses checkpoints; use audit.Options.AnchorFile for them.
func NewFile(o FileOptions) Receiver { return &file{FileOptions: o} }

var errNoCheckpoints = errors.New("files and stderr accept no checkpoints")

type file struct {
	FileOptions
	// runs append, because a disk may hang; until append returns, only append uses the other fields
	blocking blockingCall
	current  *os.File // nil while no file is open
	size     int64
	buf      []byte
}

func (f *file) Send(ctx context.Context, b Batch) error {
	if b.Checkpoint != nil {
		return errNoCheckpoints
	}
	if err := f.blocking.wait(ctx); err != nil {
		return err
	}
	header := f.Encoder.Header()
	f.buf = append(f.buf[:0], header...)
	for i := range b.Records {
		f.buf = encoderOf(f.Encoder, b.Short).Append(f.buf, &b.Records[i])
	}
	return f.blocking.run(ctx, func() error { return f.append(len(header)) })
}

// append writes the header and the lines in buf to the file. If the file is not empty, it leaves
// out the header, which is the first headerBytes of buf.
func (f *file) append(headerBytes int) error {
	if err := f.ensureOpen(); err != nil {
		return err
	}
	text := f.buf
	if f.size > 0 {
		text = text[headerBytes:]
	}
	_, err := f.current.Write(text)
	if err == nil {
		err = f.current.Sync()
	}
	if err != nil {
		// The whole batch will be sent again. Without the truncation, a partial write would leave
		// duplicates and an incomplete line.
		err = errors.Join(err, f.current.Truncate(f.size), f.close())
		return fmt.Errorf("write the sink's file: %w", err)
	}
	f.size += int64(len(text))
	if cap(f.buf) > 4*batchBytes {
		f.buf = nil
	}
	return nil
}

// ensureOpen opens the file at the path, unless that file is open already, and rotates it if it is
// too large.
func (f *file) ensureOpen() error {
	if f.current != nil {
		openInfo, err := f.current.Stat()
		pathInfo, pathErr := os.Stat(f.Path)
		if err != nil || pathErr != nil || !os.SameFile(openInfo, pathInfo) {
			f.close()
		}
	}
	if f.current == nil {
		if err := f.openFile(); err != nil {
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
	return f.openFile()
}

// openFile opens or creates the file, and cuts off an incomplete last line.
func (f *file) openFile() error {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return fmt.Errorf("create the folder of the sink's file: %w", err)
	}
	// opening a pipe would block
	if i, err := os.Stat(f.Path); err == nil && !i.Mode().IsRegular() {
		return fmt.Errorf("open the sink's file: %s is not a regular file", f.Path)
	}
	opened, err := os.OpenFile(f.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the sink's file: %w", err)
	}
	end, err := opened.Seek(0, io.SeekEnd)
	if err == nil && end > 0 {
		var last [1]byte
		// Cut off an incomplete last line. Its record is sent again.
		if _, err = opened.ReadAt(last[:], end-1); err == nil && last[0] != '\n' {
			if end, err = lastLineEnd(opened, end); err == nil {
				err = opened.Truncate(end)
			}
		}
	}
	if err == nil {
		// Without this sync, a power cut could remove the new or the renamed file.
		err = atomicfile.Sync(filepath.Dir(f.Path))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open the sink's file: %w", err), opened.Close())
	}
	f.current, f.size = opened, end
	return nil
}

// lastLineEnd returns the offset after the last line feed before end.
func lastLineEnd(f *os.File, end int64) (int64, error) {
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

// rotate renames the file, and removes the oldest rotated files if there are more than KeepFiles.
func (f *file) rotate() error {
	ext := filepath.Ext(f.Path)
	stem := strings.TrimSuffix(f.Path, ext) + "-"
	if err := os.Rename(f.Path, stem+time.Now().UTC().Format(rotatedLayout)+ext); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rotate the sink's file: %w", err)
	}
	if f.KeepFiles == 0 {
		return nil
	}
	entries, err := os.ReadDir(filepath.Dir(f.Path))
	if err != nil {
		return fmt.Errorf("list the sink's rotated files: %w", err)
	}
	var rotated []string
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(f.Path), e.Name())
		timestamp, isRotated := strings.CutPrefix(strings.TrimSuffix(name, ext), stem)
		if _, err := time.Parse(rotatedLayout, timestamp); isRotated && err == nil {
			rotated = append(rotated, name)
		}
	}
	slices.Sort(rotated)
	for _, name := range rotated[:max(0, len(rotated)-f.KeepFiles)] {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("remove a rotated file of the sink: %w", err)
		}
	}
	return nil
}

// rotatedLayout is the layout of the time in the names of rotated files. The order of the names is
// the order of the times.
const rotatedLayout = "20060102T150405.000000000Z"

func (f *file) Close() error {
	if !f.blocking.isIdle() {
		return errors.New("close the sink's file: the last write has not returned")
	}
	return f.close()
}

func (f *file) close() error {
	if f.current == nil {
		return nil
	}
	err := f.current.Close()
	f.current = nil
	return err
}
