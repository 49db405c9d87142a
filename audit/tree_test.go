package audit_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"gatekit/audit"
)

// allLines returns the lines of a log from all of its files.
func allLines(t testing.TB, file string) [][]byte {
	t.Helper()
	segments, err := audit.Segments(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	for _, segment := range segments {
		b, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			lines = append(lines, bytes.Clone(line))
		}
	}
	return lines
}

func readPublicKey(t testing.TB, file string) note.Verifier {
	t.Helper()
	k, err := audit.ReadPublicKey(audit.PublicKeyFile(file))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// checkpoint returns the checkpoint of a log.
func checkpoint(t testing.TB, file string) *audit.Checkpoint {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(file+".tree", "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := audit.OpenCheckpoint(b, readPublicKey(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rootOf computes the root of the tree of these lines with golang.org/x/mod.
func rootOf(t testing.TB, lines [][]byte) tlog.Hash {
	t.Helper()
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) {
		var hashes []tlog.Hash
		for _, i := range at {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	for i, line := range lines {
		more, err := tlog.StoredHashes(int64(i), bytes.TrimSuffix(line, []byte("\n")), reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, more...)
	}
	root, err := tlog.TreeHash(int64(len(lines)), reader)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// fullCheckpoint returns the checkpoint of a log. It checks that the checkpoint covers all records
// and has the right root.
func fullCheckpoint(t testing.TB, file string) *audit.Checkpoint {
	t.Helper()
	lines, c := allLines(t, file), checkpoint(t, file)
	if c.Size != int64(len(lines)) {
		t.Fatalf("the checkpoint covers %d records, want %d", c.Size, len(lines))
	}
	if root := rootOf(t, lines); c.Root != root {
		t.Fatalf("the checkpoint of %d records has the root %s, want %s", c.Size, c.Root, root)
	}
	return c
}

// tileFolder reads the tiles of a log.
type tileFolder string

func (tileFolder) Height() int                     { return 8 }
func (tileFolder) SaveTiles([]tlog.Tile, [][]byte) {}
func (dir tileFolder) ReadTiles(tiles []tlog.Tile) (data [][]byte, err error) {
	for _, tile := range tiles {
		b, err := os.ReadFile(filepath.Join(string(dir), strings.Replace(tile.Path(),
			"tile/8/", "tile/", 1)))
		if err != nil {
			return nil, err
		}
		data = append(data, b)
	}
	return data, nil
}

func TestTreeMatchesRecordsAtEverySize(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	n, origin := 0, ""
	for _, size := range []int{1, 2, 3, 255, 256, 257, 300, 511, 512, 513, 1000} {
		l := open(t, audit.Options{File: file, SegmentBytes: 20 << 10})
		for ; n < size; n++ {
			record(t, l, event(fmt.Sprint(n)))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		c := fullCheckpoint(t, file)
		if origin == "" {
			origin = c.Origin
		}
		if c.Origin != origin || !strings.HasPrefix(origin, c.Signer+"/") {
			t.Errorf("the origin is %q, signed by %q; want %q, beginning with the signer", c.Origin,
				c.Signer, origin)
		}
		lines := allLines(t, file)
		hashes := tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, tileFolder(file+".tree"))
		for _, i := range []int{0, size / 2, size - 1} {
			proof, err := tlog.ProveRecord(c.Size, int64(i), hashes)
			if err != nil {
				t.Fatalf("prove leaf %d of %d: %v", i, size, err)
			}
			if err := tlog.CheckRecord(proof, c.Size, c.Root, int64(i),
				tlog.RecordHash(bytes.TrimSuffix(lines[i], []byte("\n")))); err != nil {
				t.Errorf("the proof of leaf %d of %d is invalid: %v", i, size, err)
			}
		}
	}
	segments, err := audit.Segments(file)
	if err != nil || len(segments) < 5 {
		t.Errorf("the log has %d files, error %v; want at least 5 files", len(segments), err)
	}
	for _, segment := range segments[:len(segments)-1] {
		if info, err := os.Stat(segment); err != nil || info.Size() > 20<<10 ||
			info.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes and mode %v, error %v; want at most %d bytes and mode 0600",
				segment, info.Size(), info.Mode(), err, 20<<10)
		}
	}
}

// copyFolder copies the folder of a log.
func copyFolder(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	// CopyFS has changed the modes of the files
	if err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			err = os.Chmod(path, 0o600)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return to
}

// crashedLog returns the file of a log with n records. The log is as a crash leaves it: no
// checkpoint covers the records.
func crashedLog(t *testing.T, n int) (file string) {
	t.Helper()
	// In the synctest bubble, no time passes while the records are written, so no checkpoint is
	// made.
	synctest.Test(t, func(bubble *testing.T) {
		source := filepath.Join(bubble.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: source})
		for range n {
			record(t, l, event(""))
		}
		file = filepath.Join(copyFolder(t, filepath.Dir(source)), "gatekit.jsonl")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
	return file
}

// TestOpenAfterCrash opens copies of a log that was not closed. Each copy has different damage.
func TestOpenAfterCrash(t *testing.T) {
	source := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: source, SegmentBytes: 75 << 10})
	for range 700 {
		record(t, l, event(""))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, audit.Options{File: source, SegmentBytes: 75 << 10})
	for range 50 { // no checkpoint covers these records yet
		record(t, l, event(""))
	}
	dir := copyFolder(t, filepath.Dir(source))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	remove := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, file string) {
			for _, name := range names {
				if err := os.RemoveAll(file + name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	tests := []struct {
		name   string
		change func(t *testing.T, file string)
		want   string // part of the error; "" if Open must succeed
	}{
		{"no damage", func(*testing.T, string) {}, ""},
		{"all tiles are missing", remove(".tree/tile"), ""},
		{"a tile is empty", func(t *testing.T, file string) {
			writeLines(t,
				file+".tree/tile/0/001")
		}, ""},
		{"a full tile is missing", remove(".tree/tile/0/001"), ""},
		{"a full tile that the next record does not need is missing",
			remove(".tree/tile/0/000"), ""},
		{"a full tile holds only zeros", func(t *testing.T,
			file string) {
			writeLines(t, file+".tree/tile/0/000", make([]byte, 256*32-1))
		}, ""},
		{"a tile has other hashes", func(t *testing.T, file string) {
			writeLines(t, file+".tree/tile/0/002.p/188", bytes.Repeat([]byte("x"), 188*32-1))
		}, ""},
		{"the tree is missing", remove(".tree"), "checkpoint is missing"},
		{"the checkpoint is missing", remove(".tree/checkpoint"), "checkpoint is missing"},
		{"the checkpoint and all records are missing", func(t *testing.T, file string) {
			segments, err := audit.Segments(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range append(segments, file+".tree/checkpoint") {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		}, "checkpoint is missing"},
		{"the origin file is missing", remove(".tree/origin"), ""},
		{"a rotation was not finished", func(t *testing.T, file string) {
			segments, err := audit.Segments(file)
			if err != nil {
				t.Fatal(err)
			}
			first := bytes.SplitAfter(readFile(t, file), []byte("\n"))[0]
			var seq uint64
			fmt.Sscanf(string(first), `{"seq":%d`, &seq)
			if err := os.Rename(file,
				segments[0][:len(segments[0])-len("00000000000000000001.jsonl")]+
					fmt.Sprintf("%020d.jsonl", seq)); err != nil {
				t.Fatal(err)
			}
			writeLines(t, file+".next")
		}, ""},
		{"the active file is missing", remove(""), "ends at record"},
		{"the checkpoint is signed with another key", remove(".key"),
			"is signed with key gatekit/"},
		{"the size in the checkpoint was changed", func(t *testing.T, file string) {
			b := readFile(t, file+".tree/checkpoint")
			writeLines(t, file+".tree/checkpoint", bytes.Replace(b, []byte("\n700\n"),
				[]byte("\n600\n"),
				1))
		}, "was changed: its signature"},
		{"the checkpoint file is empty", func(t *testing.T, file string) {
			writeLines(t,
				file+".tree/checkpoint")
		},
			"checkpoint"},
		{"a record that the checkpoint covers was changed", func(t *testing.T, file string) {
			b := readFile(t, file)
			at := bytes.Index(b, []byte(`{"seq":700,`))
			writeLines(t, file, append(b[:at:at], bytes.Replace(b[at:], []byte("test"),
				[]byte("Test"),
				1)...))
		}, "700"},
		{"a record after the checkpoint was changed", func(t *testing.T, file string) {
			b := readFile(t, file)
			at := bytes.Index(b, []byte(`{"seq":720,`))
			writeLines(t, file, append(b[:at:at], bytes.Replace(b[at:], []byte("test"),
				[]byte("Test"),
				1)...))
		}, "does not continue the chain after record 720"},
		{"other users may read the key file", func(t *testing.T, file string) {
			if err := os.Chmod(file+".key", 0o644); err != nil {
				t.Fatal(err)
			}
		}, "other users may read"},
		{"the name of the key has a control character", func(t *testing.T, file string) {
			private, _, err := note.GenerateKey(rand.Reader, "gatekit\x1b")
			if err != nil {
				t.Fatal(err)
			}
			writeLines(t, file+".key", []byte(private))
		}, "control characters in its name"},
		{"the key file holds no key", func(t *testing.T, file string) {
			writeLines(t, file+".key",
				[]byte("hello"))
		}, "does not hold a key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(copyFolder(t, dir), "gatekit.jsonl")
			tt.change(t, file)
			l, err := audit.Open(audit.Options{File: file})
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) ||
					!strings.Contains(err.Error(), "\nhint: ") {
					t.Errorf("error %v, want %q in it and a hint", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if seq := record(t, l, event("after")); seq != 752 {
				t.Errorf("seq %d, want 752", seq)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			verify(t, bytes.Join(allLines(t, file), nil))
			fullCheckpoint(t, file)
			if line := string(allLines(t, file)[750]); !strings.Contains(line,
				`"action":"recovered"`) ||
				!strings.Contains(line, `,"from":701,"through":750}`) {
				t.Errorf("record 751 is %s, want that records 701 to 750 had no checkpoint", line)
			}
			v := audit.Verification{File: file}
			if done, err := v.Run(t.Context()); err != nil || len(done.Recovered) != 1 ||
				done.Recovered[0] != (audit.SeqRange{From: 701, Through: 750}) {
				t.Errorf("verification: %+v, error %v; want that records 701 to 750 had no "+
					"checkpoint", done, err)
			}
			for _, seq := range []uint64{1, 300, 600, 752} {
				if _, err := audit.Prove(file, seq, readPublicKey(t, file)); err != nil {
					t.Errorf("prove record %d: %v", seq, err)
				}
			}
		})
	}
}

// TestOnlyLostTilesAreWrittenAgain opens a log that lost one of its full tiles.
func TestOnlyLostTilesAreWrittenAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: file})
	for range 600 {
		record(t, l, event(""))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	tiles := []string{file + ".tree/tile/0/000", file + ".tree/tile/0/001"}
	lost := readFile(t, tiles[1])
	kept, err := os.Stat(tiles[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(tiles[1]); err != nil {
		t.Fatal(err)
	}
	if err := open(t, audit.Options{File: file}).Close(); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, tiles[1]); !bytes.Equal(got, lost) {
		t.Error("the lost tile was written with other hashes")
	}
	if now, err := os.Stat(tiles[0]); err != nil || !os.SameFile(kept, now) {
		t.Errorf("the other tile was replaced, error %v; want the same file", err)
	}
}

// TestLostTileIsNotReportedAsChangedRecord overwrites a tile with zeros: the full tile that holds
// the last record of a closed log.
func TestLostTileIsNotReportedAsChangedRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	write := func(n int) {
		t.Helper()
		l := open(t, audit.Options{File: file})
		for range n {
			record(t, l, event(""))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(512)
	writeLines(t, file+".tree/tile/0/001", make([]byte, 256*32-1))
	write(1)
	v := audit.Verification{File: file}
	if done, err := v.Run(t.Context()); err != nil || done.Last != 513 {
		t.Errorf("verification: %+v, error %v; want the last record 513", done, err)
	}
}

func TestCheckpointIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		sizes := make(chan int64, 100)
		var k note.Verifier
		l := open(t, audit.Options{File: file, AnchorFile: file + ".anchor",
			OnCheckpoint: func(b []byte) {
				c, err := audit.OpenCheckpoint(b, k)
				if err != nil {
					t.Error(err)
					return
				}
				sizes <- c.Size
			}})
		k = readPublicKey(t, file)
		time.Sleep(2 * time.Second)
		if len(sizes) != 0 {
			t.Error("a checkpoint was made without a record")
		}
		record(t, l, event(""))
		time.Sleep(1100 * time.Millisecond)
		if n := <-sizes; n != 1 {
			t.Errorf("after a second the checkpoint covers %d records, want 1", n)
		}
		for range 1000 {
			record(t, l, event(""))
		}
		time.Sleep(300 * time.Millisecond)
		select {
		case n := <-sizes:
			if n != 1001 {
				t.Errorf("after 1000 more records, the checkpoint covers %d records, want 1001", n)
			}
		default:
			t.Error("there is no checkpoint 0.3 s after 1000 more records")
		}
		record(t, l, event(""))
		time.Sleep(900 * time.Millisecond)
		if len(sizes) != 0 {
			t.Error("one more record got a checkpoint within 0.9 s, want that it waits a second")
		}
		time.Sleep(200 * time.Millisecond)
		if n := <-sizes; n != 1002 {
			t.Errorf("after another second the checkpoint covers %d records, want 1002", n)
		}
		time.Sleep(time.Minute) // the anchor file gets the checkpoint
		record(t, l, event(""))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if n := <-sizes; n != 1003 {
			t.Errorf("after Close the checkpoint covers %d records, want 1003", n)
		}
		checkpoints, torn, err := audit.OpenCheckpoints(readFile(t, file+".anchor"), k)
		if err != nil || torn > 0 || len(checkpoints) != 3 || checkpoints[0].Size != 0 ||
			checkpoints[1].Size != 1002 || checkpoints[2].Root != fullCheckpoint(t, file).Root {
			t.Errorf("the anchor file holds %d checkpoints, error %v; want those of 0, 1002 and "+
				"1003 records", len(checkpoints), err)
		}
	})
}

// TestAnchorFileGetsACheckpointEveryMinute looks at the anchor file one minute after each write.
func TestAnchorFileGetsACheckpointEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file, AnchorFile: file + ".anchor"})
		for minute := range 5 {
			checkpoints, _, err := audit.OpenCheckpoints(readFile(t, file+".anchor"),
				readPublicKey(t, file))
			if err != nil || len(checkpoints) != minute+1 {
				t.Errorf("after %d minutes, the anchor file has %d checkpoints, error %v; want %d",
					minute, len(checkpoints), err, minute+1)
			}
			record(t, l, event(""))
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestShortestTimeBetweenCheckpoints writes 100,000 records a second. Each checkpoint costs several
// flushes of the disk, so checkpoints follow each other after 20 ms, and not after 1000 records.
func TestShortestTimeBetweenCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times []time.Time
		l := open(t, audit.Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl"),
			Bodies:       audit.BodiesNone,
			OnCheckpoint: func([]byte) { times = append(times, time.Now()) }})
		for range 10_000 {
			record(t, l, event(""))
			time.Sleep(10 * time.Microsecond)
		}
		synctest.Wait()
		if len(times) < 4 {
			t.Fatalf("there are %d checkpoints after 100 ms, want one every 20 ms", len(times))
		}
		for i, at := range times[1:] {
			if d := at.Sub(times[i]); d < 20*time.Millisecond || d > 21*time.Millisecond {
				t.Errorf("checkpoint %d follows the one before after %s, want 20 ms", i+2, d)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCheckpointsKeepUpWithManyRecords writes many records a second. If a process is killed, the
// records since the last checkpoint have no checkpoint. So their number must stay small: 1,000
// records, or the records of 20 ms if these are more. In the synctest bubble, writing a checkpoint
// takes no time.
func TestCheckpointsKeepUpWithManyRecords(t *testing.T) {
	for interval, want := range map[time.Duration]int64{
		40 * time.Microsecond: 1000, // 25,000 records a second
		30 * time.Microsecond: 1000,
		// A record and the checkpoint may be due at the same moment. Either may come first.
		10 * time.Microsecond: 2001,
	} {
		t.Run(interval.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "gatekit.jsonl")
				var key note.Verifier
				var last, most int64
				l := open(t, audit.Options{File: file, Bodies: audit.BodiesNone,
					OnCheckpoint: func(b []byte) {
						c, err := audit.OpenCheckpoint(b, key)
						if err != nil {
							t.Error(err)
							return
						}
						most, last = max(most, c.Size-last), c.Size
					}})
				key = readPublicKey(t, file)
				for range 10_000 {
					record(t, l, event(""))
					time.Sleep(interval)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if most > want {
					t.Errorf("%d records in a row had no checkpoint, want at most %d", most, want)
				}
			})
		})
	}
}

func TestOnCheckpointThatHangsDelaysNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		hang := make(chan struct{})
		var got [][]byte
		l := open(t, audit.Options{File: file, OnCheckpoint: func(b []byte) {
			<-hang
			got = append(got,
				b)
		}})
		for range 5 {
			record(t, l, event(""))
			time.Sleep(2 * time.Second)
		}
		if c := fullCheckpoint(t, file); c.Size != 5 {
			t.Errorf("the checkpoint covers %d records, want 5", c.Size)
		}
		go func() { time.Sleep(time.Second); close(hang) }()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || !bytes.Contains(got[0], []byte("\n1\n")) || !bytes.Contains(got[1],
			[]byte("\n5\n")) {
			t.Errorf("OnCheckpoint got %q, want the first and the newest checkpoint", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		l := open(t, audit.Options{File: filepath.Join(t.TempDir(), "gatekit.jsonl"),
			OnCheckpoint: func([]byte) { <-hang }})
		record(t, l, event(""))
		if err := l.Close(); err == nil || !strings.Contains(err.Error(),
			"was not anchored within") {
			t.Errorf("close: error %v, want that the checkpoint was not anchored in time", err)
		}
		close(hang)
	})
}

