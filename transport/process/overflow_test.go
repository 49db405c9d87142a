package process

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// After a file could not be rotated, the next line goes to a new file. The size of the new file is
// counted from zero, so it is not rotated at once.
func TestNewFileAfterAFailedRotationIsNotRotated(t *testing.T) {
	o := overflowFile{Overflow: Overflow{Folder: t.TempDir(), Name: "files"}, pid: 1}
	defer o.close()
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	first, err := o.write(now, "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(first+".old", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	o.size = maxOverflowBytes + 1
	if _, err := o.write(now, "two"); err == nil {
		t.Fatal("the file is rotated, although it cannot be renamed")
	}
	second, err := o.write(now.Add(time.Second), "three")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(second + ".old"); err == nil {
		t.Error("the new file is rotated at once")
	}
}
