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

// maxLineBytes bounds the length of a line, and what is read to find one.
const maxLineBytes = 256 << 20

// errInUse is the error of a second process that opens the log.
var errInUse = errors.New("another Gatekit process has the log open\nhint: stop that process, " +
	"or configure another file for this one")

// logEnd describes the end of an existing log.
type logEnd struct {
	size int64     // length of the complete lines in the active file
	head head      // chain state after the last line
	leaf tlog.Hash // Merkle tree hash of the last line
	time time.Time // time of the last line
	torn int64     // bytes of an incomplete line after it, to be cut off
}

// files is the output of a log with a File: the active file and its rotation.
type files struct {
	path    string
	lock    *os.File // lock file of the whole log
	current *os.File
	id      fileID   // identity of current
	next    *os.File // the next active file; nil before a rotation
	renamed bool     // current has its segment name, next is not in place yet
}

// openFiles opens or creates a log and locks it for this process. A file that is no audit log is
// refused and left untouched.
func openFiles(path string) (_ *files, end logEnd, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, logEnd{}, fmt.Errorf("%w\nhint: Gatekit forwards nothing without a record: "+
			"the log's folder must be writable for this user", err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, logEnd{}, errors.New("not a regular file\nhint: Gatekit reads the log when " +
			"it continues it; to send records elsewhere, configure a sink")
	}
	s := &files{path: path}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.lock, err = os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, logEnd{}, fmt.Errorf("%w\nhint: Gatekit forwards nothing without a record: "+
			"the log's folder must be writable for this user", err)
	}
	if err = lock(s.lock); err != nil {
		return nil, logEnd{}, err
	}
	if s.current, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		return nil, logEnd{}, fmt.Errorf("%w\nhint: Gatekit forwards nothing without a record: "+
			"the log must be writable for this user", err)
	}
	if err = lock(s.current); err != nil { // another log may have the same file by another path
		return nil, logEnd{}, err
	}
	if s.id, err = fileIDOf(path); err != nil {
		return nil, logEnd{}, err
	}
	if end, err = s.findEnd(); err != nil {
		return nil, logEnd{}, err
	}
	if end.size == 0 {
		err = atomicfile.Sync(filepath.Dir(path))
	}
	return s, end, err
}

// findEnd reads the end of the log from the active file or, if that is empty, from the last
// segment.
func (s *files) findEnd() (logEnd, error) {
	info, err := s.current.Stat()
	if err != nil {
		return logEnd{}, err
	}
	segments, err := Segments(s.path)
	if err != nil {
		return logEnd{}, err
	}
	var before logEnd
	if last := len(segments) - 2; last >= 0 {
		if before, err = segmentEnd(segments[last]); err != nil {
			return logEnd{}, err
		}
	}
	end, err := fileEnd(s.current, info.Size(), before.head.seq+1)
	if err != nil {
		return logEnd{}, err
	}
	if end.size == 0 {
		end.head, end.leaf, end.time = before.head, before.leaf, before.time
	}
	return end, nil
}

// missingRanges returns the ranges of records whose files are missing between others, as far as the
// names and ends of files show it.
func (s *files) missingRanges() (holes []SeqRange) {
	segments, err := Segments(s.path)
	if err != nil {
		return nil
	}
	for i, segment := range segments[:len(segments)-1] {
		next := segmentFirstSeq(s.path, segments[i+1])
		if segments[i+1] == s.path {
			next, _ = firstSeq(s.current)
		}
		if end, err := segmentEnd(segment); err == nil && next > end.head.seq+1 {
			holes = append(holes, SeqRange{end.head.seq + 1, next - 1})
		}
	}
	return holes
}

