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

// Checkpoint commits to the first records of a log. It is a signed note in the form of C2SP's
// tlog-checkpoint.
type Checkpoint struct {
	Origin string    // identifies the log; random, and therefore unique
	Size   int64     // number of records
	Root   tlog.Hash // root hash of the Merkle tree over these records
	// the log was closed after these records; before Gatekit adds a record, it writes a checkpoint
	// in which Closed is false
	Closed bool
	File   FileEnd // of the file with the last record; zero if the note has no line "file"
	Signer string  // name of the signing key
	Note   []byte  // the signed note
}

// FileEnd describes a file of the log: which record begins it, and how long it was at one time.
type FileEnd struct {
	First uint64 // seq of the file's first record
	Bytes int64  // length, up to and including the last record at that time
}

// filePrefix begins the extension line that holds the FileEnd.
const filePrefix = "file "

// closedLine is an extension line of the last checkpoint of a closed log. C2SP allows each signer
// to define extension lines.
const closedLine = "closed"

// sign encodes the checkpoint as a signed note.
func (c *Checkpoint) sign(key note.Signer) (err error) {
	c.Signer = key.Name()
	text := fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size,
		base64.StdEncoding.EncodeToString(c.Root[:]))
	if c.File != (FileEnd{}) {
		text += fmt.Sprintf("%s%d %d\n", filePrefix, c.File.First, c.File.Bytes)
	}
	if c.Closed {
		text += closedLine + "\n"
	}
	c.Note, err = note.Sign(&note.Note{Text: text}, key)
	return err
}

// OpenCheckpoint parses a signed checkpoint. It fails if the checkpoint is not signed with the key.
func OpenCheckpoint(signed []byte, key note.Verifier) (*Checkpoint, error) {
	n, err := note.Open(signed, note.VerifierList(key))
	if unsigned, ok := errors.AsType[*note.UnverifiedNoteError](err); ok &&
		len(unsigned.Note.UnverifiedSigs) > 0 {
		other := unsigned.Note.UnverifiedSigs[0]
		return nil, fmt.Errorf(
			"the checkpoint is signed with key %s+%08x, not with %s+%08x", other.Name, other.Hash,
			key.Name(), key.KeyHash())
	}
	if _, ok := errors.AsType[*note.InvalidSignatureError](err); ok {
		return nil, fmt.Errorf("the checkpoint was changed: its signature with key %s+%08x is "+
			"invalid", key.Name(), key.KeyHash())
	}
	if err != nil {
		return nil, fmt.Errorf("read a checkpoint: %w", err)
	}
	// Base64 ignores the unused bits of the last character. Without this check, that character
	// could be changed unnoticed.
	for _, sig := range n.Sigs {
		if _, err := base64.StdEncoding.Strict().DecodeString(sig.Base64); err != nil {
			return nil, fmt.Errorf("the checkpoint was changed: its signature is not canonical "+
				"base64: %w", err)
		}
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) < 4 || lines[0] == "" {
		return nil, errors.New("read a checkpoint: origin, size or root is missing")
	}
	c := &Checkpoint{Origin: lines[0], Signer: key.Name(), Note: signed}
	if c.Size, err = strconv.ParseInt(lines[1], 10, 64); err != nil || c.Size < 0 ||
		strconv.FormatInt(c.Size, 10) != lines[1] {
		return nil, fmt.Errorf("read a checkpoint: size %q is not a number of records", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return nil, fmt.Errorf("read a checkpoint: root %q is not a SHA-256 hash", lines[2])
	}
	c.Root, c.Closed = tlog.Hash(root), slices.Contains(lines[3:], closedLine)
	for _, line := range lines[3:] {
		if end, ok := strings.CutPrefix(line, filePrefix); ok {
			if _, err := fmt.Sscanf(end, "%d %d", &c.File.First, &c.File.Bytes); err != nil {
				return nil, fmt.Errorf("read a checkpoint: the line %q does not have the form "+
					"\"file FIRST BYTES\"", line)
			}
		}
	}
	return c, nil
}

// OpenCheckpoints parses one or more checkpoints that follow each other, as in an anchor file. It
// skips and counts incomplete checkpoints, which a crash may leave. It fails if there is no
// complete checkpoint, or if one of the complete checkpoints is not signed with the key.
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
		return nil, torn, errors.New("no checkpoint found")
	}
	return all, torn, nil
}

// signaturePrefix begins the signature lines of a note.
const signaturePrefix = "\u2014 "

// splitNotes splits notes that follow each other, and returns the number of incomplete notes
// between them. A note is a paragraph of text, an empty line and a paragraph of signatures.
func splitNotes(b []byte) (notes [][]byte, torn int) {
	var text, signatures []byte
	endNote := func() { // ends a note after its signatures
		switch {
		case len(signatures) == 0:
			return
		case len(text) == 0 || !isWholeSignature(signatures):
			torn++
		default:
			notes = append(notes, slices.Concat(text, []byte("\n"), bytes.TrimSuffix(signatures,
				[]byte("\n")), []byte("\n")))
		}
		text, signatures = nil, nil
	}
	afterEmptyLine := false // the previous line was empty
	for line := range bytes.Lines(b) {
		switch {
		case len(bytes.TrimSpace(line)) == 0:
			endNote()
			afterEmptyLine = true
		case isSignature(line) && (afterEmptyLine || len(signatures) > 0):
			signatures, afterEmptyLine = append(signatures, line...), false
		default:
			endNote()
			if afterEmptyLine && len(text) > 0 {
				torn++
				text = nil
			}
			text, afterEmptyLine = append(text, line...), false
		}
	}
	endNote()
	if len(text) > 0 {
		torn++
	}
	return notes, torn
}

// isSignature reports whether a line is a signature, or the beginning of one.
func isSignature(line []byte) bool {
	n := min(len(signaturePrefix), len(bytes.TrimSuffix(line, []byte("\n"))))
	return string(line[:n]) == signaturePrefix[:n]
}

// isWholeSignature reports whether the last line of signatures is complete.
func isWholeSignature(signatures []byte) bool {
	const minBytes = 4 + ed25519.SignatureSize // the key's hash and the signature
	last := signatures[bytes.LastIndexByte(bytes.TrimSuffix(signatures, []byte("\n")), '\n')+1:]
	_, text, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(string(last), "\n"),
		signaturePrefix),
		" ")
	b, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(b) >= minBytes
}
