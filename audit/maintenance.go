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
	checkpointInterval    = time.Second           // longest time until a record gets a checkpoint
	checkpointRecords     = 1000                  // so many records do not wait for it
	checkpointMinInterval = 20 * time.Millisecond // shortest time between two checkpoints

	// A log whose checkpoints fail protects its records less and less. After maxUnsignedFailing
	// records without a checkpoint, the log refuses further records. If the last checkpoint was
	// written, and the disk is only slow, the limit is maxUnsigned. Each record without a
	// checkpoint takes 32 bytes of memory.
	maxUnsignedFailing = 1 << 16
	maxUnsigned        = 1 << 22

	// time limit of the last call of OnCheckpoint, and of a write of the anchor file
	anchorTimeout = 5 * time.Second
)

// maintenance does all work of a log except writing records: the Merkle tree and its checkpoints,
// retention, and checks of the clock and of the active file's identity. A timer starts each run.
// The timer is set only when there is something to do.
type maintenance struct {
	log       *Log
	logger    *slog.Logger
	path      string // of the log's active file
	dir       string // of the tree
	retention Retention
	origin    string
	key       note.Signer

	leafHasher hash.Hash // guarded by Log.mu
	leafHash   tlog.Hash // result of leafHasher; guarded by Log.mu

	// mu may be locked while Log.writing is held. While mu is held, no other lock is taken.
	mu                sync.Mutex
	tree              *tree
	signedSize        int64       // size of the last checkpoint
	signedRoot        tlog.Hash   // root hash of the last checkpoint
	fileEnd           FileEnd     // of the file with the last record
	newFile           bool        // the next record is the first of a file
	timer             *time.Timer // nil until start is called
	scheduled         bool        // the timer is set for records, or start will set it
	expedited         bool        // the timer is set to the earliest allowed time, or run sets it
	lastRunEnd        time.Time   // when the last run ended
	rotatedSincePrune bool        // a segment was added since the last prune
	checkpointErr     error       // of the last checkpoint, nil if it was written
	fileErr           error       // why the log ended; see Log.fileErr
	pruneErr          error       // of the last prune, nil if it succeeded
	anchors           anchors

	runMu         sync.Mutex // held during a run; taken before all other locks
	stopped       bool
	cleanClose    bool          // the last checkpoint covers all records
	partialOnDisk map[int]int64 // number of the partial tile on the disk, by level; -1 for none
	lastClock     time.Time     // wall clock at the last run
	lastRun       time.Time     // the same moment, with the monotonic clock
	lastSuspended time.Duration // suspendedTime at the last run
	lastPrune     time.Time     // when retention was last applied
	ages          *ages         // nil without Retention.For, or if agesErr is set
	agesErr       error         // why there are no ages
	uncounted     time.Duration // part of the time before Open that no segment has aged
}

