package config

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long the files must rest before they are read: editors write in several steps.
const settle = 100 * time.Millisecond

// Watch calls changed, one call at a time, whenever the file that c was read from, or one that it names with ${file:}, has other contents: with the new
// Config, or with the error for which it is none. c itself, and what changed got before, stay as they are. It returns when ctx ends, or at once with
// an error when the folders cannot be watched.
//
// Folders are watched and not files, since editors and orchestrators put a new file in the old one's place; a symbolic link is watched
// at both ends.
func Watch(ctx context.Context, c *Config, changed func(*Config, error)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", c.File, err)
	}
	defer w.Close()
	last := c.read
	names, err := watchAll(w, last.files)
	if err != nil {
		return fmt.Errorf("watch %s: %w", c.File, err)
	}
	rest := time.NewTimer(settle) // what changed between Load and here is noticed too
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.Events:
			if ok && names[filepath.Base(e.Name)] {
				rest.Reset(settle)
			}
		case <-w.Errors: // events were lost
			rest.Reset(settle)
		case <-rest.C:
			next, read, err := load(last.path)
			if read == nil || read.sum == last.sum {
				continue // written, or missing, as before
			}
			last = read
			if more, err := watchAll(w, read.files); err == nil {
				names = more
			}
			changed(next, err)
		}
	}
}

// watchAll watches the folders of files and answers the names in them that matter.
func watchAll(w *fsnotify.Watcher, files []string) (map[string]bool, error) {
	names := map[string]bool{"..data": true} // the link that Kubernetes swaps under mounted files
	for _, f := range files {
		ends := []string{f}
		if target, err := filepath.EvalSymlinks(f); err == nil && target != f {
			ends = append(ends, target)
		}
		for _, end := range ends {
			names[filepath.Base(end)] = true
			if err := w.Add(filepath.Dir(end)); err != nil {
				return nil, err
			}
		}
	}
	return names, nil
}
