package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"gatekit/core/regularfile"
)

// maxHeadBytes bounds seq, time and prev at the beginning of a line.
const maxHeadBytes = 512

// LastSeq returns the seq of the last complete record of a log, or 0 if the log has no record. The
// log may be written by another process, or may be a copy that is replaced meanwhile. LastSeq reads
// only the end of a file, and verifies nothing.
func LastSeq(file string) (uint64, error) {
	segments, err := Segments(file)
	if err != nil {
		return 0, err
	}
	for _, segment := range slices.Backward(segments) {
		seq, err := lastSeqIn(segment)
		if errors.Is(err, fs.ErrNotExist) { // removed or renamed since the files were listed
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read the end of %s: %w", segment, err)
		}
		if seq > 0 {
			return seq, nil
		}
	}
	return 0, nil
}

// lastSeqIn returns the seq of the last complete line of a file, or 0 if there is none.
func lastSeqIn(name string) (uint64, error) {
	f, err := regularfile.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	last, err := lastLineFeed(f, info.Size())
	if err != nil || last < 0 {
		return 0, err
	}
	previous, err := lastLineFeed(f, last)
	if err != nil {
		return 0, err
	}
	head := make([]byte, min(last-previous-1, maxHeadBytes))
	if _, err := f.ReadAt(head, previous+1); err != nil {
		return 0, err
	}
	seq, _, err := parseLineHead(head)
	if err != nil {
		return 0, fmt.Errorf("the last line is not a record: %w", err)
	}
	return seq, nil
}
