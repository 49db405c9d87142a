package audit

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"gatekit/core/atomicfile"
)

const (
	checkpointEvery   = time.Second // a record has a checkpoint after that long
	checkpointRecords = 1000        // or when that many have none, though not more often than
	checkpointPause   = 200 * time.Millisecond

	// maxUnsigned is how many records may have no checkpoint, because that cannot be written,
	// before there can be no more records: then the log is not evidence. A disk that is only slow
	// may be behind by maxBehind; each record takes 32 bytes of memory until then.
	maxUnsigned = 1 << 16
	maxBehind   = 1 << 22

	anchorWait = 5 * time.Second // for the last Anchor, and for the anchor file
)

// upkeep is what is done beside writing: the tree over the records and its checkpoints, the files
// whose time is over, a look at the clock and at whose file it is. While nothing is recorded there
// is nothing to be done but what comes with time.
type upkeep struct {
	log    *Log
	report *slog.Logger
	path   string // of the log
	dir    string // of the tree
	keep   Retention
	origin string
	key    note.Signer

	leaves hash.Hash // log.mu is held
	sum    tlog.Hash // of leaves

	mu      sync.Mutex // may be taken while log.writing is; nothing is taken while it is held
	tree    *tree
	signed  int64       // size of the last checkpoint
	timer   *time.Timer // nil before start
	due     bool        // the timer is set, or will be by start
	hurried bool        // to as soon as may be
	turned  bool        // a segment was begun since files were looked at
	failing error       // of the last checkpoint
	gone    error       // whose file it is that is written: no longer ours
	stuck   error       // of removing files
	anchors anchors

	working sync.Mutex // held while work is done; before all others
	ended   bool
	closed  bool          // nothing but what the last checkpoint speaks for is in the log
	begun   map[int]int64 // by level, the tile that is on the disk in part
	clock   time.Time     // at the last look, as the wall had it
	pruned  time.Time     // when files were looked at
}

// newUpkeep makes the tree of a log that ends like this, or continues it. It answers the checkpoint
// that the log goes on from, too.
func newUpkeep(l *Log, o Options, end ending) (u *upkeep, from *Checkpoint, err error) {
	u = &upkeep{log: l, report: l.report, path: o.File, dir: o.File + ".tree", keep: o.Keep,
		leaves: sha256.New(), turned: true, clock: time.Now().Round(0), due: true, hurried: true,
		anchors: anchors{file: o.AnchorFile, call: o.OnCheckpoint}}
	path := o.Key
	if path == "" {
		path = o.File + ".key"
	}
	before := exists(path) && o.Key == "" || exists(PublicKeyFile(o.File))
	private, key, public, err := openKey(path)
	if err != nil {
		return nil, nil, err
	}
	u.key = key
	if err := os.MkdirAll(u.dir, 0o700); err != nil {
		return nil, nil, err
	}
	if err := atomicfile.Sync(filepath.Dir(u.dir)); err != nil {
		return nil, nil, err
	}
	if old, err := os.ReadFile(PublicKeyFile(o.File)); err != nil || string(old) != public+"\n" {
		if err := atomicfile.Write(PublicKeyFile(o.File), []byte(public+"\n")); err != nil {
			return nil, nil, err
		}
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return nil, nil, err
	}
	if u.tree, from, err = continueTree(o.File, verifier, end); err != nil {
		return nil, nil, err
	}
	begins := from == nil
	if begins {
		from = &Checkpoint{Origin: newOrigin(key.Name()), Root: u.tree.root()}
		if before {
			u.report.Warn("a new audit log begins, and the key of one is there already: was one "+
				"taken away?", "file", o.File)
		}
	}
	if err := u.heldToAnchor(from.Origin, verifier, end.head.seq); err != nil {
		return nil, nil, err
	}
	if begins || from.Closed {
		from.Closed = false
		if err := u.put(from); err != nil {
			return nil, nil, fmt.Errorf("write its checkpoint: %w", err)
		}
	}
	u.origin, u.signed = from.Origin, from.Size
	if b, err := os.ReadFile(originFile(u.dir)); err != nil || string(b) != u.origin+"\n" {
		if err := atomicfile.Write(originFile(u.dir), []byte(u.origin+"\n")); err != nil {
			return nil, nil, err
		}
	}
	l.values = newValues(private, u.origin)
	return u, from, nil
}

