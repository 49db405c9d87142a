package audit

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// LineError is the error for the first line that breaks the chain.
type LineError struct {
	Line   int // starts at 1
	Reason string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// Verify reads a log in a single file from its first line, and checks the hash chain. If a
// line breaks the chain, the error is a *LineError. If r fails, the error wraps the error of r.
// Verify cannot detect that the last line was changed or that lines were removed at the end,
// because no later line contains their hash. A [Verification] detects both with a checkpoint.
func Verify(r io.Reader) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	var state chain
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
		if err := state.check(line, 1); err != nil {
			return &LineError{n, err.Error()}
		}
	}
}

// chain checks the lines of a log one after another. It holds the seq and the hash of the last
// line.
type chain struct{ head }

// check checks the next line of the log. In the first call, the seq of the line must be firstSeq.
func (c *chain) check(line []byte, firstSeq uint64) error {
	seq, prev, err := parseLine(line)
	switch {
	case err != nil:
		return err
	case c.seq == 0 && seq != firstSeq:
		return fmt.Errorf("seq is %d, but the first record must be %d", seq, firstSeq)
	case c.seq > 0 && seq != c.seq+1:
		return fmt.Errorf("seq is %d, but the seq of the previous line is %d", seq, c.seq)
	case prev != c.hash && (c.seq > 0 || firstSeq == 1):
		return errChain
	}
	c.head = head{seq, sha256.Sum256(line)}
	return nil
}

var errChain = errors.New("prev is not the hash of the previous line: one of the two lines " +
	"was changed, or a line between them is missing")
