package audit_test

import (
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
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"gatekit/audit"
)

// cosigner is a witness that cosigns everything.
type cosigner struct {
	name string
	key  ed25519.PrivateKey
}

func newCosigner(name string) *cosigner {
	seed := sha256.Sum256([]byte(name))
	return &cosigner{name, ed25519.NewKeyFromSeed(seed[:])}
}

// vkey returns a public key of a signature type, with the right ID.
func vkey(name string, kind byte, key []byte) string {
	b := append([]byte{kind}, key...)
	sum := sha256.Sum256(append([]byte(name+"\n"), b...))
	return fmt.Sprintf("%s+%x+%s", name, sum[:4], base64.StdEncoding.EncodeToString(b))
}

func (c *cosigner) vkey() string { return vkey(c.name, 4, c.key.Public().(ed25519.PublicKey)) }

func (c *cosigner) witness(t testing.TB) *audit.WitnessKey {
	t.Helper()
	key, err := audit.ParseWitnessKey(c.vkey())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// line returns a cosignature of a checkpoint.
func (c *cosigner) line(t testing.TB, signed []byte, seconds uint64) string {
	t.Helper()
	text, _, _ := strings.Cut(string(signed), "\n\n")
	b := binary.BigEndian.AppendUint32(nil, c.witness(t).KeyHash())
	b = binary.BigEndian.AppendUint64(b, seconds)
	b = append(b, ed25519.Sign(c.key, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s\n", seconds,
		text))...)
	return fmt.Sprintf("— %s %s\n", c.name, base64.StdEncoding.EncodeToString(b))
}

// The key and the cosignature are those of transparency-dev/witness (cmd/omniwitness, version
// 2026-07-20), which cosigned the checkpoint of a log.
func TestCosignatureOfRealWitness(t *testing.T) {
	key, err := audit.ParseWitnessKey("witness.example/w1+78dcf31c+" +
		"BIpo1H1Vb/AqZQNlyDj/DNwM9bm4U+lW+IroIlhCJIQW")
	if err != nil {
		t.Fatal(err)
	}
	logKey, err := note.NewVerifier("gatekit/vm+2098fae7+AfH/yZKabhRAPp2r+eocHyu8qWUt2IAq0Tr+4eo2sl8t")
	if err != nil {
		t.Fatal(err)
	}
	signed := readFile(t, filepath.Join("testdata", "cosigned.txt"))
	c, err := audit.OpenCosigned(signed, logKey, []*audit.WitnessKey{key})
	if err != nil || len(c.Cosignatures) != 1 || c.Cosignatures[0].Witness != key || c.Size != 24 ||
		c.Cosignatures[0].Time.Format(time.DateTime) != "2026-11-28 09:23:36" {
		t.Errorf("got %+v, error %v", c, err)
	}
	if key.Name() != "witness.example/w1" || fmt.Sprintf("%08x", key.KeyHash()) != "78dcf31c" {
		t.Errorf("the key is %s+%08x", key.Name(), key.KeyHash())
	}
}

func TestParseWitnessKey(t *testing.T) {
	good := newCosigner("w.example/w1")
	public := []byte(good.key.Public().(ed25519.PublicKey))
	_, id, _ := strings.Cut(good.vkey(), "+")
	for name, tt := range map[string]struct{ key, want string }{
		"no key":            {"", "does not have the form"},
		"no ID":             {"w.example+AAAA", "does not have the form"},
		"not base64":        {"w.example+01020304+!", "does not have the form"},
		"an empty key":      {"w.example+01020304+", "does not have the form"},
		"no name":           {vkey("", 4, public), "name is empty"},
		"a name with space": {vkey("a b", 4, public), "has spaces"},
		"a note's key":      {vkey("w", 1, public), "signs notes"},
		"ML-DSA-44":         {vkey("w", 6, make([]byte, 1312)), "ML-DSA-44"},
		"another type":      {vkey("w", 5, public), "not an Ed25519 key"},
		"a short key":       {vkey("w", 4, public[1:]), "not an Ed25519 key"},
		"a long key":        {vkey("w", 4, append(public, 0)), "not an Ed25519 key"},
		"another name":      {"other+" + id, "its ID is"},
	} {
		if key, err := audit.ParseWitnessKey(tt.key); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, error %v, want %q", name, key, err, tt.want)
		}
	}
	file := filepath.Join(t.TempDir(), "w.pub")
	if err := os.WriteFile(file, []byte(good.vkey()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{" " + good.vkey() + "\n", file} {
		key, err := audit.ReadWitnessKey(text)
		if err != nil || key.Name() != "w.example/w1" ||
			fmt.Sprintf("%08x", key.KeyHash()) != id[:8] || !key.Equal(good.witness(t)) {
			t.Errorf("%q is %+v, error %v", text, key, err)
		}
	}
	if _, err := audit.ReadWitnessKey(file + "2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got the error %v", err)
	}
	if good.witness(t).Equal(newCosigner("other").witness(t)) {
		t.Error("two keys are equal")
	}
}

