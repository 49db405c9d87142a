package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checkPaths sees that what others name for the log is none of the files that the log keeps for
// itself, by whatever name: it would ruin the one or the other.
func (o *Options) checkPaths() error {
	own := []string{o.File, o.File + ".lock", o.File + ".next", PublicKeyFile(o.File)}
	if o.Key != "" {
		if by := conflictingFile(o.Key, o.File, own); by != "" {
			return fmt.Errorf("its key %s is %s\nhint: name another file for the key", o.Key, by)
		}
		own = append(own, o.Key)
	} else {
		own = append(own, o.File+".key")
	}
	if o.AnchorFile != "" {
		if by := conflictingFile(o.AnchorFile, o.File, own); by != "" {
			return fmt.Errorf("its anchor %s is %s\nhint: name another file for the anchor, "+
				"best on another machine's disk", o.AnchorFile, by)
		}
	}
	return nil
}

// conflictingFile is which file of the log a path is, or "".
func conflictingFile(path, log string, own []string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	file, err := filepath.Abs(log)
	if err != nil {
		file = log
	}
	is, _ := os.Stat(abs)
	for _, o := range own {
		at, err := filepath.Abs(o)
		if err == nil && at == abs {
			return o
		}
		if info, err := os.Stat(o); err == nil && is != nil && os.SameFile(info, is) {
			return o
		}
	}
	for _, folder := range []string{file + ".tree", file + ".sinks"} {
		if abs == folder || strings.HasPrefix(abs, folder+string(filepath.Separator)) {
			return "in " + folder
		}
	}
	if ext := filepath.Ext(file); len(abs) > seqDigits+len(ext) {
		if digits := strings.TrimSuffix(abs,
			ext); isNumber(digits[max(0, len(digits)-seqDigits):]) && segmentName(file,
			segmentFirstSeq(file, abs)) == abs {
			return "a segment of it"
		}
	}
	return ""
}
