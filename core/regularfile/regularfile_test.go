package regularfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gatekit/core/regularfile"
)

func TestReadAcceptsOnlyRegularFilesWithinTheLimit(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	link, pipeLink := filepath.Join(dir, "link"), filepath.Join(dir, "pipelink")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{link: file, pipeLink: pipe} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		path  string
		limit int64
		want  string // of the error; "" for none
	}{
		{file, 5, ""}, {link, 5, ""},
		{file, 4, "it is larger than 4 bytes"},
		{pipe, 5, "it is not a regular file"}, {pipeLink, 5, "it is not a regular file"},
		{dir, 5, "it is a folder"},
		{os.DevNull, 5, "it is not a regular file"},
		{filepath.Join(dir, "absent"), 5, "no such file"},
	} {
		b, err := regularfile.Read(c.path, c.limit)
		switch {
		case c.want == "" && (err != nil || string(b) != "12345"):
			t.Errorf("Read(%s, %d) returned %q, %v, want the content", c.path, c.limit, b, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || b != nil):
			t.Errorf("Read(%s, %d) returned %q, %v, want the error %q", c.path, c.limit, b, err,
				c.want)
		}
	}
}
