package clientfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"gatekit/core/atomicfile"
	"gatekit/core/regularfile"
)

const (
	// maxMatches limits how many files a template with * can stand for.
	maxMatches = 1000
	// maxProjectBytes limits the files of one client in a project, together. Who works in the
	// project of somebody else does not know what is in it.
	maxProjectBytes = 1 << 20
)

// Machine is where the files of clients are looked for.
type Machine struct {
	// OS is the operating system, as runtime.GOOS.
	OS string
	// Home is the absolute path of the home folder.
	Home string
	// Getenv returns a variable of the environment, or "".
	Getenv func(name string) string
	// Project is the absolute path of the folder whose project files are looked for; "" for none.
	Project string
}

// File is a file of a client that exists.
type File struct {
	// Client is the client that reads the file.
	Client Client
	// Place is the row of the table that the file belongs to.
	Place Place
	// Path is the path at which the client looks.
	Path string
	// Content is the content; nil if the file could not be read.
	Content []byte
	// Document has the servers; nil if Err is set.
	Document *Document
	// Err is the reason why the file cannot be read or does not parse.
	Err error
}

// Files returns the files of a client that exist, in the order of the table. A file that several
// rows lead to is returned once.
//
// In the template of a path, ~ is the home folder, {app} is the folder of the applications'
// settings of the operating system, and {config} is $XDG_CONFIG_HOME or ~/.config. {NAME|DEFAULT}
// is the variable NAME, or DEFAULT if the variable is not set to an absolute path. A component with
// * stands for the files that match it.
//
// The project files of a client that have more than 1 MiB together are not read.
func (m Machine) Files(c Client) (files []File) {
	var seen []fs.FileInfo
	left := int64(maxProjectBytes)
	for _, p := range c.Places {
		if p.OS != "" && p.OS != m.OS {
			continue
		}
		for _, name := range m.expand(p) {
			info, err := os.Stat(name)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
				continue
			}
			if err == nil {
				known := false
				for _, s := range seen {
					known = known || os.SameFile(s, info)
				}
				if known {
					continue
				}
				seen = append(seen, info)
			}
			if p.Scope != Project {
				files = append(files, read(c, p, name, MaxFileSize))
				continue
			}
			f := read(c, p, name, left)
			if err == nil && info.Size() > left {
				f.Err = fmt.Errorf("the files of %s in this project are larger than %d bytes "+
					"together", c.Name, maxProjectBytes)
			}
			left -= int64(len(f.Content))
			files = append(files, f)
		}
	}
	return files
}

func read(c Client, p Place, name string, limit int64) File {
	f := File{Client: c, Place: p, Path: name}
	if f.Content, f.Err = regularfile.Read(name, limit); f.Err != nil {
		f.Content = nil
		return f
	}
	f.Document, f.Err = Parse(p, f.Content)
	return f
}

// Again reads the file again.
func (f File) Again() File {
	limit := int64(MaxFileSize)
	if f.Place.Scope == Project {
		limit = maxProjectBytes
	}
	return read(f.Client, f.Place, f.Path, limit)
}

// expand returns the paths that a template stands for.
func (m Machine) expand(p Place) []string {
	t := p.Path
	config := m.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(m.Home, ".config")
	}
	app := config
	if m.OS == "darwin" {
		app = filepath.Join(m.Home, "Library", "Application Support")
	}
	base := "/"
	switch word, rest, isVariable := strings.Cut(t, "}"); {
	case strings.HasPrefix(t, "{") && isVariable:
		name, otherwise, _ := strings.Cut(word[1:], "|")
		switch {
		case name == "app":
			base = app
		case name == "config":
			base = config
		case filepath.IsAbs(m.Getenv(name)):
			base = m.Getenv(name)
		case otherwise != "":
			base = filepath.Join(m.Home, strings.TrimPrefix(otherwise, "~"))
		default:
			return nil
		}
		t = rest
	case strings.HasPrefix(t, "~/"):
		base, t = m.Home, t[1:]
	case p.Scope == Project:
		if m.Project == "" {
			return nil
		}
		base = m.Project
	}
	names := []string{filepath.Clean(base)}
	for _, part := range strings.Split(strings.Trim(t, "/"), "/") {
		names = withPart(names, part)
	}
	return names
}

// withPart returns the paths of part in each of the folders.
func withPart(folders []string, part string) (names []string) {
	for _, folder := range folders {
		if !strings.Contains(part, "*") {
			names = append(names, filepath.Join(folder, part))
			continue
		}
		entries, _ := os.ReadDir(folder) // sorted by name; a folder that is not there is empty
		for _, e := range entries {
			if ok, _ := path.Match(part, e.Name()); ok && len(names) < maxMatches {
				names = append(names, filepath.Join(folder, e.Name()))
			}
		}
	}
	return names
}

// Replace replaces the content of the file by another content. It writes nothing if the file no
// longer has the content f.Content; then the error is atomicfile.ErrChanged.
func (f File) Replace(content []byte) error {
	target, err := filepath.EvalSymlinks(f.Path)
	if err != nil {
		return err
	}
	info, err := os.Lstat(target)
	if err != nil {
		return err
	}
	switch owner, ok := info.Sys().(*syscall.Stat_t); {
	case !ok || int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", target)
	case info.Mode().Perm()&0o200 == 0:
		return fmt.Errorf("%s is not writable (mode %04o); another program may manage it", target,
			info.Mode().Perm())
	}
	return atomicfile.Replace(target, f.Content, content)
}
