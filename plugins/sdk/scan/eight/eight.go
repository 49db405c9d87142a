// Package eight tests eight bytes of a text at a time, in one number. In this way, searches skip
// text without candidates several times as fast as byte by byte.
//
// The byte with the lowest index is the lowest byte of the number. A test returns flags: the
// highest bit of each byte that fits. [First] returns the index of the lowest flag.
//
//	for ; i+8 <= len(s); i += 8 {
//		if flags := eight.Equal(eight.Load(s, i), '@'); flags != 0 {
//			return i + eight.First(flags)
//		}
//	}
//
// In the flags of Equal and Below, only the lowest flag is reliable: if it is set, flags above it
// may be set for bytes that do not fit. So these flags may be combined with "or" but not with "and"
// or "not". The flags of Between and NonASCII are all reliable.
package eight

import "math/bits"

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// Load returns the eight bytes of s from index i on, which s must have.
func Load(s string, i int) uint64 {
	b := s[i : i+8]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// First returns the index of the lowest flag, from 0 to 7. It returns 8 if there is none.
func First(flags uint64) int { return bits.TrailingZeros64(flags) / 8 }

// Below returns flags for the bytes less than n, which is at most 128. Only the lowest flag is
// reliable.
func Below(x uint64, n byte) uint64 { return (x - ones*uint64(n)) &^ x & highs }

// Equal returns flags for the bytes that are c. Only the lowest flag is reliable.
func Equal(x uint64, c byte) uint64 { return Below(x^ones*uint64(c), 1) }

// Between returns flags for the bytes from low to high. low is at least 1, and high at most 126.
func Between(x uint64, low, high byte) uint64 {
	y := x &^ highs
	return (ones*(127+uint64(high)+1) - y) &^ x & (y + ones*(127-uint64(low)+1)) & highs
}

// NonASCII returns flags for the bytes beyond ASCII.
func NonASCII(x uint64) uint64 { return x & highs }

// ASCIIPrefix returns the length of the longest prefix of s that is ASCII.
func ASCIIPrefix(s string) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		if flags := NonASCII(Load(s, i)); flags != 0 {
			return i + First(flags)
		}
	}
	for i < len(s) && s[i] < 0x80 {
		i++
	}
	return i
}
