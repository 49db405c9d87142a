package injection

import (
	"math/bits"
	"strings"

	"gatekit/plugins/sdk/scan/eight"
)

// lexicon is a hash table of the words that rules name. The number of a word is its index in words.
// Look-ups ignore the case of ASCII letters.
type lexicon struct {
	slots   []slot // by hash
	words   []string
	longest int                    // the length of the longest word, in bytes
	known   [knownBits / 64]uint64 // a bit for each hash; most words that are not here miss it
	dotted  [256]bool              // by first byte: whether a word has a dot later on: mcp.json
	// lengths has a bit n, by headOf, for words of n bytes, and bit 31 for longer words.
	lengths [1 << 12]uint32

	stems   *lexicon // beginnings of words, for words that are not in the lexicon
	numbers []int32  // for a lexicon of stems: the number of each stem in the lexicon of words
	heads   []bool   // for a lexicon of stems: whether a stem begins with bytes of this hash
}

// slot is a slot of the hash table. The zero slot is free.
type slot struct {
	hash    uint64
	next    int32 // the number of the word and 1
	isShort bool  // no other short word has the hash: see isShort
}

// isShort reports whether a word is ASCII and has at most eight bytes. Two such words of letters,
// digits and punctuation with the same hash are equal.
func isShort(word string) bool {
	return len(word) <= 8 && eight.NonASCII(upToEight(word, 0)) == 0
}

// knownBits is the number of bits in lexicon.known.
const (
	knownBits    = 1 << knownBitsLog
	knownBitsLog = 16
)

// mayHave reports whether a word with the hash h may be in the lexicon.
func (x *lexicon) mayHave(h uint64) bool {
	return x.known[h>>(64-knownBitsLog)/64]&(1<<(h>>(64-knownBitsLog)%64)) != 0
}

// headOf returns an index for the first two bytes of a word, ignoring the case of ASCII letters.
func headOf(word string) uint32 {
	if len(word) == 1 {
		return uint32(lowerByte[word[0]])
	}
	return (uint32(lowerByte[word[0]]) | uint32(lowerByte[word[1]])<<8) * 40503 >> 4 & (1<<12 - 1)
}

// lexiconSlots is more than the number of words.
const (
	lexiconSlots    = 1 << lexiconSlotsLog
	lexiconSlotsLog = 14
)

// lowerBits turn capital letters into small ones. They change a few other characters, too, which
// does not matter to a hash.
const lowerBits = 0x2020202020202020

// mixHash returns the hash h of a word extended by the next one to eight bytes of the word, in
// which lowerBits are set and the bytes behind the word are 0. The highest bits of a hash depend on
// all bytes. Different words of at most eight bytes have different hashes.
func mixHash(h, next uint64) uint64 {
	return (bits.RotateLeft64(h, 29) ^ next) * 0x9e3779b97f4a7c15
}

// upToEight returns the first eight bytes of s from i on as a number, as eight.Load does. Behind
// the end of s, the bytes are 0.
func upToEight(s string, i int) (x uint64) {
	if i+8 <= len(s) {
		return eight.Load(s, i)
	}
	for n := 0; i+n < len(s); n++ {
		x |= uint64(s[i+n]) << (8 * n)
	}
	return x
}

// firstBytes returns a mask for the n lowest of eight bytes.
func firstBytes(n int) uint64 { return 1<<(8*n) - 1 }

// add returns the number of word, and adds word if it is new. word is in lower case.
func (x *lexicon) add(word string) int32 {
	if x.slots == nil {
		x.slots = make([]slot, lexiconSlots)
	}
	h := hashOf(word)
	i := x.slot(h, word)
	if x.slots[i].next == 0 {
		x.slots[i] = slot{h, int32(len(x.words) + 1), isShort(word)}
		x.known[h>>(64-knownBitsLog)/64] |= 1 << (h >> (64 - knownBitsLog) % 64)
		x.words = append(x.words, word)
		if word[0] != 0 { // else it stands for a mark, a stem or a term, and is not looked up
			x.longest = max(x.longest, len(word))
		}
		x.lengths[headOf(word)] |= 1 << min(len(word), 31)
		x.dotted[word[0]] = x.dotted[word[0]] || strings.IndexByte(word[1:], '.') >= 0
	}
	return x.slots[i].next - 1
}

