package secrets

import "math"

// entropyOptions is the option "entropy": long words that look random are taken for secrets.
type entropyOptions struct {
	Enabled   bool    `json:"enabled"`
	MinLength int     `json:"min_length"`
	Threshold float64 `json:"threshold"`
}

const (
	entropyID       = "entropy" // the rule's id in findings and placeholders
	maxRandomLength = 200       // characters; a longer word is data, not a secret
)

// randomWords returns the words of s that look random. A word that stands in s twice is returned
// twice.
func (r entropyOptions) randomWords(s string) (words []span) {
	for i := 0; i < len(s); i++ {
		from := i
		for i < len(s) && byteClasses[s[i]]&(wordByte|valueByte) != 0 {
			i++
		}
		if n := i - from; n >= r.MinLength && n <= maxRandomLength &&
			entropy(s[from:i]) >= r.Threshold {
			words = append(words, span{from, i})
		}
	}
	return words
}

// entropy returns the Shannon entropy of s, in bits a byte.
func entropy(s string) (bits float64) {
	var counts [256]int
	for i := range len(s) {
		counts[s[i]]++
	}
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(s))
			bits -= p * math.Log2(p)
		}
	}
	return bits
}
