package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/atomicfile"
	"gatekit/core/regularfile"
)

// Version is the version of the file that this package reads and writes.
const Version = 1

// maxLockBytes limits the size of a lock file.
const maxLockBytes = 64 << 20

// Lock is the content of a lock file: the approved servers by name.
type Lock struct {
	Servers map[string]*Server

	path string
	read []byte // the bytes that Read found; nil if there was no file
}

// fileLock, fileServer and fileItem are the JSON of the file. The order of the fields is the order
// in the file.
type fileLock struct {
	Version int                   `json:"version"`
	Servers map[string]fileServer `json:"servers"`
}

type fileServer struct {
	Launch       Start               `json:"launch,omitzero"`
	Package      Source              `json:"package,omitzero"`
	ServerInfo   jsontext.Value      `json:"serverInfo,omitzero"`
	Capabilities jsontext.Value      `json:"capabilities,omitzero"`
	Instructions *fileItem           `json:"instructions,omitzero"`
	Tools        map[string]fileItem `json:"tools,omitempty"`
	Prompts      map[string]fileItem `json:"prompts,omitempty"`
	Templates    map[string]fileItem `json:"templates,omitempty"`
	Resources    map[string]fileItem `json:"resources,omitzero"`
}

type fileItem struct {
	Digest     string         `json:"digest"`
	Definition jsontext.Value `json:"definition"`
	Varies     []string       `json:"varies,omitempty"`
}

// Read reads the lock file at path. If there is no file, Read returns an empty lock, and IsNew
// reports true. Every other problem is an error with the line of the problem.
func Read(path string) (*Lock, error) {
	if err := refuseLink(path); err != nil {
		return nil, err
	}
	b, err := regularfile.Read(path, maxLockBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{Servers: map[string]*Server{}, path: path}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the lock file: %w", err)
	}
	l, err := parse(path, b)
	if err != nil {
		return nil, err
	}
	l.path, l.read = path, b
	return l, nil
}

// IsNew reports whether there was no lock file.
func (l *Lock) IsNew() bool { return l.read == nil }

// Digest returns the SHA-256 of the file that was read, as "sha256:" and hexadecimal digits.
func (l *Lock) Digest() string { return digestOfFile(l.read) }

func digestOfFile(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// refuseLink returns an error if path is a symbolic link. A link in a checked out repository could
// make Gatekit read or replace a file elsewhere.
func refuseLink(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("the lock file %s is a symbolic link: name the file itself with file in "+
			"[pins]", path)
	}
	return nil
}

// ReadError is a lock file that cannot be used.
type ReadError struct {
	Path    string
	Line    int // from 1
	Message string
}

// Error returns the path, the line and the message.
func (e *ReadError) Error() string { return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Message) }

const restoreHint = "\nhint: restore the file from version control, or approve again: remove it " +
	"and run gatekit pin"

