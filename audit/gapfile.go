package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gatekit/core/pipeline"
)

// gapFile keeps the count of records that could not be written, for the case that Gatekit ends
// before the log can be written again. Its space is allocated when the log is opened, and it is
// overwritten in place, which works even on a full disk.
type gapFile struct {
	mu   sync.Mutex // held during save and clear; taken before Log.mu
	f    *os.File
	last time.Time // time of the last save
	used bool      // the file is not blank
}

// savedGap is the content of a gap file that is not blank.
type savedGap struct {
	Records int       `json:"records"`
	Since   time.Time `json:"since"`
	Error   string    `json:"error"`
	// how many of the Records had a message that was forwarded; 0 except for DurabilityAsync
	Forwarded int `json:"forwarded"`
}

const (
	gapFileBytes = 4096
	maxGapError  = 300 // bytes, before they are escaped
	// how often the count is saved while records fail
	gapSaveInterval = time.Second
)

// openGapFile opens or creates the gap file of a log. It also returns the saved gap, or nil if the
// file is blank.
func openGapFile(dir string) (*gapFile, *savedGap, error) {
	f, err := os.OpenFile(filepath.Join(dir, "gap"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, nil, errors.Join(err, fmt.Errorf("%s is not a regular file", f.Name()),
			f.Close())
	}
	g := &gapFile{f: f}
	b := make([]byte, gapFileBytes)
	if n, _ := f.ReadAt(b, 0); n < len(b) { // new, or not written completely
		if err := g.write(nil); err != nil {
			return nil, nil, errors.Join(err, f.Close())
		}
		return g, nil, nil
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return g, nil, nil
	}
	saved := new(savedGap)
	if err := json.Unmarshal(b, saved); err != nil || saved.Records <= 0 || saved.Since.IsZero() {
		// a crash has interrupted a write of the file: there is a gap of unknown size
		saved = &savedGap{Records: 1}
	}
	g.used = true
	return g, saved, nil
}

// outcome returns the outcome from which the record of the gap is made.
func (s *savedGap) outcome() pipeline.Outcome {
	o := pipeline.Outcome{Time: time.Now(), Action: "gap"}
	if s.Since.IsZero() { // see openGapFile
		o.Reason = "at least 1 record could not be written, until Gatekit ended: its message was " +
			"denied"
		return o
	}
	o.Reason = fmt.Sprintf("at least %d records could not be written since %s, until Gatekit "+
		"ended: their messages were denied", s.Records, s.Since.UTC().Format(timeFormat))
	if s.Forwarded > 0 {
		o.Reason += fmt.Sprintf(", except %d, which were forwarded", s.Forwarded)
	}
	if s.Error != "" {
		o.Err = errors.New(s.Error)
	}
	return o
}

// write overwrites the file with b, padded with spaces.
func (g *gapFile) write(b []byte) error {
	_, err := g.f.WriteAt(append(append(b, bytes.Repeat([]byte(" "), gapFileBytes-len(b)-1)...),
		'\n'), 0)
	return err
}

// save saves a gap. It does nothing when the last save is less than gapSaveInterval ago, unless the
// log is being closed. g.mu must be held.
func (g *gapFile) save(missed gap, forwarded int, closing bool) error {
	if !closing && time.Since(g.last) < gapSaveInterval {
		return nil
	}
	s := savedGap{Records: missed.count, Since: missed.since, Forwarded: forwarded}
	if missed.err != nil {
		s.Error = missed.err.Error()
		s.Error = s.Error[:min(len(s.Error), maxGapError)]
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	g.last, g.used = time.Now(), true
	if err := g.write(b); err != nil || !closing {
		return err
	}
	return g.f.Sync()
}

// clear blanks the file. It is called after the record of the gap was written. g.mu must be held.
func (g *gapFile) clear() error {
	if !g.used {
		return nil
	}
	g.used, g.last = false, time.Time{}
	return g.write(nil)
}
