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

	"gatekit/core/regularfile"
)

// restoreTree restores the tree of an existing log up to its last record, and returns the tree with
// the last checkpoint. For a new log the tree is empty and the checkpoint nil. restoreTree refuses
// a log that does not match its checkpoint, and an existing log without a checkpoint: the first
// checkpoint is written before the first record.
func restoreTree(file string, key note.Verifier, end logEnd) (*tree, *Checkpoint, error) {
	dir := file + ".tree"
	path := filepath.Join(dir, "checkpoint")
	signed, err := readFile(path)
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
			"%d records: records were removed\nhint: restore the missing files; if they are "+
			"lost, %s", end.head.seq, path, c.Size, newLogHint(file))
	}
	if uint64(c.Size) < end.head.seq && c.Closed {
		return nil, nil, fmt.Errorf("the log ends at record %d, but Gatekit closed it after "+
			"record %d according to its checkpoint %s: somebody else wrote the records after "+
			"that\nhint: remove the lines after record %d; to keep them, %s", end.head.seq,
			c.Size, path, c.Size, newLogHint(file))
	}
	if err := checkFileEnd(file, c, end); err != nil {
		return nil, nil, err
	}
	t, err := readTree(dir, c.Size)
	mismatch := compareLastFile(file, dir, c)
	// Tiles are not synced, so a power cut may have lost or damaged some. Then the tree is rebuilt
	// from the records.
	if err != nil || mismatch != nil || t.root() != c.Root ||
		uint64(c.Size) == end.head.seq && t.lastLeaf != end.leaf ||
		!c.Closed && !t.tilesMatch(dir, firstRecordSeq(file)) {
		if t, err = rebuildTree(file, dir, c); err != nil {
			if changed, ok := errors.AsType[*positionError](mismatch); ok {
				err = fmt.Errorf("%w\nhint: gatekit audit verify shows details; %s", changed,
					newLogHint(file))
			}
			return nil, nil, err
		}
	}
	return t, c, replayUnsigned(file, t, end)
}