func TestLogRefusesTooManyRecordsWithoutCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		var logged bytes.Buffer
		l := open(t, audit.Options{File: file, Bodies: audit.BodiesNone,
			Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		record(t, l, event(""))
		time.Sleep(2 * time.Second) // a checkpoint covers the record
		if err := os.RemoveAll(file + ".tree"); err != nil {
			t.Fatal(err)
		}
		writeLines(t, file+".tree", []byte("a file in its place"))
		record(t, l, event(""))
		time.Sleep(3 * time.Second)
		n := 1
		for ; n < 1<<17; n++ {
			if _, err := l.Record(t.Context(), event("")); err != nil {
				if !strings.Contains(err.Error(), "have no checkpoint") {
					t.Error(err)
				}
				break
			}
		}
		if n != 1<<16 {
			t.Errorf("the log accepted %d records without a checkpoint, want %d", n, 1<<16)
		}
		if err := os.Remove(file + ".tree"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		record(t, l, event(""))
		time.Sleep(2 * time.Second)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		c := fullCheckpoint(t, file)
		for _, text := range []string{"audit checkpoint failed",
			"audit checkpoints written again"} {
			if got := strings.Count(logged.String(), text); got != 1 {
				t.Errorf("%q was logged %d times, want once:\n%s", text, got, &logged)
			}
		}
		// with so many records, the tree has a full tile of level 1
		if _, err := audit.Prove(file, 1, readPublicKey(t, file)); err != nil {
			t.Error(err)
		}
		var progress []uint64
		v := audit.Verification{File: file, Progress: func(records uint64) {
			progress = append(progress, records)
		}}
		if done, err := v.Run(t.Context()); err != nil || done.Last != uint64(c.Size) {
			t.Errorf("verification: %+v, error %v; want the last record %d", done, err, c.Size)
		}
		if !slices.Equal(progress, []uint64{1 << 16}) {
			t.Errorf("Progress was called with %d, want once with %d", progress, 1<<16)
		}
		v.Progress = nil
		if _, err := v.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestMovedFileEndsLog(t *testing.T) {
	// the map has the time after which the log must notice that its file was moved
	for durability, delay := range map[audit.Durability]time.Duration{audit.DurabilityFsync: 0,
		audit.DurabilityWrite: 100 * time.Millisecond} {
		t.Run(string(durability), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "gatekit.jsonl")
				l := open(t, audit.Options{File: file, Durability: durability})
				record(t, l, event(""))
				if err := os.Rename(file, file+".1"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(delay)
				if _, err := l.Record(t.Context(), event("")); err == nil ||
					!strings.Contains(err.Error(), "no longer the file") {
					t.Errorf("error %v, want that the file was moved", err)
				}
				if err := l.Close(); err == nil {
					t.Error("Close returned no error, although a record failed")
				}
				if n := bytes.Count(readFile(t, file+".1"), []byte("\n")); n != 1 {
					t.Errorf("the file holds %d records, want 1, because Record failed for the "+
						"second", n)
				}
			})
		})
	}
}

