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

	"gatekit/core/regularfile"
)

// Position is the file and the number of a line.
type Position struct {
	File string
	Line int // starts at 1
}

func (p Position) String() string { return p.File + ":" + strconv.Itoa(p.Line) }

// Reader reads the records of a log, beginning with the record whose seq is From. It checks the
// form of each line, but not the chain, which Verify checks.
type Reader struct {
	File string // the log's active file
	// seq of the first record to read; 0 for the first that exists
	From uint64
	Poll time.Duration // how often Follow looks for new records; default 200 ms
	// Limit returns the seq of the last record that Follow and FollowLines may read; nil for no
	// limit. The process that writes the log sets Limit to Log.Committed, because a failed write
	// may remove records with a larger seq.
	Limit func() uint64
	// Through is the seq of the last record to read; 0 for no end.
	Through uint64
	// Seek finds the record From by a binary search in its file, instead of reading all lines
	// before it. Damage in these lines is then not found.
	Seek bool

	position Position
	skipped  int64 // bytes of the file before the first line that was read
	// seq of the last record for which hasEarlierSegment returned true; for each record, the
	// segments are listed again only once
	recheckedSeq uint64
}

// Position returns the position of the record that was read last. With Seek, it reads the file
// again to count the lines.
func (r *Reader) Position() Position {
	p := r.position
	if r.skipped > 0 {
		p.Line += countLines(p.File, r.skipped)
	}
	return p
}

// All returns the existing records. It ends at the first error, which contains the position. An
// incomplete last line is skipped: either the line is being written, or a crash has interrupted its
// write. Verify reports such a line. The caller owns the Line of a record.
func (r *Reader) All(ctx context.Context) iter.Seq2[Record, error] {
	return r.parse(r.lines(ctx, false))
}

// Follow returns the existing records and then new ones until ctx ends. It follows rotations, and
// waits for a log that does not exist yet.
func (r *Reader) Follow(ctx context.Context) iter.Seq2[Record, error] {
	return r.parse(r.lines(ctx, true))
}

// Lines returns the existing lines. It parses only their head (seq, time, prev), for callers that
// need few of the records. ParseRecord parses a whole line. A line is valid until the next line is
// read.
func (r *Reader) Lines(ctx context.Context) iter.Seq2[[]byte, error] { return r.lines(ctx, false) }

// FollowLines returns existing and new lines, like Follow. After each poll that finds no new line,
// it returns a nil line, so that the caller can do other work.
func (r *Reader) FollowLines(ctx context.Context) iter.Seq2[[]byte, error] {
	return r.lines(ctx, true)
}

// parse parses lines to records.
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
				yield(Record{}, fmt.Errorf("%s: %w", r.Position(), err))
				return
			}
			if !yield(record, nil) {
				return
			}
		}
	}
}

// lines returns the existing lines and, with follow, new ones.
func (r *Reader) lines(ctx context.Context, follow bool) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		next := r.From
		for {
			segments, err := Segments(r.File)
			if err != nil && !(follow && errors.Is(err, fs.ErrNotExist)) {
				yield(nil, err)
				return
			}
			relist := false
		nextSegment:
			for i, segment := range segments {
				if i+1 < len(segments) && segments[i+1] != r.File && segmentFirstSeq(r.File,
					segments[i+1]) <= next {
					continue // all of its records are before next
				}
				switch r.readSegment(ctx, segment, follow && segment == r.File, &next, yield) {
				case readingStopped:
					return
				case segmentSkipped:
					relist = true
					break nextSegment
				}
			}
			if relist {
				continue
			}
			if !follow || !r.wait(ctx) || !yield(nil, nil) {
				return
			}
		}
	}
}

// wait waits for the poll interval, or until ctx ends. It returns false if ctx has ended.
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

// segmentResult is the reason why readSegment returned.
type segmentResult int

const (
	readingStopped segmentResult = iota // the consumer stopped, or there was an error
	segmentDone                         // the end of the file
	segmentSkipped                      // an earlier segment must be read first
)

