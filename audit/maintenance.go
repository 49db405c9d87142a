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
	checkpointInterval    = time.Second // a record has a checkpoint after that long
	checkpointRecords     = 1000        // or when that many have none, though not more often than
	checkpointMinInterval = 200 * time.Millisecond

	// maxUnsignedFailing is how many records may have no checkpoint, because that cannot be written,
	// before there can be no more records: then the log is not evidence. A disk that is only slow
	// may be behind by maxBehind; each record takes 32 bytes of memory until then.
	maxUnsignedFailing = 1 << 16
	maxUnsigned        = 1 << 22

	anchorTimeout = 5 * time.Second // for the last Anchor, and for the anchor file
)

// maintenance is what is done beside writing: the tree over the records and its checkpoints, the files
// whose time is over, a look at the clock and at whose file it is. While nothing is recorded there
// is nothing to be done but what comes with time.
type maintenance struct {
	log       *Log
	logger    *slog.Logger
	path      string // of the log
	dir       string // of the tree
	retention Retention
	origin    string
	key       note.Signer

	leafHasher hash.Hash // log.mu is held
	leafHash   tlog.Hash // of leaves

	mu                sync.Mutex // may be taken while log.writing is; nothing is taken while it is held
	tree              *tree
	signed            int64       // size of the last checkpoint
	timer             *time.Timer // nil before start
	scheduled         bool        // the timer is set, or will be by start
	expedited         bool        // to as soon as may be
	rotatedSincePrune bool        // a segment was begun since files were looked at
	checkpointErr     error       // of the last checkpoint
	fileErr           error       // whose file it is that is written: no longer ours
	pruneErr          error       // of removing files
	anchors           anchors

	runMu         sync.Mutex // held while work is done; before all others
	stopped       bool
	cleanClose    bool          // nothing but what the last checkpoint speaks for is in the log
	partialOnDisk map[int]int64 // by level, the tile that is on the disk in part
	lastClock     time.Time     // at the last look, as the wall had it
	lastPrune     time.Time     // when files were looked at
}

// newMaintenance makes the tree of a log that ends like this, or continues it. It answers the checkpoint
// that the log goes on from, too.
func newMaintenance(l *Log, o Options, end logEnd) (u *maintenance, from *Checkpoint, err error) {
	u = &maintenance{log: l, logger: l.logger, path: o.File, dir: o.File + ".tree", retention: o.Keep,
		leafHasher: sha256.New(), rotatedSincePrune: true, lastClock: time.Now().Round(0), scheduled: true, expedited: true,
		anchors: anchors{file: o.AnchorFile, publish: o.OnCheckpoint}}
	path := o.Key
	if path == "" {
		path = o.File + ".key"
	}
	before := exists(path) && o.Key == "" || exists(PublicKeyFile(o.File))
	private, key, public, err := readOrCreateKey(path)
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
	if u.tree, from, err = restoreTree(o.File, verifier, end); err != nil {
		return nil, nil, err
	}
	begins := from == nil
	if begins {
		from = &Checkpoint{Origin: newOrigin(key.Name()), Root: u.tree.root()}
		if before {
			u.logger.Warn("a new audit log begins, and the key of one is there already: was one "+
				"taken away?", "file", o.File)
		}
	}
	if err := u.checkAnchor(from.Origin, verifier, end.head.seq); err != nil {
		return nil, nil, err
	}
	if begins || from.Closed {
		from.Closed = false
		if err := u.writeCheckpoint(from); err != nil {
			return nil, nil, fmt.Errorf("write its checkpoint: %w", err)
		}
	}
	u.origin, u.signed = from.Origin, from.Size
	if b, err := os.ReadFile(originFile(u.dir)); err != nil || string(b) != u.origin+"\n" {
		if err := atomicfile.Write(originFile(u.dir), []byte(u.origin+"\n")); err != nil {
			return nil, nil, err
		}
	}
	l.valueHasher = newValueHasher(private, u.origin)
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

// writeCheckpoint signs a checkpoint and puts it in the place of the last one. When it returns nil, that
// outlasts a power cut.
func (u *maintenance) writeCheckpoint(c *Checkpoint) error {
	if err := c.sign(u.key); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(u.dir, "checkpoint"), c.Note)
}

