package audit

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"gatekit/core/pipeline"
)

// pruneEvery is how often files are looked at while none is begun.
const pruneEvery = time.Minute

// prune removes the files whose time is over. That it does is a record before it does it, so that who verifies the log knows that nobody else has removed them; and what the tree
// needs of their records is on the disk, in tiles.
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
	over, err := u.over(signed)
	if err == nil && len(over) > 0 {
		err = u.remove(over)
	}
	if err != nil {
		u.report.Error("remove files of the audit log whose time is over", "error", err)
	}
}

// segment is a file of the log that is written no more.
type segment struct {
	name        string
	first, last uint64
	size        int64
	written     time.Time
}

// over are the files whose time is over, oldest first. Only those are removed whose records are all in tiles that are full.
func (u *upkeep) over(signed int64) ([]segment, error) {
	names, err := Segments(u.path)
	if err != nil || len(names) < 2 {
		return nil, err
	}
	live, err := os.Open(u.path)
	if err != nil {
		return nil, err
	}
	next, err := firstLine(live)
	live.Close()
	if err != nil {
		return nil, nil // it was just begun
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

// remove removes files, after it has recorded that.
func (u *upkeep) remove(over []segment) error {
	first, last := over[0].first, over[len(over)-1].last
	if err := syncTiles(u.dir, first, last); err != nil {
		return err
	}
	e := u.log.encode(pipeline.Outcome{Time: time.Now(), Action: "prune",
		Reason: fmt.Sprintf("the time of records %d to %d is over: their files are removed", first, last)})
	e.rest = fmt.Appendf(e.rest[:len(e.rest)-1], `,"through":%d}`, last)
	if _, err := u.log.record(e); err != nil {
		return err
	}
	for _, s := range over {
		if err := os.Remove(s.name); err != nil {
			return err
		}
	}
	u.report.Info("files of the audit log were removed: their time is over", "files", len(over), "through", last)
	return nil
}

// pruneIn is through which record the files may be missing, when the line is a record of that; otherwise 0.
func pruneIn(line []byte) uint64 {
	if !bytes.Contains(line, []byte(`,"action":"prune"`)) {
		return 0
	}
	r, err := ParseRecord(line) // or it is the text of a message
	if err != nil || r.Action != "prune" {
		return 0
	}
	return r.Through
}
