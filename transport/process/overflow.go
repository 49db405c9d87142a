package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	maxOverflowBytes = 16 << 20 // bytes of one file; the file is then renamed and begun anew
	maxOverflowFiles = 50       // files in the folder; the oldest are removed
)

// Overflow is where the lines of stderr are written that are too many for the log. With an empty
// Folder they are dropped.
type Overflow struct {
	Folder string // is created when it is needed, for this user only
	Name   string // the beginning of the file's name
}

// overflowFile is the file for the lines of one process. It is created with the first line. It is
// safe for many goroutines.
type overflowFile struct {
	Overflow
	pid int

	mu     sync.Mutex
	file   *os.File // nil before the first line
	size   int
	closed bool
}

// write adds a line and returns the path of the file.
func (o *overflowFile) write(now time.Time, line string) (path string, err error) {
	if o.Folder == "" {
		return "", errors.New("no folder is configured")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return "", os.ErrClosed
	}
	if o.file == nil {
		if err := o.create(now); err != nil {
			return "", err
		}
	}
	if o.size > maxOverflowBytes {
		if err := o.rotate(); err != nil {
			return "", err
		}
	}
	n, err := fmt.Fprintf(o.file, "%s %s\n", now.UTC().Format("2006-01-02T15:04:05.000Z"), line)
	o.size += n
	return o.file.Name(), err
}

// create creates the file and removes the oldest ones in the folder.
func (o *overflowFile) create(now time.Time) (err error) {
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		return err
	}
	o.removeOldest()
	path := filepath.Join(o.Folder, fmt.Sprintf("%s-%s-%d.log", o.Name,
		now.UTC().Format("20060102T150405Z"), o.pid))
	o.file, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	return err
}

// rotate renames the file, in place of the one that was renamed before, and begins a new one.
func (o *overflowFile) rotate() error {
	path := o.file.Name()
	o.file.Close()
	o.file = nil
	if err := os.Rename(path, path+".old"); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	o.file, o.size = file, 0
	return nil
}

// removeOldest removes the oldest files, so that there is room for one more.
func (o *overflowFile) removeOldest() {
	files, err := filepath.Glob(filepath.Join(o.Folder, "*.log*"))
	if err != nil || len(files) < maxOverflowFiles {
		return
	}
	changed := map[string]time.Time{}
	for _, f := range files {
		if info, err := os.Lstat(f); err == nil {
			changed[f] = info.ModTime()
		}
	}
	slices.SortFunc(files, func(a, b string) int { return changed[a].Compare(changed[b]) })
	for _, f := range files[:len(files)-maxOverflowFiles+1] {
		os.Remove(f)
	}
}

func (o *overflowFile) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.file != nil {
		o.file.Close()
	}
}
