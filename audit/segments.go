package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A log consists of the active file and of segments, which are earlier active files. A segment is
// named after its first record: gatekit-00000000000000000001.jsonl for gatekit.jsonl.

// seqDigits is the width of the seq in the name of a segment, which makes names sort like numbers.
const seqDigits = 20

// Segments returns the files of a log, oldest first. The last of them is the active file, if it
// exists. The error is fs.ErrNotExist when the log has no file.
func Segments(file string) ([]string, error) {
	ext := filepath.Ext(file)
	stem := strings.TrimSuffix(filepath.Base(file), ext) + "-"
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("list the files of the audit log %s: %w", file, err)
	}
	var all []string
	for _, e := range entries { // sorted by name
		digits, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ext), stem)
		if ok && strings.HasSuffix(e.Name(), ext) && len(digits) == seqDigits && isNumber(digits) {
			all = append(all, filepath.Join(filepath.Dir(file), e.Name()))
		}
	}
	if _, err := os.Stat(file); err == nil {
		all = append(all, file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no audit log %s: %w", file, fs.ErrNotExist)
	}
	return all, nil
}

// segmentName returns the name of the segment whose first record has the seq first.
func segmentName(file string, first uint64) string {
	ext := filepath.Ext(file)
	return fmt.Sprintf("%s-%0*d%s", strings.TrimSuffix(file, ext), seqDigits, first, ext)
}

func isNumber(digits string) bool {
	_, err := strconv.ParseUint(digits, 10, 64)
	return err == nil
}

// segmentFirstSeq returns the seq of a segment's first record, from its name. It returns 0 for the
// active file.
func segmentFirstSeq(file, segment string) uint64 {
	if segment == file {
		return 0
	}
	ext := filepath.Ext(segment)
	digits := strings.TrimSuffix(segment, ext)
	// Segments has checked the digits
	first, _ := strconv.ParseUint(digits[len(digits)-seqDigits:], 10, 64)
	return first
}
