package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// TestLostTilesOfLargeTreeAreNoticed is an internal test, because a log with a full tile of level 1
// has more than 65,536 records, and writing such a log takes too long for each of the cases.
func TestLostTilesOfLargeTreeAreNoticed(t *testing.T) {
	const size = 1<<16 + 3<<8 + 5
	dir := t.TempDir()
	tr := &tree{}
	for i := range size {
		tr.append(tlog.RecordHash([]byte{byte(i), byte(i >> 8), byte(i >> 16)}))
	}
	for _, at := range slices.Concat(tr.fullTiles, tr.partialTiles()) {
		if err := writeTile(dir, at); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := readTree(dir, size)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		lost   string // the tile that is missing; "" for none
		first  uint64 // seq of the first record that was not removed
		want   bool   // the tiles match
		synced bool   // the tiles of records 65,000 to 65,536 can be flushed
	}{
		{"", 1, true, true},
		{"", 1 << 16, true, true},
		{"0/000", 1, false, true},
		{"0/000", 257, true, true},
		{"0/000", 256, false, true},
		{"0/255", 1, false, false},
		{"0/256", 1, false, true},
		{"0/256", 1 << 16, false, true},
		{"0/258", 1, false, true},
		{"1/000", 1, false, false},
		{"1/000", 1<<16 - 20, false, false},
	} {
		path := filepath.Join(dir, "tile", tt.lost)
		if tt.lost != "" {
			if err := os.Rename(path, path+"~"); err != nil {
				t.Fatal(err)
			}
		}
		if got := tr.tilesMatch(dir, tt.first); got != tt.want {
			t.Errorf("without the tile %q, the first record being %d: tilesMatch is %v, want %v",
				tt.lost, tt.first, got, tt.want)
		}
		if err := syncTiles(dir, 65_000, 1<<16); (err == nil) != tt.synced {
			t.Errorf("without the tile %q: syncTiles returned %v, want an error: %v", tt.lost, err,
				!tt.synced)
		}
		if tt.lost != "" {
			if err := os.Rename(path+"~", path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestEndOfLargeFileIsFound is an internal test, because a log cannot have a file with a hole, and
// writing 200 MiB takes too long.
func TestEndOfLargeFileIsFound(t *testing.T) {
	line := func(seq int) string {
		return fmt.Sprintf(`{"seq":%d,"time":"2026-11-21T12:00:00.000000Z","prev":"%064d",`+
			`"action":"test"}`+"\n", seq, 0)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "gatekit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const middle = 200 << 20
	if _, err := f.WriteString(line(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("\n"+line(2)), middle); err != nil {
		t.Fatal(err)
	}
	size := int64(middle + 1 + len(line(2)))
	if end, err := fileEnd(f, size, 1); err != nil || end.head.seq != 2 ||
		end.file != (FileEnd{First: 1, Bytes: size}) {
		t.Errorf("the end is %+v, error %v; want record 2 at the end of %d bytes", end, err, size)
	}
}
