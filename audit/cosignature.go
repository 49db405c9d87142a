package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"gatekit/core/atomicfile"
)

// A witness is a service of somebody else that has seen earlier checkpoints of a log. It signs a
// new one only if the new one is consistent with them (C2SP tlog-witness). So a log with two
// histories, shown to different readers, gets no cosignatures for one of them. Package
// audit/witness asks witnesses for cosignatures.
//
// # Why no library
//
// github.com/transparency-dev/formats verifies cosignatures, too, and brings an implementation of
// ML-DSA and x/crypto with it. A cosignature/v1 needs crypto/ed25519 and thirty lines. A test
// compares the cosignatures with those of transparency-dev/witness.

// cosignatureType is the signature type of an Ed25519 cosignature in a key (C2SP tlog-cosignature).
const cosignatureType = 0x04

// timestampBytes is the length of the time before the signature in a cosignature.
const timestampBytes = 8

// WitnessKey verifies the cosignatures of one witness: Ed25519, version cosignature/v1. It
// implements note.Verifier.
type WitnessKey struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

// ParseWitnessKey parses the public key of a witness, a line NAME+ID+KEY whose KEY has the type
// 0x04.
func ParseWitnessKey(text string) (*WitnessKey, error) {
	invalid := func(reason string) (*WitnessKey, error) {
		return nil, fmt.Errorf("not the public key of a witness: %s\nhint: the witness publishes "+
			"a line NAME+ID+KEY of the type cosignature/v1", reason)
	}
	name, rest, _ := strings.Cut(text, "+")
	id, encoded, ok := strings.Cut(rest, "+")
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	switch {
	case !ok || err != nil || len(b) == 0:
		return invalid("it does not have the form NAME+ID+KEY")
	case name == "" || strings.ContainsAny(name, " \t\r\n"):
		return invalid("its name is empty, or has spaces")
	case b[0] == 0x01:
		return invalid("it signs notes, not cosignatures")
	case b[0] == 0x06:
		return invalid("it is an ML-DSA-44 key, which Gatekit does not support; use the " +
			"witness's Ed25519 key")
	case b[0] != cosignatureType || len(b) != 1+ed25519.PublicKeySize:
		return invalid("it is not an Ed25519 key for cosignatures")
	}
	sum := sha256.Sum256(append([]byte(name+"\n"), b...))
	hash := binary.BigEndian.Uint32(sum[:])
	if id != fmt.Sprintf("%08x", hash) {
		return invalid(fmt.Sprintf("its ID is %s, but must be %08x for this name and key", id,
			hash))
	}
	return &WitnessKey{name, hash, b[1:]}, nil
}

// ReadWitnessKey returns the public key of a witness. The parameter key is the line NAME+ID+KEY, or
// the path of a file that holds this line.
func ReadWitnessKey(key string) (*WitnessKey, error) {
	text := strings.TrimSpace(key)
	if strings.Count(text, "+") < 2 {
		b, err := os.ReadFile(key)
		if err != nil {
			return nil, fmt.Errorf("read the public key of a witness: %w\nhint: give a line "+
				"NAME+ID+KEY, or a file that holds such a line", err)
		}
		text = strings.TrimSpace(string(b))
	}
	return ParseWitnessKey(text)
}

// Name implements note.Verifier.
func (k *WitnessKey) Name() string { return k.name }

// KeyHash implements note.Verifier.
func (k *WitnessKey) KeyHash() uint32 { return k.hash }

// Verify implements note.Verifier. The text of the note must be a checkpoint.
func (k *WitnessKey) Verify(text, cosignature []byte) bool {
	if len(cosignature) != timestampBytes+ed25519.SignatureSize {
		return false
	}
	seconds := binary.BigEndian.Uint64(cosignature)
	message := append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", seconds), text...)
	return seconds <= 1<<63-1 && ed25519.Verify(k.key, message, cosignature[timestampBytes:])
}

// Equal reports whether both keys are the same Ed25519 key. Their names may differ.
func (k *WitnessKey) Equal(other *WitnessKey) bool { return k.key.Equal(other.key) }

// Cosignature is the cosignature of one witness.
type Cosignature struct {
	Witness *WitnessKey
	Time    time.Time // when the witness saw that the checkpoint is the newest
	Line    string    // in the note, without its line feed
}

// CosignedCheckpoint is a checkpoint with the valid cosignatures of witnesses.
type CosignedCheckpoint struct {
	*Checkpoint
	Cosignatures []Cosignature
}

// OpenCosigned parses a checkpoint that is signed with the key of the log, and returns the
// cosignatures of these witnesses. It ignores the signatures of others. It fails if a cosignature
// of one of the witnesses is not valid. Two keys must not have the same name and ID.
func OpenCosigned(signed []byte, key note.Verifier,
	witnesses []*WitnessKey) (*CosignedCheckpoint, error) {
	c, err := OpenCheckpoint(signed, key)
	if err != nil {
		return nil, err
	}
	cosigned := &CosignedCheckpoint{Checkpoint: c}
	var verifiers []note.Verifier
	for _, w := range witnesses {
		verifiers = append(verifiers, w)
	}
	n, err := note.Open(signed, note.VerifierList(verifiers...))
	if _, ok := errors.AsType[*note.UnverifiedNoteError](err); ok {
		return cosigned, nil
	}
	if invalid, ok := errors.AsType[*note.InvalidSignatureError](err); ok {
		return nil, fmt.Errorf("the cosignature of the witness %s+%08x is not valid", invalid.Name,
			invalid.Hash)
	}
	if err != nil {
		return nil, fmt.Errorf("read the cosignatures of a checkpoint: %w", err)
	}
	for _, s := range n.Sigs {
		b, err := base64.StdEncoding.Strict().DecodeString(s.Base64)
		if err != nil {
			return nil, fmt.Errorf("the cosignature of the witness %s is not canonical base64",
				s.Name)
		}
		i := slices.IndexFunc(witnesses, func(w *WitnessKey) bool {
			return w.name == s.Name && w.hash == s.Hash
		})
		seconds := binary.BigEndian.Uint64(b[4:]) // after the ID of the key
		cosigned.Cosignatures = append(cosigned.Cosignatures, Cosignature{Witness: witnesses[i],
			Time: time.Unix(int64(seconds), 0).UTC(),
			Line: signaturePrefix + s.Name + " " + s.Base64})
	}
	return cosigned, nil
}

