package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/core/atomicfile"
	"gatekit/core/clientfiles"
	"gatekit/core/privatefiles"
)

const (
	manifestName     = "manifest.json"
	maxManifestBytes = 64 << 20
	// how often a file is planned again because its client has changed it meanwhile
	maxImportTries = 3
)

// imports is the folder with the copies of the clients' files before each import. It has a folder
// for each import, with a manifest and the copies. The copies may have secrets, so only the user
// can enter the folder.
type imports struct {
	folder privatefiles.Folder
	lock   *os.File
}

// manifest describes one import. It is written before the clients' files are.
type manifest struct {
	ID      string         `json:"id"`
	Time    time.Time      `json:"time"`
	Program string         `json:"program"`
	Files   []manifestFile `json:"files"`
	// Undone is true if undo could not restore everything, and has kept the copies.
	Undone bool `json:"undone,omitzero"`
}

// manifestFile is a file of an import.
type manifestFile struct {
	Client    string                 `json:"client"`
	Path      string                 `json:"path"`
	Copy      string                 `json:"copy"` // the name of the copy
	Before    string                 `json:"before"`
	After     string                 `json:"after"` // SHA-256 of the contents, in hexadecimal
	Format    clientfiles.Format     `json:"format"`
	Keys      [][]string             `json:"keys"`
	Shape     clientfiles.Shape      `json:"shape"`
	Originals []clientfiles.Original `json:"originals"`
	Joined    []clientfiles.Joined   `json:"joined,omitempty"`
}

// findImports returns the folder, which may not exist, without opening it.
func findImports() (*imports, error) {
	state, err := stateFolder()
	if err != nil {
		return nil, fmt.Errorf("find a place for the copies of the files: %w", err)
	}
	return &imports{folder: privatefiles.Folder{Path: filepath.Join(state, "imports"),
		Danger: "change what your clients start"}}, nil
}

// openImports opens the folder and waits for other processes that use it. The caller must call
// close.
func openImports() (*imports, error) {
	s, err := findImports()
	if err != nil {
		return nil, err
	}
	if err := s.folder.Create(); err != nil {
		return nil, err
	}
	if s.lock, err = os.Open(s.folder.Path); err != nil {
		return nil, err
	}
	err = syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) { // it may wait for the answer of a person
		fmt.Fprintln(os.Stderr, "waiting until another gatekit import or undo has ended")
		err = syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("lock %s: %w", s.folder.Path, err)
	}
	return s, nil
}

func (s *imports) close() { s.lock.Close() }

// in returns the folder of an import.
func (s *imports) in(id string) privatefiles.Folder {
	return privatefiles.Folder{Path: filepath.Join(s.folder.Path, id), Danger: s.folder.Danger}
}

// create creates the folder of a new import and returns its id: the time, and a number if there is
// another import of the same second.
func (s *imports) create(now time.Time) (string, error) {
	base := now.UTC().Format("20060102T150405Z")
	for n := 1; ; n++ {
		id := base
		if n > 1 {
			id += fmt.Sprintf("-%03d", n) // the order of the names is that of the imports
		}
		switch err := os.Mkdir(filepath.Join(s.folder.Path, id), 0o700); {
		case err == nil:
			return id, s.in(id).Check()
		case !errors.Is(err, fs.ErrExist) || n == 1000:
			return "", err
		}
	}
}

// apply writes the files of a plan. First it writes copies of them and the manifest, so that undo
// works even if apply is interrupted. An error about one file is in its fileChange.
func (s *imports) apply(p *importPlan, program string) (id string, err error) {
	now := time.Now()
	if id, err = s.create(now); err != nil {
		return "", fmt.Errorf("keep copies of the files: %w", err)
	}
	isReady := false
	defer func() {
		if !isReady { // no file was changed
			err = errors.Join(err, s.remove(id))
		}
	}()
	m := &manifest{ID: id, Time: now.UTC(), Program: program}
	for i, c := range p.changes {
		m.Files = append(m.Files, manifestFile{Copy: strconv.Itoa(i)})
		if err := s.keep(m, i, c); err != nil {
			return "", fmt.Errorf("keep a copy of %s: %w", c.file.Path, err)
		}
	}
	if err := s.writeManifest(m); err != nil {
		return "", err
	}
	if err := atomicfile.Sync(s.folder.Path); err != nil {
		return "", err
	}
	isReady = true
	written := 0
	for i, c := range p.changes {
		if c.err = s.write(m, i, c); c.err == nil {
			written++
		}
	}
	if written == 0 {
		return id, errors.Join(s.remove(id), p.failure())
	}
	return id, nil
}

// write writes one file. If its client has changed it since it was read, write plans the change of
// the new content.
func (s *imports) write(m *manifest, i int, c *fileChange) error {
	for try := 1; ; try++ {
		err := c.file.Replace(c.content)
		if !errors.Is(err, atomicfile.ErrChanged) || try == maxImportTries {
			return err
		}
		if c.file = c.file.Again(); c.file.Err != nil {
			return c.file.Err
		}
		if err := c.plan(); err != nil {
			return err
		}
		if err := errors.Join(s.keep(m, i, c), s.writeManifest(m)); err != nil {
			return err
		}
	}
}

// keep writes the copy of a file, and describes the file in the manifest.
func (s *imports) keep(m *manifest, i int, c *fileChange) error {
	f := &m.Files[i]
	*f = manifestFile{Client: c.file.Client.ID, Path: c.file.Path, Copy: f.Copy,
		Before: digest(c.file.Content), After: digest(c.content), Format: c.file.Place.Format,
		Keys: c.file.Place.Keys, Shape: c.file.Place.Shape, Originals: c.originals,
		Joined: c.joined}
	return s.in(m.ID).Write(f.Copy, c.file.Content)
}

func (s *imports) writeManifest(m *manifest) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.in(m.ID).Write(manifestName, b)
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// ids returns the ids of the imports, the newest first. An import that was interrupted before it
// had its manifest has changed nothing, and is left out.
func (s *imports) ids() ([]string, error) {
	names, err := s.folder.Names()
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Lstat(filepath.Join(s.folder.Path, name, manifestName))
		return err != nil
	})
	slices.Sort(names)
	slices.Reverse(names)
	return names, err
}

// read returns the manifest of an import.
func (s *imports) read(id string) (*manifest, error) {
	if id == "" || id != filepath.Base(id) || id[0] == '.' {
		return nil, fmt.Errorf("%q is not the id of an import", id)
	}
	folder := s.in(id)
	if err := folder.Check(); err != nil {
		return nil, err
	}
	b, err := folder.Read(manifestName, maxManifestBytes)
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("read the manifest of import %s: %w", id, err)
	}
	return m, nil
}

// copyOf returns the content of a file before an import.
func (s *imports) copyOf(id string, f manifestFile) ([]byte, error) {
	if f.Copy != filepath.Base(f.Copy) {
		return nil, fmt.Errorf("import %s has no copy %q", id, f.Copy)
	}
	b, err := s.in(id).Read(f.Copy, clientfiles.MaxFileSize)
	if err == nil && digest(b) != f.Before {
		err = fmt.Errorf("the copy of %s in import %s is damaged", f.Path, id)
	}
	return b, err
}

// remove removes an import with its copies.
func (s *imports) remove(id string) error { return os.RemoveAll(s.in(id).Path) }
