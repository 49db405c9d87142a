package audit_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"gatekit/audit"
)

// signedLog is a closed log in several files, which the tests change and restore.
type signedLog struct {
	*testing.T
	file     string
	segments []string
	content  map[string][]byte // content of each file, by path
	key      note.Verifier
}

// newSignedLog writes a log of n records.
func newSignedLog(t *testing.T, n int) *signedLog {
	e := &signedLog{T: t, file: filepath.Join(t.TempDir(), "gatekit.jsonl"),
		content: map[string][]byte{}}
	e.write(n)
	return e
}

// write adds records to the log.
func (e *signedLog) write(n int) {
	e.Helper()
	l := open(e, audit.Options{File: e.file, SegmentBytes: 16 << 10, AnchorFile: e.anchorFile()})
	for i := range n {
		record(e, l, event(fmt.Sprintf("reason %d", i)))
	}
	if err := l.Close(); err != nil {
		e.Fatal(err)
	}
	var err error
	if e.segments, err = audit.Segments(e.file); err != nil {
		e.Fatal(err)
	}
	for _, s := range e.segments {
		e.content[s] = readFile(e.T, s)
	}
	e.key = readPublicKey(e, e.file)
}

func (e *signedLog) anchorFile() string { return e.file + ".anchors" }

// restore undoes all changes.
func (e *signedLog) restore() {
	for s, b := range e.content {
		if err := os.WriteFile(s, b, 0o600); err != nil {
			e.Fatal(err)
		}
	}
}

// lines returns the lines of a file.
func (e *signedLog) lines(segment string) [][]byte {
	return slices.Collect(bytes.Lines(bytes.Clone(e.content[segment])))
}

// first returns the seq of the first record in segment i.
func (e *signedLog) first(i int) uint64 {
	n := uint64(1)
	for _, s := range e.segments[:i] {
		n += uint64(bytes.Count(e.content[s], []byte("\n")))
	}
	return n
}

func (e *signedLog) verify(others ...*audit.Checkpoint) (*audit.VerificationResult, error) {
	v := audit.Verification{File: e.file, Key: e.key, Checkpoints: others}
	return v.Run(e.Context())
}

// wantRecordError checks that verification reports the record with this seq and position.
func (e *signedLog) wantRecordError(change string, seq uint64, at audit.Position) {
	e.Helper()
	_, err := e.verify()
	recordErr, ok := errors.AsType[*audit.RecordError](err)
	if !ok || recordErr.Seq != seq || recordErr.Position != at {
		e.Fatalf("%s: error %v, want a *RecordError for record %d at %s", change, err, seq, at)
	}
}

// rechain makes the chain of the lines valid again, after one of them was changed.
func rechain(lines [][]byte) [][]byte {
	prev := regexp.MustCompile(`"prev":"[0-9a-f]{64}"`)
	for i := 1; i < len(lines); i++ {
		sum := sha256.Sum256(bytes.TrimSuffix(lines[i-1], []byte("\n")))
		lines[i] = prev.ReplaceAll(lines[i], fmt.Appendf(nil, `"prev":"%x"`, sum))
	}
	return lines
}

