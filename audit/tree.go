package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"gatekit/core/atomicfile"
)

// The Merkle tree is defined by RFC 6962, and its leaves are the lines of the log: record 1 is leaf
// 0. The hashes are stored in tiles of 256 hashes, as in C2SP's tlog-tiles: tile/LEVEL/NUMBER.
// There is no folder tile/entries, because the log itself holds the entries: each entry is a line
// of the log without its line feed.

const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	maxLevels  = 64 / tileHeight
)

// tree is the state that is needed to append to the Merkle tree: for each level, the hashes of the
// last tile, which is not full.
type tree struct {
	size      int64
	edge      [][]tlog.Hash // by level, each shorter than tileWidth
	fullTiles []tile        // full tiles that are not written yet
	lastLeaf  tlog.Hash     // hash of the last record
}

// tile is a tile with its hashes.
type tile struct {
	tlog.Tile
	hashes []tlog.Hash
}

// append appends the hash of the next record.
func (t *tree) append(h tlog.Hash) {
	t.size++
	t.lastLeaf = h
	for level := 0; ; level++ {
		if level == len(t.edge) {
			t.edge = append(t.edge, make([]tlog.Hash, 0, tileWidth))
		}
		t.edge[level] = append(t.edge[level], h)
		if len(t.edge[level]) < tileWidth {
			return
		}
		hashes := t.edge[level]
		t.fullTiles = append(t.fullTiles, tile{tlog.Tile{H: tileHeight, L: level,
			N: t.size>>(tileHeight*(level+1)) - 1, W: tileWidth}, hashes})
		t.edge[level] = make([]tlog.Hash, 0, tileWidth)
		h = subtreeRoot(hashes)
	}
}

// partialTiles returns the tiles that are not full.
func (t *tree) partialTiles() []tile {
	var tiles []tile
	for level, hashes := range t.edge {
		if len(hashes) > 0 {
			tiles = append(tiles, tile{tlog.Tile{H: tileHeight, L: level,
				N: t.size >> (tileHeight * (level + 1)), W: len(hashes)}, hashes})
		}
	}
	return tiles
}

// root returns the root hash of the tree.
func (t *tree) root() tlog.Hash {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	var root tlog.Hash
	begun := false
	// join the subtrees, beginning with the smallest subtree, which is the rightmost
	for _, hashes := range t.edge {
		for width := 1; width < tileWidth; width <<= 1 {
			if len(hashes)&width == 0 {
				continue
			}
			right := len(hashes) &^ (2*width - 1)
			sub := subtreeRoot(hashes[right : right+width])
			if begun {
				sub = tlog.NodeHash(sub, root)
			}
			root, begun = sub, true
		}
	}
	return root
}

// subtreeRoot returns the root of a complete subtree; the number of hashes is a power of two.
func subtreeRoot(hashes []tlog.Hash) tlog.Hash {
	if len(hashes) == 1 {
		return hashes[0]
	}
	half := len(hashes) / 2
	return tlog.NodeHash(subtreeRoot(hashes[:half]), subtreeRoot(hashes[half:]))
}

// partialTilesOf returns the tiles that are not full in a tree of the given number of leaves.
func partialTilesOf(size int64) []tlog.Tile {
	var tiles []tlog.Tile
	for level := 0; level < maxLevels && size>>(tileHeight*level) > 0; level++ {
		if w := int(size >> (tileHeight * level) % tileWidth); w > 0 {
			tiles = append(tiles, tlog.Tile{H: tileHeight, L: level,
				N: size >> (tileHeight * (level + 1)), W: w})
		}
	}
	return tiles
}

// readTree reads the state of a tree from the tiles in dir. The size is the number of leaves.
func readTree(dir string, size int64) (*tree, error) {
	t := &tree{size: size}
	for level := 0; size>>(tileHeight*level) > 0; level++ {
		t.edge = append(t.edge, make([]tlog.Hash, 0, tileWidth))
	}
	for _, at := range partialTilesOf(size) {
		hashes, err := readTile(dir, at)
		if err != nil {
			return nil, err
		}
		t.edge[at.L] = append(t.edge[at.L], hashes...)
	}
	if size > 0 {
		hashes, err := readTile(dir, tlog.Tile{H: tileHeight, N: (size - 1) / tileWidth,
			W: int((size-1)%tileWidth) + 1})
		if err != nil {
			return nil, err
		}
		t.lastLeaf = hashes[len(hashes)-1]
	}
	return t, nil
}

