package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Verification verifies a whole log: the records in all of its files must match its signed
// checkpoint, and any other checkpoints that are given.
type Verification struct {
	File string // the log's active file
	// public key of the checkpoints' signer; nil for the public key file next to the log, which
	// anybody who can write to the log's folder can replace
	Key note.Verifier
	// further checkpoints, which were kept elsewhere; the log must match them, too
	Checkpoints []*Checkpoint
	Progress    func(records uint64) // called every 65,536 records; may be nil
	// witnesses whose cosigned checkpoints, which are kept beside the log, the log must match, too
	Witnesses []*WitnessKey
	// number of Witnesses that must have cosigned records; 0 for all
	Quorum int
}

// VerificationResult describes a log that passed.
type VerificationResult struct {
	First, Last uint64 // seqs of the first and last record; 0 for an empty log
	// the log's last checkpoint; the records after it are protected by the chain only
	Checkpoint         *Checkpoint
	CheckpointsMatched int // how many of Verification.Checkpoints the log contains
	// records that had no checkpoint when Gatekit was started; it is unknown whether they were
	// changed before that start
	Recovered []SeqRange
	InUse     bool // a process is writing the log; an incomplete last line was ignored
	// the checkpoints that Verification.Witnesses have cosigned, and the number of records that at
	// least Verification.Quorum of them have cosigned
	Cosigned  []*CosignedCheckpoint
	Witnessed int64
}

// RecordError is the first record that does not match the chain or the checkpoints.
type RecordError struct {
	Position Position
	Seq      uint64 // of the record that should be there
	Reason   string
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("%s: record %d: %s", e.Position, e.Seq, e.Reason)
}

// progressEvery is the number of records between two calls of Progress.
const progressEvery = 1 << 16

// errStopped ends forEachLine early.
var errStopped = errors.New("stopped")

// Run verifies the log. The error is a *RecordError for the first record that does not match. Any
// other error means that the log could not be verified.
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
		// Gatekit may have removed segments meanwhile. The new checkpoint covers the record of that
		// removal, so verify again.
	}
}

func (v *Verification) verifyOnce(ctx context.Context) (*verifier, error) {
	w := &verifier{Verification: v, result: &VerificationResult{InUse: isLocked(v.File)},
		dir: v.File + ".tree", tile: tlog.Tile{N: -1}}
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
			if errors.Is(torn, errTorn) && torn.position.File == v.File {
				reason += "\nhint: a crash leaves such a line; Gatekit cuts it off at its next " +
					"start, and writes a record of that"
			}
			err = w.nextRecordError(torn.position, reason)
		}
	}
	if err == nil {
		err = w.finish()
	}
	return w, err
}

// verifier is the state of one pass through a log.
type verifier struct {
	*Verification
	result            *VerificationResult
	dir               string
	checkpointsBySize map[int64][]*Checkpoint
	largest           *Checkpoint
	chain             chain
	firstPosition     Position // of the first record
	lastPosition      Position // of the last valid record
	afterCheckpoint   Position // of the first record after the log's own checkpoint
	missingStart      bool     // the first records are missing
	tree              *tree
	pruneHistory

	// Tiles prove nothing by themselves. But if a checkpoint shows that the log was changed, the
	// first record that differs from its tile is the changed record.
	tile     tlog.Tile
	leaves   []tlog.Hash // hashes of tile
	mismatch mismatch
}

// mismatch is the first record that differs from its tile.
type mismatch struct {
	seq uint64 // 0 for none
	at  Position
}

