package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// LineError says where a log stops being what was written.
type LineError struct {
	Line   int // from 1
	Reason string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// Verify reads a log of one file from its first line and follows the chain. The error is a *BadLine
// for the first line that does not fit, or the reader's. What was changed in the last line, or cut
// off after it, does not show, as nothing in the log is bound to it: that takes a checkpoint, and a
// [VerificationConfig].
func Verify(r io.Reader) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	var at chain
	for n := 1; ; n++ {
		line, err := readLine(lines)
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == io.EOF:
			return &LineError{n, errTorn.Error()}
		case errors.Is(err, errLong):
			return &LineError{n, err.Error()}
		case err != nil:
			return fmt.Errorf("read line %d: %w", n, err)
		}
		if err := at.next(line, 1); err != nil {
			return &LineError{n, err.Error()}
		}
	}
}

// chain follows lines.
type chain struct{ head }

// next is the line after those before, or the first, which is record first.
func (c *chain) next(line []byte, first uint64) error {
	seq, prev, err := parseLine(line)
	switch {
	case err != nil:
		return err
	case c.seq == 0 && seq != first:
		return fmt.Errorf("its seq is %d, and the first is %d", seq, first)
	case c.seq > 0 && seq != c.seq+1:
		return fmt.Errorf("its seq is %d, that of the line before is %d", seq, c.seq)
	case prev != c.hash && (c.seq > 0 || first == 1):
		return errChain
	}
	c.head = head{seq, sha256.Sum256(line)}
	return nil
}

var errChain = errors.New("prev is not the hash of the line before: one of the two was changed, " +
	"or one between them is missing")

var errLong = fmt.Errorf("it is longer than %d bytes", maxLine)

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
		case len(line) > maxLine:
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
	if seq, prev, err = lineHead(line); err == nil && !jsontext.Value(line).IsValid() {
		err = errors.New("it is not valid JSON")
	}
	return seq, prev, err
}

// lineHead reads what a line begins with.
func lineHead(line []byte) (seq uint64, prev [sha256.Size]byte, err error) {
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
