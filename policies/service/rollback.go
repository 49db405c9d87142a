package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gatekit/core/atomicfile"
	"gatekit/core/regularfile"
	"gatekit/policies"
)

// Bounds of a revision file. Revisions have at most 256 bytes, and JSON takes at most 6 bytes for
// one of them. So a file with maxRevisions revisions is smaller than maxRevisionFile.
const (
	maxRevisions    = 1_000
	maxRevisionFile = 2 << 20 // bytes
)

// activeRevisions is the content of a revision file. Gatekit uses it to reject a correctly signed
// bundle that is older than the active bundle.
type activeRevisions struct {
	// Revisions are the revisions that were active, in the order of their last activation.
	Revisions []string `json:"revisions"`
	// IssuedAt is the time at which the last bundle was signed, in seconds since 1970. It is 0 if
	// the time is unknown.
	IssuedAt float64 `json:"iat"`
}

// checkRollback returns an error if a bundle is older than the last active bundle. A bundle is
// older if it was signed earlier, or has no time although a bundle with a time was active. If the
// times do not decide, a bundle is older if its revision is a lower number, version or time, is
// missing, or was active before the last revision.
func (p *bundlePoll) checkRollback(b *policies.Bundle) error {
	if p.source.RevisionFile == "" {
		return nil
	}
	active, err := p.readRevisions()
	if err != nil {
		return fmt.Errorf("read the last revision: %w", err)
	}
	if len(active.Revisions) == 0 {
		return nil
	}
	last := active.Revisions[len(active.Revisions)-1]
	older := ""
	order, comparable := compareRevisions(b.Revision, last)
	switch {
	case b.IssuedAt == 0 && active.IssuedAt > 0:
		older = "its signature has no time (claim iat), but that of an earlier bundle has one"
	case b.IssuedAt < active.IssuedAt:
		older = "it was signed before the last active bundle"
	case active.IssuedAt > 0 && b.IssuedAt > active.IssuedAt, b.Revision == last:
	case comparable && order < 0:
		older = "its revision is lower"
	case comparable && order > 0:
	case b.Revision == "":
		older = "it has no revision"
	case slices.Contains(active.Revisions, b.Revision):
		older = "its revision was active before"
	}
	if older == "" {
		return nil
	}
	return fmt.Errorf("revision %q is older than revision %q, which was active: %s\nhint: to go "+
		"back, sign the older policies with a new revision, or set rollback = \"allow\" in "+
		"[policy.bundle.%s]", b.Revision, last, older, p.source.Name)
}

func (p *bundlePoll) readRevisions() (active activeRevisions, err error) {
	f, err := regularfile.Open(p.source.RevisionFile)
	if errors.Is(err, os.ErrNotExist) {
		return activeRevisions{}, nil
	}
	if err != nil {
		return activeRevisions{}, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxRevisionFile+1))
	switch {
	case err != nil:
	case len(raw) > maxRevisionFile:
		err = fmt.Errorf("the file has more than %d bytes", maxRevisionFile)
	default:
		err = json.Unmarshal(raw, &active)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", p.source.RevisionFile, err)
	}
	return active, err
}

// keepRevision adds the revision of an active bundle to the revision file. An error is only logged.
func (p *bundlePoll) keepRevision(b *policies.Bundle) {
	if p.source.RevisionFile == "" || b == nil {
		return
	}
	active, err := p.readRevisions()
	if err == nil {
		if n := len(active.Revisions); n > 0 && active.Revisions[n-1] == b.Revision &&
			active.IssuedAt == b.IssuedAt {
			return
		}
		active.Revisions = append(slices.DeleteFunc(active.Revisions, func(r string) bool {
			return r == b.Revision
		}), b.Revision)
		active.Revisions = active.Revisions[max(0, len(active.Revisions)-maxRevisions):]
		active.IssuedAt = max(active.IssuedAt, b.IssuedAt)
		var raw []byte
		if raw, err = json.Marshal(active); err == nil {
			if err = os.MkdirAll(filepath.Dir(p.source.RevisionFile), 0o700); err == nil {
				err = atomicfile.Write(p.source.RevisionFile, raw)
			}
		}
	}
	if err != nil {
		p.log.Error("revision not kept: an older bundle could become active",
			"file", p.source.RevisionFile, "error", err)
	}
}

// orderedRevision matches revisions that can be ordered: numbers, versions and times.
var orderedRevision = regexp.MustCompile(`^v?[0-9]+([.:TZ+_-][0-9]+)*Z?$`)

var digits = regexp.MustCompile(`[0-9]+`)

// compareRevisions compares two revisions number by number. They are comparable if both are numbers
// or versions, or if both are times of the same form.
func compareRevisions(a, b string) (order int, comparable bool) {
	if !orderedRevision.MatchString(a) || !orderedRevision.MatchString(b) {
		return 0, false
	}
	if digits.ReplaceAllString(a, "0") != digits.ReplaceAllString(b, "0") &&
		(strings.Trim(a, "v0123456789.") != "" || strings.Trim(b, "v0123456789.") != "") {
		return 0, false
	}
	x, y := digits.FindAllString(a, -1), digits.FindAllString(b, -1)
	return slices.CompareFunc(x, y, func(m, n string) int {
		m, n = strings.TrimLeft(m, "0"), strings.TrimLeft(n, "0")
		if len(m) != len(n) {
			return len(m) - len(n)
		}
		return strings.Compare(m, n)
	}), true
}