func TestOpenCosigned(t *testing.T) {
	e := newSignedLog(t, 3)
	signed := readFile(t, e.file+".tree/checkpoint")
	a, b, stranger := newCosigner("a"), newCosigner("b"), newCosigner("stranger")
	keys := []*audit.WitnessKey{a.witness(t), b.witness(t)}
	open := func(lines ...string) (*audit.CosignedCheckpoint, error) {
		return audit.OpenCosigned(append(slices.Clone(signed), strings.Join(lines, "")...), e.key,
			keys)
	}
	c, err := open()
	if err != nil || len(c.Cosignatures) != 0 || c.Size != 3 {
		t.Errorf("without cosignatures: got %+v, error %v", c, err)
	}
	lineA := a.line(t, signed, 1_800_000_000)
	c, err = open(stranger.line(t, signed, 1), lineA)
	if err != nil || len(c.Cosignatures) != 1 || c.Cosignatures[0] != (audit.Cosignature{
		Witness: keys[0], Time: time.Unix(1_800_000_000, 0).UTC(),
		Line: strings.TrimSuffix(lineA, "\n")}) {
		t.Errorf("got %+v, error %v", c, err)
	}
	if c, err := open(b.line(t, signed, 1<<63-1), lineA); err != nil || len(c.Cosignatures) != 2 {
		t.Errorf("with two witnesses: got %+v, error %v", c, err)
	}
	for name, line := range map[string]string{
		"a time over 2^63":      a.line(t, signed, 1<<63),
		"of another checkpoint": a.line(t, []byte("x\n\n"), 1),
		"a changed signature": lineA[:len(lineA)-10] + map[bool]string{true: "B",
			false: "A"}[lineA[len(lineA)-10] == 'A'] + lineA[len(lineA)-9:],
		"too short": "— a " + base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil,
			keys[0].KeyHash())) + "\n",
	} {
		if c, err := open(line); err == nil {
			t.Errorf("%s: got %+v, want an error", name, c)
		}
	}
	// The last character of this base64 has bits that are not used.
	trimmed := strings.TrimSuffix(lineA, "\n")
	last := strings.TrimRight(trimmed, "=")
	if padding := trimmed[len(last):]; padding != "" {
		const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
		at := strings.IndexByte(digits, last[len(last)-1])
		changed := last[:len(last)-1] + digits[at^1:at^1+1] + padding + "\n"
		if c, err := open(changed); err == nil {
			t.Errorf("not canonical: got %+v, want an error", c)
		}
	}
	if _, err := audit.OpenCosigned(signed, newSignedLog(t, 1).key, keys); err == nil {
		t.Error("a checkpoint with the key of another log was opened")
	}
	if _, err := audit.OpenCosigned(signed, e.key, append(keys, keys[0])); err == nil {
		c, err := audit.OpenCosigned(append(slices.Clone(signed), lineA...), e.key,
			append(keys, keys[0]))
		if err == nil {
			t.Errorf("one witness counts twice: %+v", c)
		}
	}
}

