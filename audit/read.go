package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A log is one file that is written and those that were before it. One of those is named after the
// first record in it: gatekit.jsonl, and gatekit-00000000000000000001.jsonl.

// seqDigits are those of a number in the name of a file, so that names sort as numbers do.
const seqDigits = 20

// Segments answers the files of the log, oldest first; the last is file itself, if there is one. A
// log without any is fs.ErrNotExist.
func Segments(file string) ([]string, error) {
	ext := filepath.Ext(file)
	stem := strings.TrimSuffix(filepath.Base(file), ext) + "-"
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("look for the files of the audit log %s: %w", file, err)
	}
	var all []string
	for _, e := range entries { // sorted by name
		digits, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ext), stem)
		if ok && strings.HasSuffix(e.Name(), ext) && len(digits) == seqDigits && isNumber(digits) {
			all = append(all, filepath.Join(filepath.Dir(file), e.Name()))
		}
	}
	if _, err := os.Stat(file); err == nil {
		all = append(all, file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no audit log %s: %w", file, fs.ErrNotExist)
	}
	return all, nil
}

// segmentName is the name of a file of the log that is written no more.
func segmentName(file string, first uint64) string {
	ext := filepath.Ext(file)
	return fmt.Sprintf("%s-%0*d%s", strings.TrimSuffix(file, ext), seqDigits, first, ext)
}

func isNumber(digits string) bool {
	_, err := strconv.ParseUint(digits, 10, 64)
	return err == nil
}

// firstOf is the number of the first record of a segment that is written no more, as its name says;
// 0 of the one that is.
func firstOf(file, segment string) uint64 {
	if segment == file {
		return 0
	}
	ext := filepath.Ext(segment)
	digits := strings.TrimSuffix(segment, ext)
	first, _ := strconv.ParseUint(digits[len(digits)-seqDigits:], 10, 64) // Segments took no other
	return first
}

// Position is where a record is.
type Position struct {
	File string
	Line int // from 1
}

func (p Position) String() string { return p.File + ":" + strconv.Itoa(p.Line) }

// Reader is a walk through a log. It checks each line's form, not the chain: that is Verify's.
type Reader struct {
	File string // of the log, the one that is written
	// the number of the first record that is wanted; 0 is the first that there is
	From uint64
	Poll time.Duration // how often Follow looks for more; 0 is 200 ms
	// with Follow: records above this number are not answered yet; nil is all. For the process that
	// writes the log: what a failed write left behind is taken back
	Limit func() uint64

	at Position
	// the number of a record that came too early, for which the files were looked for again
	jump uint64
}

// Position is where the record is that was answered last.
func (r *Reader) Position() Position { return r.at }

// All answers the records that there are, once. It ends at an error, whose text has the place. A
// last line without its line feed is left out: it is being written, or was torn, which Verify says.
// The Line of a record is the caller's.
func (r *Reader) All(ctx context.Context) iter.Seq2[Record, error] {
	return r.records(r.walk(ctx, false))
}

// Follow answers the records that there are and, as they come, those that are written, until ctx
// ends, through rotations; it waits for a log that is not there yet.
func (r *Reader) Follow(ctx context.Context) iter.Seq2[Record, error] {
	return r.records(r.walk(ctx, true))
}

// Lines is All for who looks at most records briefly: lines as they are in the log, of which only
// the beginning (seq, time, prev) was looked at. Each is valid until the next is asked for;
// ParseRecord reads it.
func (r *Reader) Lines(ctx context.Context) iter.Seq2[[]byte, error] { return r.walk(ctx, false) }

// FollowLines is Follow as Lines is All. Each time that there was nothing more it answers nil, so
// that who waits for lines can tell time by them.
func (r *Reader) FollowLines(ctx context.Context) iter.Seq2[[]byte, error] {
	return r.walk(ctx, true)
}

// records parses lines.
func (r *Reader) records(lines iter.Seq2[[]byte, error]) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for line, err := range lines {
			if err != nil {
				yield(Record{}, err)
				return
			}
			if line == nil {
				continue
			}
			record, err := ParseRecord(slices.Clone(line))
			if err != nil {
				yield(Record{}, fmt.Errorf("%s: %w", r.at, err))
				return
			}
			if !yield(record, nil) {
				return
			}
		}
	}
}