// hashOf returns the hash of a word, ignoring the case of ASCII letters.
func hashOf(word string) (h uint64) {
	for i := 0; i < len(word); i += 8 {
		h = mixHash(h, (upToEight(word, i)|lowerBits)&firstBytes(min(8, len(word)-i)))
	}
	return h
}

// slot returns the index in slots of the word with the hash h, or of the free slot for that word.
func (x *lexicon) slot(h uint64, word string) int {
	for i := h >> (64 - lexiconSlotsLog); ; i = (i + 1) % lexiconSlots {
		s := &x.slots[i]
		if s.next == 0 || s.hash == h && (s.isShort && len(word) <= 8 ||
			equalLower(x.words[s.next-1], word)) {
			return int(i)
		}
	}
}

// equalLower reports whether a word equals an entry of the lexicon, ignoring the case of the word's
// ASCII letters.
func equalLower(entry, word string) bool {
	if entry == word {
		return true
	}
	if len(entry) != len(word) {
		return false
	}
	for i := range len(word) {
		if entry[i] != lowerByte[word[i]] {
			return false
		}
	}
	return true
}

// findHashed returns the number of the word with the hash h, or -1.
func (x *lexicon) findHashed(h uint64, word string) int32 {
	if !x.mayHave(h) {
		return -1
	}
	return x.slots[x.slot(h, word)].next - 1
}

// lookup returns the number of the word, or -1.
func (x *lexicon) lookup(word string) int32 {
	if word == "" {
		return -1
	}
	return x.findHashed(hashOf(word), word)
}

// addStem adds a stem. number is the number of the word that stands for it.
func (x *lexicon) addStem(stem string, number int32) {
	if x.stems == nil {
		x.stems = &lexicon{heads: make([]bool, headHashes)}
	}
	x.stems.heads[headHash(upToEight(stem, 0)|lowerBits)] = true
	if x.stems.add(stem) == int32(len(x.stems.numbers)) {
		x.stems.numbers = append(x.stems.numbers, number)
	}
}

// minStem is the length of the shortest stem, in bytes.
const minStem = 3

// headHashes is the number of different results of headHash.
const headHashes = 1 << 12

// headHash returns a hash of the first minStem bytes of a word. first has these bytes as its lowest
// ones, in which lowerBits are set.
func headHash(first uint64) uint32 { return uint32(first&0xffffff) * 2654435761 >> 20 }

// hasHead reports whether a stem may begin like a word of minStem bytes or more. first is as in
// headHash.
func (x *lexicon) hasHead(first uint64) bool {
	return x.stems != nil && x.stems.heads[headHash(first)]
}

// lookupStem returns the number of the longest stem that the word begins with, or -1.
func (x *lexicon) lookupStem(word string) int32 {
	s := x.stems
	if len(word) < minStem || !x.hasHead(upToEight(word, 0)|lowerBits) {
		return -1
	}
	lengths := s.lengths[headOf(word)]
	if lengths == 0 {
		return -1
	}
	n := min(len(word), s.longest)
	for ; n > 30; n-- { // bit 31 stands for all these lengths
		if stem := s.lookup(word[:n]); stem >= 0 {
			return s.numbers[stem]
		}
	}
	for lengths &= 1<<(n+1) - 1; lengths != 0; lengths &^= 1 << n {
		n = bits.Len32(lengths) - 1
		if stem := s.lookup(word[:n]); stem >= 0 {
			return s.numbers[stem]
		}
	}
	return -1
}

// rot13 returns word with each letter moved by 13 places in the alphabet. word is in lower case.
func rot13(word string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return 'a' + (r-'a'+13)%26
		}
		return r
	}, word)
}

func reverse(word string) string {
	b := []byte(word)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}
