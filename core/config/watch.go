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

	"gatekit/core/regularfile"
)

// pollInterval is the time between two checks of the files. Editors write a file in several steps.
// So a changed file is read only after it has stayed the same for one interval, or after
// maxUnsettled.
const pollInterval = 250 * time.Millisecond

// maxUnsettled is how long files may keep changing before they are read anyway. Without this limit,
// a program that writes a file all the time would prevent Watch from reading any change.
const maxUnsettled = 2 * time.Second

// Watch calls the function changed, one call at a time, whenever a file of the configuration has
// new contents. It passes the new Config, or the error of loading the new contents. It watches the
// file that c was read from, the files of its ${file:} substitutions, its lock file, and its
// policies with their data. In a folder of policies, it watches all *.rego files except tests and
// files in hidden folders.
//
// Watch runs the checks that were given to Load. It does not change c or a Config that it passed
// before. When readNow delivers a value, Watch reads the files at once. readNow may be nil. Watch
// returns when ctx ends.
//
// # Why Watch polls and does not use inotify
//
// Editors and orchestrators replace a file by a new file, so a watcher has to watch folders. If the
// audit log is in the same folder, each record would wake the watcher. In a measurement, this added
// 50 µs to every call. Polling two files costs two system calls, four times a second. Polling a
// folder of policies costs one system call for each file and folder in it, and a few more.
func Watch(ctx context.Context, c *Config, readNow <-chan os.Signal,
	changed func(*Config, error)) {
	last := c.source
	seen := statFiles(last.watchedFiles())
	unread := true // so that a change since Load is noticed
	unreadSince := time.Now()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-readNow:
			seen, unread = statFiles(last.watchedFiles()), true
		case <-tick.C:
			if now := statFiles(last.watchedFiles()); !slices.EqualFunc(now, seen, sameState) {
				if !unread {
					unreadSince = time.Now()
				}
				seen, unread = now, true
				if time.Since(unreadSince) < maxUnsettled {
					// After a late tick, the next tick must not follow at once.
					tick.Reset(pollInterval)
					continue
				}
			}
		}
		if !unread {
			continue
		}
		unread = false
		next, latest, err := load(last.path, last.checks)
		if latest == nil || latest.digest == last.digest {
			continue // the contents are the same as before
		}
		last = latest // if the new contents name other files, the next tick sees a difference
		changed(next, err)
	}
}

// fileState is the state of a file when it was last checked.
type fileState struct {
	path string
	info os.FileInfo // nil if the state could not be read
}

// statFiles returns the states of files. It follows symbolic links.
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

// watchedFiles returns the files to watch.
func (r *snapshot) watchedFiles() []string {
	return append(slices.Clone(r.files), policyFiles(r.watched, r.testsWatched)...)
}

// testSuffix ends the name of a file with tests of policies.
const testSuffix = "_test.rego"

// policyFiles returns the files that paths name. For a folder, it returns the files that the policy
// engine would read. With tests, it also returns the files with the tests of the policies.
func policyFiles(paths []string, tests bool) (files []string) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() {
			files = append(files, path)
			beside, isPolicy := strings.CutSuffix(path, ".rego")
			if _, err := os.Stat(beside + testSuffix); isPolicy && tests && err == nil {
				files = append(files, beside+testSuffix)
			}
			continue
		}
		root := path + string(filepath.Separator) // the folder may be a symbolic link
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil: // an unreadable file counts as absent
				return nil
			case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
				return fs.SkipDir
			case !d.IsDir() && filepath.Ext(path) == ".rego" &&
				(tests || !strings.HasSuffix(path, testSuffix)):
				files = append(files, path)
			}
			return nil
		})
	}
	return files
}

// addToDigest returns a digest of three things: sum, and the names and contents of the files.
func addToDigest(sum [sha256.Size]byte, files []string) [sha256.Size]byte {
	if len(files) == 0 {
		return sum
	}
	h := sha256.New()
	h.Write(sum[:])
	for _, name := range files {
		fmt.Fprintf(h, "%q ", name)
		f, err := regularfile.Open(name)
		if err != nil {
			fmt.Fprintln(h, "missing")
			continue
		}
		// After a read error, the digest covers the bytes that were read. The policy engine cannot
		// load such a file either.
		n, err := io.Copy(h, f)
		fmt.Fprintln(h, n, err == nil)
		f.Close()
	}
	h.Sum(sum[:0])
	return sum
}