// tilesMatch reports whether the full tiles on the disk belong to this tree. It skips tiles that
// cover only records with a seq below the parameter first.
func (t *tree) tilesMatch(dir string, first uint64) bool {
	for level := len(t.edge) - 1; level > 0; level-- {
		n := t.size >> (tileHeight * (level + 1)) << tileHeight
		for i, root := range t.edge[level] {
			if !tileMatches(dir, level-1, n+int64(i), root, first) {
				return false
			}
		}
	}
	return true
}

// tileMatches reports whether a full tile and the tiles below it have the given root. It skips
// tiles that cover only records with a seq below the parameter first.
func tileMatches(dir string, level int, n int64, root tlog.Hash, first uint64) bool {
	if uint64(n+1)<<(tileHeight*(level+1)) < first {
		// The tile covers only removed records. It was synced before they were removed.
		return true
	}
	hashes, err := readTile(dir, tlog.Tile{H: tileHeight, L: level, N: n, W: tileWidth})
	if err != nil || subtreeRoot(hashes) != root {
		return false
	}
	for i, below := range hashes {
		if level > 0 && !tileMatches(dir, level-1, n<<tileHeight+int64(i), below, first) {
			return false
		}
	}
	return true
}

// tilePath returns the path of a tile in C2SP's layout, without the height, which is always 8.
func tilePath(t tlog.Tile) string {
	return "tile" + strings.TrimPrefix(t.Path(), "tile/"+strconv.Itoa(tileHeight))
}

func (t tile) bytes() []byte {
	b := make([]byte, 0, len(t.hashes)*tlog.HashSize)
	for _, h := range t.hashes {
		b = append(b, h[:]...)
	}
	return b
}

// readTile reads the hashes of a tile. If a wider tile has replaced the partial tile, readTile
// returns the first hashes of the wider tile.
func readTile(dir string, t tlog.Tile) ([]tlog.Hash, error) {
	path := filepath.Join(dir, tilePath(t))
	b, err := readFile(path)
	for w := t.W + 1; errors.Is(err, fs.ErrNotExist) && w <= tileWidth; w++ {
		wider := t
		wider.W = w
		if more, werr := readFile(filepath.Join(dir, tilePath(wider))); werr == nil &&
			len(more) == w*tlog.HashSize {
			b, err = more[:t.W*tlog.HashSize], nil
		}
	}
	if err != nil {
		return nil, err
	}
	if len(b) != t.W*tlog.HashSize {
		return nil, fmt.Errorf("%s has %d bytes, expected %d", path, len(b), t.W*tlog.HashSize)
	}
	hashes := make([]tlog.Hash, t.W)
	for i := range hashes {
		copy(hashes[i][:], b[i*tlog.HashSize:])
	}
	return hashes, nil
}

// writeTile writes a tile atomically.
func writeTile(dir string, t tile) error {
	path := filepath.Join(dir, tilePath(t.Tile))
	err := atomicfile.WriteUnsynced(path, t.bytes())
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = atomicfile.WriteUnsynced(path, t.bytes())
		}
	}
	return err
}

// removePartialTiles removes the partial tiles that a full tile replaces.
func removePartialTiles(dir string, full tlog.Tile) error {
	return os.RemoveAll(filepath.Join(dir, tilePath(full)+".p"))
}

// syncTiles flushes full tiles to the disk: the tiles with the hashes of the records with the seqs
// first to last, and the full tiles above them. All these tiles must exist.
func syncTiles(dir string, first, last uint64) error {
	folders := map[string]bool{}
	for level := 0; level == 0 || last>>(tileHeight*(level+1)) > 0; level++ {
		shift := tileHeight * (level + 1)
		end := last >> shift
		if level == 0 { // the tile of the last record may also hold later records
			end = (last-1)>>shift + 1
		}
		for n := (first - 1) >> shift; n < end; n++ {
			path := filepath.Join(dir, tilePath(tlog.Tile{H: tileHeight, L: level, N: int64(n),
				W: tileWidth}))
			if err := atomicfile.Sync(path); err != nil {
				return err
			}
			folders[filepath.Dir(path)] = true
		}
	}
	for folder := range folders {
		if err := atomicfile.Sync(folder); err != nil {
			return err
		}
	}
	return nil
}
