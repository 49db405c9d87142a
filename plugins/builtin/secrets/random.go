package secrets

// randomness is what the option "entropy" says: that long words which look random are secrets.
type randomness struct {
	Enabled   bool    `json:"enabled"`
	MinLength int     `json:"min_length"`
	Threshold float64 `json:"threshold"`
}

const (
	entropyID     = "entropy"
	longestRandom = 200 // characters; what is longer is data
)

// words are the parts of s that look random: each one, also where one stands twice.
func (r randomness) words(s string) (at []span) {
	for i := 0; i < len(s); i++ {
		from := i
		for i < len(s) && bytesOf[s[i]]&(inWord|inValue) != 0 {
			i++
		}
		if n := i - from; n >= r.MinLength && n <= longestRandom &&
			entropy(s[from:i]) >= r.Threshold {
			at = append(at, span{from, i})
		}
	}
	return at
}