// TestReplacedFileIsNotRotated replaces the active file by a foreign file. A rotation must not make
// the foreign file a segment.
func TestReplacedFileIsNotRotated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: file, SegmentBytes: 1})
	record(t, l, event(""))
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("another's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Record(t.Context(), event("")); err == nil || !strings.Contains(err.Error(),
		"no longer the file") {
		t.Errorf("error %v, want that the file was replaced", err)
	}
	if err := l.Close(); err == nil {
		t.Error("Close returned no error, although a record failed")
	}
	if got := readFile(t, file); string(got) != "another's\n" {
		t.Errorf("the file that replaced the log is now %q, want it unchanged", got)
	}
}

func TestCloseReportsLostFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: file})
	record(t, l, event(""))
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err == nil || !strings.Contains(err.Error(), "no longer the file") {
		t.Errorf("error %v, want that the file was removed", err)
	}
}

func TestClockSetBackWhileClosedIsRecorded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	l := open(t, audit.Options{File: file})
	o := event("")
	o.Time = time.Now().Add(time.Hour)
	record(t, l, o)
	l.Close()
	l = open(t, audit.Options{File: file})
	record(t, l, event(""))
	l.Close()
	lines := allLines(t, file)
	if len(lines) != 3 || !bytes.Contains(lines[1],
		[]byte(`"action":"clock","reason":"the clock was set back by 1h0m0s: `)) &&
		!bytes.Contains(lines[1],
			[]byte(`"action":"clock","reason":"the clock was set back by 59m59`)) {
		t.Errorf("the log is\n%swant three records, the second about the clock",
			bytes.Join(lines, nil))
	}
	verify(t, bytes.Join(lines, nil))
}

