// Package regularfile opens and reads files that must be regular files. Opening a named pipe would
// wait for a writer, and reading a device may never end. So a file that somebody replaced by one of
// these could stop Gatekit.
package regularfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a regular file for reading. It returns an error at once for any other kind of file. A
// symbolic link to a regular file is accepted.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("it is a folder")}
	case !info.Mode().IsRegular():
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a regular file")}
	default:
		return f, nil
	}
	f.Close()
	return nil, err
}

// Read returns the contents of a regular file. It returns an error if the file has more than limit
// bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		b, err = nil, &fs.PathError{Op: "read", Path: path,
			Err: fmt.Errorf("it is larger than %d bytes", limit)}
	}
	return b, err
}