// readSegment yields the lines of a file, beginning with the record whose seq is *next. It sets
// *next to the seq after the last yielded line. With follow, it follows the file until the file is
// rotated.
func (r *Reader) readSegment(ctx context.Context, name string, follow bool, next *uint64,
	yield func([]byte, error) bool) segmentResult {
	f, err := regularfile.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return segmentDone // rotated or removed; the caller lists the segments again
	}
	if err != nil {
		yield(nil, fmt.Errorf("read the audit log: %w", err))
		return readingStopped
	}
	defer f.Close()
	r.position, r.skipped = Position{File: name}, 0
	offset := int64(0) // of the next line
	if r.Seek && *next > 1 {
		if offset, err = seekRecord(f, *next); err != nil {
			yield(nil, fmt.Errorf("read the audit log: %w", err))
			return readingStopped
		}
		r.skipped = offset
	}
	lines := bufio.NewReaderSize(f, 64<<10)
	// The limit is taken before reading. A failed write may remove the records after the limit.
	lastReadable := r.limit()
	for rotated := false; ctx.Err() == nil; {
		line, err := readLine(lines)
		if err == io.EOF && (!follow || rotated) {
			return segmentDone
		}
		if err != nil && err != io.EOF {
			yield(nil, fmt.Errorf("%s: %w", r.nextPosition(), err))
			return readingStopped
		}
		var seq uint64
		if err == nil {
			if seq, _, err = parseLineHead(line); err != nil {
				yield(nil, fmt.Errorf("%s: %w", r.nextPosition(), err))
				return readingStopped
			}
		}
		if err == io.EOF || follow && seq > lastReadable { // read the line again later
			if err == io.EOF {
				rotated = r.isRotated(f) // read once more: lines may have come before the rotation
			}
			if !rotated && (!r.wait(ctx) || !yield(nil, nil)) {
				return readingStopped
			}
			lastReadable = r.limit()
			// The end of the file was removed after a failed write. Read from the start of the
			// file; lines before *next are skipped.
			if info, err := f.Stat(); err == nil && info.Size() < offset {
				offset, r.position.Line, r.skipped = 0, 0, 0
			}
			if _, err := f.Seek(offset, io.SeekStart); err != nil {
				yield(nil, fmt.Errorf("read the audit log: %w", err))
				return readingStopped
			}
			lines.Reset(f)
			continue
		}
		if r.position.Line == 0 && seq > max(*next, 1) && r.recheckedSeq != seq &&
			r.hasEarlierSegment(seq) {
			r.recheckedSeq = seq
			return segmentSkipped
		}
		offset += int64(len(line)) + 1
		r.position.Line++
		if seq < *next {
			continue
		}
		if r.Through != 0 && seq > r.Through {
			return readingStopped
		}
		*next = seq + 1
		if !yield(line, nil) {
			return readingStopped
		}
	}
	return readingStopped
}

// nextPosition returns the position of the line after the record that was read last.
func (r *Reader) nextPosition() Position {
	p := r.Position()
	p.Line++
	return p
}

// hasEarlierSegment reports whether a segment begins before the record seq. Such a segment was
// missed if the active file was rotated after the segments were listed and before the active file
// was opened.
func (r *Reader) hasEarlierSegment(seq uint64) bool {
	segments, err := Segments(r.File)
	return err == nil && slices.ContainsFunc(segments, func(s string) bool {
		return s != r.File && segmentFirstSeq(r.File, s) < seq
	})
}

// limit returns the seq of the last record that may be read.
func (r *Reader) limit() uint64 {
	if r.Limit == nil {
		return math.MaxUint64
	}
	return r.Limit()
}

// isRotated reports whether f is no longer the active file.
func (r *Reader) isRotated(f *os.File) bool {
	old, err := f.Stat()
	if err != nil {
		return true
	}
	now, err := os.Stat(r.File)
	return err != nil || !os.SameFile(old, now)
}
