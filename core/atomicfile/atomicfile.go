// Package atomicfile creates and replaces files atomically. Whoever reads the file finds the whole
// old content or the whole new content. After a power cut, the same is true.
//
// The new content is written to a temporary file in the same folder, flushed to the disk and
// renamed. Then the folder is flushed too. Without that flush, a power cut could undo the rename
// after Write has returned.
//
// The new file has mode 0600, also when it replaces a file with another mode. Only Replace keeps
// the mode and the owner. The folder of the file must exist. If the path is a symbolic link, the
// new file replaces the link, and the link's target stays as it is; Replace refuses a link. A crash
// may leave a temporary file behind, named ".NAME.*.tmp".
//
// # Why no library
//
// github.com/google/renameio/v2 and github.com/natefinch/atomic do not flush the folder. The former
// may put the temporary file into $TMPDIR, and the latter keeps the mode of the file that it
// replaces.
package atomicfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Write replaces the content of the file at path, or creates the file. When Write returns nil, the
// new content survives a power cut.
func Write(path string, content []byte) error {
	if err := install(path, content, true, nil, os.Rename); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// ErrChanged is the error of Replace when the file does not have the old content.
var ErrChanged = errors.New("another program has changed the file meanwhile")

// Replace is like Write, for a regular file that exists and has the old content. The new file has
// the mode, the owner and the group of the old one. If the file has another content, Replace leaves
// it unchanged and returns ErrChanged. It compares the content directly before it renames the new
// file. A program that writes the file between these two steps loses its change.
func Replace(path string, old, content []byte) error {
	same := func(temporary *os.File) error {
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return &os.PathError{Op: "replace", Path: path, Err: errors.New("not a regular file")}
		}
		created, err := temporary.Stat()
		if err != nil {
			return err
		}
		was, is := info.Sys().(*syscall.Stat_t), created.Sys().(*syscall.Stat_t)
		if was.Uid != is.Uid || was.Gid != is.Gid {
			if err := temporary.Chown(int(was.Uid), int(was.Gid)); err != nil {
				return err
			}
		}
		return temporary.Chmod(info.Mode().Perm())
	}
	err := install(path, content, true, same, func(temporary, path string) error {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		now, err := io.ReadAll(io.LimitReader(f, int64(len(old))+1))
		if err != nil {
			return err
		}
		if !bytes.Equal(now, old) {
			return ErrChanged
		}
		return os.Rename(temporary, path)
	})
	if err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// WriteUnsynced is like Write but flushes nothing to the disk. After a power cut, the file may have
// the old content, the new content, or only a part of the new content. Use it for files that can be
// restored.
func WriteUnsynced(path string, content []byte) error {
	return install(path, content, false, nil, os.Rename)
}

// Create is like Write, for a file that does not exist yet. If the file exists, Create leaves the
// file unchanged and returns an error that matches fs.ErrExist.
func Create(path string, content []byte) error {
	if err := install(path, content, true, nil, os.Link); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Sync flushes the file or folder at path to the disk. For a folder, Sync flushes the list of its
// files and not their content.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// install writes content to a temporary file, flushes the file if sync is set, and calls the
// function place to rename or link it to path. If prepare is not nil, it is called before the
// content is written.
func install(path string, content []byte, sync bool, prepare func(temporary *os.File) error,
	place func(temporary, path string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after a rename, this fails because the file has gone
	if prepare != nil {
		err = prepare(f)
	}
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return place(f.Name(), path)
}
