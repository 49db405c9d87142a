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

	"gatekit/core/regularfile"
)

// programPath returns the path of the program to run for a spec. A pinned program is copied to dir,
// a folder that only Gatekit's user can enter, and the checksum of the copy is checked.
func programPath(s Spec, dir string) (string, error) {
	path := s.Command[0]
	if !strings.Contains(path, "/") {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("%w\nhint: install the program, or give its full path in command",
				err)
		}
		path = found
	}
	path, err := filepath.Abs(path)
	if err != nil || s.SHA256 == nil {
		return path, err
	}
	original, err := regularfile.Open(path)
	if err != nil {
		return "", err
	}
	defer original.Close()
	copyPath := filepath.Join(dir, "program")
	copied, err := os.OpenFile(copyPath, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o500)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(copied, sum), original)
	if closeErr := copied.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", fmt.Errorf("copy %s: %w", path, err)
	}
	if got := sum.Sum(nil); !bytes.Equal(got, s.SHA256) {
		return "", fmt.Errorf("%s is not the pinned program: its SHA-256 is %s, the "+
			"configuration has %s\nhint: if you trust the program that is there now, correct "+
			"sha256", path, hex.EncodeToString(got), hex.EncodeToString(s.SHA256))
	}
	return copyPath, nil
}
