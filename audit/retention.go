package audit

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"time"
)

// pruneInterval is how often retention is applied while no segment is added.
const pruneInterval = time.Minute

// updateAges adds the time since the last run to the ages of the segments.
func (m *maintenance) updateAges() {
	if m.ages == nil {
		return
	}
	m.mu.Lock()
	size := m.tree.size
	m.mu.Unlock()
	m.ages.update(size)
}

// prune removes expired segments. Before that, it writes a record of the removal. This record shows
// Verification that Gatekit, and nobody else, removed the segments. prune also syncs the tiles of
// the removed records, because the tree still needs these tiles.
func (m *maintenance) prune() {
	if m.retention == (Retention{}) {
		return
	}
	m.mu.Lock()
	rotated, signed := m.rotatedSincePrune, m.signedSize
	m.rotatedSincePrune = false
	m.mu.Unlock()
	if !rotated && time.Since(m.lastPrune) < pruneInterval {
		return
	}
	m.lastPrune = time.Now()
	err := m.agesErr
	if err == nil {
		err = m.rotateAged()
	}
	var expired []segment
	if err == nil {
		expired, err = m.expiredSegments(signed)
	}
	if err == nil && len(expired) > 0 {
		err = m.removeSegments(expired)
	}
	if err == nil && m.ages != nil {
		err = m.ages.saveIfDue(firstRecordSeq(m.path))
	}
	m.mu.Lock()
	m.pruneErr = err
	m.mu.Unlock()
	if err != nil {
		m.logger.Error("removal of expired audit log segments failed", "error", err)
	}
}

// rotateAged starts the next file when the first record of the active file has expired. Otherwise a
// log with few records would never remove a record.
func (m *maintenance) rotateAged() error {
	if m.retention.For <= 0 {
		return nil
	}
	l := m.log
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if l.size == 0 || l.torn || l.fileErr != nil {
		return nil
	}
	first, err := firstSeq(l.files.current)
	if err != nil || m.ages.activeAge(first) <= m.retention.For {
		return err
	}
	return l.rotate()
}

// segment is a file of the log to which nothing is written any more.
type segment struct {
	name        string
	first, last uint64
	size        int64
}

// expiredSegments returns the expired segments, oldest first. signed is the number of records that
// have a checkpoint. A segment does not expire before all of its records are in full tiles.
func (m *maintenance) expiredSegments(signed int64) ([]segment, error) {
	names, next, err := m.listSegments()
	if err != nil || len(names) < 2 {
		return nil, err
	}
	all := make([]segment, len(names)-1)
	var total int64
	for i := len(all) - 1; i >= 0; i-- {
		info, err := os.Stat(names[i])
		if err != nil {
			return nil, err
		}
		all[i] = segment{names[i], segmentFirstSeq(m.path, names[i]), next - 1, info.Size()}
		next = all[i].first
		total += info.Size()
	}
	keep := m.retention
	for i, s := range all {
		tooMany := keep.Files > 0 && len(all)-i > keep.Files
		tooLarge := keep.Bytes > 0 && total > keep.Bytes
		tooOld := keep.For > 0 && m.ages.age(s.first) > keep.For
		if !tooMany && !tooLarge && !tooOld || s.last > uint64(signed)/tileWidth*tileWidth {
			return all[:i], nil
		}
		total -= s.size
	}
	return all, nil
}

// listSegments returns the files of the log, the active file last, and the seq of the active file's
// first record. If the active file is empty, next is the seq of the next record.
func (m *maintenance) listSegments() (names []string, next uint64, err error) {
	l := m.log
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if l.fileErr != nil || l.files.renamed {
		return nil, 0, nil // there is no active file
	}
	if names, err = Segments(m.path); err != nil {
		return nil, 0, err
	}
	if l.size == 0 {
		return names, l.Committed() + 1, nil
	}
	next, err = firstSeq(l.files.current)
	return names, next, err
}

// removeSegments writes a record of the removal, and then removes the segments.
func (m *maintenance) removeSegments(expired []segment) error {
	first, last := expired[0].first, expired[len(expired)-1].last
	if err := syncTiles(m.dir, first, last); err != nil {
		return err
	}
	seq, err := m.log.recordRange("prune",
		fmt.Sprintf("records %d to %d expired: their files are removed", first, last),
		first, last)
	if err != nil {
		return err
	}
	if err := m.waitForCheckpoint(seq); err != nil {
		return err
	}
	for _, s := range expired {
		if err := os.Remove(s.name); err != nil {
			return err
		}
	}
	m.logger.Info("expired audit log segments removed", "files", len(expired),
		"through", last)
	return nil
}

// waitForCheckpoint waits until the record is written, for at most 5 s, and then makes a checkpoint
// that covers it. With DurabilityAsync, a record is written after Record has returned. Verification
// accepts a removal only if a checkpoint covers its record.
func (m *maintenance) waitForCheckpoint(seq uint64) error {
	for tries := 0; m.log.Committed() < seq; tries++ {
		if tries == 500 {
			return fmt.Errorf("record %d is still waiting to be written", seq)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return m.checkpoint()
}

// pruneHistory collects the removals that the log's records announce. Gatekit makes a checkpoint of
// a "prune" record before it removes a file. So a "prune" record counts only if a checkpoint covers
// it, and no "recovered" record lists it among the records without a checkpoint.
type pruneHistory struct {
	prunes    []pruneRecord
	recovered []SeqRange
}

// pruneRecord is a record with the action "prune".
type pruneRecord struct{ seq, through uint64 }

// SeqRange is a range of records, both ends included.
type SeqRange struct{ From, Through uint64 }

// observe keeps the range of a "prune" or "recovered" record. Other lines are ignored.
func (h *pruneHistory) observe(line []byte) {
	if !bytes.Contains(line, []byte(`,"action":"prune"`)) && !bytes.Contains(line,
		[]byte(`,"action":"recovered"`)) {
		return
	}
	// A body may contain this text, too, so the parsed action decides.
	r, err := ParseRecord(line)
	switch {
	case err != nil:
	case r.Action == "prune":
		h.prunes = append(h.prunes, pruneRecord{r.Seq, r.Through})
	case r.Action == "recovered" && r.From > 0 && r.From <= r.Through && r.Through < r.Seq:
		h.recovered = append(h.recovered, SeqRange{r.From, r.Through})
	}
}

// prunedThrough returns the seq of the last record that Gatekit itself has removed from the
// beginning of the log, or 0. signed is the number of records that a checkpoint covers; only
// "prune" records among them count.
func (h *pruneHistory) prunedThrough(signed int64) (through uint64) {
	for _, p := range h.prunes {
		wasRecovered := slices.ContainsFunc(h.recovered, func(s SeqRange) bool {
			return s.From <= p.seq && p.seq <= s.Through
		})
		if p.seq <= uint64(signed) && p.through < p.seq && !wasRecovered {
			through = max(through, p.through)
		}
	}
	return through
}
