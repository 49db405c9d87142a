package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"gatekit/core/atomicfile"
)

// ages holds the age of a log's segments for Retention.For. An age is the time for which the log
// was open, in all processes that wrote it. It is not a difference of wall clock times: after a
// clock has jumped forward, the records of the last minute would look old, and retention would
// remove them.
//
// maintenance.runMu guards the ages.
type ages struct {
	file string
	// stops bounds how much of the time between the end of a process and the start of the next
	// process counts. Only the wall clock measures that time, and the wall clock may be wrong at a
	// start.
	stops time.Duration

	open      time.Duration // for how long the log was open, at the time of openAt
	openAt    time.Time     // with the monotonic clock
	suspended time.Duration // the largest result of suspendedTime

	suspendedTime func() time.Duration // the function suspendedTime, except in tests

	saveEvery time.Duration
	saved     time.Duration // value of open when the ages were last saved

	size       int64         // number of records in the tree when lastRecord was set
	lastRecord time.Duration // value of open when the last record was written
	active     savedAge      // of the first record in the active file
	// value of open when a segment got its last record, by the seq of the segment's first record
	segments map[uint64]time.Duration
}

// savedAges is the content of ages.file. Its durations are values of ages.open.
type savedAges struct {
	Saved    time.Time  `json:"saved"` // wall clock
	Open     int64      `json:"open_seconds"`
	Active   savedAge   `json:"active"`
	Segments []savedAge `json:"segments"`
}

// savedAge is the time at which a file got its first record (the active file) or its last record (a
// segment).
type savedAge struct {
	First   uint64 `json:"first"` // seq of the file's first record
	Seconds int64  `json:"open_seconds"`
}

// maxAgesBytes bounds the file of the ages. The file has some 50 bytes for each segment.
const maxAgesBytes = 16 << 20

// agesFile returns the name of the file with the ages of a log's segments.
func agesFile(dir string) string { return filepath.Join(dir, "ages") }

// readAges reads the saved ages of a log and continues them. It also returns how much of the time
// since the last process ended does not count. Segments that the file of the ages does not name
// have the age 0. size is the number of records in the log.
func readAges(path string, size int64, keepFor time.Duration) (*ages, time.Duration, error) {
	now := time.Now()
	a := &ages{file: agesFile(path + ".tree"), stops: keepFor / 10, openAt: now,
		suspended: suspendedTime(), suspendedTime: suspendedTime, size: size,
		saveEvery: min(time.Hour, keepFor/100), segments: map[uint64]time.Duration{}}
	info, err := os.Stat(a.file)
	if errors.Is(err, fs.ErrNotExist) {
		return a, 0, a.addSegments(path)
	}
	if err == nil && info.Size() > maxAgesBytes {
		err = fmt.Errorf("it has more than %d bytes", maxAgesBytes)
	}
	var b []byte
	if err == nil {
		b, err = readFile(a.file)
	}
	var saved savedAges
	if err == nil {
		err = json.Unmarshal(b, &saved)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the ages of the segments from %s: %w\nhint: remove this "+
			"file; keep_for then counts from now on", a.file, err)
	}
	a.open = seconds(saved.Open)
	for _, s := range saved.Segments {
		a.segments[s.First] = seconds(s.Seconds)
	}
	a.active = saved.Active
	stopped := max(0, now.Round(0).Sub(saved.Saved))
	counted := min(stopped, a.stops)
	a.open += counted
	a.lastRecord = a.open
	return a, stopped - counted, a.addSegments(path)
}

// addSegments adds the existing segments whose ages are not known.
func (a *ages) addSegments(path string) error {
	segments, err := Segments(path)
	if err != nil {
		return err
	}
	for _, s := range segments {
		if s != path {
			a.age(segmentFirstSeq(path, s))
		}
	}
	return nil
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// update adds to a.open the time since the last update. It uses clocks that nobody can set. size is
// the number of records in the tree.
func (a *ages) update(size int64) {
	// suspendedTime is rounded, so it can vary by a second. Only its growth counts. Otherwise each
	// variation would add a second.
	now, suspended := time.Now(), max(a.suspended, a.suspendedTime())
	a.open += max(0, now.Sub(a.openAt)+suspended-a.suspended)
	a.openAt, a.suspended = now, suspended
	if size != a.size {
		a.size, a.lastRecord = size, a.open
	}
}

// age returns the age of a segment's last record. first is the seq of the segment's first record.
// If the segment is not known yet, age assumes that the segment ends with the log's last record.
func (a *ages) age(first uint64) time.Duration {
	if _, known := a.segments[first]; !known {
		a.segments[first] = a.lastRecord
	}
	return a.open - a.segments[first]
}

// activeAge returns the age of the first record in the active file.
func (a *ages) activeAge(first uint64) time.Duration {
	if a.active.First != first {
		a.active = savedAge{first, int64(a.lastRecord / time.Second)}
	}
	return a.open - seconds(a.active.Seconds)
}

// saveIfDue saves the ages if the last save is at least saveEvery old. After a crash, the time
// since the last save counts like the time between two processes.
func (a *ages) saveIfDue(first uint64) error {
	if a.open-a.saved < a.saveEvery {
		return nil
	}
	return a.save(first)
}

// save writes the ages to their file. It drops the ages of segments whose first record has a seq
// below the parameter first.
func (a *ages) save(first uint64) error {
	saved := savedAges{Saved: time.Now().UTC(), Open: int64(a.open / time.Second),
		Active: a.active, Segments: []savedAge{}}
	for segment, last := range a.segments {
		if segment < first {
			delete(a.segments, segment)
			continue
		}
		saved.Segments = append(saved.Segments, savedAge{segment, int64(last / time.Second)})
	}
	b, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(a.file, append(b, '\n')); err != nil {
		return err
	}
	a.saved = a.open
	return nil
}
