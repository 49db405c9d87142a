// Package atomicfile creates and replaces files atomically. Whoever reads the file finds the whole
// old content or the whole new content. After a power cut, the same is true.
//
// The new content is written to a temporary file in the same folder, flushed to the disk and
// renamed. Then the folder is flushed too. Without that flush, a power cut could undo the rename
// after Write has returned.
//
// The new file has mode 0600, also when it replaces a file with another mode. Its folder must
// exist. If the path is a symbolic link, the new file replaces the link, and the link's target
// stays as it is. A crash may leave a temporary file behind, named ".NAME.*.tmp".
//
// # Why no library
//
// github.com/google/renameio/v2 and github.com/natefinch/atomic do not flush the folder. The former
// may put the temporary file into $TMPDIR, and the latter keeps the mode of the file that it
// replaces.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces the content of the file at path, or creates the file. When Write returns nil, the
// new content survives a power cut.
func Write(path string, content []byte) error {
	if err := install(path, content, true, os.Rename); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// WriteUnsynced is like Write but flushes nothing to the disk. After a power cut, the file may have
// the old content, the new content, or only a part of the new content. Use it for files that can be
// restored.
func WriteUnsynced(path string, content []byte) error {
	return install(path, content, false, os.Rename)
}

// Create is like Write, for a file that does not exist yet. If the file exists, Create leaves the
// file unchanged and returns an error that matches fs.ErrExist.
func Create(path string, content []byte) error {
	if err := install(path, content, true, os.Link); err != nil {
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
// function place to rename or link it to path.
func install(path string, content []byte, sync bool,
	place func(temporary, path string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after a rename, this fails because the file has gone
	_, err = f.Write(content)
	if err == nil && sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return place(f.Name(), path)
}
