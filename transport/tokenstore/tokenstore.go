// Package tokenstore keeps the tokens that authorization servers issued for MCP servers. Each
// record is a file in a folder that only one user can enter.
//
//   - The tokens of a record are encrypted. The encryption binds all other members of the record,
//     so a changed byte, or a record in the place of another one, is an error.
//   - A record that was written with another key is a *KeyError, for example after the folder was
//     copied to another machine.
//   - Save returns after the record is on the disk.
//   - Several processes may use the folder. A process that refreshes a token holds the lock of the
//     record, so that no two processes use one refresh token.
//
// # Why one file for each record
//
// With one file for all records, each refresh would write the tokens of all principals again.
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
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"gatekit/core/privatefiles"

	"github.com/go-json-experiment/json"
)

// Bounds of the store.
const (
	maxFile = 256 << 10 // bytes of a record
	MinKey  = 32        // bytes of a key
	suffix  = ".token"
)

// Kinds of records.
const (
	Login        = "login"        // the tokens of a principal for a server
	Registration = "registration" // Gatekit's client id and secret at an authorization server
	// the same, for logins that begin at Gatekit's own pages
	PageRegistration = "page-registration"
)

// ID names a record.
type ID struct {
	Kind      string `json:"kind"`
	Server    string `json:"server"`              // configured name
	Principal string `json:"principal,omitempty"` // "" for a record of Gatekit itself
	Issuer    string `json:"issuer,omitempty"`    // set for a registration: the issuer it is for
}

// Record holds tokens or a client secret that an authorization server issued. All members but
// Secrets are readable in the file.
type Record struct {
	ID
	// AuthorizationServer is the issuer of the tokens.
	AuthorizationServer string `json:"authorization_server"`
	ClientID            string `json:"client_id"`
	// AuthMethod is how the client authenticates at the token endpoint, as the registration says;
	// "" for a client of the configuration.
	AuthMethod string    `json:"auth_method,omitempty"`
	Redirect   string    `json:"redirect,omitempty"` // of a registration: its redirect URI
	Resource   string    `json:"resource,omitempty"`
	Scopes     []string  `json:"scopes,omitempty"`
	Wanted     []string  `json:"wanted,omitempty"` // scopes that the next login asks for
	Expiry     time.Time `json:"expiry,omitzero"`  // of the token or client secret; zero: unknown
	Saved      time.Time `json:"saved"`
	Secrets    Secrets   `json:"-"`
}

// Secrets are the encrypted members of a record. They print as a placeholder.
type Secrets struct {
	Access       string `json:"access,omitempty"`
	Refresh      string `json:"refresh,omitempty"`
	ClientSecret string `json:"client_secret,omitempty"`
}

// String returns a placeholder.
func (Secrets) String() string { return "(secrets)" }

// GoString returns a placeholder.
func (s Secrets) GoString() string { return s.String() }

// LogValue returns a placeholder.
func (s Secrets) LogValue() slog.Value { return slog.StringValue(s.String()) }

// KeyError reports a record that was written with another key.
type KeyError struct{ File string }

func (e *KeyError) Error() string {
	return fmt.Sprintf("%s was written with another key, perhaps on another machine\nhint: "+
		"configure that key in [tokens] key, or remove the file and log in again", e.File)
}

// Store is a folder of records. Its methods may be called from many goroutines.
type Store struct {
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
func Open(folder string, key []byte) (*Store, error) {
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
	return &Store{folder: d, aead: aead, keyID: hex.EncodeToString(id)}, nil
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

// Save writes a record and returns after the record is on the disk. It sets r.Saved.
func (s *Store) Save(r *Record) error {
	r.Saved = time.Now().UTC().Truncate(time.Second)
	r.Expiry = r.Expiry.UTC().Truncate(time.Second)
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

// Load returns the record. If there is none, the error matches fs.ErrNotExist.
func (s *Store) Load(id ID) (*Record, error) {
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

func (s *Store) read(name string) (*file, error) {
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

// Delete removes a record. If there is none, Delete does nothing.
func (s *Store) Delete(id ID) error {
	err := s.folder.Remove(id.name())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// List returns all records without their secrets, ordered by the names of the files. err describes
// the files that cannot be read; the other records are returned, too.
func (s *Store) List() (records []Record, err error) {
	names, err := s.folder.Names()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) || strings.HasPrefix(name, ".") {
			continue
		}
		f, err := s.read(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		records = append(records, f.Record)
	}
	return records, errors.Join(errs...)
}

// Lock waits until no other process or goroutine has the record's lock, and takes it. It does not
// prevent Load.
func (s *Store) Lock(ctx context.Context, id ID) (unlock func(), err error) {
	name := strings.TrimSuffix(id.name(), suffix) + ".lock"
	return lock(ctx, filepath.Join(s.folder.Path, name))
}
