package audit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"gatekit/core/atomicfile"
)

// maxLine bounds what is read of a file to find one line.
const maxLine = 256 << 20

// errInUse is what a second opener gets.
var errInUse = errors.New("another Gatekit writes to it\nhint: stop that one, or name another " +
	"file for this one")

// ending is what a log to be continued ends with.
type ending struct {
	size int64     // of the whole lines in the file that is written
	head head      // the last line
	leaf tlog.Hash // of the last line
	time time.Time // of the last line
	torn int64     // bytes after it that are to be cut off
}

// files is the output of a log: the file that is written, and how another takes its place.
type files struct {
	path string
	lock *os.File // of the whole log, whatever its files are named
	f    *os.File
	is   identity // of f
	next *os.File // that is to take the place of f; nil as long as none is
	away bool     // f has its segment's name already
}

// openFiles opens or makes the log, for this process alone. A file that is no audit log is refused
// and not touched.
func openFiles(path string) (_ *files, end ending, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, ending{}, fmt.Errorf("%w\nhint: nothing moves unrecorded: the audit log "+
			"must be in a folder that this user may write to", err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, ending{}, errors.New("it is no regular file\nhint: an audit log is read " +
			"again when it is continued; to send it on, follow the file")
	}
	s := &files{path: path}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.lock, err = os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, ending{}, fmt.Errorf("%w\nhint: nothing moves unrecorded: the audit log "+
			"must be in a folder that this user may write to", err)
	}
	if err = lock(s.lock); err != nil {
		return nil, ending{}, err
	}
	if s.f, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		return nil, ending{}, fmt.Errorf("%w\nhint: nothing moves unrecorded: the audit log "+
			"must be a file that this user may write to", err)
	}
	if err = lock(s.f); err != nil { // by another name it may be another's
		return nil, ending{}, err
	}
	if s.is, err = identityOf(path); err != nil {
		return nil, ending{}, err
	}
	if end, err = s.continued(); err != nil {
		return nil, ending{}, err
	}
	if end.size == 0 {
		err = atomicfile.Sync(filepath.Dir(path))
	}
	return s, end, err
}

// continued reads what the log ends with: in the file that is written or, where that is new, in the
// segment before it.
func (s *files) continued() (ending, error) {
	info, err := s.f.Stat()
	if err != nil {
		return ending{}, err
	}
	segments, err := Segments(s.path)
	if err != nil {
		return ending{}, err
	}
	var before ending
	if last := len(segments) - 2; last >= 0 {
		if before, err = endOf(segments[last]); err != nil {
			return ending{}, err
		}
	}
	end, err := readEnd(s.f, info.Size(), before.head.seq+1)
	if err != nil {
		return ending{}, err
	}
	if end.size == 0 {
		end.head, end.leaf, end.time = before.head, before.leaf, before.time
	}
	return end, nil
}

// missing are the records whose files are missing between others, as far as their names and ends
// say.
func (s *files) missing() (holes []SeqRange) {
	segments, err := Segments(s.path)
	if err != nil {
		return nil
	}
	for i, segment := range segments[:len(segments)-1] {
		next := firstOf(s.path, segments[i+1])
		if segments[i+1] == s.path {
			next, _ = firstLine(s.f)
		}
		if end, err := endOf(segment); err == nil && next > end.head.seq+1 {
			holes = append(holes, SeqRange{end.head.seq + 1, next - 1})
		}
	}
	return holes
}

