package npmpackage

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"gatekit/core/atomicfile"
	"gatekit/core/regularfile"
)

const (
	maxFiles = 200_000  // of a package with its dependencies
	maxBytes = 4 << 30  // of all of them together
	maxSums  = 64 << 20 // bytes of the list of digests
	maxPath  = 4 << 10
)

// file is a file of a tree.
type file struct {
	path string // from the tree, with slashes
	sum  string // SHA-256 in hexadecimal digits
}

// list returns the paths of the regular files below dir, sorted. A tree has no other files.
func list(dir string) ([]file, error) {
	var files []file
	var size int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", name)
		case strings.ContainsAny(name, "\n\r") || len(name) > maxPath:
			return fmt.Errorf("%q is not a name that a package may have", name)
		}
		if size += info.Size(); size > maxBytes || len(files) == maxFiles {
			return fmt.Errorf("it has more than %d files or %d bytes", maxFiles, int64(maxBytes))
		}
		files = append(files, file{path: name})
		return nil
	})
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return files, err
}

// digest sets the digests of files, with a few goroutines at the same time.
func digest(dir string, files []file) error {
	workers := min(runtime.GOMAXPROCS(0), 4)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			buffer := make([]byte, 64<<10)
			for i := w; i < len(files) && errs[w] == nil; i += workers {
				files[i].sum, errs[w] = digestOf(filepath.Join(dir, files[i].path), buffer)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func digestOf(path string, buffer []byte) (string, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	// Without the wrapper, CopyBuffer would use ReadFrom and allocate a buffer for each file.
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{f}, buffer); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// seal writes the digests of all files of a tree to the file sums, in the form of sha256sum, and
// takes away the right to write to the tree.
func seal(dir, sums string) error {
	files, err := list(dir)
	if err == nil {
		err = digest(dir, files)
	}
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&b, "%s  %s\n", f.sum, f.path)
	}
	if err := atomicfile.Write(sums, b.Bytes()); err != nil {
		return err
	}
	return setWritable(dir, false)
}

// verify compares a tree with its digests. It returns what differs, or "".
func verify(dir, sums string) (reason string, err error) {
	b, err := regularfile.Read(sums, maxSums)
	if err != nil {
		return "", err
	}
	files, err := list(dir)
	if err == nil {
		err = digest(dir, files)
	}
	if err != nil {
		return "", err
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 2*maxPath)
	n := 0
	for lines.Scan() {
		sum, path, _ := strings.Cut(lines.Text(), "  ")
		switch {
		case n == len(files) || path < files[n].path:
			return fmt.Sprintf("%s is missing", path), nil
		case path > files[n].path:
			return fmt.Sprintf("%s was added", files[n].path), nil
		case sum != files[n].sum:
			return fmt.Sprintf("%s has changed", path), nil
		}
		n++
	}
	if n < len(files) {
		return fmt.Sprintf("%s was added", files[n].path), nil
	}
	return "", lines.Err()
}

// setWritable sets whether the owner can change the folders and files below dir.
func setWritable(dir string, writable bool) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() &^ 0o222
		if writable {
			mode |= 0o200
		}
		if mode == info.Mode().Perm() {
			return nil
		}
		return os.Chmod(path, mode)
	})
}

// remove removes a folder with trees.
func remove(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := setWritable(dir, true); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
