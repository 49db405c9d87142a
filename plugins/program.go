package plugins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is the path of the program that a spec names, as it is to be run: where it is pinned, a
// copy in dir, a folder that only we can enter, that was checked after it was made.
func program(s Spec, dir string) (string, error) {
	path := s.Command[0]
	if !strings.Contains(path, "/") {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("%w\nhint: install it, or give its full path in command", err)
		}
		path = found
	}
	path, err := filepath.Abs(path)
	if err != nil || s.SHA256 == nil {
		return path, err
	}
	from, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	own := filepath.Join(dir, "program")
	to, err := os.OpenFile(own, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o500)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(to, sum), from)
	if closed := to.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return "", fmt.Errorf("copy %s: %w", path, err)
	}
	if got := sum.Sum(nil); !bytes.Equal(got, s.SHA256) {
		return "", fmt.Errorf("%s is not the program that was pinned: its SHA-256 is %s, the "+
			"configuration says %s\nhint: if you trust the program that is there now, correct "+
			"its sha256", path, hex.EncodeToString(got), hex.EncodeToString(s.SHA256))
	}
	return own, nil
}