// exists says whether there is such a file.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// newOrigin is that of a log that begins.
func newOrigin(signer string) string {
	epoch := make([]byte, 8)
	rand.Read(epoch)
	return signer + "/" + hex.EncodeToString(epoch)
}

// originFile is where the origin of a log is, for who has its key and looks for values.
func originFile(dir string) string { return filepath.Join(dir, "origin") }

// put signs a checkpoint and puts it in the place of the last one. When it returns nil, that
// outlasts a power cut.
func (u *upkeep) put(c *Checkpoint) error {
	if err := c.sign(u.key); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(u.dir, "checkpoint"), c.Note)
}

// start begins: what was there before may have work to be done.
func (u *upkeep) start() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.due, u.hurried = true, false
	u.timer = time.AfterFunc(checkpointEvery, u.run)
}

// leaf is the hash of a record in the tree. log.mu is held.
func (u *upkeep) leaf(line []byte) tlog.Hash {
	u.leaves.Reset()
	u.leaves.Write([]byte{0}) // RFC 6962: a leaf, and not an inner node
	u.leaves.Write(line)
	u.leaves.Sum(u.sum[:0])
	return u.sum
}

// add takes the hashes of records that were written, in their order.
func (u *upkeep) add(leaves []tlog.Hash) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, h := range leaves {
		u.tree.append(h)
	}
	switch many := u.tree.size-u.signed >= checkpointRecords; {
	case many && !u.hurried:
		u.hurried, u.due = true, true
		u.timer.Reset(checkpointPause)
	case !u.due:
		u.due = true
		u.timer.Reset(checkpointEvery)
	}
}

// behind is an error when so many records have no checkpoint that there may be no more.
func (u *upkeep) behind() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := u.tree.size - u.signed; n >= maxUnsigned && u.failing != nil || n >= maxBehind {
		return fmt.Errorf("%d records have no checkpoint, which cannot be written to %s", n, u.dir)
	}
	return nil
}

// rotated is told when a segment was begun.
func (u *upkeep) rotated() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.turned = true
}

// run is what the timer does.
func (u *upkeep) run() {
	u.working.Lock()
	defer u.working.Unlock()
	if u.ended {
		return
	}
	u.mu.Lock()
	u.due, u.hurried = false, false
	u.mu.Unlock()
	u.lookAtFile()
	u.lookAtClock()
	u.said(u.checkpoint())
	u.anchorFile()
	u.prune()
	u.rest()
}

// rest sees to it that there is another run when it is time for something that waits for no record.
func (u *upkeep) rest() {
	u.mu.Lock()
	defer u.mu.Unlock()
	in := u.anchorIn()
	if u.keep.For > 0 {
		next := max(time.Millisecond, pruneEvery-time.Since(u.pruned))
		if in == 0 || next < in {
			in = next
		}
	}
	if in > 0 && !u.due {
		u.timer.Reset(in)
	}
}

// fault is what does not work, though records are written; nil when all does.
func (u *upkeep) fault() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for _, f := range []struct {
		what string
		err  error
	}{{"", u.gone}, {"write a checkpoint: ", u.failing}, {"anchor a checkpoint: ", u.anchors.err},
		{"remove files whose time is over: ", u.stuck}} {
		if f.err != nil {
			errs = append(errs, fmt.Errorf("%s%w", f.what, f.err))
		}
	}
	return errors.Join(errs...)
}

// said reports when checkpoints begin to fail and when they work again, and sees to it that another
// is tried.
func (u *upkeep) said(err error) {
	u.mu.Lock()
	before := u.failing
	u.failing = err
	if err != nil {
		u.due = true
		u.timer.Reset(checkpointEvery)
	}
	u.mu.Unlock()
	switch {
	case err != nil && before == nil:
		u.report.Error("the audit log's checkpoint cannot be written; records go on for a while",
			"error", err)
	case err == nil && before != nil:
		u.report.Info("the audit log's checkpoints are written again")
	}
}

