package secrets

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestWordFinder compares the words that the finder finds in random texts with those that a simple
// search finds.
func TestWordFinder(t *testing.T) {
	words := []string{"ab", "abc", "bc", "c_", "abcab", "b-a", "aab", "xy", "y{a", "é"}
	followed := prefix{{}, {}, {}} // "xy" is only searched before a digit
	followed[0].add('x')
	followed[1].add('y')
	for c := byte('0'); c <= '9'; c++ {
		followed[2].add(c)
	}
	beginnings := make([][]prefix, len(words))
	beginnings[slices.Index(words, "xy")] = []prefix{followed}
	finder := newWordFinder(words, beginnings)
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		const chars = "aabbccABC_-xy1{}\x00é "
		var b strings.Builder
		for range r.IntN(40) {
			i := r.IntN(len(chars))
			b.WriteString(chars[i : i+1])
		}
		s := b.String()
		var want, got []string
		for end := range len(s) + 1 {
			for begin := range end {
				w := slices.Index(words, strings.ToLower(s[begin:end]))
				if w >= 0 && (words[w] != "xy" || followed.matchesAt(s, begin)) {
					want = append(want, fmt.Sprint(begin, " ", words[w]))
				}
			}
		}
		finder.scan(s, func(begin, end int, word int32) bool {
			if begin+len(words[word]) != end {
				t.Errorf("%q: the word %q is from %d to %d", s, words[word], begin, end)
			}
			if words[word] != "xy" || followed.matchesAt(s, begin) {
				got = append(got, fmt.Sprint(begin, " ", words[word]))
			}
			return true
		})
		if !slices.Equal(got, want) {
			t.Fatalf("%q: got %q, want %q", s, got, want)
		}
		if finder.containsAny(s) && len(want) == 0 && !strings.Contains(strings.ToLower(s), "xy") {
			t.Errorf("%q: containsAny is true, want false", s)
		}
	}
}