// checkFileEnd refuses a log whose last file is shorter than the checkpoint says, or begins with
// another record than the checkpoint says: somebody has cut the file.
func checkFileEnd(file string, c *Checkpoint, end logEnd) error {
	if c.File == (FileEnd{}) {
		return nil // an empty log, or a checkpoint of an older Gatekit
	}
	path := segmentName(file, c.File.First)
	f, err := regularfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // not rotated since the checkpoint
		path = file
		f, err = regularfile.Open(path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	cut := func(how string) error {
		return fmt.Errorf("%s was changed: %s\nhint: restore the file; if the records are lost, "+
			"%s", path, how, newLogHint(file))
	}
	if first, err := firstSeq(f); err != nil || first != c.File.First {
		return cut(fmt.Sprintf("it begins with record %d, but the checkpoint says that record %d "+
			"is in a file that begins with record %d", first, c.Size, c.File.First))
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < c.File.Bytes {
		return cut(fmt.Sprintf("it has %d bytes, but had %d when record %d was written",
			info.Size(), c.File.Bytes, c.Size))
	}
	if uint64(c.Size) == end.head.seq && end.file != c.File {
		return cut(fmt.Sprintf("record %d ends at byte %d, but ended at %d when it was written",
			c.Size, end.file.Bytes, c.File.Bytes))
	}
	signed, err := fileEnd(f, c.File.Bytes, 0)
	if err != nil || signed.torn > 0 || signed.head.seq != uint64(c.Size) {
		return cut(fmt.Sprintf("record %d no longer ends at byte %d", c.Size, c.File.Bytes))
	}
	return nil
}

// maxStartCheck is the size of the largest last file that is compared with the tree at a start. It
// is the default of Options.SegmentBytes. A larger file would delay the start.
const maxStartCheck = 64 << 20

// compareLastFile compares the records of the checkpoint's file with the tiles, and returns the
// first difference. It does not read a file of more than maxStartCheck bytes.
func compareLastFile(file, dir string, c *Checkpoint) error {
	if c.File == (FileEnd{}) || c.File.Bytes > maxStartCheck {
		return nil
	}
	var hashes []tlog.Hash // of the tile that holds the record
	next := c.File.First
	err := forEachLine(file, next, func(position Position, line []byte) error {
		seq, _, err := parseLineHead(line)
		switch {
		case err != nil:
			return &positionError{position, err}
		case seq < c.File.First:
			return nil
		case seq > uint64(c.Size):
			return errStopped
		case seq != next:
			return &positionError{position, fmt.Errorf("found record %d instead of record %d",
				seq, next)}
		}
		n := int64(seq - 1)
		if next++; hashes == nil || n%tileWidth == 0 {
			tile := tlog.Tile{H: tileHeight, N: n / tileWidth,
				W: int(min(tileWidth, c.Size-n/tileWidth*tileWidth))}
			if hashes, err = readTile(dir, tile); err != nil {
				return err
			}
		}
		if tlog.RecordHash(line) != hashes[n%tileWidth] {
			return &positionError{position, fmt.Errorf("record %d does not match the Merkle "+
				"tree: it was changed", seq)}
		}
		return nil
	})
	switch {
	case err != nil && err != errStopped && !errors.Is(err, errTorn):
		return err
	case next != uint64(c.Size)+1:
		return fmt.Errorf("the file ends before record %d", c.Size)
	}
	return nil
}

// firstRecordSeq returns the seq of the first record that exists, or 0 if it cannot be read.
func firstRecordSeq(file string) (first uint64) {
	forEachLine(file, 0, func(_ Position, line []byte) error {
		first, _, _ = parseLineHead(line)
		return errStopped
	})
	return first
}

// newLogHint returns the hint that says how to keep the damaged log and start a new one.
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
			if t, err = treeOfLeaves(dir, int64(seq-1)); err != nil {
				return err
			}
		}
		t.appendRestored(dir, tlog.RecordHash(line))
		if t.size == c.Size {
			return errStopped
		}
		return nil
	})
	if err != nil && err != errStopped && !errors.Is(err, errTorn) {
		return nil, fmt.Errorf("rebuild the Merkle tree: %w\nhint: gatekit audit verify shows "+
			"details; %s", err, newLogHint(file))
	}
	if t == nil || t.size != c.Size || t.root() != c.Root {
		return nil, fmt.Errorf("the log does not match its checkpoint %s: it was changed\nhint: "+
			"gatekit audit verify finds the changed record; %s", filepath.Join(dir, "checkpoint"),
			newLogHint(file))
	}
	return t, nil
}

// treeOfLeaves restores the tree of the first records from the tiles that hold the hashes of these
// records. It needs no other tiles, because only full tiles are flushed before records are removed.
func treeOfLeaves(dir string, size int64) (*tree, error) {
	t := &tree{}
	for t.size < size {
		hashes, err := readTile(dir, tlog.Tile{H: tileHeight, N: t.size / tileWidth,
			W: int(min(tileWidth, size-t.size))})
		if err != nil {
			return nil, err
		}
		for _, h := range hashes {
			t.appendRestored(dir, h)
		}
	}
	return t, nil
}

// appendRestored appends the hash of a record that the log already had. A tile that is already on
// the disk is not written again.
func (t *tree) appendRestored(dir string, h tlog.Hash) {
	fullBefore := len(t.fullTiles)
	t.append(h)
	t.fullTiles = append(t.fullTiles[:fullBefore], slices.DeleteFunc(t.fullTiles[fullBefore:],
		func(full tile) bool {
			there, err := readTile(dir, full.Tile)
			return err == nil && slices.Equal(there, full.hashes)
		})...)
}

// replayUnsigned appends the records after the checkpoint to the tree. It also checks the last
// record that the checkpoint covers: its hash must be in the tree.
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
