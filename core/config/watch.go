package config

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// interval is how often the files are looked at, and how long they must rest before they are read:
// editors write in several steps.
const interval = 250 * time.Millisecond

// Watch calls changed, one call at a time, whenever the file that c was read from, or one that it
// names, has other contents: one in a ${file:}, a policy, a folder of policies (its *.rego without
// the tests), the policies' data. It is given the new Config, or the error for which it is none;
// the checks are those that Load made. c itself, and what changed got before, stay as they are. It
// returns when ctx ends.
//
// # Why by looking, and not by inotify
//
// Editors and orchestrators put a new file in the old one's place, so it is folders that one would
// have to be told of. In the folder the audit log may lie as well: each record would wake the
// watcher, which was measured to add 50 µs to every call. A look at two files costs two system
// calls, four times a second; a folder of policies one for each file and folder in it, and a few
// more.
func Watch(ctx context.Context, c *Config, changed func(*Config, error)) {
	last := c.source
	seen := statFiles(last.watchedFiles())
	unread := true // what changed between Load and here is noticed too
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := statFiles(last.watchedFiles()); !slices.EqualFunc(now, seen, sameState) {
			seen, unread = now, true
			tick.Reset(interval) // a tick that came late is not followed at once by another
			continue
		}
		if !unread {
			continue
		}
		unread = false
		next, read, err := load(last.path, last.checks)
		if read == nil || read.digest == last.digest {
			continue // written, or missing, as before
		}
		last = read // when it names other files, they look different at the next tick
		changed(next, err)
	}
}

// fileState is a file as it was seen; info is nil when it could not be.
type fileState struct {
	path string
	info os.FileInfo
}

// statFiles is how the files are now, links followed.
func statFiles(files []string) []fileState {
	seen := make([]fileState, len(files))
	for i, f := range files {
		seen[i].path = f
		if info, err := os.Stat(f); err == nil {
			seen[i].info = info
		}
	}
	return seen
}

func sameState(a, b fileState) bool { return a.path == b.path && sameFile(a.info, b.info) }

func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// watchedFiles are all files that a change of would matter.
func (r *snapshot) watchedFiles() []string {
	return append(slices.Clone(r.files), policyFiles(r.policies)...)
}

// policyFiles are the files that the policies are in, of the paths that they are named by: in a
// folder those that the policies' engine would read.
func policyFiles(paths []string) (files []string) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() {
			files = append(files, path)
			continue
		}
		root := path + string(filepath.Separator) // the folder may be a link
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil: // one that cannot be read looks like one that is not there
				return nil
			case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
				return fs.SkipDir
			case !d.IsDir() && filepath.Ext(path) == ".rego" && !strings.HasSuffix(path,
				"_test.rego"):
				files = append(files, path)
			}
			return nil
		})
	}
	return files
}

// addToDigest is a sum with the names and contents of files.
func addToDigest(sum [sha256.Size]byte, files []string) [sha256.Size]byte {
	if len(files) == 0 {
		return sum
	}
	h := sha256.New()
	h.Write(sum[:])
	for _, name := range files {
		fmt.Fprintf(h, "%q ", name)
		f, err := os.Open(name)
		if err != nil {
			fmt.Fprintln(h, "missing")
			continue
		}
		// what cannot be read to its end has what was read, and is not there for the policies
		// either
		n, err := io.Copy(h, f)
		fmt.Fprintln(h, n, err == nil)
		f.Close()
	}
	h.Sum(sum[:0])
	return sum
}