func TestRetentionRemovesExpiredSegments(t *testing.T) {
	tests := []struct {
		name string
		keep audit.Retention
		kept func(files int, size int64) bool
	}{
		{"more than ten segments", audit.Retention{}, func(files int, size int64) bool {
			return files > 10
		}},
		{"three segments", audit.Retention{Files: 3}, func(files int, size int64) bool {
			return files == 3
		}},
		{"at least three segments, with at most 50,000 bytes together",
			audit.Retention{Bytes: 50_000}, func(files int, size int64) bool {
				return size <= 50_000 && files >= 3
			}},
		// the active file is rotated after an hour, but its last record is not in a full tile, so
		// the file is kept as a segment
		{"one segment", audit.Retention{For: time.Hour}, func(files int, size int64) bool {
			return files == 1
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "gatekit.jsonl")
				l := open(t, audit.Options{File: file, SegmentBytes: 10 << 10})
				// 1024 records fill four tiles; the last record is not in a full tile
				for range 1025 {
					record(t, l, event(""))
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				before := allLines(t, file)
				l = open(t, audit.Options{File: file, SegmentBytes: 10 << 10, Keep: tt.keep})
				// Maintenance runs after a second, and then every minute. It does not run now: a
				// run at this time might not have ended before the log is closed.
				time.Sleep(tt.keep.For + 90*time.Second)
				record(t, l, event("after"))
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				segments, err := audit.Segments(file)
				if err != nil {
					t.Fatal(err)
				}
				var size int64
				for _, s := range segments[:len(segments)-1] {
					info, err := os.Stat(s)
					if err != nil {
						t.Fatal(err)
					}
					size += info.Size()
				}
				if !tt.kept(len(segments)-1, size) {
					t.Errorf("%d segments with %d bytes are left, want %s", len(segments)-1, size,
						tt.name)
				}
				lines := allLines(t, file)
				if pruned := bytes.Contains(bytes.Join(lines, nil),
					[]byte(`"action":"prune"`)); pruned != (tt.keep != audit.Retention{}) {
					t.Errorf("the log has a record of the removal: %v, want %v", pruned, !pruned)
				}
				first, _, _ := bytes.Cut(lines[0], []byte(","))
				at := slices.IndexFunc(before, func(line []byte) bool {
					return bytes.HasPrefix(line, append(first, ','))
				})
				whole := append(before[:at:at], lines...)
				if c := checkpoint(t, file); c.Root != rootOf(t, whole) {
					t.Error("the checkpoint does not have the root of all records, kept or removed")
				}
				l = open(t, audit.Options{File: file}) // the log continues
				record(t, l, event("again"))
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestRotationDoesNotReplaceForeignFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	var logged bytes.Buffer
	l := open(t, audit.Options{File: file, SegmentBytes: 1000,
		Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	writeLines(t, filepath.Join(filepath.Dir(file), "gatekit-00000000000000000001.jsonl"),
		[]byte("somebody's"))
	var err error
	for range 10 {
		if _, err = l.Record(t.Context(), event("")); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("error %v, want that a file with the segment's name exists", err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(file),
		"gatekit-00000000000000000001.jsonl")); err != nil {
		t.Fatal(err)
	}
	record(t, l, event(""))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	verify(t, bytes.Join(allLines(t, file), nil))
	if strings.Contains(logged.String(), "count of missing") {
		t.Errorf("the log reported a problem with the gap file, want none:\n%s", &logged)
	}
	records := len(allLines(t, file))
	open(t, audit.Options{File: file}).Close()
	if n := len(allLines(t, file)); n != records {
		t.Errorf("the next start added %d records, want none: the gap is recorded", n-records)
	}
	if _, err := os.Stat(file + ".next"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s.next was not removed (error %v)", file, err)
	}
}
