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

// continueTree is the tree of a log that has been written before, up to its last record, and the
// checkpoint that it goes on from, which is nil of a new log. A log that is not what its checkpoint
// says is refused, and so is one that has none: that is made before the first record.
func continueTree(file string, key note.Verifier, end ending) (*tree, *Checkpoint, error) {
	dir := file + ".tree"
	path := filepath.Join(dir, "checkpoint")
	signed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(originFile(dir)); end.head.seq == 0 && errors.Is(err,
			fs.ErrNotExist) {
			return &tree{}, nil, nil
		}
		return nil, nil, fmt.Errorf("its checkpoint %s is missing: nothing says that its "+
			"records are those that Gatekit has written\nhint: put the checkpoint back; where "+
			"it is lost, %s", path, afresh(file))
	}
	if err != nil {
		return nil, nil, err
	}
	c, err := OpenCheckpoint(signed, key)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w\nhint: %s", path, err, afresh(file))
	}
	if uint64(c.Size) > end.head.seq {
		return nil, nil, fmt.Errorf("it ends at record %d, and its checkpoint %s is of %d: "+
			"records were taken away\nhint: put the missing files back; where they are lost, %s",
			end.head.seq, path, c.Size, afresh(file))
	}
	if uint64(c.Size) < end.head.seq && c.Closed {
		return nil, nil, fmt.Errorf("it ends at record %d, and Gatekit closed it after record "+
			"%d, as its checkpoint %s says: others have written what follows\n"+
			"hint: take what follows record %d out; to keep it as it is, %s", end.head.seq, c.Size,
			path, c.Size, afresh(file))
	}
	t, err := treeOf(dir, c.Size)
	// tiles are not synced; a power cut may have taken some
	if err != nil || t.root() != c.Root || uint64(c.Size) == end.head.seq && t.last != end.leaf ||
		!c.Closed && !t.held(dir, firstRecord(file)) {
		if t, err = treeAnew(file, dir, c); err != nil {
			return nil, nil, err
		}
	}
	return t, c, catchUp(file, t, end)
}

// firstRecord is the number of the first record that there is; 0 where it cannot be read.
func firstRecord(file string) (first uint64) {
	eachLine(file, 0, func(_ Position, line []byte) error {
		first, _, _ = lineHead(line)
		return errStopped
	})
	return first
}

// afresh says how to begin a new log.
func afresh(file string) string {
	return fmt.Sprintf("move %s and what else begins with that name away together, and its "+
		"anchor, to keep what there is, and a new log begins", file)
}

// treeAnew is the tree of the records up to a checkpoint, made of the records that there are and,
// for those whose files were removed, of the tiles.
func treeAnew(file, dir string, c *Checkpoint) (*tree, error) {
	var t *tree
	errEnough := errors.New("enough")
	err := eachLine(file, 0, func(at Position, line []byte) error {
		seq, _, err := lineHead(line)
		if err != nil {
			return &placed{at, err}
		}
		if t == nil {
			if t, err = treeOf(dir, int64(seq-1)); err != nil {
				return err
			}
		}
		known := len(t.full)
		t.append(tlog.RecordHash(line))
		// those that are on the disk need not be kept, to be written
		t.full = append(t.full[:known], slices.DeleteFunc(t.full[known:], func(at tile) bool {
			there, err := readTile(dir, at.Tile)
			return err == nil && slices.Equal(there, at.hashes)
		})...)
		if t.size == c.Size {
			return errEnough
		}
		return nil
	})
	if err != nil && err != errEnough && !errors.Is(err, errTorn) {
		return nil, fmt.Errorf("make its tree anew: %w", err)
	}
	if t == nil || t.size != c.Size || t.root() != c.Root {
		return nil, fmt.Errorf("it is not what its checkpoint %s says: it was changed\nhint: "+
			"gatekit audit verify says where; %s", filepath.Join(dir, "checkpoint"), afresh(file))
	}
	return t, nil
}

// catchUp adds the records that are not in the tree yet, and holds that the last that is in it is
// still the one that there was.
func catchUp(file string, t *tree, end ending) error {
	signed := uint64(t.size)
	leaf := t.last
	changed := func(at string) error {
		return fmt.Errorf("%s: record %d is not the one that is in its tree: it was "+
			"changed\nhint: gatekit audit verify says more; %s", at, signed, afresh(file))
	}
	if end.head.seq == signed {
		if signed > 0 && end.leaf != leaf {
			return changed(file)
		}
		return nil
	}
	var at chain
	err := eachLine(file, signed, func(place Position, line []byte) error {
		seq, _, err := lineHead(line)
		switch {
		case err != nil:
			return &placed{place, err}
		case at.seq == 0 && seq > signed+1:
			return &placed{place, fmt.Errorf("records %d to %d are missing\nhint: put their "+
				"files back; where they are lost, %s", signed+1, seq-1, afresh(file))}
		}
		if err := at.next(line, seq); err != nil {
			return &placed{place, fmt.Errorf("it does not follow on record %d: %w\nhint: "+
				"gatekit audit verify says more; %s", at.seq, err, afresh(file))}
		}
		switch {
		case seq == signed && tlog.RecordHash(line) != leaf:
			return changed(place.String())
		case seq > signed:
			t.append(tlog.RecordHash(line))
		}
		return nil
	})
	if errors.Is(err, errTorn) && end.torn > 0 {
		err = nil // it is cut off when all else is good
	}
	return err
}
