package audit

import (
	"bufio"
	"bytes"
	"io"
	"os"
)

// seekBlock is the size of the part of a file that is read line by line.
const seekBlock = 64 << 10 // bytes

// seekRecord sets the offset of a file to the beginning of a line, and returns this offset. The
// record seq, if the file has it, is in this line or in one of the next lines. seekRecord reads few
// lines of the file. If it meets a line that is not a record, it returns the beginning of the file.
func seekRecord(f *os.File, seq uint64) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	// The line at from belongs to seq or to an earlier record, or it is the first line. All lines
	// that begin at end or later belong to later records.
	from, end := int64(0), info.Size()
	for end-from > seekBlock {
		middle := from + (end-from)/2
		lines := bufio.NewReader(io.NewSectionReader(f, middle, info.Size()-middle))
		rest, err := skipLine(lines) // the line that contains middle
		line, lineErr := []byte(nil), io.EOF
		start := middle + rest
		if err == nil && start < end {
			line, lineErr = readLine(lines)
		}
		if lineErr == io.EOF { // no whole line begins in the second half
			end = middle
			continue
		}
		found, _, headErr := parseLineHead(line)
		switch {
		case lineErr != nil || headErr != nil:
			return f.Seek(0, io.SeekStart)
		case found > seq:
			end = middle
		default:
			from = start
		}
	}
	return f.Seek(from, io.SeekStart)
}

// skipLine reads the rest of a line, and returns its length with the line feed.
func skipLine(r *bufio.Reader) (n int64, err error) {
	for {
		part, err := r.ReadSlice('\n')
		n += int64(len(part))
		if err != bufio.ErrBufferFull {
			return n, err
		}
	}
}

// countLines returns the number of lines in the first n bytes of a file. It returns 0 if they
// cannot be read.
func countLines(file string, n int64) int {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	count := 0
	block := make([]byte, seekBlock)
	for r := io.LimitReader(f, n); ; {
		k, err := r.Read(block)
		count += bytes.Count(block[:k], []byte("\n"))
		if err != nil {
			return count
		}
	}
}