// newMaintenance restores the tree of an existing log, or starts the tree of a new log. It also
// returns the checkpoint that the log continues from.
func newMaintenance(l *Log, o Options,
	end logEnd) (m *maintenance, continued *Checkpoint, err error) {
	m = &maintenance{
		log: l, logger: l.logger, path: o.File, dir: o.File + ".tree", retention: o.Keep,
		leafHasher: sha256.New(), lastClock: time.Now().Round(0), lastRun: time.Now(),
		lastSuspended:     suspendedTime(),
		rotatedSincePrune: true, scheduled: true, expedited: true,
		anchors: anchors{file: o.AnchorFile, publish: o.OnCheckpoint},
	}
	path := o.Key
	if path == "" {
		path = o.File + ".key"
	}
	keyExists := exists(path) && o.Key == "" || exists(PublicKeyFile(o.File))
	private, key, public, err := readOrCreateKey(path)
	if err != nil {
		return nil, nil, err
	}
	m.key = key
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, nil, err
	}
	if err := atomicfile.Sync(filepath.Dir(m.dir)); err != nil {
		return nil, nil, err
	}
	if old, err := readFile(PublicKeyFile(o.File)); err != nil || string(old) != public+"\n" {
		if err := atomicfile.Write(PublicKeyFile(o.File), []byte(public+"\n")); err != nil {
			return nil, nil, err
		}
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return nil, nil, err
	}
	if m.tree, continued, err = restoreTree(o.File, verifier, end); err != nil {
		return nil, nil, err
	}
	isNew := continued == nil
	if isNew {
		continued = &Checkpoint{Origin: newOrigin(key.Name()), Root: m.tree.root()}
		if keyExists {
			m.logger.Warn("new audit log started, although the key of an older one exists; "+
				"check whether the older log was removed", "file", o.File)
		}
	}
	if err := m.checkAnchor(continued.Origin, verifier, end.head.seq); err != nil {
		return nil, nil, err
	}
	if isNew || continued.Closed {
		continued.Closed = false
		if err := m.writeCheckpoint(continued); err != nil {
			return nil, nil, fmt.Errorf("write the checkpoint: %w", err)
		}
	}
	m.origin, m.signedSize, m.signedRoot = continued.Origin, continued.Size, continued.Root
	m.fileEnd, m.newFile = end.file, end.size == 0
	if b, err := readFile(originFile(m.dir)); err != nil || string(b) != m.origin+"\n" {
		if err := atomicfile.Write(originFile(m.dir), []byte(m.origin+"\n")); err != nil {
			return nil, nil, err
		}
	}
	l.valueHasher = newValueHasher(private, m.origin)
	l.private = private
	if m.retention.For > 0 {
		m.ages, m.uncounted, m.agesErr = readAges(m.path, m.tree.size,
			m.retention.For)
	}
	return m, continued, nil
}

// exists reports whether there is a file at path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// newOrigin returns a random origin for a new log.
func newOrigin(signer string) string {
	epoch := make([]byte, 8)
	rand.Read(epoch)
	return signer + "/" + hex.EncodeToString(epoch)
}

// originFile returns the name of the file with the log's origin. OpenValueHasher reads that file.
func originFile(dir string) string { return filepath.Join(dir, "origin") }

// writeCheckpoint signs a checkpoint and replaces the last checkpoint on the disk. When it returns
// nil, the checkpoint survives a power cut.
func (m *maintenance) writeCheckpoint(c *Checkpoint) error {
	if err := c.sign(m.key); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(m.dir, "checkpoint"), c.Note)
}

// start schedules the first run, because the previous process may have left work to do.
func (m *maintenance) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scheduled, m.expedited = true, false
	m.timer = time.AfterFunc(checkpointInterval, m.run)
}

// hashLeaf returns the Merkle tree hash of a record. Log.mu is held.
func (m *maintenance) hashLeaf(line []byte) tlog.Hash {
	m.leafHasher.Reset()
	m.leafHasher.Write([]byte{0}) // RFC 6962: domain separation between leaves and inner nodes
	m.leafHasher.Write(line)
	m.leafHasher.Sum(m.leafHash[:0])
	return m.leafHash
}

// addLeaves appends the hashes of written records to the tree. size is the length of their lines.
func (m *maintenance) addLeaves(leaves []tlog.Hash, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newFile {
		m.newFile, m.fileEnd = false, FileEnd{First: uint64(m.tree.size) + 1}
	}
	m.fileEnd.Bytes += size
	for _, h := range leaves {
		m.tree.append(h)
	}
	switch many := m.tree.size-m.signedSize >= checkpointRecords; {
	case many && !m.expedited:
		m.expedited, m.scheduled = true, true
		m.timer.Reset(max(0, checkpointMinInterval-time.Since(m.lastRunEnd)))
	case !m.scheduled:
		m.scheduled = true
		m.timer.Reset(checkpointInterval)
	}
}

// checkUnsigned returns an error when so many records have no checkpoint that no further record may
// be written.
func (m *maintenance) checkUnsigned() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.tree.size - m.signedSize; n >= maxUnsignedFailing && m.checkpointErr != nil ||
		n >= maxUnsigned {
		return fmt.Errorf("%d records have no checkpoint: checkpoints cannot be written to %s", n,
			m.dir)
	}
	return nil
}

