package audit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint says what the first records of a log are: a signed note in C2SP's tlog-checkpoint form.
type Checkpoint struct {
	Origin string    // of the log: no two have the same
	Size   int64     // how many records
	Root   tlog.Hash // of the tree over them
	Closed bool      // the log was closed after them: nothing follows that Gatekit has written, unless it opens the log again and says so in another checkpoint
	Signer string    // name of the key that signed it
	Note   []byte    // as it was signed
}

// closed is the line after the root in the last checkpoint of a log that was closed. C2SP leaves such lines to who signs.
const closed = "closed"

// sign makes the checkpoint a note.
func (c *Checkpoint) sign(key note.Signer) (err error) {
	c.Signer = key.Name()
	text := fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
	if c.Closed {
		text += closed + "\n"
	}
	c.Note, err = note.Sign(&note.Note{Text: text}, key)
	return err
}

// OpenCheckpoint reads a signed checkpoint. One that the key has not signed is an error.
func OpenCheckpoint(signed []byte, key note.Verifier) (*Checkpoint, error) {
	n, err := note.Open(signed, note.VerifierList(key))
	if unsigned, ok := errors.AsType[*note.UnverifiedNoteError](err); ok && len(unsigned.Note.UnverifiedSigs) > 0 {
		by := unsigned.Note.UnverifiedSigs[0]
		return nil, fmt.Errorf("the checkpoint is signed with the key %s+%08x, and not with %s+%08x", by.Name, by.Hash, key.Name(), key.KeyHash())
	}
	if _, ok := errors.AsType[*note.InvalidSignatureError](err); ok {
		return nil, fmt.Errorf("the checkpoint was changed: its signature by the key %s+%08x does not fit", key.Name(), key.KeyHash())
	}
	if err != nil {
		return nil, fmt.Errorf("read a checkpoint: %w", err)
	}
	for _, sig := range n.Sigs { // else its last character could be another, and all that is signed the same
		if _, err := base64.StdEncoding.Strict().DecodeString(sig.Base64); err != nil {
			return nil, fmt.Errorf("the checkpoint was changed: its signature is not as it was written: %w", err)
		}
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) < 4 || lines[0] == "" {
		return nil, errors.New("read a checkpoint: it does not have an origin, a size and a root")
	}
	c := &Checkpoint{Origin: lines[0], Signer: key.Name(), Note: signed}
	if c.Size, err = strconv.ParseInt(lines[1], 10, 64); err != nil || c.Size < 0 || strconv.FormatInt(c.Size, 10) != lines[1] {
		return nil, fmt.Errorf("read a checkpoint: its size %q is no number of records", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return nil, fmt.Errorf("read a checkpoint: its root %q is no hash", lines[2])
	}
	c.Root, c.Closed = tlog.Hash(root), slices.Contains(lines[3:], closed)
	return c, nil
}

// OpenCheckpoints reads one checkpoint or several, one after another, as an anchor file has them.
func OpenCheckpoints(b []byte, key note.Verifier) ([]*Checkpoint, error) {
	var all []*Checkpoint
	for i, signed := range splitNotes(b) {
		c, err := OpenCheckpoint(signed, key)
		if err != nil {
			return nil, fmt.Errorf("checkpoint %d: %w", i+1, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no checkpoint in it")
	}
	return all, nil
}

// splitNotes parts notes that follow each other: one ends with its signatures. The empty lines between them are no part of any.
func splitNotes(b []byte) [][]byte {
	signature := []byte("— ")
	var notes [][]byte
	var now []byte
	signed := false
	for line := range bytes.Lines(b) {
		if signed && !bytes.HasPrefix(line, signature) {
			notes, now, signed = append(notes, now), nil, false
		}
		if len(now) == 0 && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		now = append(now, line...)
		signed = bytes.HasPrefix(line, signature)
	}
	if len(now) > 0 {
		notes = append(notes, now)
	}
	return notes
}