func TestCosignedCheckpointsAreKept(t *testing.T) {
	e := newSignedLog(t, 3)
	a, b := newCosigner("a"), newCosigner("b")
	keys := []*audit.WitnessKey{a.witness(t), b.witness(t)}
	if all, err := audit.ReadCosigned(e.file, e.key, keys); err != nil || all != nil {
		t.Errorf("a new log has %v, error %v", all, err)
	}
	cosign := func(seconds uint64, by ...*cosigner) *audit.CosignedCheckpoint {
		t.Helper()
		signed := readFile(t, e.file+".tree/checkpoint")
		for _, c := range by {
			signed = append(signed, c.line(t, signed, seconds)...)
		}
		c, err := audit.OpenCosigned(signed, e.key, keys)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	three := cosign(1, a, b)
	e.write(2)
	five := cosign(2, b)
	none := cosign(3)
	if err := audit.WriteCosigned(e.file, []*audit.CosignedCheckpoint{three, none,
		five}); err != nil {
		t.Fatal(err)
	}
	all, err := audit.ReadCosigned(e.file, e.key, keys)
	if err != nil || len(all) != 2 || all[0].Size != 3 || len(all[0].Cosignatures) != 2 ||
		all[1].Size != five.Size || len(all[1].Cosignatures) != 1 {
		t.Fatalf("got %+v, error %v", all, err)
	}
	for quorum, want := range map[int]int64{-1: 0, 0: 0, 1: five.Size, 2: 3, 3: 0} {
		if got := audit.WitnessedSize(all, quorum); got != want {
			t.Errorf("%d records are cosigned by %d witnesses, want %d", got, quorum, want)
		}
	}
	// Only the log's own signature, and the cosignatures that were given, are written.
	again := &audit.CosignedCheckpoint{Checkpoint: all[0].Checkpoint,
		Cosignatures: all[0].Cosignatures[:1]}
	if err := audit.WriteCosigned(e.file, []*audit.CosignedCheckpoint{again}); err != nil {
		t.Fatal(err)
	}
	if all, err = audit.ReadCosigned(e.file, e.key, keys); err != nil || len(all) != 1 ||
		len(all[0].Cosignatures) != 1 || strings.Count(string(all[0].Note), "\n— ") != 2 {
		t.Errorf("got %+v, error %v", all, err)
	}

	v := audit.Verification{File: e.file, Key: e.key, Witnesses: keys[:1]}
	done, err := v.Run(t.Context())
	if err != nil || done.Witnessed != 3 || len(done.Cosigned) != 1 ||
		done.CheckpointsMatched != 0 {
		t.Errorf("got %+v, error %v", done, err)
	}
	v.Witnesses = keys
	if _, err := v.Run(t.Context()); err == nil || !strings.Contains(err.Error(),
		"fewer than 2 of 2 witnesses have cosigned the log: there is no cosignature of b\n") {
		t.Errorf("got the error %v", err)
	}
	v.Quorum = 1
	if done, err := v.Run(t.Context()); err != nil || done.Witnessed != 3 {
		t.Errorf("with a quorum of one: got %+v, error %v", done, err)
	}
	v.Witnesses, v.Quorum = nil, 0
	if done, err := v.Run(t.Context()); err != nil || done.Witnessed != 0 || done.Cosigned != nil {
		t.Errorf("without witnesses: got %+v, error %v", done, err)
	}

	path := e.file + ".tree/cosigned"
	one := readFile(t, path)
	for name, b := range map[string][]byte{
		"incomplete": one[:len(one)-10],
		"too many":   []byte(strings.Repeat(string(one), 65)),
		"changed":    []byte(strings.Replace(string(one), "\n3\n", "\n4\n", 1)),
	} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := audit.ReadCosigned(e.file, e.key, keys); err == nil {
			t.Errorf("%s: got %+v, want an error", name, all)
		}
		if proof, err := audit.Prove(e.file, 1, e.key); err != nil {
			t.Errorf("%s: no proof: %v", name, err)
		} else if _, err := proof.Verify(e.key); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Repeat(string(one), 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := audit.ReadCosigned(e.file, e.key, keys); err != nil || len(all) != 64 {
		t.Errorf("got %d cosigned checkpoints, error %v; want 64", len(all), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if all, err := audit.ReadCosigned(e.file, e.key, keys); err == nil {
		t.Errorf("a folder: got %+v, want an error", all)
	}
}

func TestProofHasLargestCosignedCheckpoint(t *testing.T) {
	e := newSignedLog(t, 3)
	a := newCosigner("a")
	keys := []*audit.WitnessKey{a.witness(t)}
	var all []*audit.CosignedCheckpoint
	for range 2 {
		signed := readFile(t, e.file+".tree/checkpoint")
		c, err := audit.OpenCosigned(append(signed, a.line(t, signed, 1)...), e.key, keys)
		if err != nil {
			t.Fatal(err)
		}
		all = append([]*audit.CosignedCheckpoint{c}, all...) // the largest first
		e.write(300)
	}
	if err := audit.WriteCosigned(e.file, all); err != nil {
		t.Fatal(err)
	}
	for seq, want := range map[uint64]int64{1: all[0].Size, 3: all[0].Size,
		uint64(all[0].Size): all[0].Size, uint64(all[0].Size) + 1: all[0].Size + 300} {
		proof, err := audit.Prove(e.file, seq, e.key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := proof.Verify(e.key)
		if err != nil || c.Size != want {
			t.Errorf("the proof of record %d has a checkpoint of %d records, error %v; want %d",
				seq, c.Size, err, want)
		}
	}
	// A cosigned checkpoint of more records than the log has proves nothing.
	for _, s := range []string{"checkpoint", "cosigned"} {
		b := readFile(t, e.file+".tree/"+s)
		if s == "checkpoint" {
			if err := os.WriteFile(e.file+".tree/"+s, []byte(all[1].Note), 0o600); err != nil {
				t.Fatal(err)
			}
			if proof, err := audit.Prove(e.file, 2, e.key); err != nil ||
				!strings.Contains(string(proof.Checkpoint), "\n3\n") {
				t.Errorf("got the proof %+v, error %v", proof, err)
			}
			os.WriteFile(e.file+".tree/"+s, b, 0o600)
		}
	}
}

func TestProveConsistency(t *testing.T) {
	e := newSignedLog(t, 600)
	var checkpoints []*audit.Checkpoint
	for range 2 {
		c, err := audit.OpenCheckpoint(readFile(t, e.file+".tree/checkpoint"), e.key)
		if err != nil {
			t.Fatal(err)
		}
		checkpoints = append(checkpoints, c)
		e.write(100)
	}
	old, c := checkpoints[0], checkpoints[1]
	proof, err := audit.ProveConsistency(e.file, c, old.Size)
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.CheckTree(proof, c.Size, c.Root, old.Size, old.Root); err != nil {
		t.Error(err)
	}
	for _, size := range []int64{0, c.Size} {
		if proof, err := audit.ProveConsistency(e.file, c, size); err != nil || len(proof) > 0 {
			t.Errorf("from %d records: got %v, error %v, want an empty proof", size, proof, err)
		}
	}
	for _, size := range []int64{-1, c.Size + 1} {
		if proof, err := audit.ProveConsistency(e.file, c, size); err == nil {
			t.Errorf("from %d records: got %v, want an error", size, proof)
		}
	}
	if err := os.RemoveAll(e.file + ".tree/tile"); err != nil {
		t.Fatal(err)
	}
	if proof, err := audit.ProveConsistency(e.file, c, old.Size); err == nil ||
		!strings.Contains(err.Error(), "hint: gatekit audit verify") {
		t.Errorf("without tiles: got %v, error %v", proof, err)
	}
}

func TestLogMustMatchCosignedCheckpoints(t *testing.T) {
	e, a, b := newSignedLog(t, 3), newCosigner("a"), newCosigner("b")
	for i := 0; strings.Count(a.vkey(), "+") != 2; i++ { // as most keys
		a = newCosigner(fmt.Sprint("a", i))
	}
	keyA, err := audit.ReadWitnessKey(a.vkey())
	if err != nil {
		t.Fatal(err)
	}
	keys := []*audit.WitnessKey{keyA, b.witness(t)}
	signer, err := note.NewSigner(strings.TrimSpace(string(readFile(t, e.file+".key"))))
	if err != nil {
		t.Fatal(err)
	}
	own := readFile(t, e.file+".tree/checkpoint")
	lines := strings.Split(string(own), "\n")
	forked, err := note.Sign(&note.Note{Text: lines[0] +
		"\n2\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"}, signer)
	if err != nil {
		t.Fatal(err)
	}
	var all []*audit.CosignedCheckpoint
	for _, signed := range [][]byte{append(own, a.line(t, own, 1)...),
		append(forked, b.line(t, forked, 1)...)} {
		c, err := audit.OpenCosigned(signed, e.key, keys)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if err := audit.WriteCosigned(e.file, all); err != nil {
		t.Fatal(err)
	}
	v := audit.Verification{File: e.file, Key: e.key, Witnesses: keys[:1]}
	if done, err := v.Run(t.Context()); err != nil || done.Witnessed != 3 {
		t.Errorf("with the witness of this history: got %+v, error %v", done, err)
	}
	v.Witnesses = keys[1:]
	if done, err := v.Run(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "do not match the checkpoint") {
		t.Errorf("with the witness of the other history: got %+v, error %v", done, err)
	}
	proof, err := audit.Prove(e.file, 3, e.key)
	if err != nil || !strings.Contains(string(proof.Checkpoint), "\n— "+a.name+" ") {
		t.Errorf("the proof has no cosignature: %+v, error %v", proof, err)
	}
}
