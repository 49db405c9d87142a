package tokenstore

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"
	"time"

	"gatekit/core/privatefiles"

	"github.com/go-json-experiment/json"
)

// Bounds of a folder.
const (
	maxFile = 256 << 10 // bytes of a record
	MinKey  = 32        // bytes of a key
	suffix  = ".token"
	// how long a token is used before the folder is asked again: a command may have removed it
	folderFreshFor = 5 * time.Second
)

// KeyError reports a record that was written with another key.
type KeyError struct{ File string }

func (e *KeyError) Error() string {
	return fmt.Sprintf("%s was written with another key, perhaps on another machine\nhint: "+
		"configure that key in [tokens] key, or remove the file and log in again", e.File)
}

// Folder is the Store of one machine: each record is a file in a folder that only one user can
// enter.
type Folder struct {
	folder privatefiles.Folder
	aead   cipher.AEAD
	keyID  string // identifies the key; does not tell anything about it
}

// file is the content of a file. All members but Sealed are the additional data of the encryption.
type file struct {
	Version int    `json:"version"`
	Key     string `json:"key"`
	Record
	Sealed []byte `json:"sealed,omitempty"`
}

// Open creates the folder if it is missing. key has at least MinKey random bytes.
func Open(folder string, key []byte) (*Folder, error) {
	if len(key) < MinKey {
		return nil, fmt.Errorf("the key of the tokens has %d bytes, and needs at least %d\nhint: "+
			"openssl rand -hex 32 > tokens.key", len(key), MinKey)
	}
	d := privatefiles.Folder{Path: folder, Danger: "use the tokens"}
	if err := d.Create(); err != nil {
		return nil, fmt.Errorf("open the token folder: %w", err)
	}
	encryption, err := hkdf.Key(sha256.New, key, nil, "gatekit tokens encryption", 32)
	if err != nil {
		return nil, err
	}
	id, err := hkdf.Key(sha256.New, key, nil, "gatekit tokens key id", 8)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(encryption)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Folder{folder: d, aead: aead, keyID: hex.EncodeToString(id)}, nil
}

// name returns the name of a record's file. Principals and issuers are not valid names of files.
func (id ID) name() string {
	b, _ := json.Marshal(id) // strings always marshal
	sum := sha256.Sum256(b)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:20])) + suffix
}

// additionalData returns the bytes that the encryption binds to the secrets.
func (f file) additionalData() ([]byte, error) {
	f.Sealed = nil
	return json.Marshal(f, json.Deterministic(true))
}

// Save implements Store. It returns after the record is on the disk.
func (s *Folder) Save(r *Record) error {
	r.stamp()
	f := file{Version: 1, Key: s.keyID, Record: *r}
	plain, err := json.Marshal(r.Secrets)
	if err != nil {
		return err
	}
	bound, err := f.additionalData()
	if err != nil {
		return err
	}
	f.Sealed = s.aead.Seal(nil, nil, plain, bound)
	content, err := json.Marshal(f, json.Deterministic(true))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("the tokens have more than %d bytes", maxFile)
	}
	if err == nil {
		err = s.folder.Write(r.name(), append(content, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save the tokens of server %q: %w", r.Server, err)
	}
	return nil
}

// Load implements Store.
func (s *Folder) Load(id ID) (*Record, error) {
	f, err := s.read(id.name())
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.folder.Path, id.name())
	if f.Key != s.keyID {
		return nil, &KeyError{path}
	}
	bound, err := f.additionalData()
	if err != nil {
		return nil, err
	}
	plain, err := s.aead.Open(nil, nil, f.Sealed, bound)
	if err != nil || f.ID != id || json.Unmarshal(plain, &f.Secrets) != nil {
		return nil, fmt.Errorf("%s was changed or damaged\nhint: remove it and log in again", path)
	}
	return &f.Record, nil
}

func (s *Folder) read(name string) (*file, error) {
	content, err := s.folder.Read(name, maxFile+1)
	if err != nil {
		return nil, err
	}
	f := &file{}
	err = json.Unmarshal(content, f, json.RejectUnknownMembers(true))
	// Base64 has several forms of some values. Only the form that was written is valid.
	again, _ := json.Marshal(f, json.Deterministic(true))
	if err != nil || f.Version != 1 ||
		!bytes.Equal(again, bytes.TrimSuffix(content, []byte("\n"))) {
		return nil, fmt.Errorf("%s is not a token file of this version of Gatekit\nhint: remove "+
			"it and log in again", filepath.Join(s.folder.Path, name))
	}
	return f, nil
}

// Delete implements Store.
func (s *Folder) Delete(id ID) error {
	err := s.folder.Remove(id.name())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Records implements Store. The records are ordered by the names of the files.
func (s *Folder) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		names, err := s.folder.Names()
		if err != nil {
			yield(Record{}, err)
			return
		}
		for _, name := range names {
			if !strings.HasSuffix(name, suffix) || strings.HasPrefix(name, ".") {
				continue
			}
			var r Record
			f, err := s.read(name)
			if err == nil {
				r = f.Record
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// Lock implements Store. The system ends the lock when the process ends.
func (s *Folder) Lock(ctx context.Context, id ID) (context.Context, func(), error) {
	name := strings.TrimSuffix(id.name(), suffix) + ".lock"
	unlock, err := lock(ctx, filepath.Join(s.folder.Path, name))
	return ctx, unlock, err
}

// BeginRefresh implements Store. It does nothing: the lock lasts until the refresh has ended.
func (s *Folder) BeginRefresh(*Record) (giveUp func(), err error) { return func() {}, nil }

// Replace implements Store. The caller's lock keeps others from changing the record.
func (s *Folder) Replace(was, next *Record) error {
	if next == nil {
		return s.Delete(was.ID)
	}
	return s.Save(next)
}

// FreshFor implements Store.
func (s *Folder) FreshFor() time.Duration { return folderFreshFor }
