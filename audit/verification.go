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
		w, err := v.run(ctx)
		if err == nil {
			return w.done, nil
		}
		if tries == 3 || !w.gone && !errors.Is(err, fs.ErrNotExist) || !w.done.InUse ||
			w.done.Checkpoint == nil {
			return nil, err
		}
		if now := w.latest(); now == nil || now.Size <= w.done.Checkpoint.Size {
			return nil, err
		}
		// else Gatekit may have removed files in between, and a record that says so is in the
		// new checkpoint
	}
}

func (v *Verification) run(ctx context.Context) (*walk, error) {
	w := &walk{Verification: v, done: &VerificationResult{InUse: inUse(v.File)},
		dir:  v.File + ".tree",
		tile: tlog.Tile{N: -1}}
	if err := w.checkpoints(); err != nil {
		return w, err
	}
	err := eachLine(v.File, 0, func(at Position, line []byte) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return w.line(at, line)
	})
	if torn, ok := errors.AsType[*placed](err); ok {
		if err = nil; !errors.Is(torn, errTorn) || !w.done.InUse {
			reason := torn.err.Error()
			if errors.Is(torn, errTorn) && torn.at.File == v.File {
				reason += "\nhint: this is what a crash leaves; Gatekit cuts it off, and " +
					"records that, at its next start"
			}
			err = w.bad(torn.at, reason)
		}
	}
	if err == nil {
		err = w.end()
	}
	return w, err
}

// walk is one through a log.
type walk struct {
	*Verification
	done    *VerificationResult
	dir     string
	want    map[int64][]*Checkpoint // by size
	largest *Checkpoint
	chain   chain
	begun   Position // of the first record that there is
	at      Position // of the last good one
	after   Position // of the first after the log's own checkpoint
	gone    bool     // records are missing at the beginning
	tree    *tree
	removals

	// The tiles are not proof of anything, but where they differ from a record they say that this
	// one was changed, if anything was.
	tile   tlog.Tile
	leaves []tlog.Hash // of tile
	suspect
}

// suspect is the first record that is not the one that is in a tile.
type suspect struct {
	seq uint64 // 0 of none
	at  Position
}

// checkpoints reads the log's own, and sorts them all.
func (w *walk) checkpoints() error {
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
		if w.done.Checkpoint, err = OpenCheckpoint(signed, w.Key); err != nil {
			return fmt.Errorf("%s: %w\nhint: the key that is wanted is the one that the log "+
				"began with, see gatekit audit key", path, err)
		}
	}
	w.want = map[int64][]*Checkpoint{}
	for _, c := range w.all() {
		if own := w.done.Checkpoint; c.Origin != own.Origin {
			return fmt.Errorf("the checkpoint of %d records is of another log, %s, and this is %s",
				c.Size, c.Origin, own.Origin)
		}
		w.want[c.Size] = append(w.want[c.Size], c)
		if w.largest == nil || c.Size > w.largest.Size {
			w.largest = c
		}
	}
	return nil
}

func (w *walk) all() []*Checkpoint {
	return append(slices.Clip(w.Checkpoints), w.done.Checkpoint)
}

// latest is the log's checkpoint as it is now, and not when the walk began; nil if it is none of
// this log.
func (w *walk) latest() *Checkpoint {
	signed, err := os.ReadFile(filepath.Join(w.dir, "checkpoint"))
	if err != nil {
		return nil
	}
	c, err := OpenCheckpoint(signed, w.Key)
	if err != nil || c.Origin != w.done.Checkpoint.Origin {
		return nil
	}
	return c
}

// line verifies one.
func (w *walk) line(at Position, line []byte) error {
	if w.tree == nil {
		if err := w.begin(at, line); err != nil {
			return err
		}
	}
	if err := w.chain.next(line, w.done.First); err != nil {
		if w.seq > 0 && (w.seq == w.chain.seq && errors.Is(err, errChain) ||
			w.authentic(w.done.Checkpoint)) {
			return w.changed() // what comes now follows from that
		}
		return w.bad(at, err.Error())
	}
	w.at = at
	if w.tree.size == w.done.Checkpoint.Size {
		w.after = at
	}
	leaf := tlog.RecordHash(line)
	w.compare(leaf)
	w.tree.append(leaf)
	w.tree.full = w.tree.full[:0]
	w.see(line)
	for _, c := range w.want[w.tree.size] {
		if w.tree.root() != c.Root {
			return w.differs(c)
		}
	}
	if w.Progress != nil && w.chain.seq%progressEvery == 0 {
		w.Progress(w.chain.seq)
	}
	return nil
}

