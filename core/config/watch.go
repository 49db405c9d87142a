package config

import (
	"context"
	"os"
	"slices"
	"time"
)

// interval is how often the files are looked at, and how long they must rest before they are read: editors write in several steps.
const interval = 250 * time.Millisecond

// Watch calls changed, one call at a time, whenever the file that c was read from, or one that it names with ${file:}, has other contents: with the new
// Config, or with the error for which it is none; the checks are those that Load made. c itself, and what changed got before, stay as they are. It returns when ctx ends.
//
// # Why by looking, and not by inotify
//
// Editors and orchestrators put a new file in the old one's place, so it is folders that one would have to be told of. In the folder the audit log may lie as well:
// each record would wake the watcher, which was measured to add 50 µs to every call. A look at two files costs two system calls, four times a second.
func Watch(ctx context.Context, c *Config, changed func(*Config, error)) {
	last := c.read
	seen := look(last.files)
	unread := true // what changed between Load and here is noticed too
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := look(last.files); !slices.EqualFunc(now, seen, same) {
			seen, unread = now, true
			continue
		}
		if !unread {
			continue
		}
		unread = false
		next, read, err := load(last.path, last.checks)
		if read == nil || read.sum == last.sum {
			continue // written, or missing, as before
		}
		last = read // when it names other files, they look different at the next tick
		changed(next, err)
	}
}

// look is how the files are now, links followed; nil for one that cannot be seen.
func look(files []string) []os.FileInfo {
	infos := make([]os.FileInfo, len(files))
	for i, f := range files {
		if info, err := os.Stat(f); err == nil {
			infos[i] = info
		}
	}
	return infos
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
