package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// errTorn is what a last line without its line feed is.
var errTorn = errors.New("it is torn: no line feed at its end")

// eachLine shows f the lines of the files of the log, without their line feeds, from the file that holds record from. The line is valid until f returns. Errors of reading, which a
// line that is too long or torn is too, have the place.
func eachLine(file string, from uint64, f func(at Place, line []byte) error) error {
	segments, err := Segments(file)
	if err != nil {
		return err
	}
	for i, segment := range segments {
		if i+1 < len(segments) && segments[i+1] != file && firstOf(file, segments[i+1]) <= from {
			continue
		}
		if err := linesOf(segment, f); err != nil {
			return err
		}
	}
	return nil
}

func linesOf(segment string, f func(at Place, line []byte) error) error {
	r, err := os.Open(segment)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	defer r.Close()
	lines := bufio.NewReaderSize(r, 256<<10)
	for n := 1; ; n++ {
		at := Place{segment, n}
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
	at  Place
	err error
}

func (e *placed) Error() string { return e.at.String() + ": " + e.err.Error() }
func (e *placed) Unwrap() error { return e.err }