// begin makes the tree of what was before the first record that there is.
func (w *walk) begin(at Position, line []byte) error {
	first, _, err := lineHead(line)
	if err != nil {
		return &RecordError{at, max(1, firstOf(w.File, at.File)), err.Error()}
	}
	if named := firstOf(w.File, at.File); named > 0 && first != named {
		return &RecordError{at, named, fmt.Sprintf("its seq is %d", first)}
	}
	if w.tree, err = treeOf(w.dir, int64(first-1)); err != nil {
		return &RecordError{at, first,
			fmt.Sprintf("the %d records before it are missing, and so are their hashes: %v",
				first-1, err)}
	}
	w.done.First, w.begun = first, at
	return nil
}

// compare holds a record against its tile.
func (w *walk) compare(leaf tlog.Hash) {
	own := w.done.Checkpoint
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
		w.suspect = suspect{w.chain.seq, w.at}
	}
}

func (w *walk) changed() error {
	return &RecordError{w.suspect.at, w.suspect.seq,
		"it was changed: it is not the one that was written"}
}

// bad is the record after the last good one.
func (w *walk) bad(at Position, reason string) error {
	return &RecordError{at, w.chain.seq + 1, reason}
}

// differs says what is wrong when the records up to a checkpoint are not those that it speaks of.
func (w *walk) differs(c *Checkpoint) error {
	if w.seq > 0 && w.authentic(c) {
		return w.changed()
	}
	return &RecordError{w.at, uint64(c.Size),
		fmt.Sprintf("the records up to here are not those of the checkpoint that %s signed: one "+
			"of them, or all, were changed or written anew", c.Signer)}
}

// authentic says whether the tiles are those of a checkpoint, at the suspect.
func (w *walk) authentic(c *Checkpoint) bool {
	hashes := tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, tiles(w.dir))
	_, err := hashes.ReadHashes([]int64{tlog.StoredHashIndex(0, int64(w.seq-1))})
	return err == nil
}

func (w *walk) forged() error {
	return &RecordError{w.after, uint64(w.done.Checkpoint.Size) + 1,
		"Gatekit had closed the log before it, and has not opened it again: others have written " +
			"it, and what follows"}
}

// end holds what there is against what must be there.
func (w *walk) end() error {
	w.done.Last = w.chain.seq
	if uint64(w.largest.Size) > w.done.Last {
		at := w.at
		if at.File == "" {
			at.File = w.File
		}
		at.Line++
		return w.bad(at, fmt.Sprintf("it is missing, and so are those after it: a checkpoint "+
			"that %s signed is of %d records", w.largest.Signer, w.largest.Size))
	}
	if own := w.done.Checkpoint; own.Closed && w.done.Last > uint64(own.Size) {
		// else it was opened again since
		if now := w.latest(); now == nil || now.Closed && now.Size == own.Size {
			return w.forged()
		}
	}
	if through := w.through(w.largest.Size); w.done.First > 1 && through < w.done.First-1 {
		w.gone = true
		return &RecordError{w.begun, through + 1,
			fmt.Sprintf("records up to %d are missing, and no record that has a checkpoint says "+
				"that their time was over", w.done.First-1)}
	}
	w.done.Recovered = w.recovered
	if w.seq > 0 { // though all roots are right
		return fmt.Errorf("the tile of record %d in %s was changed; the log was not\nhint: stop "+
			"Gatekit and remove %s: it is made anew from the log at the next start, unless "+
			"files of the log were removed",
			w.seq, w.dir, filepath.Join(w.dir, "tile"))
	}
	for _, c := range w.Checkpoints {
		// the records are gone, their hashes are not
		if c.Size > 0 && uint64(c.Size) < w.done.First {
			own := w.done.Checkpoint
			root, err := tlog.TreeHash(c.Size, tlog.TileHashReader(tlog.Tree{N: own.Size,
				Hash: own.Root}, tiles(w.dir)))
			if err != nil {
				return fmt.Errorf(
					"verify the checkpoint of %d records, whose files are removed: %w", c.Size, err)
			}
			if root != c.Root {
				return &RecordError{w.begun, uint64(c.Size),
					fmt.Sprintf("the records up to it, whose files are removed, are not those "+
						"of the checkpoint that %s signed", c.Signer)}
			}
		}
	}
	w.done.CheckpointsMatched = len(w.Checkpoints)
	return nil
}

// tiles reads them for tlog.TileHashReader, which checks them.
type tiles string

func (tiles) Height() int { return tileHeight }

func (dir tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
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

func (tiles) SaveTiles([]tlog.Tile, [][]byte) {}
