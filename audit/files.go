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
	"gatekit/core/regularfile"
)

// maxLineBytes is the maximal length of a line. After so many bytes without a line feed, a reader
// of the log fails.
const maxLineBytes = 256 << 20

// errInUse is the error of a second process that opens the log.
var errInUse = errors.New("another Gatekit process has the log open\nhint: stop that process, " +
	"or configure another file for this process")

// logEnd describes the end of an existing log.
type logEnd struct {
	size int64     // length of the complete lines in the active file
	file FileEnd   // of the file with the last line
	head head      // chain state after the last line
	leaf tlog.Hash // Merkle tree hash of the last line
	time time.Time // time of the last line
	torn int64     // length of the incomplete line after the complete ones, to be cut off
}

// files is the output of a log with Options.File. It writes and rotates the active file.
type files struct {
	path    string
	lock    *os.File // lock file of the whole log
	current *os.File
	id      fileID   // identity of current
	next    *os.File // the next active file; nil before a rotation
	renamed bool     // current has its segment name, next is not in place yet
}

// openFiles opens or creates a log and locks it for this process. A file that is not an audit log
// is refused and left unchanged.
func openFiles(path string) (_ *files, end logEnd, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, logEnd{}, fmt.Errorf("%w\nhint: make the log's folder writable for this user; "+
			"Gatekit forwards nothing without a record", err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, logEnd{}, errors.New("not a regular file\nhint: name a regular file, because " +
			"Gatekit reads the log at the next start; to send records elsewhere, configure a sink")
	}
	s := &files{path: path}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.lock, err = os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, logEnd{}, fmt.Errorf("%w\nhint: make the log's folder writable for this user; "+
			"Gatekit forwards nothing without a record", err)
	}
	if err = lock(s.lock); err != nil {
		return nil, logEnd{}, err
	}
	if s.current, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		return nil, logEnd{}, fmt.Errorf("%w\nhint: make the log writable for this user; "+
			"Gatekit forwards nothing without a record", err)
	}
	// another log may have opened the same file under another path
	if err = lock(s.current); err != nil {
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
		end.head, end.leaf, end.time, end.file = before.head, before.leaf, before.time, before.file
	}
	return end, nil
}

// missingRanges returns the ranges of records whose files are missing between existing files. It
// compares the last record of each file with the first record of the next. A file that cannot be
// read is skipped.
func (s *files) missingRanges() (missing []SeqRange) {
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
			missing = append(missing, SeqRange{end.head.seq + 1, next - 1})
		}
	}
	return missing
}

// segmentEnd reads the end of a segment. A segment is never torn: it is renamed when it is complete
// and on the disk.
func segmentEnd(segment string) (logEnd, error) {
	f, err := regularfile.Open(segment)
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

// fileEnd finds the last complete line, and the number of bytes after it. If no line is complete,
// the file must be empty, or begin as a record whose seq is first.
func fileEnd(f *os.File, size int64, first uint64) (logEnd, error) {
	const notAnAuditLog = "not an audit log\nhint: configure another file; " +
		"this file was not changed"
	last, err := lastLineFeed(f, size)
	if err != nil {
		return logEnd{}, err
	}
	end := logEnd{size: last + 1, torn: size - last - 1}
	if end.size == 0 {
		// No line is complete: the file is new, its first line is torn, or it is not an audit log.
		want := fmt.Appendf(nil, `{"seq":%d,"time":"`, first)
		start := make([]byte, min(size, int64(len(want))))
		if _, err := f.ReadAt(start, 0); err != nil && size > 0 {
			return logEnd{}, err
		}
		if !bytes.HasPrefix(want, start) {
			return logEnd{}, errors.New(notAnAuditLog)
		}
		return end, nil
	}
	previous, err := lastLineFeed(f, last)
	if err != nil {
		return logEnd{}, err
	}
	if last-previous > maxLineBytes {
		return logEnd{}, errors.New(notAnAuditLog)
	}
	line := make([]byte, last-previous-1)
	if _, err := f.ReadAt(line, previous+1); err != nil {
		return logEnd{}, err
	}
	seq, _, err := parseLine(line)
	if err != nil {
		return logEnd{}, fmt.Errorf("the last line is not a record (%w); %s", err, notAnAuditLog)
	}
	end.head, end.leaf = head{seq, sha256.Sum256(line)}, tlog.RecordHash(line)
	end.file.Bytes = end.size
	if end.file.First, err = firstSeq(f); err != nil {
		return logEnd{}, fmt.Errorf("the first line is not a record (%w); %s", err, notAnAuditLog)
	}
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
			return false, fmt.Errorf("%s exists already\nhint: the file does not belong to this "+
				"log; move it to another folder", segment)
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
	start := make([]byte, 256) // longer than seq, time and prev of a line
	n, err := f.ReadAt(start, 0)
	if n == 0 {
		return 0, err
	}
	seq, _, err := parseLineHead(start[:n])
	return seq, err
}

// checkIdentity returns an error when somebody else has moved, removed or replaced the active file.
// Lines that are then written to the open file would not be in the log.
func (s *files) checkIdentity() error {
	if s.renamed {
		return nil // a rotation is half done
	}
	if now, err := fileIDOf(s.path); err != nil || now != s.id {
		return fmt.Errorf("%s is no longer the file that Gatekit opened: it was moved, removed "+
			"or replaced\nhint: put the file back and restart Gatekit; Gatekit rotates its log "+
			"itself, see segment_bytes in [audit]", s.path)
	}
	return nil
}

// checkContent returns an error when somebody else has changed the end of the active file, which
// must have the given length and last bytes.
func (s *files) checkContent(size int64, last []byte) error {
	if s.renamed {
		return nil // a rotation is half done
	}
	if err := s.checkSize(size); err != nil {
		return err
	}
	now := make([]byte, len(last))
	if _, err := s.current.ReadAt(now, size-int64(len(last))); err != nil ||
		!bytes.Equal(now, last) {
		return s.changedError("its last record is not the record that Gatekit wrote")
	}
	return nil
}

// checkSize is checkContent for the length only.
func (s *files) checkSize(size int64) error {
	info, err := s.current.Stat()
	if err != nil {
		return err
	}
	if info.Size() != size {
		return s.changedError(fmt.Sprintf("it has %d bytes, but Gatekit wrote %d bytes",
			info.Size(), size))
	}
	return nil
}

func (s *files) changedError(how string) error {
	return fmt.Errorf("%s was changed by somebody else: %s\nhint: keep the file: gatekit audit "+
		"verify shows what is missing; %s. Gatekit rotates its log itself: see segment_bytes in "+
		"[audit], and exclude the log from logrotate", s.path, how, newLogHint(s.path))
}

// cutOwn removes lines that were just appended, if they are still the end of the file.
func (s *files) cutOwn(lines []byte) error {
	info, err := s.current.Stat()
	if err != nil || info.Size() < int64(len(lines)) {
		return err
	}
	start := info.Size() - int64(len(lines))
	end := make([]byte, len(lines))
	if _, err := s.current.ReadAt(end, start); err != nil || !bytes.Equal(end, lines) {
		return err
	}
	return s.current.Truncate(start)
}

// readLast returns the last bytes before the offset size, at most tailBytes.
func (s *files) readLast(size int64) ([]byte, error) {
	last := make([]byte, min(size, tailBytes))
	_, err := s.current.ReadAt(last, size-int64(len(last)))
	return last, err
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