func TestVerificationFindsEveryKindOfTampering(t *testing.T) {
	e := newSignedLog(t, 700)
	if len(e.segments) < 4 {
		t.Fatalf("the log has %d files, want at least 4", len(e.segments))
	}
	if done, err := e.verify(); err != nil || done.First != 1 || done.Last != 700 ||
		done.Checkpoint.Size != 700 || done.InUse {
		t.Fatalf("the unchanged log: %+v, error %v; want the records 1 to 700 verified", done, err)
	}
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	seed := uint64(time.Now().UnixNano())
	r := mathrand.New(mathrand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	put := func(segment string, lines [][]byte) {
		if err := os.WriteFile(segment, bytes.Join(lines, nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Each function changes line n of segment i. Verification must report the seq and the line of
	// that record, plus the returned offsets bySeq and byLine.
	changes := map[string]func(i, n int, lines [][]byte) (bySeq, byLine int){
		"a bit is flipped": func(i, n int, lines [][]byte) (int, int) {
			lines[n][r.IntN(len(lines[n]))] ^= 1 << r.IntN(8)
			put(e.segments[i], lines)
			return 0, 0
		},
		"a byte is changed": func(i, n int, lines [][]byte) (int, int) {
			at := r.IntN(len(lines[n]))
			lines[n][at] += byte(1 + r.IntN(255))
			put(e.segments[i], lines)
			return 0, 0
		},
		"a byte is removed": func(i, n int, lines [][]byte) (int, int) {
			at := r.IntN(len(lines[n]))
			lines[n] = slices.Delete(lines[n], at, at+1)
			put(e.segments[i], lines)
			return 0, 0
		},
		"a record is dropped": func(i, n int, lines [][]byte) (int, int) {
			put(e.segments[i], slices.Delete(lines, n, n+1))
			return 0, 0
		},
		"a record is doubled": func(i, n int, lines [][]byte) (int, int) {
			put(e.segments[i], slices.Insert(lines, n, lines[n]))
			return 1, 1
		},
		"a record is inserted, and the lines after it are chained to it": func(i, n int,
			lines [][]byte) (int, int) {
			forged := bytes.Replace(lines[n], []byte("reason"), []byte("forged"), 1)
			lines = slices.Insert(lines, n, forged)
			for j := n + 1; j < len(lines); j++ {
				seq := int(e.first(i)) + j
				lines[j] = bytes.Replace(lines[j], fmt.Appendf(nil, `{"seq":%d,`, seq-1),
					fmt.Appendf(nil, `{"seq":%d,`, seq), 1)
			}
			put(e.segments[i], rechain(lines))
			return 0, 0
		},
		"a record is changed, and the lines after it are chained to it": func(i, n int,
			lines [][]byte) (int, int) {
			lines[n] = bytes.Replace(lines[n], []byte("reason"), []byte("forged"), 1)
			put(e.segments[i], rechain(lines))
			return 0, 0
		},
		"two records are swapped": func(i, n int, lines [][]byte) (int, int) {
			other := r.IntN(len(lines))
			if other == n {
				other = (n + 1) % len(lines)
			}
			lines[n], lines[other] = lines[other], lines[n]
			put(e.segments[i], lines)
			return min(0, other-n), min(0, other-n)
		},
		"the end of the file is cut off": func(i, n int, lines [][]byte) (int, int) {
			put(e.segments[i], lines[:n])
			return 0, 0
		},
		"the end of the file is cut off within a record": func(i, n int, lines [][]byte) (int,
			int) {
			lines[n] = lines[n][:1+r.IntN(len(lines[n])-1)]
			put(e.segments[i], lines[:n+1])
			return 0, 0
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			e := *e
			e.T = t
			for range rounds {
				i := r.IntN(len(e.segments))
				lines := e.lines(e.segments[i])
				n := r.IntN(len(lines))
				bySeq, byLine := change(i, n, lines)
				seq, at := e.first(i)+uint64(n)+uint64(bySeq), audit.Position{File: e.segments[i],
					Line: n + 1 + byLine}
				if n == len(e.lines(e.segments[i]))-1 && strings.Contains(name, "dropped") ||
					strings.Contains(name, "cut off") && !strings.Contains(name, "within") ||
					strings.Contains(name, "doubled") && n == len(lines)-1 {
					// If the end of a file was changed, verification may report the beginning of
					// the next file.
					_, err := e.verify()
					if recordErr, ok := errors.AsType[*audit.RecordError](err); !ok ||
						recordErr.Seq != seq {
						t.Fatalf("error %v, want a *RecordError for record %d", err, seq)
					}
				} else {
					e.wantRecordError(name, seq, at)
				}
				e.restore()
			}
		})
	}
	if _, err := e.verify(); err != nil {
		t.Fatalf("the restored log: error %v, want none", err)
	}

	for i, s := range e.segments {
		if err := os.Remove(s); err != nil {
			t.Fatal(err)
		}
		if _, err := e.verify(); err == nil {
			t.Errorf("file %d was removed, and verification returned no error, want one", i)
		}
		e.restore()
	}
	if err := os.Rename(e.segments[1], e.segments[1]+"~"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(e.segments[2], e.segments[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := e.verify(); err == nil {
		t.Error("a segment got the name of another segment, and verification returned " +
			"no error, want one")
	}
}

func TestVerificationFindsRewrittenLog(t *testing.T) {
	older := newSignedLog(t, 300)
	dir := filepath.Dir(older.file)
	copied := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	older.write(50)
	anchors, _, err := audit.OpenCheckpoints(readFile(t, older.anchorFile()), older.key)
	if err != nil || len(anchors) != 3 || anchors[0].Size != 0 {
		t.Fatalf("the anchor file holds %d checkpoints, error %v; want 3, the first with 0 records",
			len(anchors), err)
	}
	if done, err := older.verify(anchors...); err != nil || done.CheckpointsMatched != 3 {
		t.Fatalf("the unchanged log: %+v, error %v; want 3 matching checkpoints", done, err)
	}
	other := newSignedLog(t, 400)

	t.Run("an older copy replaces the log", func(t *testing.T) {
		back := audit.Verification{File: filepath.Join(copied, "gatekit.jsonl"), Key: older.key}
		if _, err := back.Run(t.Context()); err != nil {
			t.Errorf("without the anchors: error %v, want none", err)
		}
		back.Checkpoints = anchors
		_, err := back.Run(t.Context())
		if recordErr, ok := errors.AsType[*audit.RecordError](err); !ok || recordErr.Seq != 301 ||
			!strings.Contains(err.Error(), "covers 350 records") {
			t.Errorf("error %v, want that record 301 is missing", err)
		}
	})
	t.Run("an older copy replaces the log and is continued", func(t *testing.T) {
		file := filepath.Join(copied, "gatekit.jsonl")
		if err := os.Chmod(file+".key", 0o600); err != nil { // CopyFS changes the mode
			t.Fatal(err)
		}
		l := open(t, audit.Options{File: file})
		for range 100 {
			record(t, l, event("another"))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		v := audit.Verification{File: file, Key: older.key, Checkpoints: anchors}
		_, err := v.Run(t.Context())
		if recordErr, ok := errors.AsType[*audit.RecordError](err); !ok || recordErr.Seq != 350 {
			t.Errorf("error %v, want that the records up to 350 do not match the anchor", err)
		}
	})
	t.Run("the key or the anchors of another log", func(t *testing.T) {
		v := audit.Verification{File: other.file, Key: older.key}
		if _, err := v.Run(t.Context()); err == nil || !strings.Contains(err.Error(),
			"is signed with key") {
			t.Errorf("verification with the key of the first log: error %v, want that another key "+
				"has signed the checkpoint", err)
		}
		if _, _, err := audit.OpenCheckpoints(readFile(t, older.anchorFile()),
			other.key); err == nil {
			t.Error("OpenCheckpoints accepted a key that has not signed the anchors")
		}
	})
	t.Run("the public key file holds another key", func(t *testing.T) {
		writeLines(t, audit.PublicKeyFile(other.file), readFile(t, audit.PublicKeyFile(older.file)))
		v := audit.Verification{File: other.file}
		if _, err := v.Run(t.Context()); err == nil || !strings.Contains(err.Error(),
			"is signed with key") {
			t.Errorf("error %v, want that another key has signed the checkpoint", err)
		}
	})
	t.Run("the anchors of another log with the same key", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, Key: older.file + ".key"})
		for range 400 {
			record(t, l, event("another"))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		v := audit.Verification{File: file, Key: older.key, Checkpoints: anchors}
		if _, err := v.Run(t.Context()); err == nil || !strings.Contains(err.Error(),
			"of another log") {
			t.Errorf("error %v, want that a checkpoint is of another log", err)
		}
	})
	t.Run("the records and the tree are forged, and the checkpoint is real", func(t *testing.T) {
		// The forger has another key, and puts the real checkpoint next to the forged log.
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file})
		for range 350 {
			record(t, l, event("forged"))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		writeLines(t, filepath.Join(file+".tree", "checkpoint"),
			readFile(t, filepath.Join(older.file+".tree",
				"checkpoint")))
		v := audit.Verification{File: file, Key: older.key}
		_, err := v.Run(t.Context())
		if recordErr, ok := errors.AsType[*audit.RecordError](err); !ok || recordErr.Seq != 350 {
			t.Errorf("error %v, want that the records up to 350 do not match the checkpoint", err)
		}
	})
	t.Run("a record is appended after the log was closed", func(t *testing.T) {
		e := newSignedLog(t, 10)
		e.forge(`"action":"pass","reason":"forged"`)
		e.wantRecordError("forged", 11, audit.Position{File: e.file, Line: 11})
		if _, err := audit.Open(audit.Options{File: e.file}); err == nil ||
			!strings.Contains(err.Error(), "Gatekit closed it after record 10") ||
			!strings.Contains(err.Error(), "\nhint: ") {
			t.Errorf("error %v, want that somebody else wrote record 11, and a hint", err)
		}
		e.restore()
		open(t, audit.Options{File: e.file}).Close()
	})
	t.Run("the checkpoint is missing", func(t *testing.T) {
		if err := os.Remove(filepath.Join(older.file+".tree", "checkpoint")); err != nil {
			t.Fatal(err)
		}
		if _, err := older.verify(); err == nil || !strings.Contains(err.Error(),
			"without this file nothing shows") {
			t.Errorf("error %v, want that the checkpoint is missing", err)
		}
	})
}

// forge appends a record that continues the chain.
func (e *signedLog) forge(members string) {
	e.Helper()
	lines := allLines(e, e.file)
	last := bytes.TrimSuffix(lines[len(lines)-1], []byte("\n"))
	writeLines(e.T, e.file, readFile(e.T, e.file),
		fmt.Appendf(nil, `{"seq":%d,"time":"2026-11-21T12:00:00.000000Z","prev":"%x",%s}`+"\n",
			len(lines)+1, sha256.Sum256(last), members))
}

// TestVerificationRejectsForgedPruneRecord removes a segment and appends a forged "prune" record.
// It verifies the log before and after Gatekit opens the log again. Gatekit then makes a checkpoint
// that covers the forged record.
func TestVerificationRejectsForgedPruneRecord(t *testing.T) {
	e := newSignedLog(t, 700)
	l := open(t, audit.Options{File: e.file, SegmentBytes: 16 << 10})
	openCheckpoint := readFile(t, e.file+".tree/checkpoint") // a checkpoint of an open log
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	writeLines(t, e.file+".tree/checkpoint", openCheckpoint)
	e.forge(fmt.Sprintf(`"action":"prune","reason":"forged","from":1,"through":%d`, e.first(1)-1))
	if err := os.Remove(e.segments[0]); err != nil {
		t.Fatal(err)
	}
	want := "no record that a checkpoint covers says that they expired"
	if _, err := e.verify(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("before Gatekit opens the log: error %v, want %q in it", err, want)
	}
	if err := open(t, audit.Options{File: e.file}).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.verify(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("after Gatekit opened the log: error %v, want %q in it", err, want)
	}
}

func TestMissingSegmentsNeedPruneRecord(t *testing.T) {
	e := newSignedLog(t, 700)
	if err := os.Remove(e.segments[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := e.verify(); err == nil || !strings.Contains(err.Error(),
		"no record that a checkpoint covers says that they expired") {
		t.Errorf("a segment was removed by hand: error %v, want that records are missing", err)
	}
	e.restore()
	anchors, _, err := audit.OpenCheckpoints(readFile(t, e.anchorFile()), e.key)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, audit.Options{File: e.file, SegmentBytes: 16 << 10,
		Keep: audit.Retention{Files: 1}})
	deadline := time.Now().Add(2 * time.Minute)
	for segments := e.segments; len(segments) > 3 &&
		time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if segments, err = audit.Segments(e.file); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	done, err := e.verify(anchors...)
	if err != nil || done.First == 1 || done.CheckpointsMatched != 2 {
		t.Fatalf("Gatekit removed segments: %+v, error %v; want a first record after 1 and 2 "+
			"matching checkpoints", done, err)
	}
	proof, err := audit.Prove(e.file, done.First, e.key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Verify(e.key); err != nil {
		t.Error(err)
	}
	if _, err := audit.Prove(e.file, done.First-1, e.key); err == nil ||
		!strings.Contains(err.Error(), "is not in the log") {
		t.Errorf("the proof of a removed record: error %v, want that the record is not in the "+
			"log", err)
	}
	anchors[1].Root[3]++
	anchors[1].Size = int64(done.First) - 1
	if _, err := e.verify(anchors...); err == nil || !strings.Contains(err.Error(),
		"do not match the checkpoint") {
		t.Errorf("a checkpoint has another root than the removed records: error %v, want that the "+
			"records do not match the checkpoint", err)
	}
}

// TestVerificationNamesFirstChangedRecord damages copies of a log that has one file, except where
// it has more.
func TestVerificationNamesFirstChangedRecord(t *testing.T) {
	const records = 700
	write := func(n int) (file string) {
		file = filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file})
		for i := range n {
			record(t, l, event(fmt.Sprintf("reason %d", i)))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return file
	}
	single, fullTiles := write(records), write(512)
	several := newSignedLog(t, records).file
	// forge changes a record, and chains the lines after it to the changed record
	forge := func(seq int) func(t *testing.T, file string) {
		return func(t *testing.T, file string) {
			lines := slices.Collect(bytes.Lines(readFile(t, file)))
			lines[seq-1] = bytes.Replace(lines[seq-1], []byte("reason"), []byte("forged"), 1)
			writeLines(t, file, rechain(lines)...)
		}
	}
	remove := func(name string) func(t *testing.T, file string) {
		return func(t *testing.T, file string) {
			if err := os.RemoveAll(file + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	both := func(f ...func(t *testing.T, file string)) func(t *testing.T, file string) {
		return func(t *testing.T, file string) {
			for _, f := range f {
				f(t, file)
			}
		}
	}
	cut := func(from, to int) func(t *testing.T, file string) {
		return func(t *testing.T, file string) {
			segments, err := audit.Segments(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range segments[max(0, from):min(to, len(segments))] {
				writeLines(t, s)
			}
		}
	}
	const changed, rewritten = "the record was changed after it was written",
		"the records up to this one do not match the checkpoint"
	for _, tt := range []struct {
		name, file string
		damage     func(t *testing.T, file string)
		seq        uint64 // of the record that verification names; 0 for no error
		line       int
		reason     string
	}{
		{"no damage", single, func(*testing.T, string) {}, 0, 0, ""},
		{"a record was forged", single, forge(300), 300, 300, changed},
		{"the last record was forged", single, forge(records), records, records, changed},
		{"a record was forged, and the tile of it and of all records after it is missing",
			fullTiles, both(forge(300), remove(".tree/tile/0/001")), 512, 512, rewritten},
		{"a record was changed, and tiles above it are missing", single, both(
			func(t *testing.T, file string) {
				change(t, file, func(b []byte) []byte {
					return bytes.Replace(b, []byte("reason 299"), []byte("forged 299"), 1)
				})
			}, remove(".tree/tile/1")), 300, 300, changed},
		{"the last tile is missing, but not a version of it with fewer hashes", single,
			func(t *testing.T, file string) {
				folder := file + ".tree/tile/0/002.p/"
				b := readFile(t, folder+"188")
				if err := errors.Join(os.Remove(folder+"188"), os.WriteFile(folder+"187",
					b[:187*32], 0o600)); err != nil {
					t.Fatal(err)
				}
			}, 0, 0, ""},
		{"all records are missing", single, cut(0, 1), 1, 1, "the record and those after it"},
		{"the last line is incomplete", single, func(t *testing.T, file string) {
			change(t, file, func(b []byte) []byte { return b[:len(b)-1] })
		}, records, records, "\nhint: a crash leaves such a line"},
		{"the active file is also a segment, as during a rotation", single,
			func(t *testing.T, file string) {
				if err := os.Link(file, filepath.Join(filepath.Dir(file),
					"gatekit-00000000000000000001.jsonl")); err != nil {
					t.Fatal(err)
				}
			}, 0, 0, ""},
		{"the active file is empty", several, func(t *testing.T, file string) {
			writeLines(t, file)
		}, 0, 0, "the record and those after it"},
		{"the first segment is missing", several, func(t *testing.T, file string) {
			segments, err := audit.Segments(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(segments[0]); err != nil {
				t.Fatal(err)
			}
		}, 1, 1, fmt.Sprintf("the records up to %d are missing", firstOfSecond(t, several)-1)},
		{"the first segment and the tiles are missing", several, func(t *testing.T, file string) {
			segments, err := audit.Segments(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Remove(segments[0]), os.RemoveAll(file+
				".tree/tile")); err != nil {
				t.Fatal(err)
			}
		}, firstOfSecond(t, several), 1, fmt.Sprintf("the %d records before this one are missing",
			firstOfSecond(t, several)-1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(copyFolder(t, filepath.Dir(tt.file)), "gatekit.jsonl")
			segments, err := audit.Segments(file)
			if err != nil {
				t.Fatal(err)
			}
			seq, at := tt.seq, audit.Position{File: segments[0], Line: tt.line}
			if tt.name == "the active file is empty" {
				last := segments[len(segments)-2]
				at = audit.Position{File: last, Line: bytes.Count(readFile(t, last),
					[]byte("\n")) + 1}
				r, err := audit.ParseRecord(bytes.SplitN(readFile(t, file), []byte("\n"), 2)[0])
				if err != nil {
					t.Fatal(err)
				}
				seq = r.Seq
			} else if strings.HasPrefix(tt.name, "the first segment") {
				at.File = segments[1]
			}
			tt.damage(t, file)
			v := audit.Verification{File: file}
			_, err = v.Run(t.Context())
			if seq == 0 {
				if err != nil {
					t.Errorf("error %v, want none", err)
				}
				return
			}
			recordErr, ok := errors.AsType[*audit.RecordError](err)
			if !ok || recordErr.Seq != seq || recordErr.Position != at ||
				!strings.Contains(recordErr.Reason, tt.reason) {
				t.Errorf("error %v, want a *RecordError for record %d at %s with %q", err, seq, at,
					tt.reason)
			}
		})
	}
}

// TestChangedRecordAfterMissingSegments changes a record of the second tile, which has 256 records.
// The segments with the first tile are missing.
func TestChangedRecordAfterMissingSegments(t *testing.T) {
	e := newSignedLog(t, 700)
	i := 0
	for e.first(i) <= 256 {
		if err := os.Remove(e.segments[i]); err != nil {
			t.Fatal(err)
		}
		i++
	}
	if e.first(i) > 500 {
		t.Fatalf("the first record left is %d, want one of the second tile", e.first(i))
	}
	lines := e.lines(e.segments[i])
	lines[2] = bytes.Replace(lines[2], []byte("reason"), []byte("forged"), 1)
	writeLines(t, e.segments[i], lines...)
	e.wantRecordError("a record was changed", e.first(i)+2, audit.Position{File: e.segments[i],
		Line: 3})
}

// firstOfSecond returns the seq of the first record in the second file of a log.
func firstOfSecond(t *testing.T, file string) uint64 {
	t.Helper()
	segments, err := audit.Segments(file)
	if err != nil || len(segments) < 2 {
		t.Fatalf("the files are %q, error %v; want at least two", segments, err)
	}
	r, err := audit.ParseRecord(bytes.SplitN(readFile(t, segments[1]), []byte("\n"), 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	return r.Seq
}

// TestForgedRecoveredRecordListsNothing appends a "recovered" record that names itself.
func TestForgedRecoveredRecordListsNothing(t *testing.T) {
	e := &signedLog{T: t, file: crashedLog(t, 3)}
	e.forge(`"action":"recovered","reason":"forged","from":2,"through":4`)
	if err := open(t, audit.Options{File: e.file}).Close(); err != nil {
		t.Fatal(err)
	}
	v := audit.Verification{File: e.file}
	if done, err := v.Run(t.Context()); err != nil || !slices.Equal(done.Recovered,
		[]audit.SeqRange{{From: 1, Through: 4}}) {
		t.Errorf("verification: %+v, error %v; want only that the records 1 to 4 had no "+
			"checkpoint", done, err)
	}
}

// TestOpenCheckpointsSkipsOnlyTornNotes reads checkpoints that other programs may have written or
// cut.
func TestOpenCheckpointsSkipsOnlyTornNotes(t *testing.T) {
	signer, key := newSigner(t, "log")
	witness, _ := newSigner(t, "witness")
	sign := func(origin string, signers ...note.Signer) string {
		signed, err := note.Sign(&note.Note{Text: origin + "\n5\n" +
			"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"}, signers...)
		if err != nil {
			t.Fatal(err)
		}
		return string(signed)
	}
	whole := sign("origin", signer)
	for _, tt := range []struct {
		name, file  string
		whole, torn int
		err         string
	}{
		{"one checkpoint", whole, 1, 0, ""},
		{"a checkpoint with the signature of a witness", sign("origin", signer, witness) + "\n" +
			whole, 2, 0, ""},
		{"an origin that begins like a signature", sign("\u2014 origin", signer), 1, 0, ""},
		{"a text without signatures", "origin\n5\n\n" + whole, 1, 1, ""},
		{"a text without signatures at the end", whole + "\norigin\n5\n", 1, 1, ""},
		{"two texts without signatures", "origin\n\norigin\n\n" + whole, 1, 2, ""},
		{"a checkpoint of somebody else", whole + "\n" + sign("origin", witness), 0, 0,
			"checkpoint 2: "},
		{"nothing", "\n", 0, 0, "no checkpoint found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, torn, err := audit.OpenCheckpoints([]byte(tt.file), key)
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
					t.Errorf("error %v, want one that begins with %q", err, tt.err)
				}
				return
			}
			if err != nil || len(all) != tt.whole || torn != tt.torn {
				t.Errorf("got %d whole and %d torn checkpoints, error %v; want %d and %d",
					len(all), torn, err, tt.whole, tt.torn)
			}
		})
	}
}

// TestVerificationWhileLogIsWritten verifies during writes and rotations.
func TestVerificationWhileLogIsWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	anchored := make(chan struct{}, 1000)
	l := open(t, audit.Options{File: file, SegmentBytes: 32 << 10,
		OnCheckpoint: func([]byte) { anchored <- struct{}{} }})
	record(t, l, event(""))
	<-anchored // wait until there is a checkpoint
	for range 15 {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 150 {
					record(t, l, event("more"))
				}
			})
		}
		v := audit.Verification{File: file}
		done, err := v.Run(t.Context())
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if !done.InUse || done.Last < uint64(done.Checkpoint.Size) {
			t.Errorf("got %+v, want a log in use, with all records of its checkpoint", done)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	v := audit.Verification{File: file}
	if done, err := v.Run(t.Context()); err != nil || done.InUse ||
		uint64(done.Checkpoint.Size) != l.Committed() {
		t.Errorf("after Close: %+v, error %v; want a checkpoint of %d records, and the log not in "+
			"use", done, err, l.Committed())
	}
}

func TestEmptyLogVerifies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	if err := open(t, audit.Options{File: file}).Close(); err != nil {
		t.Fatal(err)
	}
	v := audit.Verification{File: file}
	if done, err := v.Run(t.Context()); err != nil || done.Last != 0 {
		t.Errorf("an empty log: %+v, error %v; want no records and no error", done, err)
	}
	v.File += "x"
	if _, err := v.Run(t.Context()); err == nil {
		t.Error("a missing log: error nil, want an error")
	}
}

func TestProof(t *testing.T) {
	e := newSignedLog(t, 300)
	for _, seq := range []uint64{1, 2, 100, 255, 256, 257, 299, 300} {
		p, err := audit.Prove(e.file, seq, e.key)
		if err != nil {
			t.Fatal(err)
		}
		text := p.Text()
		back, err := audit.ParseProof(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := back.Verify(e.key)
		if err != nil || c.Size != 300 || !bytes.HasPrefix(back.Record,
			[]byte(`{"seq":`+strconv.FormatUint(seq, 10)+`,`)) {
			t.Errorf("record %d: the proof has %s and the checkpoint %+v, error %v; want this "+
				"record and a checkpoint of 300 records", seq, back.Record, c, err)
		}
		// Base64 ignores some bits of its last character, so a changed text may be the same proof.
		for i := range text {
			changed := bytes.Clone(text)
			changed[i] ^= 1
			p, err := audit.ParseProof(changed)
			if err != nil {
				continue
			}
			if _, err := p.Verify(e.key); err == nil && !bytes.Equal(p.Text(), text) {
				t.Fatalf("record %d: byte %d of the proof was changed, and the proof is still "+
					"valid:\n%s", seq, i, changed)
			}
		}
	}
	for _, seq := range []uint64{0, 301} {
		if _, err := audit.Prove(e.file, seq, e.key); err == nil || !strings.Contains(err.Error(),
			"no checkpoint covers record") {
			t.Errorf("record %d: error %v, want that no checkpoint covers the record", seq, err)
		}
	}
	lines := e.lines(e.segments[0])
	lines[4] = bytes.Replace(lines[4], []byte("reason"), []byte("forged"), 1)
	writeLines(t, e.segments[0], lines...)
	if _, err := audit.Prove(e.file, 5, e.key); err == nil || !strings.Contains(err.Error(),
		"was changed") {
		t.Errorf("a changed record: error %v, want that the record was changed", err)
	}
	_, other, err := note.GenerateKey(rand.Reader, "gatekit/other")
	if err != nil {
		t.Fatal(err)
	}
	otherKey, err := audit.ReadPublicKey(other)
	if err != nil {
		t.Fatal(err)
	}
	p, err := audit.Prove(e.file, 1, e.key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Verify(otherKey); err == nil {
		t.Error("the proof is valid with another key, want an error")
	}
}

// TestProofsOfAnySizeAreParsed makes the proof of the only record of a log, and proofs with as many
// hashes as a proof can have.
func TestProofsOfAnySizeAreParsed(t *testing.T) {
	e := newSignedLog(t, 1)
	p, err := audit.Prove(e.file, 1, e.key)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = audit.ParseProof(p.Text()); err != nil {
		t.Fatal(err)
	}
	if c, err := p.Verify(e.key); err != nil || c.Size != 1 {
		t.Errorf("got the checkpoint %+v, error %v; want a checkpoint of 1 record", c, err)
	}
	p.Index = 6
	if _, err := p.Verify(e.key); err == nil || !strings.Contains(err.Error(),
		"the record is not number 7 of the 1 records") {
		t.Errorf("error %v, want that the record is not number 7", err)
	}
	for n, valid := range map[int]bool{64: true, 65: false} {
		p.Hashes = make(tlog.RecordProof, n)
		if _, err := audit.ParseProof(p.Text()); (err == nil) != valid {
			t.Errorf("a proof with %d hashes: error %v, want none: %v", n, err, valid)
		}
	}
}

// FuzzVerification replaces a piece of the log. Only the original log must verify.
func FuzzVerification(f *testing.F) {
	file := filepath.Join(f.TempDir(), "gatekit.jsonl")
	l := open(f, audit.Options{File: file})
	for range 6 {
		record(f, l, event("reason"))
	}
	if err := l.Close(); err != nil {
		f.Fatal(err)
	}
	log, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	last := bytes.LastIndexByte(log[:len(log)-1], '\n') + 1
	f.Add(uint16(0), uint16(1), []byte("{"))
	f.Add(uint16(last), uint16(1000), []byte{})
	f.Add(uint16(len(log)), uint16(0), []byte("{}\n"))
	f.Fuzz(func(t *testing.T, from, length uint16, piece []byte) {
		i := min(int(from), len(log))
		j := min(i+int(length), len(log))
		tampered := slices.Concat(log[:i], piece, log[j:])
		if err := os.WriteFile(file, tampered, 0o600); err != nil {
			t.Fatal(err)
		}
		v := audit.Verification{File: file}
		if _, err := v.Run(t.Context()); bytes.Equal(tampered, log) != (err == nil) {
			t.Errorf("%q in place of %q: error %v, want an error if and only if the log was "+
				"changed", piece, log[i:j], err)
		}
	})
}

// FuzzParseRecord checks that a parsed record has all required members, and that Record.Line is the
// parsed line.
func FuzzParseRecord(f *testing.F) {
	for _, line := range logLines(f, 2) {
		f.Add(bytes.TrimSpace(line))
	}
	f.Add([]byte(`{"seq":1,"time":"2026-11-21T11:00:00.123456Z","action":"pass","steps":[{"stage":"a","findings":[{"type":"x"}]}],"after":{"size":1,"body":{}}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := audit.ParseRecord(line)
		if err == nil && (r.Seq == 0 || r.Action == "" || r.Time.IsZero() || !bytes.Equal(r.Line,
			line)) {
			t.Errorf("ParseRecord(%q) returned %+v, want seq, action, time and the line", line, r)
		}
	})
}

// FuzzParseProof checks that the text of a parsed proof is parsed to the same proof.
func FuzzParseProof(f *testing.F) {
	f.Add([]byte("c2sp.org/tlog-proof@v1\nextra e30=\nindex 0\n\nx\n"))
	f.Add([]byte("c2sp.org/tlog-proof@v1\nextra e30=\nindex " +
		"7\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\nx\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := audit.ParseProof(text)
		if err != nil {
			return
		}
		again, err := audit.ParseProof(p.Text())
		if err != nil || !bytes.Equal(again.Text(), p.Text()) {
			t.Errorf("the proof %q has the text %q, which is parsed to another proof (error %v)",
				text, p.Text(), err)
		}
	})
}
