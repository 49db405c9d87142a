package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/audit"
	"gatekit/core/atomicfile"
)

// position is the last record that was sent; zero before the first.
type position struct {
	Seq    uint64 `json:"seq"`
	SHA256 string `json:"sha256"` // of its line, so that another log is told from this one
}

// of says whether r, the first record of the log that is not before the position, is of the same
// log. After a gap that cannot be seen.
func (p position) of(r *audit.Record) bool {
	switch r.Seq {
	case p.Seq:
		sum := sha256.Sum256(r.Line)
		return p.SHA256 == hex.EncodeToString(sum[:])
	case p.Seq + 1:
		return p.SHA256 == r.Prev
	}
	return true
}

// cursor keeps a position in a file, at most once a second. It is safe for many goroutines.
type cursor struct {
	file   string // "" keeps nothing
	log    string // that the position is of
	report *slog.Logger

	mu      sync.Mutex
	at      position
	dirty   bool        // at is not in the file
	due     *time.Timer // calls saveNow; nil when it is not due
	failing bool        // the last save failed, which was said
}

// load reads the file, if there is one.
func (c *cursor) load() error {
	text, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var at position
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil {
		return fmt.Errorf("read the cursor %s: %w", c.file, err)
	}
	c.at = at
	return nil
}

func (c *cursor) position() position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *cursor) move(to position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.dirty = to, c.file != ""
	if c.dirty && c.due == nil {
		c.due = time.AfterFunc(saveEvery, c.saveDue)
	}
}

// saveDue saves; should it fail, the next move has it tried again.
func (c *cursor) saveDue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = nil
	err := c.save()
	if err != nil && !c.failing {
		c.report.Error("after a restart more than the last records would be sent again",
			"error", err)
	}
	c.failing = err != nil
}

// close saves what was not saved.
func (c *cursor) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due != nil {
		c.due.Stop()
	}
	return c.save()
}

// save writes the file anew, beside it and then in its place, so that it is whole at any time. The
// log comes first: a power cut must leave no cursor beyond its end, which would be one of another
// log. c.mu is held.
func (c *cursor) save() error {
	if !c.dirty {
		return nil
	}
	// it is not there while it is rotated, and what was written is on the disk by then
	if err := atomicfile.Sync(c.log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep what was sent in %s: have the log on the disk before: %w", c.file,
			err)
	}
	text, err := json.Marshal(c.at)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(c.file), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(c.file, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keep what was sent in %s: %w", c.file, err)
	}
	c.dirty = false
	return nil
}
