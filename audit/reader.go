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
	"slices"
	"strconv"
	"time"
)

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

	position Position
	// the number of a record that came too early, for which the files were looked for again
	recheckedSeq uint64
}

// Position is where the record is that was answered last.
func (r *Reader) Position() Position { return r.position }

// All answers the records that there are, once. It ends at an error, whose text has the place. A
// last line without its line feed is left out: it is being written, or was torn, which Verify says.
// The Line of a record is the caller's.
func (r *Reader) All(ctx context.Context) iter.Seq2[Record, error] {
	return r.parse(r.lines(ctx, false))
}

// Follow answers the records that there are and, as they come, those that are written, until ctx
// ends, through rotations; it waits for a log that is not there yet.
func (r *Reader) Follow(ctx context.Context) iter.Seq2[Record, error] {
	return r.parse(r.lines(ctx, true))
}

// Lines is All for who looks at most records briefly: lines as they are in the log, of which only
// the beginning (seq, time, prev) was looked at. Each is valid until the next is asked for;
// ParseRecord reads it.
func (r *Reader) Lines(ctx context.Context) iter.Seq2[[]byte, error] { return r.lines(ctx, false) }

// FollowLines is Follow as Lines is All. Each time that there was nothing more it answers nil, so
// that who waits for lines can tell time by them.
func (r *Reader) FollowLines(ctx context.Context) iter.Seq2[[]byte, error] {
	return r.lines(ctx, true)
}

// parse parses lines.
func (r *Reader) parse(lines iter.Seq2[[]byte, error]) iter.Seq2[Record, error] {
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
				yield(Record{}, fmt.Errorf("%s: %w", r.position, err))
				return
			}
			if !yield(record, nil) {
				return
			}
		}
	}
}

func (r *Reader) lines(ctx context.Context, follow bool) iter.Seq2[[]byte, error] {
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
				if i+1 < len(segments) && segments[i+1] != r.File && segmentFirstSeq(r.File,
					segments[i+1]) <= next {
					continue // all of it is before next
				}
				switch r.readSegment(ctx, segment, follow && segment == r.File, &next, yield) {
				case readingStopped:
					return
				case segmentSkipped:
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

// segmentResult is how reading a file came to its end.
type segmentResult int

const (
	readingStopped segmentResult = iota // and with it the walk
	segmentDone                         // all of it
	segmentSkipped                      // another comes before it
)

// readSegment answers the records of a file from *next on, which it moves on. With live it goes on
// until the file is no longer the one that is written.
func (r *Reader) readSegment(ctx context.Context, name string, live bool, next *uint64,
	yield func([]byte, error) bool) segmentResult {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return segmentDone // rotated, or its time was over; the next look finds what there is
	}
	if err != nil {
		yield(nil, fmt.Errorf("read the audit log: %w", err))
		return readingStopped
	}
	defer f.Close()
	r.position = Position{File: name}
	lines := bufio.NewReaderSize(f, 64<<10)
	offset := int64(0) // of the first line that was not answered
	// asked before lines are read: of those that are read afterwards, none up to it is taken back
	// any more
	until := r.limit()
	for over := false; ctx.Err() == nil; {
		line, err := readLine(lines)
		if err == io.EOF && (!live || over) {
			return segmentDone
		}
		if err != nil && err != io.EOF {
			yield(nil, fmt.Errorf("%s:%d: %w", name, r.position.Line+1, err))
			return readingStopped
		}
		var seq uint64
		if err == nil {
			if seq, _, err = parseLineHead(line); err != nil {
				yield(nil, fmt.Errorf("%s:%d: %w", name, r.position.Line+1, err))
				return readingStopped
			}
		}
		if err == io.EOF || live && seq > until { // to be read again when there is more
			if err == io.EOF {
				over = r.isRotated(f) // once more then: the last lines may have come in between
			}
			if !over && (!r.wait(ctx) || !yield(nil, nil)) {
				return readingStopped
			}
			until = r.limit()
			// a failed write was taken back: those that are still there are known
			if info, err := f.Stat(); err == nil && info.Size() < offset {
				offset, r.position.Line = 0, 0
			}
			if _, err := f.Seek(offset, io.SeekStart); err != nil {
				yield(nil, fmt.Errorf("read the audit log: %w", err))
				return readingStopped
			}
			lines.Reset(f)
			continue
		}
		if r.position.Line == 0 && seq > max(*next, 1) && r.recheckedSeq != seq && r.hasEarlierSegment(seq) {
			r.recheckedSeq = seq
			return segmentSkipped
		}
		offset += int64(len(line)) + 1
		r.position.Line++
		if seq < *next {
			continue
		}
		*next = seq + 1
		if !yield(line, nil) {
			return readingStopped
		}
	}
	return readingStopped
}

// hasEarlierSegment says whether there is a file with records before the number, which the caller has not
// seen: the one that was written may be renamed, and another begun, after the files were looked for
// and before it is opened.
func (r *Reader) hasEarlierSegment(seq uint64) bool {
	segments, err := Segments(r.File)
	return err == nil && slices.ContainsFunc(segments, func(s string) bool {
		return s != r.File && segmentFirstSeq(r.File, s) < seq
	})
}

func (r *Reader) limit() uint64 {
	if r.Limit == nil {
		return math.MaxUint64
	}
	return r.Limit()
}

// isRotated says whether f is no longer the file that is written.
func (r *Reader) isRotated(f *os.File) bool {
	old, err := f.Stat()
	if err != nil {
		return true
	}
	now, err := os.Stat(r.File)
	return err != nil || !os.SameFile(old, now)
}