// start begins: what was there before may have work to be done.
func (u *maintenance) start() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.scheduled, u.expedited = true, false
	u.timer = time.AfterFunc(checkpointInterval, u.run)
}

// hashLeaf is the hash of a record in the tree. log.mu is held.
func (u *maintenance) hashLeaf(line []byte) tlog.Hash {
	u.leafHasher.Reset()
	u.leafHasher.Write([]byte{0}) // RFC 6962: a leaf, and not an inner node
	u.leafHasher.Write(line)
	u.leafHasher.Sum(u.leafHash[:0])
	return u.leafHash
}

// addLeaves takes the hashes of records that were written, in their order.
func (u *maintenance) addLeaves(leaves []tlog.Hash) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, h := range leaves {
		u.tree.append(h)
	}
	switch many := u.tree.size-u.signed >= checkpointRecords; {
	case many && !u.expedited:
		u.expedited, u.scheduled = true, true
		u.timer.Reset(checkpointMinInterval)
	case !u.scheduled:
		u.scheduled = true
		u.timer.Reset(checkpointInterval)
	}
}

// checkUnsigned is an error when so many records have no checkpoint that there may be no more.
func (u *maintenance) checkUnsigned() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := u.tree.size - u.signed; n >= maxUnsignedFailing && u.checkpointErr != nil || n >= maxUnsigned {
		return fmt.Errorf("%d records have no checkpoint, which cannot be written to %s", n, u.dir)
	}
	return nil
}

// noteRotation is told when a segment was begun.
func (u *maintenance) noteRotation() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rotatedSincePrune = true
}

// run is what the timer does.
func (u *maintenance) run() {
	u.runMu.Lock()
	defer u.runMu.Unlock()
	if u.stopped {
		return
	}
	u.mu.Lock()
	u.scheduled, u.expedited = false, false
	u.mu.Unlock()
	u.checkFile()
	u.checkClock()
	u.reportCheckpoint(u.checkpoint())
	u.writeAnchorFile()
	u.prune()
	u.scheduleNext()
}

// scheduleNext sees to it that there is another run when it is time for something that waits for no record.
func (u *maintenance) scheduleNext() {
	u.mu.Lock()
	defer u.mu.Unlock()
	in := u.nextAnchorWrite()
	if u.retention.For > 0 {
		next := max(time.Millisecond, pruneInterval-time.Since(u.lastPrune))
		if in == 0 || next < in {
			in = next
		}
	}
	if in > 0 && !u.scheduled {
		u.timer.Reset(in)
	}
}

// health is what does not work, though records are written; nil when all does.
func (u *maintenance) health() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for _, f := range []struct {
		what string
		err  error
	}{{"", u.fileErr}, {"write a checkpoint: ", u.checkpointErr}, {"anchor a checkpoint: ", u.anchors.err},
		{"remove files whose time is over: ", u.pruneErr}} {
		if f.err != nil {
			errs = append(errs, fmt.Errorf("%s%w", f.what, f.err))
		}
	}
	return errors.Join(errs...)
}

// reportCheckpoint reports when checkpoints begin to fail and when they work again, and sees to it that another
// is tried.
func (u *maintenance) reportCheckpoint(err error) {
	u.mu.Lock()
	before := u.checkpointErr
	u.checkpointErr = err
	if err != nil {
		u.scheduled = true
		u.timer.Reset(checkpointInterval)
	}
	u.mu.Unlock()
	switch {
	case err != nil && before == nil:
		u.logger.Error("the audit log's checkpoint cannot be written; records go on for a while",
			"error", err)
	case err == nil && before != nil:
		u.logger.Info("the audit log's checkpoints are written again")
	}
}

