package audit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// maxLine bounds what is read of a file to find one line.
const maxLine = 256 << 20

// errInUse is what a second opener gets.
var errInUse = errors.New("another Gatekit writes to it\nhint: stop that one, or name another file for this one")

// ending is what a file to be continued ends with.
type ending struct {
	size int64 // of its whole lines
	head head  // its last line
	torn int64 // bytes after it that were cut off
}

// openFile opens or makes the file, for this process alone, and makes it end with a whole line. A file that is no audit log is refused and not touched.
func openFile(path string) (*os.File, ending, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, ending{}, fmt.Errorf("%w\nhint: nothing moves unrecorded: the audit log must be in a folder that this user may write to", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, ending{}, fmt.Errorf("%w\nhint: nothing moves unrecorded: the audit log must be a file that this user may write to", err)
	}
	end, err := continueFile(f)
	if err == nil && end.size == 0 {
		err = syncPath(filepath.Dir(path))
	}
	if err != nil {
		f.Close()
		return nil, ending{}, err
	}
	return f, end, nil
}

func continueFile(f *os.File) (ending, error) {
	info, err := f.Stat()
	if err != nil {
		return ending{}, err
	}
	if !info.Mode().IsRegular() {
		return ending{}, errors.New("it is no regular file\nhint: an audit log is read again when it is continued; to send it on, follow the file")
	}
	if err := lock(f); err != nil {
		return ending{}, err
	}
	if info, err = f.Stat(); err != nil { // it may have grown until it was ours
		return ending{}, err
	}
	return readEnd(f, info.Size())
}

// readEnd finds the last whole line and cuts off what follows it.
func readEnd(f *os.File, size int64) (ending, error) {
	const notOurs = "it is not an audit log\nhint: name another file; this one was not touched"
	last, err := lineBreak(f, size)
	if err != nil {
		return ending{}, err
	}
	end := ending{size: last + 1, torn: size - last - 1}
	if end.size == 0 {
		// No whole line: new, or torn in its first. Anything else with a single line and no line feed is somebody's.
		const first = `{"seq":1,"time":"`
		start := make([]byte, min(size, int64(len(first))))
		if _, err := f.ReadAt(start, 0); err != nil && size > 0 {
			return ending{}, err
		}
		if string(start) != first[:len(start)] {
			return ending{}, errors.New(notOurs)
		}
	} else {
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
		end.head = head{seq, sha256.Sum256(line)}
	}
	if end.torn > 0 {
		if err := f.Truncate(end.size); err != nil {
			return ending{}, fmt.Errorf("cut off a torn last line: %w", err)
		}
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
