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
	"gatekit/core/regularfile"
)

// cursorPosition is the last record that was sent. It is zero before any record was sent.
type cursorPosition struct {
	Seq    uint64 `json:"seq"`
	SHA256 string `json:"sha256"` // hash of the record's line, which identifies the log
}

// sameLog reports whether r, the first record at or after the position, belongs to the log of the
// position. If records are missing between the two, it returns true, because it cannot decide.
func (p cursorPosition) sameLog(r *audit.Record) bool {
	switch r.Seq {
	case p.Seq:
		sum := sha256.Sum256(r.Line)
		return p.SHA256 == hex.EncodeToString(sum[:])
	case p.Seq + 1:
		return p.SHA256 == r.Prev
	}
	return true
}

// cursor saves a position to a file, at most once a second. It is safe for concurrent use.
type cursor struct {
	path    string // "" to save nothing
	logFile string // active file of the audit log
	logger  *slog.Logger

	mu      sync.Mutex
	pos     cursorPosition
	dirty   bool        // pos is not saved yet
	timer   *time.Timer // calls saveDue; nil when no save is due
	failing bool        // the last save failed and was reported
}

// load reads the file, if it exists.
func (c *cursor) load() error {
	text, err := regularfile.Read(c.path, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var at cursorPosition
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil {
		return fmt.Errorf("read the cursor %s: %w", c.path, err)
	}
	c.pos = at
	return nil
}

func (c *cursor) position() cursorPosition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pos
}

func (c *cursor) move(to cursorPosition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pos, c.dirty = to, c.path != ""
	if c.dirty && c.timer == nil {
		c.timer = time.AfterFunc(saveInterval, c.saveDue)
	}
}

// saveDue saves the position. After a failure, the next move schedules another try.
func (c *cursor) saveDue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = nil
	err := c.save()
	if err != nil && !c.failing {
		c.logger.Error("audit sink cursor not saved; a restart would send more records again",
			"error", err)
	}
	c.failing = err != nil
}

// close saves the position if it is not saved yet.
func (c *cursor) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	return c.save()
}

// save writes the position to the file. It syncs the audit log first. Otherwise a power cut could
// leave a position after the end of the log, and the sink would take the log for another log. c.mu
// is held.
func (c *cursor) save() error {
	if !c.dirty {
		return nil
	}
	// the active file is missing during a rotation, which has synced it
	if err := atomicfile.Sync(c.logFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("save the cursor %s: sync the audit log: %w", c.path,
			err)
	}
	text, err := json.Marshal(c.pos)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(c.path), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(c.path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save the cursor %s: %w", c.path, err)
	}
	c.dirty = false
	return nil
}