// endOf is the end of a segment, which is never torn: it got its name when it was whole and on the
// disk.
func endOf(segment string) (ending, error) {
	f, err := os.Open(segment)
	if err != nil {
		return ending{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ending{}, err
	}
	end, err := readEnd(f, info.Size(), 0)
	if err == nil && (end.torn > 0 || end.size == 0) {
		err = errors.New("its last line is torn")
	}
	if err != nil {
		return ending{}, fmt.Errorf("continue from %s: %w", segment, err)
	}
	return end, nil
}

// readEnd finds the last whole line, and how much follows it. first is the number that a first line
// would have.
func readEnd(f *os.File, size int64, first uint64) (ending, error) {
	const notOurs = "it is not an audit log\nhint: name another file; this one was not touched"
	last, err := lineBreak(f, size)
	if err != nil {
		return ending{}, err
	}
	end := ending{size: last + 1, torn: size - last - 1}
	if end.size == 0 {
		// No whole line: new, or torn in its first. Anything else with a single line and no line
		// feed is somebody's.
		want := fmt.Appendf(nil, `{"seq":%d,"time":"`, first)
		start := make([]byte, min(size, int64(len(want))))
		if _, err := f.ReadAt(start, 0); err != nil && size > 0 {
			return ending{}, err
		}
		if !bytes.HasPrefix(want, start) {
			return ending{}, errors.New(notOurs)
		}
		return end, nil
	}
	before, err := lineBreak(f, last)
	if err != nil {
		return ending{}, err
	}
	if last-before > maxLine {
		return ending{}, errors.New(notOurs)
	}
	line := make([]byte, last-before-1)
	if _, err := f.ReadAt(line, before+1); err != nil {
		return ending{}, err
	}
	seq, _, err := parseLine(line)
	if err != nil {
		return ending{}, fmt.Errorf("its last line is no record (%w); %s", err, notOurs)
	}
	end.head, end.leaf = head{seq, sha256.Sum256(line)}, tlog.RecordHash(line)
	if r, err := ParseRecord(line); err == nil {
		end.time = r.Time
	}
	return end, nil
}

// lineBreak is the offset of the last line feed before end, or -1.
func lineBreak(f *os.File, end int64) (int64, error) {
	chunk := make([]byte, 64<<10)
	for end > 0 {
		from := max(0, end-int64(len(chunk)))
		part := chunk[:end-from]
		if _, err := f.ReadAt(part, from); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return from + int64(i), nil
		}
		end = from
	}
	return -1, nil
}

// rotate gives the file that is written the name of a segment, and begins another. It says whether
// another one is written now: where that failed nothing is lost, and it can be tried again.
func (s *files) rotate() (bool, error) {
	if s.next == nil {
		next, err := os.OpenFile(s.path+".next", os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_TRUNC,
			0o600)
		if err != nil {
			return false, err
		}
		if err := lock(next); err != nil {
			next.Close()
			return false, err
		}
		s.next = next
	}
	if !s.away {
		if err := s.f.Sync(); err != nil {
			return false, err
		}
		first, err := firstLine(s.f)
		if err != nil {
			return false, err
		}
		segment := segmentName(s.path, first)
		if _, err := os.Lstat(segment); !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("%s is there already\nhint: this log has not written it: "+
				"move it away", segment)
		}
		if err := os.Rename(s.path, segment); err != nil {
			return false, err
		}
		s.away = true
	}
	if err := os.Rename(s.path+".next", s.path); err != nil {
		return false, err
	}
	old := s.f
	s.f, s.next, s.away = s.next, nil, false
	var err error
	s.is, err = identityOf(s.path)
	return true, errors.Join(err, atomicfile.Sync(filepath.Dir(s.path)), old.Close())
}

// firstLine is the number of the first record of a file.
func firstLine(f *os.File) (uint64, error) {
	start := make([]byte, 256) // more than the beginning of a line
	n, err := f.ReadAt(start, 0)
	if n == 0 {
		return 0, err
	}
	seq, _, err := lineHead(start[:n])
	return seq, err
}

// there is an error when the file that is written was moved or replaced by somebody else: what
// would be written to it would not be in the log.
func (s *files) there() error {
	if s.away {
		return nil // by our own doing, see rotate
	}
	if now, err := identityOf(s.path); err != nil || now != s.is {
		return fmt.Errorf("%s is no longer the file that this Gatekit opened: it was moved, "+
			"removed or replaced\n"+
			"hint: put it back and start Gatekit again; it rotates its log itself, see "+
			"segment_bytes in [audit]", s.path)
	}
	return nil
}

func (s *files) Write(b []byte) (int, error) { return s.f.Write(b) }
func (s *files) Sync() error                 { return s.f.Sync() }
func (s *files) Truncate(size int64) error   { return s.f.Truncate(size) }

func (s *files) Close() error {
	var errs []error
	if s.next != nil { // a rotation that failed
		errs = append(errs, s.next.Close(), os.Remove(s.path+".next"))
	}
	if s.f != nil {
		errs = append(errs, s.f.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