// checkpoint signs what the tree is now, if it has grown. Order matters: what is signed is on the
// disk before, so that a power cut leaves no checkpoint that speaks of more than there is.
func (u *maintenance) checkpoint() error {
	u.mu.Lock()
	size, grown := u.tree.size, u.tree.size > u.signed
	if !grown && !u.stopped {
		u.mu.Unlock()
		return nil
	}
	c := Checkpoint{Origin: u.origin, Size: size, Root: u.tree.root(), Closed: u.cleanClose}
	full := u.tree.fullTiles
	tiles := append(full[:len(full):len(full)], u.tree.partialTiles()...)
	u.mu.Unlock()

	if err := u.log.syncFile(); err != nil {
		return err
	}
	if u.partialOnDisk == nil {
		// those that the process before has begun are the first that get full
		u.partialOnDisk = map[int]int64{}
	}
	for _, t := range tiles {
		if err := writeTile(u.dir, t); err != nil {
			return err
		}
		n, known := u.partialOnDisk[t.L]
		switch {
		case t.W < tileWidth:
			u.partialOnDisk[t.L] = t.N
		case !known || n == t.N:
			// most of those that get full in a hurry were never begun on the disk
			if err := removePartialTiles(u.dir, t.Tile); err != nil {
				return err
			}
			u.partialOnDisk[t.L] = -1
		}
	}
	if err := u.writeCheckpoint(&c); err != nil {
		return err
	}
	u.mu.Lock()
	u.tree.fullTiles = append([]tile(nil), u.tree.fullTiles[len(full):]...)
	u.signed = size
	u.mu.Unlock()
	if grown {
		u.queueAnchor(c.Note)
	}
	return nil
}

// syncFile sees to it that what was written is on the disk.
func (l *Log) syncFile() error {
	l.writing <- struct{}{}
	f := l.files.current
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

// checkFile stops the log when its file is no longer its own.
func (u *maintenance) checkFile() {
	u.log.writing <- struct{}{}
	defer func() { <-u.log.writing }()
	u.log.checkFile()
}

// reportLostFile is told that the file is no longer the log's.
func (u *maintenance) reportLostFile(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fileErr = err
	u.logger.Error("the audit log was lost, messages are denied", "error", err)
}

// checkClock records that the clock was set back. Later records then have earlier times than those
// before them: their numbers say the order.
func (u *maintenance) checkClock() {
	now := time.Now().Round(0) // the wall's time alone
	if back := u.lastClock.Sub(now); back > 0 {
		if err := u.log.recordEvent("clock", clockReason(back)); err != nil && !errors.Is(err, errClosed) {
			u.logger.Error("record that the clock was set back", "error", err)
		}
	}
	u.lastClock = now
}

func clockReason(by time.Duration) string {
	return fmt.Sprintf("the clock was set back by %s: seq is the order of records, not time",
		by.Round(time.Millisecond))
}

// stop makes the last checkpoint, and waits for what was begun.
func (u *maintenance) stop() error {
	u.runMu.Lock()
	defer u.runMu.Unlock()
	if u.stopped {
		return nil
	}
	u.stopped, u.cleanClose = true, u.log.isWhole()
	u.timer.Stop()
	err := u.checkpoint()
	if err != nil {
		err = fmt.Errorf("write the last checkpoint of the audit log: %w", err)
	}
	if aerr := u.writeAnchorFile(); aerr != nil {
		err = errors.Join(err, fmt.Errorf("anchor the last checkpoint of the audit log: %w", aerr))
	}
	u.mu.Lock()
	calls := u.anchors.publishing
	u.mu.Unlock()
	if calls != nil {
		select {
		case <-calls:
		case <-time.After(anchorTimeout):
			err = errors.Join(err, fmt.Errorf("the last checkpoint of the audit log was not "+
				"anchored within %s", anchorTimeout))
		}
	}
	return err
}
