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

// A log is one file that is written and those that were before it. One of those is named after the
// first record in it: gatekit.jsonl, and gatekit-00000000000000000001.jsonl.

// seqDigits are those of a number in the name of a file, so that names sort as numbers do.
const seqDigits = 20

// Segments answers the files of the log, oldest first; the last is file itself, if there is one. A
// log without any is fs.ErrNotExist.
func Segments(file string) ([]string, error) {
	ext := filepath.Ext(file)
	stem := strings.TrimSuffix(filepath.Base(file), ext) + "-"
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("look for the files of the audit log %s: %w", file, err)
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

// segmentName is the name of a file of the log that is written no more.
func segmentName(file string, first uint64) string {
	ext := filepath.Ext(file)
	return fmt.Sprintf("%s-%0*d%s", strings.TrimSuffix(file, ext), seqDigits, first, ext)
}

func isNumber(digits string) bool {
	_, err := strconv.ParseUint(digits, 10, 64)
	return err == nil
}

// segmentFirstSeq is the number of the first record of a segment that is written no more, as its name says;
// 0 of the one that is.
func segmentFirstSeq(file, segment string) uint64 {
	if segment == file {
		return 0
	}
	ext := filepath.Ext(segment)
	digits := strings.TrimSuffix(segment, ext)
	first, _ := strconv.ParseUint(digits[len(digits)-seqDigits:], 10, 64) // Segments took no other
	return first
}
