package audit

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
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
		if err := at.check(line, 1); err != nil {
			return &LineError{n, err.Error()}
		}
	}
}

// chain follows lines.
type chain struct{ head }

// check is the line after those before, or the first, which is record first.
func (c *chain) check(line []byte, first uint64) error {
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