func (r *Reader) walk(ctx context.Context, follow bool) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		next := r.From
		for {
			segments, err := Segments(r.File)
			if err != nil && !(follow && errors.Is(err, fs.ErrNotExist)) {
				yield(nil, err)
				return
			}
			again := false
		look:
			for i, segment := range segments {
				if i+1 < len(segments) && segments[i+1] != r.File && firstOf(r.File,
					segments[i+1]) <= next {
					continue // all of it is before next
				}
				switch r.segment(ctx, segment, follow && segment == r.File, &next, yield) {
				case ended:
					return
				case tooEarly:
					again = true
					break look
				}
			}
			if again {
				continue
			}
			if !follow || !r.wait(ctx) || !yield(nil, nil) {
				return
			}
		}
	}
}

// wait is a moment until there may be more. It says whether ctx goes on.
func (r *Reader) wait(ctx context.Context) bool {
	poll := r.Poll
	if poll <= 0 {
		poll = 200 * time.Millisecond
	}
	t := time.NewTimer(poll)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// outcome is how reading a file came to its end.
type outcome int

const (
	ended    outcome = iota // and with it the walk
	read                    // all of it
	tooEarly                // another comes before it
)

// segment answers the records of a file from *next on, which it moves on. With live it goes on
// until the file is no longer the one that is written.
func (r *Reader) segment(ctx context.Context, name string, live bool, next *uint64,
	yield func([]byte, error) bool) outcome {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return read // rotated, or its time was over; the next look finds what there is
	}
	if err != nil {
		yield(nil, fmt.Errorf("read the audit log: %w", err))
		return ended
	}
	defer f.Close()
	r.at = Position{File: name}
	lines := bufio.NewReaderSize(f, 64<<10)
	offset := int64(0) // of the first line that was not answered
	// asked before lines are read: of those that are read afterwards, none up to it is taken back
	// any more
	until := r.until()
	for over := false; ctx.Err() == nil; {
		line, err := readLine(lines)
		if err == io.EOF && (!live || over) {
			return read
		}
		if err != nil && err != io.EOF {
			yield(nil, fmt.Errorf("%s:%d: %w", name, r.at.Line+1, err))
			return ended
		}
		var seq uint64
		if err == nil {
			if seq, _, err = lineHead(line); err != nil {
				yield(nil, fmt.Errorf("%s:%d: %w", name, r.at.Line+1, err))
				return ended
			}
		}
		if err == io.EOF || live && seq > until { // to be read again when there is more
			if err == io.EOF {
				over = r.rotated(f) // once more then: the last lines may have come in between
			}
			if !over && (!r.wait(ctx) || !yield(nil, nil)) {
				return ended
			}
			until = r.until()
			// a failed write was taken back: those that are still there are known
			if info, err := f.Stat(); err == nil && info.Size() < offset {
				offset, r.at.Line = 0, 0
			}
			if _, err := f.Seek(offset, io.SeekStart); err != nil {
				yield(nil, fmt.Errorf("read the audit log: %w", err))
				return ended
			}
			lines.Reset(f)
			continue
		}
		if r.at.Line == 0 && seq > max(*next, 1) && r.jump != seq && r.passedOver(seq) {
			r.jump = seq
			return tooEarly
		}
		offset += int64(len(line)) + 1
		r.at.Line++
		if seq < *next {
			continue
		}
		*next = seq + 1
		if !yield(line, nil) {
			return ended
		}
	}
	return ended
}

// passedOver says whether there is a file with records before the number, which the caller has not
// seen: the one that was written may be renamed, and another begun, after the files were looked for
// and before it is opened.
func (r *Reader) passedOver(seq uint64) bool {
	segments, err := Segments(r.File)
	return err == nil && slices.ContainsFunc(segments, func(s string) bool {
		return s != r.File && firstOf(r.File, s) < seq
	})
}

func (r *Reader) until() uint64 {
	if r.Limit == nil {
		return math.MaxUint64
	}
	return r.Limit()
}

// rotated says whether f is no longer the file that is written.
func (r *Reader) rotated(f *os.File) bool {
	old, err := f.Stat()
	if err != nil {
		return true
	}
	now, err := os.Stat(r.File)
	return err != nil || !os.SameFile(old, now)
}
