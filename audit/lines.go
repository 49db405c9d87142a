package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// errTorn is what a last line without its line feed is.
var errTorn = errors.New("it is torn: no line feed at its end")

// forEachLine shows f the lines of the files of the log, without their line feeds, from the file that
// holds record from. The line is valid until f returns. Errors of reading, which a line that is too
// long or torn is too, have the place. A log that goes on in the meantime is read up to about where
// it was.
func forEachLine(file string, from uint64, f func(at Position, line []byte) error) error {
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
		if i+1 < len(segments) && segments[i+1] != file && segmentFirstSeq(file, segments[i+1]) <= from {
			continue
		}
		r, err := os.Open(segment)
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		same := live != nil && sameFile(r, live)
		err = forEachLineIn(segment, r, f)
		r.Close()
		if err != nil || same {
			return err
		}
	}
	if live == nil {
		return nil
	}
	return forEachLineIn(file, live, f)
}

func sameFile(a, b *os.File) bool {
	i, err := a.Stat()
	if err != nil {
		return false
	}
	j, err := b.Stat()
	return err == nil && os.SameFile(i, j)
}

func forEachLineIn(name string, r io.Reader, f func(at Position, line []byte) error) error {
	lines := bufio.NewReaderSize(r, 256<<10)
	for n := 1; ; n++ {
		at := Position{name, n}
		line, err := readLine(lines)
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == io.EOF:
			return &positionError{at, errTorn}
		case err != nil:
			return &positionError{at, err}
		}
		if err := f(at, line); err != nil {
			return err
		}
	}
}

// positionError is an error with its place.
type positionError struct {
	at  Position
	err error
}

func (e *positionError) Error() string { return e.at.String() + ": " + e.err.Error() }
func (e *positionError) Unwrap() error { return e.err }

var errLong = fmt.Errorf("it is longer than %d bytes", maxLineBytes)

// readLine answers the next line without its line feed; with io.EOF what there is of one.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && line == nil {
			return part[:len(part)-1], nil // valid until the next read, which is long enough
		}
		line = append(line, part...)
		switch {
		case len(line) > maxLineBytes:
			return nil, errLong
		case err == nil:
			return line[:len(line)-1], nil
		case err != bufio.ErrBufferFull:
			return line, err
		}
	}
}

// parseLine reads what binds a line to the chain. It takes nothing that this package would not have
// written: the same members first, in the same order and spelling, and one valid JSON object.
func parseLine(line []byte) (seq uint64, prev [sha256.Size]byte, err error) {
	if seq, prev, err = parseLineHead(line); err == nil && !jsontext.Value(line).IsValid() {
		err = errors.New("it is not valid JSON")
	}
	return seq, prev, err
}

// parseLineHead reads what a line begins with.
func parseLineHead(line []byte) (seq uint64, prev [sha256.Size]byte, err error) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	digits, rest, found := bytes.Cut(rest, []byte(`,"time":"`))
	_, rest, timed := bytes.Cut(rest, []byte(`","prev":"`))
	if !ok || !found || !timed || len(rest) < 2*len(prev)+1 || rest[2*len(prev)] != '"' {
		return 0, prev, errors.New("it does not begin with seq, time and prev")
	}
	if seq, err = strconv.ParseUint(string(digits), 10, 63); err != nil || seq == 0 ||
		strconv.FormatUint(seq, 10) != string(digits) {
		return 0, prev, fmt.Errorf("its seq %q is no number of a record", digits)
	}
	if _, err = hex.Decode(prev[:], rest[:2*len(prev)]); err != nil ||
		bytes.ContainsAny(rest[:2*len(prev)], "ABCDEF") {
		return 0, prev, errors.New("its prev is no hash")
	}
	return seq, prev, nil
}