// cosignedFile returns the path of the file with the cosigned checkpoints of a log.
func cosignedFile(file string) string { return filepath.Join(file+".tree", "cosigned") }

// maxCosigned bounds the cosigned checkpoints that are kept: one for each witness.
const maxCosigned = 64

// ReadCosigned returns the checkpoints of a log that witnesses have cosigned, from a file beside
// the log. It keeps only the cosignatures of these witnesses. A log without the file has none.
func ReadCosigned(file string, key note.Verifier,
	witnesses []*WitnessKey) (all []*CosignedCheckpoint, err error) {
	b, err := readFile(cosignedFile(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the cosigned checkpoints: %w", err)
	}
	notes, torn := splitNotes(b)
	if torn > 0 || len(notes) > maxCosigned {
		return nil, fmt.Errorf("the cosigned checkpoints in %s are incomplete, or there are more "+
			"than %d\nhint: restore the file", cosignedFile(file), maxCosigned)
	}
	for _, signed := range notes {
		c, err := OpenCosigned(signed, key, witnesses)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cosignedFile(file), err)
		}
		all = append(all, c)
	}
	return all, nil
}

// WriteCosigned replaces the cosigned checkpoints of a log. A checkpoint without cosignatures is
// left out. When it returns nil, they survive a power cut.
func WriteCosigned(file string, all []*CosignedCheckpoint) error {
	var b bytes.Buffer
	for _, c := range all {
		if len(c.Cosignatures) == 0 {
			continue
		}
		b.Write(c.withCosignatures())
		b.WriteByte('\n')
	}
	return atomicfile.Write(cosignedFile(file), b.Bytes())
}

// withCosignatures returns the note with the log's own signature and the cosignatures.
func (c *CosignedCheckpoint) withCosignatures() []byte {
	text := string(c.Note[:bytes.LastIndex(c.Note, []byte("\n\n"))+2])
	for line := range strings.Lines(string(c.Note[len(text):])) {
		// the log's own signature; the cosignatures follow
		if strings.HasPrefix(line, signaturePrefix+c.Signer+" ") && isWholeOwn(line) {
			text += line
		}
	}
	for _, s := range c.Cosignatures {
		text += s.Line + "\n"
	}
	return []byte(text)
}

// isWholeOwn reports whether a line has the length of an Ed25519 signature of a note, which is
// shorter than a cosignature.
func isWholeOwn(line string) bool {
	_, encoded, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"),
		signaturePrefix), " ")
	b, err := base64.StdEncoding.DecodeString(encoded)
	return err == nil && len(b) == 4+ed25519.SignatureSize
}

// WitnessedSize returns the number of records that at least quorum witnesses have cosigned. A
// witness that cosigned a checkpoint of more records has cosigned these records, too, if the log
// matches all checkpoints. WitnessedSize returns 0 if fewer witnesses have cosigned anything.
func WitnessedSize(all []*CosignedCheckpoint, quorum int) int64 {
	sizes := map[string]int64{}
	for _, c := range all {
		for _, s := range c.Cosignatures {
			sizes[string(s.Witness.key)] = max(sizes[string(s.Witness.key)], c.Size)
		}
	}
	var sorted []int64
	for _, size := range sizes {
		sorted = append(sorted, size)
	}
	slices.Sort(sorted)
	if quorum < 1 || quorum > len(sorted) {
		return 0
	}
	return sorted[len(sorted)-quorum]
}

// ProveConsistency returns the proof that the first old records of a log are the same in the
// checkpoint c (RFC 6962, section 2.1.2). It is empty if old is 0 or the size of c.
func ProveConsistency(file string, c *Checkpoint, old int64) (tlog.TreeProof, error) {
	if old < 0 || old > c.Size {
		return nil, fmt.Errorf("a checkpoint of %d records cannot be consistent with %d records",
			c.Size, old)
	}
	if old == 0 || old == c.Size {
		return nil, nil
	}
	proof, err := tlog.ProveTree(c.Size, old, tlog.TileHashReader(tlog.Tree{N: c.Size,
		Hash: c.Root}, tileReader(file+".tree")))
	if err != nil {
		return nil, fmt.Errorf("read the Merkle tree in %s: %w\nhint: gatekit audit verify shows "+
			"details", file+".tree", err)
	}
	return proof, nil
}

// newestCosigned returns the largest cosigned checkpoint that covers a record, or nil if there is
// none. The cosignatures are not verified.
func newestCosigned(file string, key note.Verifier, seq uint64) (newest *Checkpoint) {
	all, err := ReadCosigned(file, key, nil)
	if err != nil {
		return nil // the log's own checkpoint proves the record, too
	}
	for _, c := range all {
		if uint64(c.Size) >= seq && (newest == nil || c.Size > newest.Size) {
			newest = c.Checkpoint
		}
	}
	return newest
}
