package audit_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
)

// TestMissingSegmentDoesNotPreventOpen removes a segment whose records Gatekit does not need at a
// start. The tiles are undamaged, so Gatekit must not rebuild the tree, which needs all records.
func TestMissingSegmentDoesNotPreventOpen(t *testing.T) {
	for _, tt := range []struct {
		name         string
		segmentBytes int64
		missing      int // index of the segment
		records      int
		unsigned     int // records after the checkpoint
	}{
		{"the last tile is full", 60 << 10, 0, 512, 0},
		{"the last tile is full, and a later segment is missing", 20 << 10, 1, 512, 0},
		{"the last tile is not full", 60 << 10, 0, 700, 0},
		{"the last tile is not full, and a later segment is missing", 30 << 10, 1, 700, 0},
		{"the log was not closed", 60 << 10, 0, 700, 50},
		{"the log was not closed, and a later segment is missing", 30 << 10, 1, 700, 50},
		{"the log was not closed, and the last tile is full", 60 << 10, 0, 512, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "gatekit.jsonl")
				options := audit.Options{File: file, SegmentBytes: tt.segmentBytes}
				l := open(t, options)
				for range tt.records {
					record(t, l, event(""))
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if tt.unsigned > 0 {
					l = open(t, options)
					for range tt.unsigned {
						record(t, l, event(""))
					}
					options.File = filepath.Join(copyFolder(t, filepath.Dir(file)), "gatekit.jsonl")
					l.Close()
				}
				segments, err := audit.Segments(options.File)
				if err != nil || len(segments) < 2+tt.missing {
					t.Fatalf("the files are %q, error %v; want at least %d", segments, err,
						2+tt.missing)
				}
				if err := os.Remove(segments[tt.missing]); err != nil {
					t.Fatal(err)
				}
				l = open(t, options)
				record(t, l, event("after"))
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestOpenAfterLossOfTilesOfRemovedRecords opens a log of which segments were removed, after a
// crash has damaged the tiles that are not flushed: those that are not full.
func TestOpenAfterLossOfTilesOfRemovedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		options := audit.Options{File: file, SegmentBytes: 11 << 10,
			Keep: audit.Retention{Files: 1}}
		l := open(t, options)
		for range 700 {
			record(t, l, event(""))
		}
		time.Sleep(2 * time.Second)
		options.File = filepath.Join(copyFolder(t, filepath.Dir(file)), "gatekit.jsonl")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err := audit.ParseRecord(bytes.TrimSpace(allLines(t,
			options.File)[0])); err != nil || r.Seq < 257 || r.Seq%256 == 1 {
			t.Fatalf("the log begins with record %d, error %v; want the first records removed, "+
				"also of a tile of which records are left", r.Seq, err)
		}
		partial, err := filepath.Glob(options.File + ".tree/tile/*/*.p")
		if err != nil || len(partial) == 0 {
			t.Fatalf("the tiles that are not full are %q, error %v; want some", partial, err)
		}
		for _, folder := range partial {
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
		}
		l = open(t, options)
		record(t, l, event("after"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		v := audit.Verification{File: options.File}
		if _, err := v.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := audit.Prove(options.File, l.Committed(), readPublicKey(t,
			options.File)); err != nil {
			t.Error(err)
		}
	})
}

// TestOpenRefusesDamageAfterCrash damages a log of several files without any checkpoint of records,
// and one whose last checkpoint covers 700 records.
func TestOpenRefusesDamageAfterCrash(t *testing.T) {
	crashed := func(t *testing.T, signed, unsigned int) (file string) {
		synctest.Test(t, func(bubble *testing.T) {
			source := filepath.Join(bubble.TempDir(), "gatekit.jsonl")
			options := audit.Options{File: source, SegmentBytes: 50 << 10}
			l := open(t, options)
			for range signed {
				record(t, l, event(""))
			}
			time.Sleep(2 * time.Second) // a checkpoint
			for range unsigned {
				record(t, l, event(""))
			}
			file = filepath.Join(copyFolder(t, filepath.Dir(source)), "gatekit.jsonl")
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
		return file
	}
	editLine := func(file, from, to string) func(*testing.T) {
		return func(t *testing.T) {
			change(t, file, func(b []byte) []byte {
				return bytes.Replace(b, []byte(from), []byte(to), 1)
			})
		}
	}
	unsigned, signed := crashed(t, 0, 1000), crashed(t, 700, 50)
	var files [2][]string
	for i, file := range []string{unsigned, signed} {
		var err error
		if files[i], err = audit.Segments(file); err != nil || len(files[i]) < 3 {
			t.Fatalf("the files are %q, error %v; want at least three", files[i], err)
		}
	}
	first := func(file string) int {
		var seq int
		fmt.Sscanf(string(readFile(t, file)), `{"seq":%d`, &seq)
		return seq
	}
	for _, tt := range []struct {
		name, file string
		damage     func(t *testing.T)
		want       []string // parts of the error
	}{
		{"a segment without its last line feed", unsigned, func(t *testing.T) {
			change(t, files[0][0], func(b []byte) []byte { return b[:len(b)-1] })
		}, []string{"incomplete"}},
		{"the first file is missing", unsigned, func(t *testing.T) {
			if err := os.Remove(files[0][0]); err != nil {
				t.Fatal(err)
			}
		}, []string{fmt.Sprintf("records 1 to %d are missing", first(files[0][1])-1)}},
		{"a record of the file with the last record of the checkpoint was changed", signed,
			editLine(files[1][1], `"test"`, `"Test"`),
			[]string{fmt.Sprintf(":1: record %d does not match the Merkle tree",
				first(files[1][1])), "gatekit audit verify", "\nhint: "}},
		{"a line of an older file is not a record, and a tile is missing", signed,
			func(t *testing.T) {
				editLine(files[1][0], `{"seq":5,`, `{"sex":5,`)(t)
				if err := os.Remove(signed + ".tree/tile/0/000"); err != nil {
					t.Fatal(err)
				}
			}, []string{"rebuild the Merkle tree: ", ":5: the line does not begin with seq",
				"\nhint: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			content := map[string][]byte{}
			for _, path := range slices.Concat(files[0], files[1]) {
				content[path] = readFile(t, path)
			}
			tt.damage(t)
			l, err := audit.Open(audit.Options{File: tt.file})
			if err == nil {
				l.Close()
				t.Fatal("Open accepted the damaged log")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
			for path, b := range content {
				writeLines(t, path, b)
			}
		})
	}
}

// TestTreeFolderHasOnlyTilesOfTheTree checks which tiles are on the disk. A tile of no hashes does
// not exist in the layout, and a full tile replaces the tiles that were not full.
func TestTreeFolderHasOnlyTilesOfTheTree(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.jsonl")
	n := 0
	for _, tt := range []struct {
		records int
		want    []string
	}{
		{255, []string{"0/000.p/255"}},
		{256, []string{"0/000", "1/000.p/1"}},
		{258, []string{"0/000", "0/001.p/2", "1/000.p/1"}},
		{512, []string{"0/000", "0/001", "1/000.p/1", "1/000.p/2"}},
	} {
		l := open(t, audit.Options{File: file})
		for ; n < tt.records; n++ {
			record(t, l, event(""))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, pattern := range []string{"*/*", "*/*.p/*"} {
			paths, err := filepath.Glob(filepath.Join(file+".tree", "tile", pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range paths {
				if !strings.HasSuffix(path, ".p") {
					name, _ := filepath.Rel(filepath.Join(file+".tree", "tile"), path)
					got = append(got, name)
				}
			}
		}
		if _, err := os.Stat(file + ".tree/ages"); err == nil {
			t.Error("the log has a file of ages, although Retention.For is not set")
		}
		if slices.Sort(got); !slices.Equal(got, tt.want) {
			t.Errorf("with %d records the tiles are %q, want %q", tt.records, got, tt.want)
		}
	}
	synctest.Test(t, func(t *testing.T) { // in one process
		file := filepath.Join(t.TempDir(), "gatekit.jsonl")
		l := open(t, audit.Options{File: file})
		for range 3 {
			for range 100 {
				record(t, l, event(""))
			}
			time.Sleep(2 * time.Second) // a checkpoint
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file + ".tree/tile/0/000.p"); err == nil {
			t.Error("the first tile is full, but its older versions were not removed")
		}
	})
}
