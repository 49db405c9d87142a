package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// errTorn is what a last line without its line feed is.
var errTorn = errors.New("it is torn: no line feed at its end")

// eachLine shows f the lines of the files of the log, without their line feeds, from the file that
// holds record from. The line is valid until f returns. Errors of reading, which a line that is too
// long or torn is too, have the place. A log that goes on in the meantime is read up to about where
// it was.
func eachLine(file string, from uint64, f func(at Position, line []byte) error) error {
	// The file that is written is opened first: if it gets the name of a segment before these are
	// listed, it is read as that.
	live, err := os.Open(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the audit log: %w", err)
	}
	if err == nil {
		defer live.Close()
	}
	segments, err := Segments(file)
	if err != nil {
		return err
	}
	for i, segment := range segments {
		if segment == file {
			break
		}
		if i+1 < len(segments) && segments[i+1] != file && firstOf(file, segments[i+1]) <= from {
			continue
		}
		r, err := os.Open(segment)
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		same := live != nil && sameFile(r, live)
		err = linesOf(segment, r, f)
		r.Close()
		if err != nil || same {
			return err
		}
	}
	if live == nil {
		return nil
	}
	return linesOf(file, live, f)
}

func sameFile(a, b *os.File) bool {
	i, err := a.Stat()
	if err != nil {
		return false
	}
	j, err := b.Stat()
	return err == nil && os.SameFile(i, j)
}

func linesOf(name string, r io.Reader, f func(at Position, line []byte) error) error {
	lines := bufio.NewReaderSize(r, 256<<10)
	for n := 1; ; n++ {
		at := Position{name, n}
		line, err := readLine(lines)
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == io.EOF:
			return &placed{at, errTorn}
		case err != nil:
			return &placed{at, err}
		}
		if err := f(at, line); err != nil {
			return err
		}
	}
}

// placed is an error with its place.
type placed struct {
	at  Position
	err error
}

func (e *placed) Error() string { return e.at.String() + ": " + e.err.Error() }
func (e *placed) Unwrap() error { return e.err }
