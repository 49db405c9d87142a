package config

import (
	"path/filepath"
	"regexp"
	"strings"
)

// auditFiles holds the files that the audit log and its sinks write, and what each is used for. No
// two of them may be the same file.
type auditFiles struct {
	log   string
	taken map[string]string
}

// checkAuditFiles makes the paths of the log, its key and its anchor absolute, and checks that they
// differ. The files that package audit keeps beside the log count, too.
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

// claimFile notes that a key of the configuration uses a file, or reports an error when the file is
// used already.
func (l *loader) claimFile(files *auditFiles, path string, at *node, key string) {
	if by := files.owner(path); by != "" {
		l.errorf(at, "%s = %q is already used for %s", key, at.raw, by)
		return
	}
	files.taken[path] = key
}

var segmentDigits = regexp.MustCompile(`^-[0-9]{20}$`)

// owner returns what a file is used for, or an empty string.
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

// isWithin reports whether path is folder, or in it.
func isWithin(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+string(filepath.Separator))
}