// loadCheckpoints reads the log's own checkpoint, and groups all checkpoints by their size.
func (w *verifier) loadCheckpoints() error {
	path := filepath.Join(w.dir, "checkpoint")
	signed, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := Segments(w.File); err != nil {
			return err
		}
		return fmt.Errorf("the checkpoint %s is missing: without this file nothing shows that "+
			"the end of the log is complete\nhint: Gatekit writes the checkpoint before the first "+
			"record, so somebody has removed the checkpoint", path)
	case err != nil:
		return fmt.Errorf("read the checkpoint: %w", err)
	default:
		if w.Key == nil {
			if w.Key, err = ReadPublicKey(PublicKeyFile(w.File)); err != nil {
				return err
			}
		}
		if w.result.Checkpoint, err = OpenCheckpoint(signed, w.Key); err != nil {
			return fmt.Errorf("%s: %w\nhint: use the key that the log was started with; see "+
				"gatekit audit key", path, err)
		}
	}
	if len(w.Witnesses) > 0 {
		if w.result.Cosigned, err = ReadCosigned(w.File, w.Key, w.Witnesses); err != nil {
			return err
		}
	}
	w.checkpointsBySize = map[int64][]*Checkpoint{}
	for _, c := range w.allCheckpoints() {
		if own := w.result.Checkpoint; c.Origin != own.Origin {
			return fmt.Errorf("the checkpoint of %d records is of another log: %s, not %s",
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
	return append(w.foreignCheckpoints(), w.result.Checkpoint)
}

// foreignCheckpoints returns the checkpoints that are not the log's own last one.
func (w *verifier) foreignCheckpoints() []*Checkpoint {
	all := slices.Clone(w.Checkpoints)
	for _, c := range w.result.Cosigned {
		if len(c.Cosignatures) > 0 {
			all = append(all, c.Checkpoint)
		}
	}
	return all
}

// currentCheckpoint reads the log's checkpoint again. It returns nil if the checkpoint is missing
// or belongs to another log.
func (w *verifier) currentCheckpoint() *Checkpoint {
	signed, err := readFile(filepath.Join(w.dir, "checkpoint"))
	if err != nil {
		return nil
	}
	c, err := OpenCheckpoint(signed, w.Key)
	if err != nil || c.Origin != w.result.Checkpoint.Origin {
		return nil
	}
	return c
}

// verifyLine verifies the next line.
func (w *verifier) verifyLine(at Position, line []byte) error {
	if w.tree == nil {
		if err := w.beginTree(at, line); err != nil {
			return err
		}
	}
	if err := w.chain.check(line, w.result.First); err != nil {
		if w.mismatch.seq > 0 && (w.mismatch.seq == w.chain.seq && errors.Is(err, errChain) ||
			w.tilesAuthentic(w.result.Checkpoint)) {
			return w.changedError() // the change of that record has broken the chain
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

// beginTree reads from the tiles the tree of all records before the first existing record.
func (w *verifier) beginTree(at Position, line []byte) error {
	first, _, err := parseLineHead(line)
	if err != nil {
		return &RecordError{at, max(1, segmentFirstSeq(w.File, at.File)), err.Error()}
	}
	if named := segmentFirstSeq(w.File, at.File); named > 0 && first != named {
		return &RecordError{at, named, fmt.Sprintf("seq is %d, but the name of the file says %d",
			first, named)}
	}
	if w.tree, err = readTree(w.dir, int64(first-1)); err != nil {
		return &RecordError{at, first,
			fmt.Sprintf("the %d records before this one are missing, and so are their hashes: %v",
				first-1, err)}
	}
	w.result.First, w.firstPosition = first, at
	return nil
}

// compareWithTile compares a record with its tile.
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
			w.leaves, _ = readTile(w.dir, w.tile) // a missing tile is no evidence
		}
	}
	if j := int(i % tileWidth); w.mismatch.seq == 0 && j < len(w.leaves) && w.leaves[j] != leaf {
		w.mismatch = mismatch{w.chain.seq, w.lastPosition}
	}
}

func (w *verifier) changedError() error {
	return &RecordError{w.mismatch.at, w.mismatch.seq,
		"the record was changed after it was written"}
}

// nextRecordError returns the error for the record after the last valid record.
func (w *verifier) nextRecordError(at Position, reason string) error {
	return &RecordError{at, w.chain.seq + 1, reason}
}

// rootMismatch returns the error for records whose root differs from the root in the checkpoint c.
func (w *verifier) rootMismatch(c *Checkpoint) error {
	if w.mismatch.seq > 0 && w.tilesAuthentic(c) {
		return w.changedError()
	}
	return &RecordError{w.lastPosition, uint64(c.Size),
		fmt.Sprintf("the records up to this one do not match the checkpoint signed by %s: at "+
			"least one of them was changed or rewritten", c.Signer)}
}

// tilesAuthentic reports whether the tile of the mismatch belongs to the tree of c.
func (w *verifier) tilesAuthentic(c *Checkpoint) bool {
	hashes := tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, tileReader(w.dir))
	_, err := hashes.ReadHashes([]int64{tlog.StoredHashIndex(0, int64(w.mismatch.seq-1))})
	return err == nil
}

func (w *verifier) appendedAfterClose() error {
	return &RecordError{w.afterCheckpoint, uint64(w.result.Checkpoint.Size) + 1,
		"Gatekit closed the log before this record and has not opened it since: somebody else " +
			"wrote this record and any after it"}
}

// finish runs the checks that are possible only after the last line.
func (w *verifier) finish() error {
	w.result.Last = w.chain.seq
	if uint64(w.largest.Size) > w.result.Last {
		at := w.lastPosition
		if at.File == "" {
			at.File = w.File
		}
		at.Line++
		return w.nextRecordError(at,
			fmt.Sprintf("the record and those after it are missing: a checkpoint signed by %s "+
				"covers %d records", w.largest.Signer, w.largest.Size))
	}
	if own := w.result.Checkpoint; own.Closed && w.result.Last > uint64(own.Size) {
		// the log may have been opened again meanwhile
		if now := w.currentCheckpoint(); now == nil || now.Closed && now.Size == own.Size {
			return w.appendedAfterClose()
		}
	}
	if through := w.prunedThrough(w.largest.Size); w.result.First > 1 &&
		through < w.result.First-1 {
		w.missingStart = true
		return &RecordError{w.firstPosition, through + 1,
			fmt.Sprintf("the records up to %d are missing, and no record that a checkpoint "+
				"covers says that they expired", w.result.First-1)}
	}
	w.result.Recovered = w.recovered
	if w.mismatch.seq > 0 { // all roots match, so the tile is wrong and not the record
		return fmt.Errorf("the tile of record %d in %s was changed; the log was not changed\n"+
			"hint: stop Gatekit and remove %s: Gatekit rebuilds it from the log at the next "+
			"start, unless expired segments were removed",
			w.mismatch.seq, w.dir, filepath.Join(w.dir, "tile"))
	}
	for _, c := range w.foreignCheckpoints() {
		// the records were removed, but their hashes are still there
		if c.Size > 0 && uint64(c.Size) < w.result.First {
			own := w.result.Checkpoint
			root, err := tlog.TreeHash(c.Size, tlog.TileHashReader(tlog.Tree{N: own.Size,
				Hash: own.Root}, tileReader(w.dir)))
			if err != nil {
				return fmt.Errorf(
					"verify the checkpoint of %d records, whose segments were removed: %w", c.Size,
					err)
			}
			if root != c.Root {
				return &RecordError{w.firstPosition, uint64(c.Size),
					fmt.Sprintf("the records up to this one, whose segments were removed, do "+
						"not match the checkpoint signed by %s", c.Signer)}
			}
		}
	}
	w.result.CheckpointsMatched = len(w.Checkpoints)
	return w.checkQuorum()
}

// checkQuorum checks that enough witnesses have cosigned a checkpoint of the log.
func (w *verifier) checkQuorum() error {
	if len(w.Witnesses) == 0 {
		return nil
	}
	quorum := cmp.Or(w.Quorum, len(w.Witnesses))
	if w.result.Witnessed = WitnessedSize(w.result.Cosigned, quorum); w.result.Witnessed > 0 {
		return nil
	}
	var names []string
	for _, k := range w.Witnesses {
		if !slices.ContainsFunc(w.result.Cosigned, func(c *CosignedCheckpoint) bool {
			return slices.ContainsFunc(c.Cosignatures, func(s Cosignature) bool {
				return s.Witness == k
			})
		}) {
			names = append(names, k.name)
		}
	}
	return fmt.Errorf("fewer than %d of %d witnesses have cosigned the log: there is no "+
		"cosignature of %s\nhint: gatekit check shows what the witnesses answer; the cosignatures "+
		"are in %s", quorum, len(w.Witnesses), strings.Join(names, ", "), cosignedFile(w.File))
}

// tileReader reads tiles from a folder. tlog.TileHashReader verifies them.
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
