package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// checkPaths returns an error when the configured key or anchor is one of the log's own files, even
// if its path is written differently. Two kinds of content in one file would destroy each other.
func (o *Options) checkPaths() error {
	logFiles := []string{o.File, o.File + ".lock", o.File + ".next", PublicKeyFile(o.File)}
	if o.Key != "" {
		if conflict := conflictingFile(o.Key, o.File, logFiles); conflict != "" {
			return fmt.Errorf("the key %s is a file of the log itself (%s)\nhint: configure "+
				"another file as key in [audit]", o.Key, conflict)
		}
		logFiles = append(logFiles, o.Key)
	} else {
		logFiles = append(logFiles, o.File+".key")
	}
	if o.AnchorFile != "" {
		if conflict := conflictingFile(o.AnchorFile, o.File, logFiles); conflict != "" {
			return fmt.Errorf("the anchor %s is a file of the log itself (%s)\nhint: configure "+
				"another file as anchor in [audit], best on another machine's disk",
				o.AnchorFile, conflict)
		}
	}
	return nil
}

// conflictingFile describes which of the log's own files path is: one of logFiles, a segment, or a
// file in one of the log's folders. It returns "" if path is none of them.
func conflictingFile(path, log string, logFiles []string) string {
	path, log = absolute(path), absolute(log)
	info, _ := os.Stat(path)
	for _, file := range logFiles {
		if absolute(file) == path {
			return file
		}
		if other, err := os.Stat(file); err == nil && info != nil && os.SameFile(other, info) {
			return file
		}
	}
	for _, folder := range []string{log + ".tree", log + ".sinks"} {
		if path == folder || strings.HasPrefix(path, folder+string(filepath.Separator)) {
			return "in " + folder
		}
	}
	ext := filepath.Ext(log)
	name := strings.TrimSuffix(path, ext)
	first, err := strconv.ParseUint(name[max(0, len(name)-seqDigits):], 10, 64)
	if err == nil && segmentName(log, first) == path {
		return "a segment"
	}
	return ""
}

// absolute returns the absolute path, or path itself if the working folder is unknown.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
