package injection

import "strings"

// lexicon is a hash table of the words that rules name. The number of a word is its index in words.
// Look-ups ignore the case of ASCII letters.
type lexicon struct {
	slots   []int32 // numbers of words, by hash; -1 for a free slot
	words   []string
	longest int         // the length of the longest word, in bytes
	lengths [256]uint32 // by first byte: bit n is set for words of n bytes, bit 31 for longer ones
	dotted  [256]bool   // by first byte: whether a word has a dot later on, as mcp.json has
}

// lexiconSlots is a power of two, and more than the number of words.
const lexiconSlots = 1 << 13

// The parameters of the FNV-1a hash of words.
const (
	hashSeed  uint32 = 2166136261
	hashPrime uint32 = 16777619
)

// add returns the number of word, and adds word if it is new. word is in lower case.
func (x *lexicon) add(word string) int32 {
	if x.slots == nil {
		x.slots = make([]int32, lexiconSlots)
		for i := range x.slots {
			x.slots[i] = -1
		}
	}
	i := x.slot(hashOf(word), word)
	if x.slots[i] < 0 {
		x.slots[i] = int32(len(x.words))
		x.words = append(x.words, word)
		x.longest = max(x.longest, len(word))
		x.lengths[word[0]] |= 1 << min(len(word), 31)
		x.dotted[word[0]] = x.dotted[word[0]] || strings.IndexByte(word[1:], '.') >= 0
	}
	return x.slots[i]
}

// hashOf returns the hash of a word, ignoring the case of ASCII letters.
func hashOf(word string) uint32 {
	h := hashSeed
	for i := range len(word) {
		h = (h ^ uint32(lowerByte[word[i]])) * hashPrime
	}
	return h
}

// slot returns the index in slots of the word with the hash h, or of the free slot for that word.
func (x *lexicon) slot(h uint32, word string) int {
	for i := int(h^h>>15) & (len(x.slots) - 1); ; i = (i + 1) & (len(x.slots) - 1) {
		if w := x.slots[i]; w < 0 || equalLower(x.words[w], word) {
			return i
		}
	}
}

// equalLower reports whether a word equals an entry of the lexicon, ignoring the case of the word's
// ASCII letters.
func equalLower(entry, word string) bool {
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
func (x *lexicon) findHashed(h uint32, word string) int32 {
	if x.lengths[lowerByte[word[0]]]&(1<<min(len(word), 31)) == 0 {
		return -1
	}
	return x.slots[x.slot(h, word)]
}

// lookup returns the number of the word, or -1.
func (x *lexicon) lookup(word string) int32 {
	if word == "" {
		return -1
	}
	return x.findHashed(hashOf(word), word)
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
