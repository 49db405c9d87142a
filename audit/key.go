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
	"gatekit/core/regularfile"
)

// The private key that signs checkpoints is a line in the form of golang.org/x/mod/sumdb/note, in a
// file that only its owner may read. The public key is a line in a file next to the log.

// readOrCreateKey reads the private key in the file, or creates one that is named after this host.
// It also returns the key's text and the public key.
func readOrCreateKey(path string) (private string, signer note.Signer, public string, err error) {
	private, signer, public, err = readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createKey(path); err != nil {
			return "", nil, "", fmt.Errorf("create the checkpoint key: %w", err)
		}
		private, signer, public, err = readKey(path)
	}
	return private, signer, public, err
}

func readKey(path string) (private string, signer note.Signer, public string, err error) {
	b, err := readPrivateFile(path)
	if err != nil {
		return "", nil, "", fmt.Errorf("read the checkpoint key: %w", err)
	}
	private = strings.TrimSpace(string(b))
	if signer, err = note.NewSigner(private); err != nil {
		return "", nil, "", fmt.Errorf("%s does not hold a key: %w\nhint: name a file that does "+
			"not exist, and Gatekit creates a key there", path, err)
	}
	// note.Open rejects a note if the name of its signer has control characters
	if strings.ContainsFunc(signer.Name(), func(r rune) bool { return r < ' ' }) {
		return "", nil, "", fmt.Errorf("%s holds a key with control characters in its name, "+
			"%q\nhint: name a file that does not exist, and Gatekit creates a key there", path,
			signer.Name())
	}
	// NewSigner accepts only the form PRIVATE+KEY+name+id+key
	seed, err := base64.StdEncoding.DecodeString(strings.SplitN(private, "+", 5)[4])
	// the decoded key is one byte for the algorithm, then the seed
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return "", nil, "", fmt.Errorf("%s does not hold an Ed25519 key", path)
	}
	public, err = note.NewEd25519VerifierKey(signer.Name(),
		ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey))
	return private, signer, public, err
}

// readPrivateFile reads a file, and refuses one that other users may read.
func readPrivateFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); mode.Perm()&0o077 != 0 {
		return nil, fmt.Errorf("other users may read %s, its mode is %v\nhint: chmod 600 %s", path,
			mode.Perm(), path)
	}
	return readFile(path)
}

// maxFileBytes bounds the files beside a log that are read as a whole.
const maxFileBytes = 64 << 20

// readFile reads a file that must be regular.
func readFile(path string) ([]byte, error) { return regularfile.Read(path, maxFileBytes) }

// createKey creates a key file, unless another process does so first.
func createKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	private, _, err := note.GenerateKey(rand.Reader, "gatekit/"+hostName())
	if err != nil {
		return err
	}
	err = atomicfile.Create(path, []byte(private+"\n"))
	if errors.Is(err, fs.ErrExist) {
		return nil // use the key of the other process
	}
	return err
}

// hostName returns the host name, reduced to characters that the name of a key may have.
func hostName() string {
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

// ReadPublicKey returns a public key. The parameter key is the line NAME+ID+KEY, or the path of a
// file that holds this line.
func ReadPublicKey(key string) (note.Verifier, error) {
	if v, err := note.NewVerifier(strings.TrimSpace(key)); err == nil {
		return v, nil
	}
	b, err := os.ReadFile(key)
	if err != nil {
		return nil, fmt.Errorf("read the public key: %w\nhint: give a line NAME+ID+KEY, or a "+
			"file that holds such a line", err)
	}
	v, err := note.NewVerifier(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("read the public key %s: %w\nhint: the file must hold one line "+
			"NAME+ID+KEY", key, err)
	}
	return v, nil
}

// PublicKeyFile returns the path of a log's public key.
func PublicKeyFile(file string) string { return file + ".pub" }
