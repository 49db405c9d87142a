package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Verification is how a whole log is verified: that its records, in all files that there are, are
// those of its signed checkpoint and of the others that one has.
type Verification struct {
	File string // of the log
	// that signed its checkpoints; nil is the one beside the log, which is worth as much as who can
	// write there
	Key note.Verifier
	// others, that were kept elsewhere: the log must hold what they say
	Checkpoints []*Checkpoint
	Progress    func(records uint64) // is told now and then how many were verified; may be nil
}

// VerificationResult is what was found good.
type VerificationResult struct {
	First, Last uint64 // numbers of the records that there are; 0 of an empty log
	// the log's last. The records after it are bound by the chain alone
	Checkpoint         *Checkpoint
	CheckpointsMatched int // how many others hold
	// records that had no checkpoint when Gatekit was started after them: what was added or changed
	// there before is not known
	Recovered []SeqRange
	InUse     bool // a process writes the log: what it was writing was left out
}

// RecordError says where a log stops being what its chain and its checkpoints say.
type RecordError struct {
	Position Position
	Seq      uint64 // of the record that should be there
	Reason   string
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("%s: record %d: %s", e.Position, e.Seq, e.Reason)
}

// progressEvery is how many records are verified between two calls of Progress.
const progressEvery = 1 << 16

// errStopped ends a walk early.
var errStopped = errors.New("stopped")

// Run verifies. The error is a *BadRecord, for the first that is not as it was, or says why that
// could not be found out.
func (v *Verification) Run(ctx context.Context) (*VerificationResult, error) {
	for tries := 1; ; tries++ {
		w, err := v.verifyOnce(ctx)
		if err == nil {
			return w.result, nil
		}
		if tries == 3 || !w.missingStart && !errors.Is(err, fs.ErrNotExist) || !w.result.InUse ||
			w.result.Checkpoint == nil {
			return nil, err
		}
		if now := w.currentCheckpoint(); now == nil || now.Size <= w.result.Checkpoint.Size {
			return nil, err
		}
		// else Gatekit may have removed files in between, and a record that says so is in the
		// new checkpoint
	}
}

func (v *Verification) verifyOnce(ctx context.Context) (*verifier, error) {
	w := &verifier{Verification: v, result: &VerificationResult{InUse: isLocked(v.File)},
		dir:  v.File + ".tree",
		tile: tlog.Tile{N: -1}}
	if err := w.loadCheckpoints(); err != nil {
		return w, err
	}
	err := forEachLine(v.File, 0, func(at Position, line []byte) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return w.verifyLine(at, line)
	})
	if torn, ok := errors.AsType[*positionError](err); ok {
		if err = nil; !errors.Is(torn, errTorn) || !w.result.InUse {
			reason := torn.err.Error()
			if errors.Is(torn, errTorn) && torn.at.File == v.File {
				reason += "\nhint: this is what a crash leaves; Gatekit cuts it off, and " +
					"records that, at its next start"
			}
			err = w.nextRecordError(torn.at, reason)
		}
	}
	if err == nil {
		err = w.finish()
	}
	return w, err
}

// verifier is one through a log.
type verifier struct {
	*Verification
	result            *VerificationResult
	dir               string
	checkpointsBySize map[int64][]*Checkpoint // by size
	largest           *Checkpoint
	chain             chain
	firstPosition     Position // of the first record that there is
	lastPosition      Position // of the last good one
	afterCheckpoint   Position // of the first after the log's own checkpoint
	missingStart      bool     // records are missing at the beginning
	tree              *tree
	pruneHistory

	// The tiles are not proof of anything, but where they differ from a record they say that this
	// one was changed, if anything was.
	tile   tlog.Tile
	leaves []tlog.Hash // of tile
	mismatch
}

// mismatch is the first record that is not the one that is in a tile.
type mismatch struct {
	seq uint64 // 0 of none
	at  Position
}

