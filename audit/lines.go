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
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/regularfile"
)

// errTorn is the error for a last line without its line feed.
var errTorn = errors.New("the line is incomplete: it has no line feed")

// forEachLine calls f with each line of the log's files, without its line feed. It may skip
// segments in which all records have a seq below first. f must not keep the slice line. If a file
// cannot be read, or a line is incomplete or too long, the error is a *positionError. Records that
// are written during the call may be left out.
func forEachLine(file string, first uint64, f func(at Position, line []byte) error) error {
	// Open the active file first: if it is renamed to a segment before the segments are listed, it
	// is read as that segment.
	active, err := regularfile.Open(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the audit log: %w", err)
	}
	if err == nil {
		defer active.Close()
	}
	segments, err := Segments(file)
	if err != nil {
		return err
	}
	for i, segment := range segments {
		if segment == file {
			break
		}
		if i+1 < len(segments) && segments[i+1] != file && segmentFirstSeq(file,
			segments[i+1]) <= first {
			continue
		}
		r, err := regularfile.Open(segment)
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		isActive := active != nil && sameFile(r, active)
		err = forEachLineIn(segment, r, f)
		r.Close()
		if err != nil || isActive {
			return err
		}
	}
	if active == nil {
		return nil
	}
	return forEachLineIn(file, active, f)
}

func sameFile(a, b *os.File) bool {
	i, err := a.Stat()
	if err != nil {
		return false
	}
	j, err := b.Stat()
	return err == nil && os.SameFile(i, j)
}

// forEachLineIn is forEachLine for one file.
func forEachLineIn(name string, r io.Reader, f func(at Position, line []byte) error) error {
	lines := bufio.NewReaderSize(r, 256<<10)
	for n := 1; ; n++ {
		position := Position{name, n}
		line, err := readLine(lines)
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == io.EOF:
			return &positionError{position, errTorn}
		case err != nil:
			return &positionError{position, err}
		}
		if err := f(position, line); err != nil {
			return err
		}
	}
}

// positionError is an error about a line, with the line's position.
type positionError struct {
	position Position
	err      error
}

func (e *positionError) Error() string { return e.position.String() + ": " + e.err.Error() }
func (e *positionError) Unwrap() error { return e.err }

var errLong = fmt.Errorf("the line is longer than %d bytes", maxLineBytes)

// readLine returns the next line without its line feed. At the end of r it returns
// io.EOF, with the incomplete last line if there is one.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && line == nil {
			return part[:len(part)-1], nil // valid until the next read
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

// parseLine parses seq and prev, which link a line to the line before it. It accepts only lines as
// this package writes them: valid JSON objects that begin with seq, time and prev.
func parseLine(line []byte) (seq uint64, prev [sha256.Size]byte, err error) {
	if seq, prev, err = parseLineHead(line); err == nil && !isValidJSON(line) {
		err = errors.New("the line is not valid JSON")
	}
	return seq, prev, err
}

// isValidJSON reports whether a line is JSON in UTF-8. The body of a message in the line may have
// lone surrogates, as core/mcp explains.
func isValidJSON(line []byte) bool {
	return utf8.Valid(line) && jsontext.Value(line).IsValid(jsontext.AllowInvalidUTF8(true))
}

// parseLineHead is parseLine without the check that the rest of the line is valid JSON.
func parseLineHead(line []byte) (seq uint64, prev [sha256.Size]byte, err error) {
	rest, hasSeq := bytes.CutPrefix(line, []byte(`{"seq":`))
	digits, rest, hasTime := bytes.Cut(rest, []byte(`,"time":"`))
	_, rest, hasPrev := bytes.Cut(rest, []byte(`","prev":"`))
	if !hasSeq || !hasTime || !hasPrev || len(rest) < 2*len(prev)+1 || rest[2*len(prev)] != '"' {
		return 0, prev, errors.New("the line does not begin with seq, time and prev")
	}
	if seq, err = strconv.ParseUint(string(digits), 10, 63); err != nil || seq == 0 ||
		strconv.FormatUint(seq, 10) != string(digits) {
		return 0, prev, fmt.Errorf("seq %q is not a valid record number", digits)
	}
	if _, err = hex.Decode(prev[:], rest[:2*len(prev)]); err != nil ||
		bytes.ContainsAny(rest[:2*len(prev)], "ABCDEF") {
		return 0, prev, errors.New("prev is not a SHA-256 hash")
	}
	return seq, prev, nil
}