// parse reads the bytes of a lock file.
func parse(path string, b []byte) (*Lock, error) {
	fail := func(offset int64, format string, a ...any) error {
		before := b[:min(max(int(offset), 0), len(b))]
		return &ReadError{path, 1 + bytes.Count(before, []byte("\n")), fmt.Sprintf(format, a...)}
	}
	if offset := conflictMarker(b); offset >= 0 {
		return nil, fail(int64(offset), "the file has merge conflict markers\nhint: take one of "+
			"the two sides, and then run gatekit pin to review the differences")
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, fail(0, "the file is empty%s", restoreHint)
	}
	var head struct {
		Version jsontext.Value `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, jsonError(fail, b, err)
	}
	switch version := string(head.Version); {
	case version == "":
		return nil, fail(0, "the file has no version%s", restoreHint)
	case version != fmt.Sprint(Version):
		return nil, fail(offsetOf(b, "/version"), "the file has version %s, but this Gatekit "+
			"reads version %d\nhint: use the Gatekit that wrote the file, or a newer one",
			version, Version)
	}
	var file fileLock
	if err := json.Unmarshal(b, &file, json.RejectUnknownMembers(true)); err != nil {
		return nil, jsonError(fail, b, err)
	}
	l := &Lock{Servers: make(map[string]*Server, len(file.Servers))}
	for _, name := range slices.Sorted(maps.Keys(file.Servers)) {
		s, at, err := file.Servers[name].server()
		if err != nil {
			pointer := jsontext.Pointer("/servers").AppendToken(name) + at
			return nil, fail(offsetOf(b, pointer), "server %q: %v", name, err)
		}
		l.Servers[name] = s
	}
	return l, nil
}

// conflictMarker returns the offset of the first line that git marks a conflict with, or -1.
func conflictMarker(b []byte) int {
	for _, marker := range []string{"<<<<<<< ", "=======", ">>>>>>> ", "||||||| "} {
		if bytes.HasPrefix(b, []byte(marker)) {
			return 0
		}
		if i := bytes.Index(b, []byte("\n"+marker)); i >= 0 {
			return i + 1
		}
	}
	return -1
}

// jsonError returns an error of package json with its line.
func jsonError(fail func(int64, string, ...any) error, b []byte, err error) error {
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		reason := "a value of a wrong type"
		if e.Err != nil {
			reason = e.Err.Error()
		}
		return fail(offsetOf(b, e.JSONPointer), "%s: %s%s", e.JSONPointer, reason, restoreHint)
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fail(e.ByteOffset, "the file is not valid JSON: %v%s", e.Err, restoreHint)
	}
	return fail(int64(len(b)), "the file is not valid JSON: %v%s", err, restoreHint)
}

// offsetOf returns the offset of the value at a pointer in valid JSON.
func offsetOf(b []byte, pointer jsontext.Pointer) int64 {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := d.ReadToken(); err != nil {
			return 0
		}
		if d.StackPointer() == pointer {
			return d.InputOffset()
		}
	}
}

// server returns the checked server. An error has the pointer to its place below the server.
func (f fileServer) server() (*Server, jsontext.Pointer, error) {
	s := &Server{Start: f.Launch, Package: f.Package, ServerInfo: Canonical(f.ServerInfo),
		Capabilities: Canonical(f.Capabilities)}
	if f.Instructions != nil {
		i, err := f.Instructions.item(Instructions, "")
		if err != nil {
			return nil, "/instructions", err
		}
		s.Instructions = i
	}
	listed := map[Kind]map[string]fileItem{Tool: f.Tools, Prompt: f.Prompts,
		Template: f.Templates, Resource: f.Resources}
	for _, kind := range itemKinds {
		items := listed[kind]
		if items != nil {
			*s.items(kind) = make(map[string]*Item, len(items))
		}
		for _, name := range slices.Sorted(maps.Keys(items)) {
			item := items[name]
			i, err := item.item(kind, name)
			if err != nil {
				return nil, jsontext.Pointer("/" + string(kind) + "s").AppendToken(name),
					fmt.Errorf("%s %q: %w", kind, name, err)
			}
			s.Add(i)
		}
	}
	return s, "", nil
}

// item returns the checked item.
func (f *fileItem) item(kind Kind, name string) (*Item, error) {
	v, err := parseValue(f.Definition)
	if err != nil {
		return nil, err
	}
	i, err := newItem(kind, v, f.Varies)
	switch {
	case err != nil:
		return nil, err
	case i.Name() != name:
		return nil, fmt.Errorf("the definition has another name, %q", i.Name())
	case i.digest != f.Digest:
		return nil, fmt.Errorf("the digest does not match the definition, so the file was edited "+
			"(computed %s)\nhint: do not edit the file: run gatekit pin", i.digest)
	}
	return i, nil
}

// Bytes returns the content of the lock file.
func (l *Lock) Bytes() ([]byte, error) {
	file := fileLock{Version: Version, Servers: make(map[string]fileServer, len(l.Servers))}
	for name, s := range l.Servers {
		file.Servers[name] = s.file()
	}
	b, err := json.Marshal(file, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("encode the lock file: %w", err)
	}
	return append(escapeInvisible(b), '\n'), nil
}

func (s *Server) file() fileServer {
	f := fileServer{Launch: s.Start, Package: s.Package, ServerInfo: s.ServerInfo,
		Capabilities: s.Capabilities, Tools: fileItems(s.Tools), Prompts: fileItems(s.Prompts),
		Templates: fileItems(s.Templates), Resources: fileItems(s.Resources)}
	if s.Instructions != nil {
		item := s.Instructions.file()
		f.Instructions = &item
	}
	return f
}

func fileItems(items map[string]*Item) map[string]fileItem {
	if items == nil {
		return nil
	}
	out := make(map[string]fileItem, len(items))
	for name, i := range items {
		out[name] = i.file()
	}
	return out
}

func (i *Item) file() fileItem { return fileItem{i.digest, i.Definition(), i.varies} }

// escapeInvisible escapes the characters that a reviewer would not see in a diff: marks that change
// the direction of text, tags, and others without a glyph. In JSON, such characters are only in
// strings.
func escapeInvisible(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for _, r := range string(b) {
		if r < 0x80 || unicode.IsGraphic(r) && r != '\u00a0' && !unicode.In(r, unicode.Zs,
			unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			out = utf8.AppendRune(out, r)
			continue
		}
		if r > 0xffff {
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			continue
		}
		out = fmt.Appendf(out, `\u%04x`, r)
	}
	return out
}

// ErrChanged is returned by Write if another process has changed the file since it was read.
var ErrChanged = errors.New("the lock file was changed by another process")

// Write writes the lock to the file that it was read from. It does not touch the file if the
// content is the same. written reports whether it has changed the file.
func (l *Lock) Write() (written bool, err error) { return l.write(nil) }

// write implements Write. record is called with the digest of the new file, when no other process
// can change the file any more. If it returns an error, the file stays as it is. It may be nil.
func (l *Lock) write(record func(digest string) error) (written bool, err error) {
	b, err := l.Bytes()
	if err != nil || bytes.Equal(b, l.read) {
		return false, err
	}
	if len(b) > maxLockBytes {
		return false, fmt.Errorf("write the lock file: it would have more than %d bytes",
			maxLockBytes)
	}
	if _, err := parse(l.path, b); err != nil {
		return false, fmt.Errorf("check the lock file before it is written: %w", err)
	}
	if err := refuseLink(l.path); err != nil {
		return false, err
	}
	if info, err := os.Stat(l.path); err == nil && info.Mode().Perm()&0o200 == 0 {
		return false, fmt.Errorf("write the lock file: %s is read-only", l.path)
	}
	// A lock on the folder, so that no other Gatekit writes between the comparison and the rename.
	folder, err := os.Open(filepath.Dir(l.path))
	if err != nil {
		return false, fmt.Errorf("write the lock file: %w", err)
	}
	defer folder.Close()
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return false, fmt.Errorf("lock the folder of %s: %w", l.path, err)
	}
	now, err := regularfile.Read(l.path, maxLockBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read the lock file: %w", err)
	}
	if !bytes.Equal(now, l.read) {
		return false, fmt.Errorf("%w: %s\nhint: run the command again", ErrChanged, l.path)
	}
	if record != nil {
		if err := record(digestOfFile(b)); err != nil {
			return false, err
		}
	}
	if err := atomicfile.Write(l.path, b); err != nil {
		return false, fmt.Errorf("write the lock file: %w", err)
	}
	l.read = b
	// The file is committed and has no secrets. Other users, such as a service, may read it.
	if err := os.Chmod(l.path, 0o644); err != nil {
		return true, fmt.Errorf("make the lock file readable: %w", err)
	}
	return true, nil
}

// maxUpdates limits how often Update starts again because another process has changed the file.
const maxUpdates = 10

// Update reads the lock file at path, calls change, and writes the file. If another process changes
// the file meanwhile, Update starts again. It returns the lock that is in the file now.
func Update(path string, change func(*Lock) error) (*Lock, error) {
	return UpdateRecorded(path, change, nil)
}

// UpdateRecorded is like Update, and calls record before it writes the file, with the digest that
// the file will have. If record returns an error, the file stays as it is. If the content does not
// change, record is not called. Afterwards, only the disk can keep the file from being written.
func UpdateRecorded(path string, change func(*Lock) error,
	record func(digest string) error) (*Lock, error) {
	for range maxUpdates {
		l, err := Read(path)
		if err != nil {
			return nil, err
		}
		if err := change(l); err != nil {
			return nil, err
		}
		if _, err := l.write(record); errors.Is(err, ErrChanged) {
			continue
		} else if err != nil {
			return nil, err
		}
		return l, nil
	}
	return nil, fmt.Errorf("%w again and again: %s", ErrChanged, path)
}

// Line returns the line of an item in the file that was read. If the item is not in the file, Line
// returns the line of its server, or 1.
func (l *Lock) Line(server string, kind Kind, name string) int {
	s := l.Servers[server]
	if s == nil || l.read == nil {
		return 1
	}
	pointer := jsontext.Pointer("/servers").AppendToken(server)
	switch {
	case kind == Instructions && s.Instructions != nil:
		pointer += "/instructions"
	case kind != "" && kind != Instructions && s.Item(kind, name) != nil:
		pointer = (pointer + jsontext.Pointer("/"+string(kind)+"s")).AppendToken(name)
	}
	return 1 + bytes.Count(l.read[:offsetOf(l.read, pointer)], []byte("\n"))
}