// loadCheckpoints reads the log's own, and sorts them all.
func (w *verifier) loadCheckpoints() error {
	path := filepath.Join(w.dir, "checkpoint")
	signed, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := Segments(w.File); err != nil {
			return err
		}
		return fmt.Errorf("there is no checkpoint %s: only that would show that nothing is "+
			"missing at the end of the log\nhint: Gatekit makes it before the first record: it "+
			"was taken away", path)
	case err != nil:
		return fmt.Errorf("read the checkpoint: %w", err)
	default:
		if w.Key == nil {
			if w.Key, err = ReadPublicKey(PublicKeyFile(w.File)); err != nil {
				return err
			}
		}
		if w.result.Checkpoint, err = OpenCheckpoint(signed, w.Key); err != nil {
			return fmt.Errorf("%s: %w\nhint: the key that is wanted is the one that the log "+
				"began with, see gatekit audit key", path, err)
		}
	}
	w.checkpointsBySize = map[int64][]*Checkpoint{}
	for _, c := range w.allCheckpoints() {
		if own := w.result.Checkpoint; c.Origin != own.Origin {
			return fmt.Errorf("the checkpoint of %d records is of another log, %s, and this is %s",
				c.Size, c.Origin, own.Origin)
		}
		w.checkpointsBySize[c.Size] = append(w.checkpointsBySize[c.Size], c)
		if w.largest == nil || c.Size > w.largest.Size {
			w.largest = c
		}
	}
	return nil
}

func (w *verifier) allCheckpoints() []*Checkpoint {
	return append(slices.Clip(w.Checkpoints), w.result.Checkpoint)
}

// currentCheckpoint is the log's checkpoint as it is now, and not when the walk began; nil if it is none of
// this log.
func (w *verifier) currentCheckpoint() *Checkpoint {
	signed, err := os.ReadFile(filepath.Join(w.dir, "checkpoint"))
	if err != nil {
		return nil
	}
	c, err := OpenCheckpoint(signed, w.Key)
	if err != nil || c.Origin != w.result.Checkpoint.Origin {
		return nil
	}
	return c
}

// verifyLine verifies one.
func (w *verifier) verifyLine(at Position, line []byte) error {
	if w.tree == nil {
		if err := w.beginTree(at, line); err != nil {
			return err
		}
	}
	if err := w.chain.check(line, w.result.First); err != nil {
		if w.seq > 0 && (w.seq == w.chain.seq && errors.Is(err, errChain) ||
			w.tilesAuthentic(w.result.Checkpoint)) {
			return w.changedError() // what comes now follows from that
		}
		return w.nextRecordError(at, err.Error())
	}
	w.lastPosition = at
	if w.tree.size == w.result.Checkpoint.Size {
		w.afterCheckpoint = at
	}
	leaf := tlog.RecordHash(line)
	w.compareWithTile(leaf)
	w.tree.append(leaf)
	w.tree.fullTiles = w.tree.fullTiles[:0]
	w.observe(line)
	for _, c := range w.checkpointsBySize[w.tree.size] {
		if w.tree.root() != c.Root {
			return w.rootMismatch(c)
		}
	}
	if w.Progress != nil && w.chain.seq%progressEvery == 0 {
		w.Progress(w.chain.seq)
	}
	return nil
}

// beginTree makes the tree of what was before the first record that there is.
func (w *verifier) beginTree(at Position, line []byte) error {
	first, _, err := parseLineHead(line)
	if err != nil {
		return &RecordError{at, max(1, segmentFirstSeq(w.File, at.File)), err.Error()}
	}
	if named := segmentFirstSeq(w.File, at.File); named > 0 && first != named {
		return &RecordError{at, named, fmt.Sprintf("its seq is %d", first)}
	}
	if w.tree, err = readTree(w.dir, int64(first-1)); err != nil {
		return &RecordError{at, first,
			fmt.Sprintf("the %d records before it are missing, and so are their hashes: %v",
				first-1, err)}
	}
	w.result.First, w.firstPosition = first, at
	return nil
}

// compareWithTile holds a record against its tile.
func (w *verifier) compareWithTile(leaf tlog.Hash) {
	own := w.result.Checkpoint
	i := w.tree.size
	if n := i / tileWidth; w.tile.N != n {
		w.tile = tlog.Tile{H: tileHeight, N: n, W: tileWidth}
		if own.Size < (n+1)*tileWidth {
			w.tile.W = max(0, int(own.Size-n*tileWidth))
		}
		w.leaves = nil
		if w.tile.W > 0 {
			w.leaves, _ = readTile(w.dir, w.tile) // one that is missing says nothing
		}
	}
	if j := int(i % tileWidth); w.seq == 0 && j < len(w.leaves) && w.leaves[j] != leaf {
		w.mismatch = mismatch{w.chain.seq, w.lastPosition}
	}
}

