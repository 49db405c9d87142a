// Package atomicfile creates and replaces files atomically: another process, and a machine that
// starts after a power cut, finds the old content or the new, never a part of it.
//
// The new content is written to a temporary file in the same folder, flushed to the disk and
// renamed. Then the folder is flushed, too. Otherwise a power cut could undo the rename after Write
// has returned.
//
// Files have mode 0600, whatever the mode of the file that they replace. Their folder must exist. A
// symbolic link is replaced by a file, and the link's target is not touched. A crash may leave a
// temporary file, named ".NAME.*.tmp", behind.
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

// WriteUnsynced is Write without any flush to the disk, for files that can be restored: after a
// power cut the file may have the old content, the new, or only a part.
func WriteUnsynced(path string, content []byte) error {
	return install(path, content, false, os.Rename)
}

// Create is Write for a file that does not exist. If the file exists, Create leaves the file
// unchanged and returns an error that matches fs.ErrExist.
func Create(path string, content []byte) error {
	if err := install(path, content, true, os.Link); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Sync flushes the file at path to the disk; of a folder, it flushes the names in it.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// install writes content to a temporary file, and calls place to give the file its path.
func install(path string, content []byte, sync bool,
	place func(temporary, path string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after a rename: then there is nothing left to remove
	_, err = f.Write(content)
	if err == nil && sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return place(f.Name(), path)
}