// noteRotation marks that a segment was added, so that the next prune looks for expired segments.
func (m *maintenance) noteRotation() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rotatedSincePrune, m.newFile = true, true
}

// run does the work that is due. The timer calls run.
func (m *maintenance) run() {
	m.runMu.Lock()
	defer m.runMu.Unlock()
	if m.stopped {
		return
	}
	m.mu.Lock()
	// Records that come during the run must not set the timer to an earlier time: the run would be
	// followed by another one at once. scheduleNext sets the timer for them.
	m.scheduled, m.expedited = false, true
	m.mu.Unlock()
	m.checkFile()
	m.checkClock()
	m.reportCheckpoint(m.checkpoint())
	m.writeAnchorFile()
	m.updateAges()
	m.prune()
	m.scheduleNext()
}

// scheduleNext sets the timer for the work that is to be done even if no further record comes.
func (m *maintenance) scheduleNext() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastRunEnd = time.Now()
	m.expedited = m.tree.size-m.signedSize >= checkpointRecords && m.checkpointErr == nil
	if m.expedited { // these records came during the run
		m.scheduled = true
		m.timer.Reset(checkpointMinInterval)
	}
	delay := m.nextAnchorWrite()
	if m.retention.For > 0 {
		next := max(time.Millisecond, pruneInterval-time.Since(m.lastPrune))
		if delay == 0 || next < delay {
			delay = next
		}
	}
	if delay > 0 && !m.scheduled {
		m.timer.Reset(delay)
	}
}

// health returns the error of the last try of each task of maintenance, or nil if none failed.
func (m *maintenance) health() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, f := range []struct {
		prefix string
		err    error
	}{
		{"", m.fileErr},
		{"write a checkpoint: ", m.checkpointErr},
		{"anchor a checkpoint: ", m.anchors.err},
		{"remove expired segments: ", m.pruneErr},
	} {
		if f.err != nil {
			errs = append(errs, fmt.Errorf("%s%w", f.prefix, f.err))
		}
	}
	return errors.Join(errs...)
}

// reportCheckpoint keeps the result of a checkpoint. It logs the first failure, and the first
// success after failures. It schedules another try after each failure.
func (m *maintenance) reportCheckpoint(err error) {
	m.mu.Lock()
	before := m.checkpointErr
	m.checkpointErr = err
	if err != nil {
		m.scheduled = true
		m.timer.Reset(checkpointInterval)
	}
	m.mu.Unlock()
	switch {
	case err != nil && before == nil:
		m.logger.Error("audit checkpoint failed; messages will be denied when too many records "+
			"have no checkpoint", "error", err)
	case err == nil && before != nil:
		m.logger.Info("audit checkpoints written again")
	}
}

// checkpoint signs the current tree if it has grown or the log is being closed. The records are
// synced before the tree is signed. Otherwise a power cut could leave a checkpoint of records that
// are lost.
func (m *maintenance) checkpoint() error {
	m.mu.Lock()
	size, grown := m.tree.size, m.tree.size > m.signedSize
	if !grown && !m.stopped {
		m.mu.Unlock()
		return nil
	}
	c := Checkpoint{Origin: m.origin, Size: size, Root: m.tree.root(), Closed: m.cleanClose,
		File: m.fileEnd}
	full := m.tree.fullTiles
	tiles := append(full[:len(full):len(full)], m.tree.partialTiles()...)
	m.mu.Unlock()

	if err := m.log.syncFile(); err != nil {
		return err
	}
	if m.partialOnDisk == nil {
		// A level without an entry is unknown: the previous process may have left a partial tile.
		m.partialOnDisk = map[int]int64{}
	}
	for _, t := range tiles {
		if err := writeTile(m.dir, t); err != nil {
			return err
		}
		n, known := m.partialOnDisk[t.L]
		switch {
		case t.W < tileWidth:
			m.partialOnDisk[t.L] = t.N
		case !known || n == t.N: // the disk may hold partial versions of this tile
			if err := removePartialTiles(m.dir, t.Tile); err != nil {
				return err
			}
			m.partialOnDisk[t.L] = -1
		}
	}
	if err := m.writeCheckpoint(&c); err != nil {
		return err
	}
	m.mu.Lock()
	m.tree.fullTiles = append([]tile(nil), m.tree.fullTiles[len(full):]...)
	m.signedSize, m.signedRoot = size, c.Root
	m.mu.Unlock()
	if grown {
		m.queueAnchor(c.Note)
	}
	return nil
}

