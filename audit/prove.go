package audit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Proof shows to who has nothing but the public key that one record is in the log. Its text is
// C2SP's tlog-proof, with the record as its extra data.
type Proof struct {
	Record     []byte // its line, without the line feed
	Index      int64  // of the leaf: one less than the record's number
	Hashes     tlog.RecordProof
	Checkpoint []byte // signed
}

// Prove makes the proof of a record, from the log and the tree beside it.
func Prove(file string, seq uint64, key note.Verifier) (*Proof, error) {
	signed, err := os.ReadFile(filepath.Join(file+".tree", "checkpoint"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the log %s has no checkpoint yet: one is made a second after a "+
			"record, and when Gatekit ends", file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	c, err := OpenCheckpoint(signed, key)
	if err != nil {
		return nil, err
	}
	if seq == 0 || seq > uint64(c.Size) {
		return nil, fmt.Errorf("there is no checkpoint with record %d: the last is of %d "+
			"records\nhint: one is made a second after a record, and when Gatekit ends", seq,
			c.Size)
	}
	p := &Proof{Index: int64(seq) - 1, Checkpoint: signed}
	if p.Record, err = lineAt(file, seq); err != nil {
		return nil, err
	}
	hashes := tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, tiles(file+".tree"))
	if p.Hashes, err = tlog.ProveRecord(c.Size, p.Index, hashes); err != nil {
		return nil, fmt.Errorf("read the tree in %s: %w\nhint: gatekit audit verify says what "+
			"is wrong", file+".tree", err)
	}
	if err := tlog.CheckRecord(p.Hashes, c.Size, c.Root, p.Index,
		tlog.RecordHash(p.Record)); err != nil {
		return nil, fmt.Errorf("record %d is not the one that its checkpoint speaks of: it was "+
			"changed\nhint: gatekit audit verify says more", seq)
	}
	return p, nil
}

// lineAt is the line of a record.
func lineAt(file string, seq uint64) (found []byte, err error) {
	err = eachLine(file, seq, func(at Position, line []byte) error {
		n, _, err := lineHead(line)
		switch {
		case err != nil:
			return &placed{at, err}
		case n > seq:
			return fmt.Errorf("record %d is not in the log: the first in %s is %d", seq, at.File, n)
		case n == seq:
			found = bytes.Clone(line)
			return errStopped
		}
		return nil
	})
	if err == nil {
		err = fmt.Errorf("record %d is not in the log %s", seq, file)
	}
	if errors.Is(err, errStopped) {
		err = nil
	}
	return found, err
}

// Verify says that the record is one of the log whose checkpoints the key signs, and answers the
// checkpoint.
func (p *Proof) Verify(key note.Verifier) (*Checkpoint, error) {
	c, err := OpenCheckpoint(p.Checkpoint, key)
	if err != nil {
		return nil, err
	}
	if err := tlog.CheckRecord(p.Hashes, c.Size, c.Root, p.Index,
		tlog.RecordHash(p.Record)); err != nil {
		return nil, fmt.Errorf("the proof does not hold: the record is not number %d of the %d "+
			"that the checkpoint speaks of", p.Index+1, c.Size)
	}
	// signed it is, but what it says of itself is wrong
	if seq, _, err := parseLine(p.Record); err != nil || seq != uint64(p.Index)+1 {
		return nil, fmt.Errorf("the record is number %d of the log, and says of itself that it "+
			"is %d", p.Index+1, seq)
	}
	return c, nil
}

const proofHeader = "c2sp.org/tlog-proof@v1\n"

// Text is the proof as it is handed on.
func (p *Proof) Text() []byte {
	b := []byte(proofHeader)
	b = fmt.Appendf(b, "extra %s\nindex %d\n", base64.StdEncoding.EncodeToString(p.Record), p.Index)
	for _, h := range p.Hashes {
		b = fmt.Appendf(b, "%s\n", h)
	}
	b = append(b, '\n')
	return append(b, p.Checkpoint...)
}

// ParseProof reads the text of a proof. It proves nothing yet: that is Check's.
func ParseProof(text []byte) (*Proof, error) {
	bad := func(what string) (*Proof, error) {
		return nil, fmt.Errorf(
			"it is no proof of a record: %s\nhint: gatekit audit prove makes one", what)
	}
	rest, ok := strings.CutPrefix(string(text), proofHeader)
	head, checkpoint, found := strings.Cut(rest, "\n\n")
	if !ok || !found {
		return bad("it does not begin with " + strings.TrimSpace(proofHeader))
	}
	lines := strings.Split(head, "\n")
	if len(lines) < 2 || len(lines) > 2+64 {
		return bad("it has too few lines, or too many")
	}
	extra, ok := strings.CutPrefix(lines[0], "extra ")
	if !ok {
		return bad("the record is not in it")
	}
	p := &Proof{Checkpoint: []byte(checkpoint)}
	var err error
	if p.Record, err = base64.StdEncoding.Strict().DecodeString(extra); err != nil {
		return bad("the record in it is not base64")
	}
	index, ok := strings.CutPrefix(lines[1], "index ")
	if p.Index, err = strconv.ParseInt(index, 10, 64); !ok || err != nil || p.Index < 0 ||
		strconv.FormatInt(p.Index, 10) != index {
		return bad("its index is no number")
	}
	for _, line := range lines[2:] {
		h, err := tlog.ParseHash(line)
		if err != nil {
			return bad("a hash in it is none")
		}
		p.Hashes = append(p.Hashes, h)
	}
	return p, nil
}
