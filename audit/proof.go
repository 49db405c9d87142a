package audit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Proof proves that one record is in the log. Verifying a proof needs the public key and not the
// log. Its text has the form of C2SP's tlog-proof, with the record as extra data.
type Proof struct {
	Record     []byte // the line, without its line feed
	Index      int64  // index of the record's leaf: its seq minus one
	Hashes     tlog.RecordProof
	Checkpoint []byte // the signed note
}

// Prove makes the proof of a record from the log and its tree. If witnesses have cosigned a
// checkpoint that covers the record, the proof has that checkpoint, with the cosignatures.
func Prove(file string, seq uint64, key note.Verifier) (*Proof, error) {
	signed, err := readFile(filepath.Join(file+".tree", "checkpoint"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the log %s has no checkpoint yet\nhint: Gatekit makes a "+
			"checkpoint a second after a record, and when it stops", file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	c, err := OpenCheckpoint(signed, key)
	if err != nil {
		return nil, err
	}
	if cosigned := newestCosigned(file, key, seq); cosigned != nil && cosigned.Size <= c.Size {
		c, signed = cosigned, cosigned.Note
	}
	if seq == 0 || seq > uint64(c.Size) {
		return nil, fmt.Errorf("no checkpoint covers record %d: the last checkpoint covers %d "+
			"records\nhint: Gatekit makes a checkpoint a second after a record, and when it stops",
			seq, c.Size)
	}
	p := &Proof{Index: int64(seq) - 1, Checkpoint: signed}
	if p.Record, err = findLine(file, seq); err != nil {
		return nil, err
	}
	hashes := tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, tileReader(file+".tree"))
	if p.Hashes, err = tlog.ProveRecord(c.Size, p.Index, hashes); err != nil {
		return nil, fmt.Errorf("read the Merkle tree in %s: %w\nhint: gatekit audit verify "+
			"shows details", file+".tree", err)
	}
	if err := tlog.CheckRecord(p.Hashes, c.Size, c.Root, p.Index,
		tlog.RecordHash(p.Record)); err != nil {
		return nil, fmt.Errorf("record %d does not match the checkpoint: it was changed\nhint: "+
			"gatekit audit verify shows details", seq)
	}
	return p, nil
}

// findLine returns the line of a record.
func findLine(file string, seq uint64) (found []byte, err error) {
	err = forEachLine(file, seq, func(position Position, line []byte) error {
		n, _, err := parseLineHead(line)
		switch {
		case err != nil:
			return &positionError{position, err}
		case n > seq:
			return fmt.Errorf("record %d is not in the log: the first record in %s is %d", seq,
				position.File, n)
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

// Verify verifies that the record is in a log whose checkpoints the key signs, and returns the
// checkpoint.
func (p *Proof) Verify(key note.Verifier) (*Checkpoint, error) {
	c, err := OpenCheckpoint(p.Checkpoint, key)
	if err != nil {
		return nil, err
	}
	if err := tlog.CheckRecord(p.Hashes, c.Size, c.Root, p.Index,
		tlog.RecordHash(p.Record)); err != nil {
		return nil, fmt.Errorf("the proof is invalid: the record is not number %d of the %d "+
			"records in the checkpoint", p.Index+1, c.Size)
	}
	// The record is authentic. Its seq may still differ from its place in the log.
	if seq, _, err := parseLine(p.Record); err != nil || seq != uint64(p.Index)+1 {
		return nil, fmt.Errorf("the record is number %d of the log, but its seq is %d", p.Index+1,
			seq)
	}
	return c, nil
}

const proofHeader = "c2sp.org/tlog-proof@v1\n"

// Text returns the proof in its text form.
func (p *Proof) Text() []byte {
	b := []byte(proofHeader)
	b = fmt.Appendf(b, "extra %s\nindex %d\n", base64.StdEncoding.EncodeToString(p.Record), p.Index)
	for _, h := range p.Hashes {
		b = fmt.Appendf(b, "%s\n", h)
	}
	b = append(b, '\n')
	return append(b, p.Checkpoint...)
}

// ParseProof parses the text form of a proof. It does not verify the proof; see Proof.Verify.
func ParseProof(text []byte) (*Proof, error) {
	invalid := func(reason string) (*Proof, error) {
		return nil, fmt.Errorf(
			"not a proof of a record: %s\nhint: gatekit audit prove makes a proof", reason)
	}
	rest, ok := strings.CutPrefix(string(text), proofHeader)
	head, checkpoint, found := strings.Cut(rest, "\n\n")
	if !ok || !found {
		return invalid("the text does not begin with " + strings.TrimSpace(proofHeader))
	}
	lines := strings.Split(head, "\n")
	if len(lines) < 2 || len(lines) > 2+64 {
		return invalid("the text has too few lines, or too many")
	}
	extra, ok := strings.CutPrefix(lines[0], "extra ")
	if !ok {
		return invalid("the record is missing")
	}
	p := &Proof{Checkpoint: []byte(checkpoint)}
	var err error
	if p.Record, err = base64.StdEncoding.Strict().DecodeString(extra); err != nil {
		return invalid("the record is not base64")
	}
	index, ok := strings.CutPrefix(lines[1], "index ")
	if p.Index, err = strconv.ParseInt(index, 10, 64); !ok || err != nil || p.Index < 0 ||
		strconv.FormatInt(p.Index, 10) != index {
		return invalid("the index is not a number")
	}
	for _, line := range lines[2:] {
		h, err := tlog.ParseHash(line)
		if err != nil {
			return invalid("a hash is invalid")
		}
		p.Hashes = append(p.Hashes, h)
	}
	return p, nil
}
