package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"gatekit/core/atomicfile"
)

// check fails the test unless the file at path has the content want and is the only file in its
// folder.
func check(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("file has %q, %v; want %q", got, err, want)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("folder has %v, %v; want no other file", entries, err)
	}
}

func TestWriteReplacesContentAndMode(t *testing.T) {
	for _, write := range []func(string, []byte) error{atomicfile.Write, atomicfile.WriteUnsynced} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte("a much longer old content"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := write(path, []byte("new")); err != nil {
			t.Fatal(err)
		}
		check(t, path, "new")
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode is %v, %v; want 0600", info.Mode(), err)
		}
	}
}

func TestWriteReplacesSymbolicLinkAndNotItsTarget(t *testing.T) {
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	check(t, path, "new")
	check(t, target, "old")
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("path is %v, %v; want a regular file", info.Mode(), err)
	}
}

func TestFailedWriteLeavesNoTemporaryFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "folder") // Write cannot replace a folder
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, []byte("new")); err == nil {
		t.Error("Write replaced a folder")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("folder has %v, %v; want no temporary file", entries, err)
	}
	missing := filepath.Join(dir, "missing", "file")
	if err := atomicfile.Write(missing, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Write into a missing folder: %v; want fs.ErrNotExist", err)
	}
}

func TestCreateDoesNotReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := atomicfile.Create(path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Create(path, []byte("second")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Create: %v; want fs.ErrExist", err)
	}
	check(t, path, "first")
}

func TestReplaceKeepsTheModeAndRefusesChangedFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		mode os.FileMode
		now  string // the content of the file when Replace is called
		want string // the content afterwards
		err  error
	}{
		{"a private file", 0o600, "old", "new", nil},
		{"a file that others may read", 0o644, "old", "new", nil},
		{"a file with group access", 0o660, "old", "new", nil},
		{"a changed file", 0o600, "odd", "odd", atomicfile.ErrChanged},
		{"a file that has grown", 0o600, "older", "older", atomicfile.ErrChanged},
		{"a file that has shrunk", 0o600, "ol", "ol", atomicfile.ErrChanged},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "file")
			if err := os.WriteFile(file, []byte(c.now), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, c.mode); err != nil { // without the umask
				t.Fatal(err)
			}
			if err := atomicfile.Replace(file, []byte("old"), []byte("new")); err != c.err {
				t.Errorf("Replace returned %v, want %v", err, c.err)
			}
			got, err := os.ReadFile(file)
			if err != nil || string(got) != c.want {
				t.Errorf("the file has %q (%v), want %q", got, err, c.want)
			}
			info, err := os.Stat(file)
			if err != nil || info.Mode() != c.mode {
				t.Errorf("the file has mode %v (%v), want %v", info.Mode(), err, c.mode)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("the folder has %v (%v), want only the file", entries, err)
			}
		})
	}
}

func TestReplaceRefusesAbsentFilesAndLinks(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, filepath.Join(dir, "absent"), dir} {
		if err := atomicfile.Replace(path, []byte("old"), []byte("new")); err == nil {
			t.Errorf("Replace(%s) returned nil, want an error", path)
		}
	}
	if target, err := os.Readlink(link); err != nil || target != "file" {
		t.Errorf("the link leads to %q (%v), want file", target, err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "old" {
		t.Errorf("the file has %q (%v), want old", got, err)
	}
}
