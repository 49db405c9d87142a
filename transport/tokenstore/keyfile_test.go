package tokenstore_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gatekit/transport/tokenstore"
)

func TestKeyFileIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "tokens.key")
	keys := make([][]byte, 8) // of processes that start at the same time
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = tokenstore.KeyFile(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) < tokenstore.MinKey || !bytes.Equal(k, keys[0]) {
			t.Errorf("got the keys %q, want one key of at least %d bytes", keys, tokenstore.MinKey)
			break
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want a file that only the user can read", info.Mode(), err)
	}
}

func TestBadKeyFilesAreRefused(t *testing.T) {
	good := bytes.Repeat([]byte("k"), 40)
	for name, prepare := range map[string]func(path string) error{
		"others can read it": func(path string) error {
			return os.WriteFile(path, good, 0o644)
		},
		"it is too short": func(path string) error {
			return os.WriteFile(path, []byte("short\n"), 0o600)
		},
		"it is a link": func(path string) error {
			if err := os.WriteFile(path+".1", good, 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".1", path)
		},
	} {
		path := filepath.Join(t.TempDir(), "tokens.key")
		if err := prepare(path); err != nil {
			t.Fatal(err)
		}
		if key, err := tokenstore.KeyFile(path); err == nil {
			t.Errorf("%s: got the key %q, want an error", name, key)
		}
	}
}