// syncFile flushes the active file to the disk.
func (l *Log) syncFile() error {
	l.writing <- struct{}{}
	f := l.files.current
	<-l.writing
	if l.durability == DurabilityFsync {
		return nil
	}
	// a file that was closed by a rotation was synced before
	if err := f.Sync(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// checkFile ends the log when the active file was moved, removed, replaced or changed.
func (m *maintenance) checkFile() {
	m.log.writing <- struct{}{}
	defer func() { <-m.log.writing }()
	m.log.checkFile()
}

// reportLostFile logs that the active file was moved, removed, replaced or changed, and keeps the
// error.
func (m *maintenance) reportLostFile(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fileErr = err
	m.logger.Error("audit log lost; messages are denied", "error", err)
}

// clockJump is the shortest forward jump of the clock that is recorded. Corrections by a time
// server are shorter.
const clockJump = time.Minute

// checkClock writes a record if the clock shows an earlier time than at the last run, or was set
// forward by at least clockJump. After the clock was set back, later records have earlier times.
// After it was set forward, the times of the records have a gap.
func (m *maintenance) checkClock() {
	now, suspended := time.Now(), suspendedTime()
	wall := now.Round(0).Sub(m.lastClock) // without the monotonic clock
	elapsed := now.Sub(m.lastRun) + (suspended - m.lastSuspended)
	reason := ""
	switch {
	case wall < 0:
		reason = clockReason(elapsed - wall)
	case wall-elapsed >= clockJump:
		reason = fmt.Sprintf("the clock was set forward by %s: this time does not count for "+
			"keep_for", (wall - elapsed).Round(time.Millisecond))
	}
	if reason != "" {
		if err := m.log.recordEvent("clock", reason); err != nil && !errors.Is(err, errClosed) {
			m.logger.Error("record of the clock change failed", "error", err)
		}
	}
	m.lastClock, m.lastRun, m.lastSuspended = now.Round(0), now, suspended
}

func clockReason(setBack time.Duration) string {
	return fmt.Sprintf("the clock was set back by %s: the records are in the order of seq, not of "+
		"time", setBack.Round(time.Millisecond))
}

// stop writes the last checkpoint, and waits until the checkpoint is in the anchor file and
// OnCheckpoint has returned.
func (m *maintenance) stop() error {
	m.runMu.Lock()
	defer m.runMu.Unlock()
	if m.stopped {
		return nil
	}
	m.stopped, m.cleanClose = true, m.log.isWhole()
	m.timer.Stop()
	err := m.checkpoint()
	if err != nil {
		err = fmt.Errorf("write the last checkpoint of the audit log: %w", err)
	}
	if m.ages != nil {
		m.updateAges()
		if ageErr := m.ages.save(0); ageErr != nil {
			err = errors.Join(err, fmt.Errorf("write the ages of the audit log's segments: %w",
				ageErr))
		}
	}
	if anchorErr := m.writeAnchorFile(); anchorErr != nil {
		err = errors.Join(err, fmt.Errorf("anchor the last checkpoint of the audit log: %w",
			anchorErr))
	}
	m.mu.Lock()
	publishing := m.anchors.publishing
	m.mu.Unlock()
	if publishing != nil {
		select {
		case <-publishing:
		case <-time.After(anchorTimeout):
			err = errors.Join(err, fmt.Errorf("the last checkpoint of the audit log was not "+
				"anchored within %s", anchorTimeout))
		}
	}
	return err
}