func (w *verifier) changedError() error {
	return &RecordError{w.mismatch.at, w.mismatch.seq,
		"it was changed: it is not the one that was written"}
}

// nextRecordError is the record after the last good one.
func (w *verifier) nextRecordError(at Position, reason string) error {
	return &RecordError{at, w.chain.seq + 1, reason}
}

// rootMismatch says what is wrong when the records up to a checkpoint are not those that it speaks of.
func (w *verifier) rootMismatch(c *Checkpoint) error {
	if w.seq > 0 && w.tilesAuthentic(c) {
		return w.changedError()
	}
	return &RecordError{w.lastPosition, uint64(c.Size),
		fmt.Sprintf("the records up to here are not those of the checkpoint that %s signed: one "+
			"of them, or all, were changed or written anew", c.Signer)}
}

// tilesAuthentic says whether the tiles are those of a checkpoint, at the suspect.
func (w *verifier) tilesAuthentic(c *Checkpoint) bool {
	hashes := tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, tileReader(w.dir))
	_, err := hashes.ReadHashes([]int64{tlog.StoredHashIndex(0, int64(w.seq-1))})
	return err == nil
}

func (w *verifier) appendedAfterClose() error {
	return &RecordError{w.afterCheckpoint, uint64(w.result.Checkpoint.Size) + 1,
		"Gatekit had closed the log before it, and has not opened it again: others have written " +
			"it, and what follows"}
}

// finish holds what there is against what must be there.
func (w *verifier) finish() error {
	w.result.Last = w.chain.seq
	if uint64(w.largest.Size) > w.result.Last {
		at := w.lastPosition
		if at.File == "" {
			at.File = w.File
		}
		at.Line++
		return w.nextRecordError(at, fmt.Sprintf("it is missing, and so are those after it: a checkpoint "+
			"that %s signed is of %d records", w.largest.Signer, w.largest.Size))
	}
	if own := w.result.Checkpoint; own.Closed && w.result.Last > uint64(own.Size) {
		// else it was opened again since
		if now := w.currentCheckpoint(); now == nil || now.Closed && now.Size == own.Size {
			return w.appendedAfterClose()
		}
	}
	if through := w.prunedThrough(w.largest.Size); w.result.First > 1 && through < w.result.First-1 {
		w.missingStart = true
		return &RecordError{w.firstPosition, through + 1,
			fmt.Sprintf("records up to %d are missing, and no record that has a checkpoint says "+
				"that their time was over", w.result.First-1)}
	}
	w.result.Recovered = w.recovered
	if w.seq > 0 { // though all roots are right
		return fmt.Errorf("the tile of record %d in %s was changed; the log was not\nhint: stop "+
			"Gatekit and remove %s: it is made anew from the log at the next start, unless "+
			"files of the log were removed",
			w.seq, w.dir, filepath.Join(w.dir, "tile"))
	}
	for _, c := range w.Checkpoints {
		// the records are gone, their hashes are not
		if c.Size > 0 && uint64(c.Size) < w.result.First {
			own := w.result.Checkpoint
			root, err := tlog.TreeHash(c.Size, tlog.TileHashReader(tlog.Tree{N: own.Size,
				Hash: own.Root}, tileReader(w.dir)))
			if err != nil {
				return fmt.Errorf(
					"verify the checkpoint of %d records, whose files are removed: %w", c.Size, err)
			}
			if root != c.Root {
				return &RecordError{w.firstPosition, uint64(c.Size),
					fmt.Sprintf("the records up to it, whose files are removed, are not those "+
						"of the checkpoint that %s signed", c.Signer)}
			}
		}
	}
	w.result.CheckpointsMatched = len(w.Checkpoints)
	return nil
}

// tileReader reads them for tlog.TileHashReader, which checks them.
type tileReader string

func (tileReader) Height() int { return tileHeight }

func (dir tileReader) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(wanted))
	for i, t := range wanted {
		hashes, err := readTile(string(dir), t)
		if err != nil {
			return nil, err
		}
		all[i] = tile{t, hashes}.bytes()
	}
	return all, nil
}

func (tileReader) SaveTiles([]tlog.Tile, [][]byte) {}
