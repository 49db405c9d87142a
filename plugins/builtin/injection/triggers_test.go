package injection

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestTriggersMissNoMatch scores random texts of the words of rules, with and without the
// restriction of rules to the places near their triggers.
func TestTriggersMissNoMatch(t *testing.T) {
	g := defaultGrammar()
	var words []string
	for _, w := range g.words {
		if w[0] != 0 {
			words = append(words, w)
		}
	}
	words = append(words, "http://x.test", "a@b.test", "![x](y)")
	scorer := textScorer{grammar: g, actions: &[numFamilies]action{}}
	r := rand.New(rand.NewPCG(1, 2))
	matches := 0
	for range 300 {
		var b strings.Builder
		for b.Len() < 20_000 {
			// The words of a match, and words that belong to no rule between them.
			rule := &g.rules[r.IntN(len(g.rules))]
			for _, e := range rule.elements {
				for w := range g.words {
					if g.isMember(int32(w), e.number) && g.words[w][0] != 0 && r.IntN(4) == 0 {
						b.WriteString(g.words[w] + " ")
						break
					}
				}
				b.WriteString(strings.Repeat("xq ", r.IntN(4)))
			}
			for range r.IntN(8) {
				b.WriteString(words[r.IntN(len(words))] + " ")
			}
			b.WriteString(strings.Repeat("xq ", r.IntN(100)))
		}
		var tokens []token
		text := normalize(b.String())
		m := markFinder{grammar: g, text: text}
		g.lexicon.tokenize(text, &tokens, func(i, position int) {
			m.find(i, position, &tokens, &[]hit{})
		})
		got, want := scorer.matchPhrases(tokens, true, false, nil),
			scorer.matchPhrases(tokens, false, false, nil)
		if !slices.Equal(got, want) {
			t.Fatalf("%d matches of phrases near triggers, want the %d of the text %q", len(got),
				len(want), text.text)
		}
		concepts := func(isOrdered bool) (all []hit) {
			var f conceptFinder
			f.find(&g.concepts, tokens, isOrdered, func(r *conceptRule, first, last token,
				isDoubtful bool) {
				h := hit{r.family, r.name, r.id, 0, first.position, int(first.from), int(last.to)}
				if isDoubtful {
					h.score = 1
				}
				all = append(all, h)
			})
			return all
		}
		gotConcepts, wantConcepts := concepts(true), concepts(false)
		if !slices.Equal(gotConcepts, wantConcepts) {
			t.Fatalf("%d matches of concepts near triggers, want the %d of the text %q",
				len(gotConcepts), len(wantConcepts), text.text)
		}
		matches += min(len(want), len(wantConcepts))
	}
	if matches < 1000 {
		t.Errorf("the texts have %d matches, want at least 1000", matches)
	}
}
