package secrets

import (
	"slices"

	"gatekit/plugins/sdk/scan/eight"
)

// wordFinder finds many words in a text, ignoring the case of ASCII letters. Most places of a text
// cost one test of a bit:
//
//   - The three bytes at a place are the place's gram. A hash of the gram selects a bit of bits.
//     The bit is set if a word may begin with a gram of this hash.
//   - Only if the bit is set, the words of this hash are compared with the text.
//
// Words of two bytes have no gram. If only certain bytes may follow such a word, the word has a
// gram for each of these bytes, else for every byte.
type wordFinder struct {
	words []string // in lower case
	bits  []uint64 // a bit for each hash
	// candidates[starts[h]:starts[h+1]] are the numbers of the words that may begin with a gram of
	// the hash h.
	starts     []uint32
	candidates []int32
}

const (
	gramHashes = 1 << 16 // the number of different results of gramHash
	gramLength = 3
)

// gramHash returns the hash of the gram in the three lowest bytes of x, in which lowerBits are set.
func gramHash(x uint64) uint32 { return uint32(x&0xffffff) * 0x9e3779b1 >> 16 }

// lowerBits turn capital letters into small ones, and may change other characters: a gram only has
// to be equal for equal texts.
const lowerBits = 0x2020202020202020

// newWordFinder returns a finder of words, which must be in lower case and have two bytes or more.
// beginnings has, for each word, the prefixes of the texts in which the word is searched: the word
// is found at least where one of them fits. It is nil for a word that is searched everywhere.
func newWordFinder(words []string, beginnings [][]prefix) *wordFinder {
	k := &wordFinder{words: words, bits: make([]uint64, gramHashes/64),
		starts: make([]uint32, gramHashes+1)}
	byHash := make(map[uint32][]int32)
	for n, w := range words {
		all := []prefix{wordPrefix(w)}
		if beginnings != nil && beginnings[n] != nil {
			all = beginnings[n]
		}
		for _, p := range all {
			eachGram(p, func(gram uint64) {
				h := gramHash(gram | lowerBits)
				if last := len(byHash[h]) - 1; last < 0 || byHash[h][last] != int32(n) {
					byHash[h] = append(byHash[h], int32(n))
				}
			})
		}
	}
	for h := range uint32(gramHashes) {
		if len(byHash[h]) > 0 {
			k.bits[h/64] |= 1 << (h % 64)
		}
		k.candidates = append(k.candidates, byHash[h]...)
		k.starts[h+1] = uint32(len(k.candidates))
	}
	return k
}

// wordPrefix returns the prefix of the texts that begin with a word.
func wordPrefix(word string) (p prefix) {
	for i := range len(word) {
		var s byteSet
		s.add(word[i])
		p = append(p, &s)
	}
	return p
}

// eachGram calls yield for the grams of the texts that begin with the prefix, without the
// difference between small and capital letters.
func eachGram(p prefix, yield func(gram uint64)) {
	var chars [gramLength][]byte
	for i := range chars {
		for c := range 256 {
			if c&0x20 != 0 && (i >= len(p) || p[i].has(byte(c)) || p[i].has(byte(c&^0x20))) {
				chars[i] = append(chars[i], byte(c))
			}
		}
	}
	for _, a := range chars[0] {
		for _, b := range chars[1] {
			for _, c := range chars[2] {
				yield(uint64(a) | uint64(b)<<8 | uint64(c)<<16)
			}
		}
	}
}

// foundWord is a word in a text.
type foundWord struct {
	begin, end int
	word       int32
}

// scan calls yield for each word in s, with its place and its number, until yield returns false.
// The words come in the order of their ends. Of those with the same end, the longest comes first.
func (k *wordFinder) scan(s string, yield func(begin, end int, word int32) (more bool)) {
	var buffer [8]foundWord
	waiting := buffer[:0] // words that end behind words that may be found later
	for i := k.nextCandidate(s, 0); i < len(s); i = k.nextCandidate(s, i+1) {
		done := 0
		for done < len(waiting) && waiting[done].end < i+2 {
			w := waiting[done]
			if done++; !yield(w.begin, w.end, w.word) {
				return
			}
		}
		waiting = append(waiting[:0], waiting[done:]...)
		h := gramHash(gramAt(s, i))
		for _, n := range k.candidates[k.starts[h]:k.starts[h+1]] {
			w := k.words[n]
			if len(s)-i < len(w) || !equalLower(s[i:i+len(w)], w) {
				continue
			}
			found := foundWord{i, i + len(w), n}
			at := len(waiting)
			for at > 0 && waiting[at-1].end > found.end {
				at--
			}
			waiting = slices.Insert(waiting, at, found)
		}
	}
	for _, w := range waiting {
		if !yield(w.begin, w.end, w.word) {
			return
		}
	}
}

// nextCandidate returns the first index in s, from i on, at which a word may begin, or len(s).
func (k *wordFinder) nextCandidate(s string, i int) int {
	bits := (*[gramHashes / 64]uint64)(k.bits)
	has := func(x uint64) bool {
		h := gramHash(x)
		return bits[h/64]&(1<<(h%64)) != 0
	}
	for ; i+8 <= len(s); i += 6 { // eight bytes have six grams
		x := eight.Load(s, i) | lowerBits
		switch {
		case has(x):
			return i
		case has(x >> 8):
			return i + 1
		case has(x >> 16):
			return i + 2
		case has(x >> 24):
			return i + 3
		case has(x >> 32):
			return i + 4
		case has(x >> 40):
			return i + 5
		}
	}
	for ; i+2 <= len(s); i++ {
		if has(gramAt(s, i)) {
			return i
		}
	}
	return len(s)
}

// gramAt returns the gram at s[i]. The last two bytes of a text are followed by a zero.
func gramAt(s string, i int) uint64 {
	x := uint64(s[i]) | uint64(s[i+1])<<8 | lowerBits
	if i+2 < len(s) {
		x |= uint64(s[i+2]) << 16
	}
	return x
}

// equalLower reports whether s equals a word in lower case of the same length, ignoring the case of
// the ASCII letters of s.
func equalLower(s, word string) bool {
	for i := range len(word) {
		if lower(s[i]) != word[i] {
			return false
		}
	}
	return true
}

// containsAny reports whether s contains one of the words.
func (k *wordFinder) containsAny(s string) (found bool) {
	k.scan(s, func(int, int, int32) bool {
		found = true
		return false
	})
	return found
}
