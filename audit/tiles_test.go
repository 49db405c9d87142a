package audit

import (
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