// segmentEnd reads the end of a segment. A segment is never torn: it is renamed when it is complete
// and on the disk.
func segmentEnd(segment string) (logEnd, error) {
	f, err := os.Open(segment)
	if err != nil {
		return logEnd{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return logEnd{}, err
	}
	end, err := fileEnd(f, info.Size(), 0)
	if err == nil && (end.torn > 0 || end.size == 0) {
		err = errors.New("the last line is incomplete")
	}
	if err != nil {
		return logEnd{}, fmt.Errorf("continue from %s: %w", segment, err)
	}
	return end, nil
}

// fileEnd finds the last complete line, and the number of bytes after it. first is the seq that a
// first line must have.
func fileEnd(f *os.File, size int64, first uint64) (logEnd, error) {
	const notOurs = "not an audit log\nhint: configure another file; this one was not touched"
	last, err := lastLineFeed(f, size)
	if err != nil {
		return logEnd{}, err
	}
	end := logEnd{size: last + 1, torn: size - last - 1}
	if end.size == 0 {
		// No complete line: the file is new, or its first line is torn. Any other file with a
		// single line and no line feed is not an audit log.
		want := fmt.Appendf(nil, `{"seq":%d,"time":"`, first)
		start := make([]byte, min(size, int64(len(want))))
		if _, err := f.ReadAt(start, 0); err != nil && size > 0 {
			return logEnd{}, err
		}
		if !bytes.HasPrefix(want, start) {
			return logEnd{}, errors.New(notOurs)
		}
		return end, nil
	}
	before, err := lastLineFeed(f, last)
	if err != nil {
		return logEnd{}, err
	}
	if last-before > maxLineBytes {
		return logEnd{}, errors.New(notOurs)
	}
	line := make([]byte, last-before-1)
	if _, err := f.ReadAt(line, before+1); err != nil {
		return logEnd{}, err
	}
	seq, _, err := parseLine(line)
	if err != nil {
		return logEnd{}, fmt.Errorf("the last line is not a record (%w); %s", err, notOurs)
	}
	end.head, end.leaf = head{seq, sha256.Sum256(line)}, tlog.RecordHash(line)
	if r, err := ParseRecord(line); err == nil {
		end.time = r.Time
	}
	return end, nil
}

// lastLineFeed returns the offset of the last line feed before end, or -1.
func lastLineFeed(f *os.File, end int64) (int64, error) {
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

// rotate renames the active file to a segment and puts a new file in its place. It reports whether
// the new file is active. After an error nothing is lost, and the rotation can be tried again.
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
	if !s.renamed {
		if err := s.current.Sync(); err != nil {
			return false, err
		}
		first, err := firstSeq(s.current)
		if err != nil {
			return false, err
		}
		segment := segmentName(s.path, first)
		if _, err := os.Lstat(segment); !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("%s exists already\nhint: this log has not written it; "+
				"move it to another folder", segment)
		}
		if err := os.Rename(s.path, segment); err != nil {
			return false, err
		}
		s.renamed = true
	}
	if err := os.Rename(s.path+".next", s.path); err != nil {
		return false, err
	}
	old := s.current
	s.current, s.next, s.renamed = s.next, nil, false
	var err error
	s.id, err = fileIDOf(s.path)
	return true, errors.Join(err, atomicfile.Sync(filepath.Dir(s.path)), old.Close())
}

// firstSeq returns the seq of the first record in a file.
func firstSeq(f *os.File) (uint64, error) {
	start := make([]byte, 256) // longer than the head of a line
	n, err := f.ReadAt(start, 0)
	if n == 0 {
		return 0, err
	}
	seq, _, err := parseLineHead(start[:n])
	return seq, err
}

// checkIdentity returns an error when the active file was moved, removed or replaced by somebody
// else: what is written to it would not be in the log.
func (s *files) checkIdentity() error {
	if s.renamed {
		return nil // a rotation is half done
	}
	if now, err := fileIDOf(s.path); err != nil || now != s.id {
		return fmt.Errorf("%s is no longer the file that Gatekit opened: it was moved, removed "+
			"or replaced\nhint: put it back and restart Gatekit; Gatekit rotates its log "+
			"itself, see segment_bytes in [audit]", s.path)
	}
	return nil
}

func (s *files) Write(b []byte) (int, error) { return s.current.Write(b) }
func (s *files) Sync() error                 { return s.current.Sync() }
func (s *files) Truncate(size int64) error   { return s.current.Truncate(size) }

func (s *files) Close() error {
	var errs []error
	if s.next != nil { // a rotation failed
		errs = append(errs, s.next.Close(), os.Remove(s.path+".next"))
	}
	if s.current != nil {
		errs = append(errs, s.current.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
