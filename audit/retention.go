package audit

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"time"
)

// pruneEvery is how often files are looked at while none is begun.
const pruneEvery = time.Minute

// prune removes the files whose time is over. That it does is a record before it does it, so that
// who verifies the log knows that nobody else has removed them; and what the tree needs of their
// records is on the disk, in tiles.
func (u *upkeep) prune() {
	if u.keep == (Retention{}) {
		return
	}
	u.mu.Lock()
	turned, signed := u.turned, u.signed
	u.turned = false
	u.mu.Unlock()
	if !turned && time.Since(u.pruned) < pruneEvery {
		return
	}
	u.pruned = time.Now()
	err := u.age()
	var over []segment
	if err == nil {
		over, err = u.over(signed)
	}
	if err == nil && len(over) > 0 {
		err = u.remove(over)
	}
	u.mu.Lock()
	u.stuck = err
	u.mu.Unlock()
	if err != nil {
		u.report.Error("remove files of the audit log whose time is over", "error", err)
	}
}

// age begins another file when the one that is written begins with a record whose time is over:
// else a log with few records would keep them for ever.
func (u *upkeep) age() error {
	if u.keep.For <= 0 {
		return nil
	}
	l := u.log
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if l.size == 0 || l.torn || l.gone != nil {
		return nil
	}
	start := make([]byte, 256) // more than the beginning of a line
	if n, err := l.files.f.ReadAt(start, 0); n == 0 {
		return err
	}
	_, text, _ := bytes.Cut(start, []byte(`,"time":"`))
	text, _, _ = bytes.Cut(text, []byte(`"`))
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil || time.Since(at) <= u.keep.For {
		return err
	}
	return l.turn()
}

// segment is a file of the log that is written no more.
type segment struct {
	name        string
	first, last uint64
	size        int64
	written     time.Time
}

// over are the files whose time is over, oldest first. Only those are removed whose records are all
// in tiles that are full.
func (u *upkeep) over(signed int64) ([]segment, error) {
	names, next, err := u.files()
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
		all[i] = segment{names[i], firstOf(u.path, names[i]), next - 1, info.Size(), info.ModTime()}
		next = all[i].first
		total += info.Size()
	}
	k := u.keep
	for i, s := range all {
		tooMany := k.Files > 0 && len(all)-i > k.Files
		tooLarge := k.Bytes > 0 && total > k.Bytes
		tooOld := k.For > 0 && time.Since(s.written) > k.For
		if !tooMany && !tooLarge && !tooOld || s.last > uint64(signed)/tileWidth*tileWidth {
			return all[:i], nil
		}
		total -= s.size
	}
	return all, nil
}

// files are those of the log, and the number of the first record in the one that is written, or of
// the one that will be.
func (u *upkeep) files() (names []string, next uint64, err error) {
	l := u.log
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if l.gone != nil || l.files.away {
		return nil, 0, nil // there is none that is written
	}
	if names, err = Segments(u.path); err != nil {
		return nil, 0, err
	}
	if l.size == 0 {
		return names, l.Committed() + 1, nil
	}
	next, err = firstLine(l.files.f)
	return names, next, err
}

// remove removes files, after it has recorded that.
func (u *upkeep) remove(over []segment) error {
	first, last := over[0].first, over[len(over)-1].last
	if err := syncTiles(u.dir, first, last); err != nil {
		return err
	}
	seq, err := u.log.span("prune",
		fmt.Sprintf("the time of records %d to %d is over: their files are removed", first, last),
		first, last)
	if err != nil {
		return err
	}
	if err := u.settled(seq); err != nil {
		return err
	}
	for _, s := range over {
		if err := os.Remove(s.name); err != nil {
			return err
		}
	}
	u.report.Info("files of the audit log were removed: their time is over", "files", len(over),
		"through", last)
	return nil
}

// settled waits until a record is written, which with Async is after it was answered for, and makes
// a checkpoint of it: only then is it on the disk, and believed.
func (u *upkeep) settled(seq uint64) error {
	for tries := 0; u.log.Committed() < seq; tries++ {
		if tries == 500 {
			return fmt.Errorf("record %d waits to be written", seq)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return u.checkpoint()
}

// removals are what the records of a log say about its files. A record of the action "prune" is
// believed when a checkpoint speaks for it, and when that is not only because the record was found
// at a start: before files are removed there is a checkpoint.
type removals struct {
	pruned    []pruned
	recovered []SeqRange
}

// pruned is a record of the action "prune".
type pruned struct{ seq, through uint64 }

// SeqRange is records of a log, from one to another.
type SeqRange struct{ From, Through uint64 }

// see takes note of a line.
func (m *removals) see(line []byte) {
	if !bytes.Contains(line, []byte(`,"action":"prune"`)) && !bytes.Contains(line,
		[]byte(`,"action":"recovered"`)) {
		return
	}
	r, err := ParseRecord(line) // or it is the text of a message
	switch {
	case err != nil:
	case r.Action == "prune":
		m.pruned = append(m.pruned, pruned{r.Seq, r.Through})
	case r.Action == "recovered" && r.From > 0 && r.From <= r.Through && r.Through < r.Seq:
		m.recovered = append(m.recovered, SeqRange{r.From, r.Through})
	}
}

// through is up to which record the files may be missing, as the first records up to signed say.
func (m *removals) through(signed int64) (through uint64) {
	for _, p := range m.pruned {
		found := slices.ContainsFunc(m.recovered, func(s SeqRange) bool {
			return s.From <= p.seq && p.seq <= s.Through
		})
		if p.seq <= uint64(signed) && p.through < p.seq && !found {
			through = max(through, p.through)
		}
	}
	return through
}
