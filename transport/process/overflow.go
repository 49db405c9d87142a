package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxOverflowBytes = 16 << 20 // bytes of one file; a larger file is renamed
	maxOverflowFiles = 50       // files in the folder; the oldest are removed
)

// Overflow names the folder for the lines of stderr that exceed the log's limit per second. If
// Folder is "", these lines are dropped.
type Overflow struct {
	Folder string // is created when it is needed; only this user can read it
	Name   string // beginning of the names of the files
}

// overflowFile is the file for the lines of one process. The first line creates the file. Many
// goroutines may use an overflowFile.
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

// create creates the file. If there are too many files in the folder, it removes the oldest of
// them.
func (o *overflowFile) create(now time.Time) (err error) {
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		return err
	}
	o.removeOldest()
	path := filepath.Join(o.Folder, fmt.Sprintf("%s-%s-%d.log", o.Name,
		now.UTC().Format("20060102T150405Z"), o.pid))
	o.size = 0
	o.file, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	return err
}

// rotate renames the file and begins a new one. An earlier renamed file is replaced.
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

// removeOldest removes the oldest files, so that one more file can be created.
func (o *overflowFile) removeOldest() {
	entries, err := os.ReadDir(o.Folder)
	if err != nil {
		return
	}
	var files []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.Contains(e.Name(), ".log") {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files[:max(0, len(files)-maxOverflowFiles+1)] {
		os.Remove(filepath.Join(o.Folder, f.Name()))
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
