package secrets

// entropyOptions is what the option "entropy" says: that long words which look random are secrets.
type entropyOptions struct {
	Enabled   bool    `json:"enabled"`
	MinLength int     `json:"min_length"`
	Threshold float64 `json:"threshold"`
}

const (
	entropyID       = "entropy"
	maxRandomLength = 200 // characters; what is longer is data
)

// randomWords are the parts of s that look random: each one, also where one stands twice.
func (r entropyOptions) randomWords(s string) (at []span) {
	for i := 0; i < len(s); i++ {
		from := i
		for i < len(s) && byteClasses[s[i]]&(wordByte|valueByte) != 0 {
			i++
		}
		if n := i - from; n >= r.MinLength && n <= maxRandomLength &&
			entropy(s[from:i]) >= r.Threshold {
			at = append(at, span{from, i})
		}
	}
	return at
}
