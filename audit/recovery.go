package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// restoreTree restores the tree of an existing log up to its last record, and returns the tree with
// the last checkpoint. For a new log the tree is empty and the checkpoint nil. restoreTree refuses
// a log that does not match its checkpoint, and an existing log without a checkpoint: the first
// checkpoint is written before the first record.
func restoreTree(file string, key note.Verifier, end logEnd) (*tree, *Checkpoint, error) {
	dir := file + ".tree"
	path := filepath.Join(dir, "checkpoint")
	signed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(originFile(dir)); end.head.seq == 0 && errors.Is(err,
			fs.ErrNotExist) {
			return &tree{}, nil, nil // a new log
		}
		return nil, nil, fmt.Errorf("the checkpoint %s is missing: without this file nothing "+
			"shows that the records are unmodified\nhint: restore this file; if it is lost, %s",
			path, newLogHint(file))
	}
	if err != nil {
		return nil, nil, err
	}
	c, err := OpenCheckpoint(signed, key)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w\nhint: %s", path, err, newLogHint(file))
	}
	if uint64(c.Size) > end.head.seq {
		return nil, nil, fmt.Errorf("the log ends at record %d, but its checkpoint %s covers "+
			"%d: records were removed\nhint: restore the missing files; if they are lost, %s",
			end.head.seq, path, c.Size, newLogHint(file))
	}
	if uint64(c.Size) < end.head.seq && c.Closed {
		return nil, nil, fmt.Errorf("the log ends at record %d, but Gatekit closed it after "+
			"record %d according to its checkpoint %s: somebody else wrote the records after "+
			"that\nhint: remove the lines after record %d; to keep them, %s", end.head.seq,
			c.Size, path, c.Size, newLogHint(file))
	}
	t, err := readTree(dir, c.Size)
	// Tiles are not synced, so a power cut may have lost or damaged some. Then the tree is rebuilt
	// from the records.
	if err != nil || t.root() != c.Root || uint64(c.Size) == end.head.seq &&
		t.lastLeaf != end.leaf ||
		!c.Closed && !t.tilesMatch(dir, firstRecordSeq(file)) {
		if t, err = rebuildTree(file, dir, c); err != nil {
			return nil, nil, err
		}
	}
	return t, c, replayUnsigned(file, t, end)
}

// firstRecordSeq returns the seq of the first record that exists, or 0 if it cannot be read.
func firstRecordSeq(file string) (first uint64) {
	forEachLine(file, 0, func(_ Position, line []byte) error {
		first, _, _ = parseLineHead(line)
		return errStopped
	})
	return first
}

// newLogHint returns the hint how to keep the damaged log and to start a new one.
func newLogHint(file string) string {
	return fmt.Sprintf("move %s, all files whose names begin with it, and its anchor to another "+
		"folder; Gatekit then starts a new log", file)
}

// rebuildTree rebuilds the tree up to a checkpoint from the existing records and, for records whose
// files were removed, from the tiles.
func rebuildTree(file, dir string, c *Checkpoint) (*tree, error) {
	var t *tree
	err := forEachLine(file, 0, func(position Position, line []byte) error {
		seq, _, err := parseLineHead(line)
		if err != nil {
			return &positionError{position, err}
		}
		if t == nil {
			if t, err = readTree(dir, int64(seq-1)); err != nil {
				return err
			}
		}
		fullBefore := len(t.fullTiles)
		t.append(tlog.RecordHash(line))
		// tiles that are on the disk already need not be written again
		t.fullTiles = append(t.fullTiles[:fullBefore], slices.DeleteFunc(t.fullTiles[fullBefore:],
			func(full tile) bool {
				there, err := readTile(dir, full.Tile)
				return err == nil && slices.Equal(there, full.hashes)
			})...)
		if t.size == c.Size {
			return errStopped
		}
		return nil
	})
	if err != nil && err != errStopped && !errors.Is(err, errTorn) {
		return nil, fmt.Errorf("rebuild the Merkle tree: %w", err)
	}
	if t == nil || t.size != c.Size || t.root() != c.Root {
		return nil, fmt.Errorf("the log does not match its checkpoint %s: it was changed\nhint: "+
			"gatekit audit verify finds the changed record; %s", filepath.Join(dir, "checkpoint"),
			newLogHint(file))
	}
	return t, nil
}

// replayUnsigned appends the records after the checkpoint to the tree. It also checks that the last
// record that the checkpoint covers has the hash that is in the tree.
func replayUnsigned(file string, t *tree, end logEnd) error {
	signed := uint64(t.size)
	leaf := t.lastLeaf
	changed := func(place string) error {
		return fmt.Errorf("%s: record %d does not match the Merkle tree: it was changed\nhint: "+
			"gatekit audit verify shows details; %s", place, signed, newLogHint(file))
	}
	if end.head.seq == signed {
		if signed > 0 && end.leaf != leaf {
			return changed(file)
		}
		return nil
	}
	var checked chain
	err := forEachLine(file, signed, func(position Position, line []byte) error {
		seq, _, err := parseLineHead(line)
		switch {
		case err != nil:
			return &positionError{position, err}
		case checked.seq == 0 && seq > signed+1:
			return &positionError{position,
				fmt.Errorf("records %d to %d are missing\nhint: restore their files; if they "+
					"are lost, %s", signed+1, seq-1, newLogHint(file))}
		}
		if err := checked.check(line, seq); err != nil {
			return &positionError{position,
				fmt.Errorf("the line does not continue the chain after record %d: %w\nhint: "+
					"gatekit audit verify shows details; %s", checked.seq, err, newLogHint(file))}
		}
		switch {
		case seq == signed && tlog.RecordHash(line) != leaf:
			return changed(position.String())
		case seq > signed:
			t.append(tlog.RecordHash(line))
		}
		return nil
	})
	if errors.Is(err, errTorn) && end.torn > 0 {
		err = nil // openFile cuts the torn line off
	}
	return err
}
