package privatefiles_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatekit/core/privatefiles"
)

// newFolder returns a folder that exists.
func newFolder(t *testing.T) privatefiles.Folder {
	t.Helper()
	d := privatefiles.Folder{Path: filepath.Join(t.TempDir(), "a", "b"), Danger: "approve requests"}
	if err := d.Create(); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestFolderOfOtherUsersIsRefused(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"others may enter": func(path string) error { return os.Chmod(path, 0o711) },
		"others may read":  func(path string) error { return os.Chmod(path, 0o740) },
		"a link": func(path string) error {
			return errors.Join(os.Rename(path, path+"2"), os.Symlink(path+"2", path))
		},
		"a file": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFolder(t)
			if err := change(d.Path); err != nil {
				t.Fatal(err)
			}
			_, err := d.Names()
			for _, err := range []error{d.Check(), d.Create(), err} {
				if err == nil || !strings.Contains(err.Error(), "approve requests") &&
					!errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTDIR) {
					t.Errorf("the error is %v, want one that names the danger", err)
				}
			}
			if d.Take("x", func(string) bool { return true }) {
				t.Error("a file of this folder is taken")
			}
		})
	}
}

func TestOnlyPrivateRegularFilesAreRead(t *testing.T) {
	d := newFolder(t)
	if err := d.Write("good", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	if b, err := d.Read("good", 4); string(b) != "0123" || err != nil {
		t.Errorf("the content is %q, %v, want the first four bytes", b, err)
	}
	if info, err := os.Stat(filepath.Join(d.Path, "good")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v, want mode 0600", info.Mode(), err)
	}
	for name, make := range map[string]func(path string) error{
		"link":   func(path string) error { return os.Symlink("good", path) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"shared": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o644))
		},
	} {
		if err := make(filepath.Join(d.Path, name)); err != nil {
			t.Fatal(err)
		}
		if b, err := d.Read(name, 10); err == nil {
			t.Errorf("%s: the content is %q, want an error", name, b)
		}
	}
}

// TestOneOfManyTakesAFile lets several callers take each of some files.
func TestOneOfManyTakesAFile(t *testing.T) {
	d := newFolder(t)
	for i := range 20 {
		name := fmt.Sprint("f", i)
		if err := d.Write(name, []byte(name)); err != nil {
			t.Fatal(err)
		}
		isValid := func(file string) bool {
			b, err := d.Read(file, 10)
			return err == nil && string(b) == name
		}
		var taken atomic.Int32
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				if d.Take(name, isValid) {
					taken.Add(1)
				}
			})
		}
		callers.Wait()
		if n := taken.Load(); n != 1 {
			t.Errorf("%d callers have taken the file, want one", n)
		}
	}
	if names, err := d.Names(); len(names) > 0 || err != nil {
		t.Errorf("the folder has %q, %v, want no files", names, err)
	}
}

// TestFileThatBecomesInvalidStays checks that a file stays if it is found invalid after it was
// renamed.
func TestFileThatBecomesInvalidStays(t *testing.T) {
	d := newFolder(t)
	if err := d.Write("f", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if d.Take("f", func(name string) bool { return name == "f" }) {
		t.Error("the file is taken")
	}
	if b, err := d.Read("f", 10); string(b) != "new" || err != nil {
		t.Errorf("the content is %q, %v, want it unchanged", b, err)
	}
}

func TestFilesOfEndedProcessesAreRemoved(t *testing.T) {
	d := newFolder(t)
	for name, age := range map[string]time.Duration{".f.old.taken": time.Hour,
		".f.new.taken": time.Minute, "f": time.Hour} {
		path := filepath.Join(d.Path, name)
		then := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, then,
			then)); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := d.Names(); fmt.Sprint(names) != "[f]" || err != nil {
		t.Errorf("the names are %q, %v, want f", names, err)
	}
	entries, err := os.ReadDir(d.Path)
	if err != nil || len(entries) != 2 || entries[0].Name() != ".f.new.taken" {
		t.Errorf("the folder has %v, %v, want f and the file that was just taken", entries, err)
	}
}

func TestMissingFolderIsEmpty(t *testing.T) {
	d := privatefiles.Folder{Path: filepath.Join(t.TempDir(), "none")}
	if names, err := d.Names(); len(names) > 0 || err != nil {
		t.Errorf("the names are %q, %v, want none", names, err)
	}
}
