package config

import (
	"path/filepath"
	"regexp"
	"strings"
)

// auditFiles holds the files that the audit log and its sinks write. No two of them may be the same
// file.
type auditFiles struct {
	log   string            // path of the audit log
	taken map[string]string // path of each file → what the file is used for
}

// checkAuditFiles makes the paths of the log, its key and its anchor absolute. It checks that they
// differ from each other, and from the files that package audit keeps beside the log.
func (l *loader) checkAuditFiles(a *Audit, n *node) *auditFiles {
	a.File = l.absPath(a.File)
	files := &auditFiles{log: a.File, taken: map[string]string{
		a.File:           "the audit log",
		a.File + ".lock": "the audit log's lock",
		a.File + ".next": "the audit log's next segment",
		a.File + ".pub":  "the audit log's public key",
	}}
	if a.Key != "" {
		a.Key = l.absPath(a.Key)
		l.claimFile(files, a.Key, n.lookup("key"), "audit.key")
	} else {
		files.taken[a.File+".key"] = "the audit log's key"
	}
	if a.Anchor != "" {
		a.Anchor = l.absPath(a.Anchor)
		l.claimFile(files, a.Anchor, n.lookup("anchor"), "audit.anchor")
	}
	return files
}

// claimFile records that a key of the configuration uses the file at path. It reports an error when
// the file is already used.
func (l *loader) claimFile(files *auditFiles, path string, at *node, key string) {
	if by := files.owner(path); by != "" {
		l.errorf(at, "%s = %q is already used for %s", key, at.raw, by)
		return
	}
	files.taken[path] = key
}

// segmentDigits matches what the name of a closed segment adds to the name of the log: the sequence
// number of its first record, with as many digits as the largest uint64.
var segmentDigits = regexp.MustCompile(`^-[0-9]{20}$`)

// owner returns what the file at path is used for, or an empty string when it is not used.
func (f *auditFiles) owner(path string) string {
	if by, ok := f.taken[path]; ok {
		return by
	}
	ext := filepath.Ext(f.log)
	digits, ok := strings.CutPrefix(path, strings.TrimSuffix(f.log, ext))
	digits, hasExt := strings.CutSuffix(digits, ext)
	switch {
	case ok && hasExt && segmentDigits.MatchString(digits):
		return "a segment of the audit log"
	case isWithin(path, f.log+".tree"):
		return "the audit log's tree"
	case isWithin(path, f.log+".sinks"):
		return "the progress of the sinks"
	}
	return ""
}

// isWithin reports whether path is the folder itself, or a path in the folder.
func isWithin(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+string(filepath.Separator))
}