// checkpoint signs what the tree is now, if it has grown. Order matters: what is signed is on the
// disk before, so that a power cut leaves no checkpoint that speaks of more than there is.
func (u *upkeep) checkpoint() error {
	u.mu.Lock()
	size, grown := u.tree.size, u.tree.size > u.signed
	if !grown && !u.ended {
		u.mu.Unlock()
		return nil
	}
	c := Checkpoint{Origin: u.origin, Size: size, Root: u.tree.root(), Closed: u.closed}
	full := u.tree.full
	tiles := append(full[:len(full):len(full)], u.tree.partial()...)
	u.mu.Unlock()

	if err := u.log.sync(); err != nil {
		return err
	}
	if u.begun == nil {
		// those that the process before has begun are the first that get full
		u.begun = map[int]int64{}
	}
	for _, t := range tiles {
		if err := writeTile(u.dir, t); err != nil {
			return err
		}
		n, known := u.begun[t.L]
		switch {
		case t.W < tileWidth:
			u.begun[t.L] = t.N
		case !known || n == t.N:
			// most of those that get full in a hurry were never begun on the disk
			if err := removeBegun(u.dir, t.Tile); err != nil {
				return err
			}
			u.begun[t.L] = -1
		}
	}
	if err := u.put(&c); err != nil {
		return err
	}
	u.mu.Lock()
	u.tree.full = append([]tile(nil), u.tree.full[len(full):]...)
	u.signed = size
	u.mu.Unlock()
	if grown {
		u.anchor(c.Note)
	}
	return nil
}

// sync sees to it that what was written is on the disk.
func (l *Log) sync() error {
	l.writing <- struct{}{}
	f := l.files.f
	<-l.writing
	if l.durability == DurabilityFsync {
		return nil
	}
	// closed it is when it was rotated, and that is after it was synced
	if err := f.Sync(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// lookAtFile stops the log when its file is no longer its own.
func (u *upkeep) lookAtFile() {
	u.log.writing <- struct{}{}
	defer func() { <-u.log.writing }()
	u.log.ours()
}

// lost is told that the file is no longer the log's.
func (u *upkeep) lost(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gone = err
	u.report.Error("the audit log was lost, messages are denied", "error", err)
}

// lookAtClock records that the clock was set back. Later records then have earlier times than those
// before them: their numbers say the order.
func (u *upkeep) lookAtClock() {
	now := time.Now().Round(0) // the wall's time alone
	if back := u.clock.Sub(now); back > 0 {
		if err := u.log.event("clock", setBack(back)); err != nil && !errors.Is(err, errClosed) {
			u.report.Error("record that the clock was set back", "error", err)
		}
	}
	u.clock = now
}

func setBack(by time.Duration) string {
	return fmt.Sprintf("the clock was set back by %s: seq is the order of records, not time",
		by.Round(time.Millisecond))
}

// stop makes the last checkpoint, and waits for what was begun.
func (u *upkeep) stop() error {
	u.working.Lock()
	defer u.working.Unlock()
	if u.ended {
		return nil
	}
	u.ended, u.closed = true, u.log.whole()
	u.timer.Stop()
	err := u.checkpoint()
	if err != nil {
		err = fmt.Errorf("write the last checkpoint of the audit log: %w", err)
	}
	if aerr := u.anchorFile(); aerr != nil {
		err = errors.Join(err, fmt.Errorf("anchor the last checkpoint of the audit log: %w", aerr))
	}
	u.mu.Lock()
	calls := u.anchors.calls
	u.mu.Unlock()
	if calls != nil {
		select {
		case <-calls:
		case <-time.After(anchorWait):
			err = errors.Join(err, fmt.Errorf("the last checkpoint of the audit log was not "+
				"anchored within %s", anchorWait))
		}
	}
	return err
}
