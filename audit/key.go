package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"gatekit/core/atomicfile"
)

// The key that signs checkpoints is a line as golang.org/x/mod/sumdb/note has it, in a file that
// only its owner may read. The public key is beside the log, as a line of the same kind.

// openKey reads the key of a file, or makes one for this machine. It answers the text of it, and
// the public key too.
func openKey(path string) (private string, signer note.Signer, public string, err error) {
	private, signer, public, err = readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(path); err != nil {
			return "", nil, "", fmt.Errorf("make the key of its checkpoints: %w", err)
		}
		private, signer, public, err = readKey(path)
	}
	return private, signer, public, err
}

func readKey(path string) (private string, signer note.Signer, public string, err error) {
	b, err := readSecret(path)
	if err != nil {
		return "", nil, "", fmt.Errorf("read the key of its checkpoints: %w", err)
	}
	private = strings.TrimSpace(string(b))
	if signer, err = note.NewSigner(private); err != nil {
		return "", nil, "", fmt.Errorf("%s holds no key: %w\nhint: to have one made, name a "+
			"file that is not there yet", path, err)
	}
	// no note could be read that it has signed
	if strings.ContainsFunc(signer.Name(), func(r rune) bool { return r < ' ' }) {
		return "", nil, "", fmt.Errorf("%s holds a key with control characters in its name, "+
			"%q\nhint: to have one made, name a file that is not there yet", path, signer.Name())
	}
	// NewSigner took it: PRIVATE+KEY+name+id+key
	seed, err := base64.StdEncoding.DecodeString(strings.SplitN(private, "+", 5)[4])
	// an algorithm, and the seed
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return "", nil, "", fmt.Errorf("%s holds no Ed25519 key", path)
	}
	public, err = note.NewEd25519VerifierKey(signer.Name(),
		ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey))
	return private, signer, public, err
}

// readSecret reads a file that nobody else may read.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); mode.Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s may be read by others, its mode is %v\nhint: chmod 600 %s", path,
			mode.Perm(), path)
	}
	return os.ReadFile(path)
}

// makeKey makes a key, unless another process is faster.
func makeKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	private, _, err := note.GenerateKey(rand.Reader, "gatekit/"+machine())
	if err != nil {
		return err
	}
	err = atomicfile.Create(path, []byte(private+"\n"))
	if errors.Is(err, fs.ErrExist) {
		return nil // the other process's key counts
	}
	return err
}

// machine is the name of this one, as it may stand in the name of a key.
func machine() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	name = strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' ||
			r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, name)
	if name == "" {
		return "localhost"
	}
	return name[:min(len(name), 64)]
}

// ReadPublicKey reads a public key: key itself as a line, or the file that holds it.
func ReadPublicKey(key string) (note.Verifier, error) {
	if v, err := note.NewVerifier(strings.TrimSpace(key)); err == nil {
		return v, nil
	}
	b, err := os.ReadFile(key)
	if err != nil {
		return nil, fmt.Errorf("read the public key: %w\nhint: it is a line NAME+ID+KEY, or a "+
			"file with that line", err)
	}
	v, err := note.NewVerifier(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("read the public key %s: %w\nhint: it is a file with one line "+
			"NAME+ID+KEY", key, err)
	}
	return v, nil
}

// PublicKeyFile is where the public key of a log is.
func PublicKeyFile(file string) string { return file + ".pub" }
