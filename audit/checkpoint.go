package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint says what the first records of a log are: a signed note in C2SP's tlog-checkpoint
// form.
type Checkpoint struct {
	Origin string    // of the log: no two have the same
	Size   int64     // how many records
	Root   tlog.Hash // of the tree over them
	// the log was closed after them: nothing follows that Gatekit has written, unless it opens the
	// log again and says so in another checkpoint
	Closed bool
	Signer string // name of the key that signed it
	Note   []byte // as it was signed
}

// closedLine is the line after the root in the last checkpoint of a log that was closed. C2SP leaves
// such lines to who signs.
const closedLine = "closed"

// sign makes the checkpoint a note.
func (c *Checkpoint) sign(key note.Signer) (err error) {
	c.Signer = key.Name()
	text := fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size,
		base64.StdEncoding.EncodeToString(c.Root[:]))
	if c.Closed {
		text += closedLine + "\n"
	}
	c.Note, err = note.Sign(&note.Note{Text: text}, key)
	return err
}

// OpenCheckpoint reads a signed checkpoint. One that the key has not signed is an error.
func OpenCheckpoint(signed []byte, key note.Verifier) (*Checkpoint, error) {
	n, err := note.Open(signed, note.VerifierList(key))
	if unsigned, ok := errors.AsType[*note.UnverifiedNoteError](err); ok &&
		len(unsigned.Note.UnverifiedSigs) > 0 {
		by := unsigned.Note.UnverifiedSigs[0]
		return nil, fmt.Errorf(
			"the checkpoint is signed with the key %s+%08x, and not with %s+%08x", by.Name, by.Hash,
			key.Name(), key.KeyHash())
	}
	if _, ok := errors.AsType[*note.InvalidSignatureError](err); ok {
		return nil, fmt.Errorf("the checkpoint was changed: its signature by the key %s+%08x "+
			"does not fit", key.Name(), key.KeyHash())
	}
	if err != nil {
		return nil, fmt.Errorf("read a checkpoint: %w", err)
	}
	// else its last character could be another, and all that is signed the same
	for _, sig := range n.Sigs {
		if _, err := base64.StdEncoding.Strict().DecodeString(sig.Base64); err != nil {
			return nil, fmt.Errorf("the checkpoint was changed: its signature is not as it was "+
				"written: %w", err)
		}
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) < 4 || lines[0] == "" {
		return nil, errors.New("read a checkpoint: it does not have an origin, a size and a root")
	}
	c := &Checkpoint{Origin: lines[0], Signer: key.Name(), Note: signed}
	if c.Size, err = strconv.ParseInt(lines[1], 10, 64); err != nil || c.Size < 0 ||
		strconv.FormatInt(c.Size, 10) != lines[1] {
		return nil, fmt.Errorf("read a checkpoint: its size %q is no number of records", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return nil, fmt.Errorf("read a checkpoint: its root %q is no hash", lines[2])
	}
	c.Root, c.Closed = tlog.Hash(root), slices.Contains(lines[3:], closedLine)
	return c, nil
}

// OpenCheckpoints reads one checkpoint or several, one after another, as an anchor file has them. A
// crash may leave one in part: those are counted and passed over. One that is whole and that the
// key has not signed is an error, and so is when there is none.
func OpenCheckpoints(b []byte, key note.Verifier) (all []*Checkpoint, torn int, err error) {
	notes, torn := splitNotes(b)
	for i, signed := range notes {
		c, err := OpenCheckpoint(signed, key)
		if err != nil {
			return nil, 0, fmt.Errorf("checkpoint %d: %w", i+1, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, torn, errors.New("there is no checkpoint in it")
	}
	return all, torn, nil
}

// signaturePrefix is what the line of one begins with.
const signaturePrefix = "\u2014 "

// splitNotes parts notes that follow each other, and counts what is none. A note is a paragraph
// and, after an empty line, one of signatures.
func splitNotes(b []byte) (notes [][]byte, torn int) {
	var text, signed []byte
	end := func() { // of signed
		switch {
		case len(signed) == 0:
			return
		case len(text) == 0 || !isWholeSignature(signed):
			torn++
		default:
			notes = append(notes, slices.Concat(text, []byte("\n"), bytes.TrimSuffix(signed,
				[]byte("\n")), []byte("\n")))
		}
		text, signed = nil, nil
	}
	over := false // the paragraph
	for line := range bytes.Lines(b) {
		switch {
		case len(bytes.TrimSpace(line)) == 0:
			end()
			over = true
		case isSignature(line) && (over || len(signed) > 0):
			signed, over = append(signed, line...), false
		default:
			end()
			if over && len(text) > 0 {
				torn++
				text = nil
			}
			text, over = append(text, line...), false
		}
	}
	end()
	if len(text) > 0 {
		torn++
	}
	return notes, torn
}

// isSignature says whether a line is one, or the beginning of one.
func isSignature(line []byte) bool {
	n := min(len(signaturePrefix), len(bytes.TrimSuffix(line, []byte("\n"))))
	return string(line[:n]) == signaturePrefix[:n]
}

// isWholeSignature says whether the last of some signatures is all there.
func isWholeSignature(signed []byte) bool {
	const least = 4 + ed25519.SignatureSize // after the hash of the key
	last := signed[bytes.LastIndexByte(bytes.TrimSuffix(signed, []byte("\n")), '\n')+1:]
	_, text, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(string(last), "\n"), signaturePrefix),
		" ")
	b, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(b) >= least
}
