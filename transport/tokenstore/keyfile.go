package tokenstore

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gatekit/core/atomicfile"
	"gatekit/core/privatefiles"
)

// KeyFile returns the key in a file that only this user can read. If there is no such file, KeyFile
// makes it, with a new random key. Whoever can read the file and the folder of a Store can read the
// tokens.
func KeyFile(path string) ([]byte, error) {
	dir, name := filepath.Split(path)
	d := privatefiles.Folder{Path: filepath.Clean(dir), Danger: "read the tokens"}
	key, err := d.Read(name, 1024)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(d.Path, 0o700); err != nil {
			return nil, fmt.Errorf("make the key of the tokens: %w", err)
		}
		// Another process may make its key at the same time. Then that key is used.
		err = atomicfile.Create(path, []byte(rand.Text()+rand.Text()+"\n"))
		if err == nil || errors.Is(err, fs.ErrExist) {
			key, err = d.Read(name, 1024)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of the tokens: %w", err)
	}
	if key = bytes.TrimSpace(key); len(key) < MinKey {
		return nil, fmt.Errorf("%s holds a key of %d bytes, and not of at least %d\nhint: remove "+
			"it, and log in again", path, len(key), MinKey)
	}
	return key, nil
}
