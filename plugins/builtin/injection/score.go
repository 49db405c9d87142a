package injection

import (
	"cmp"
	"slices"
)

// family is a kind of attack. String returns its name in the configuration.
type family uint8

// The families. The families up to familyCoercion are scored together, since most attacks belong to
// several of them.
const (
	familyOverride family = iota
	familyRole
	familyDelimiter
	familyConcealment
	familyExfiltration
	familyCoercion
	familyHidden
	familyTerminal
	familyConfusable
	familyShadowing
	familyReference
	familyClassifier
	numFamilies
)

var familyNames = [numFamilies]string{"override", "role", "delimiter", "concealment",
	"exfiltration", "coercion", "hidden", "terminal", "confusable", "shadowing", "reference",
	"classifier"}

func (f family) String() string { return familyNames[f] }

// hit is a match of a rule in a text.
type hit struct {
	family   family
	name     string // of the rule
	id       int    // hits with the same id count once
	score    int
	position int32 // in words
	from, to int   // in normalizedText.text
}

// scoredText is a text with its hits.
type scoredText struct {
	text    normalizedText
	score   int   // of the window with the highest score
	hits    []hit // in that window, with a score above 0
	allHits []hit // in the whole text
}

// Limits of scoring.
const (
	maxHitDistance = 120 // words over which the scores of hits are added up
	maxRuleHits    = 64  // of one rule in one text
)

// textScorer scores texts. It is immutable.
type textScorer struct {
	*grammar
	actions      *[numFamilies]action // families that are off score nothing
	usesDiscount bool                 // a text about attacks scores less
}

// score returns the text with its hits. isDefinition is true if s is a definition or an
// instruction, and not content.
func (g textScorer) score(s string, isDefinition bool) scoredText {
	text := normalize(s)
	tokens := make([]token, 0, 8+len(text.text)/16)
	var hits []hit
	m := markFinder{grammar: g.grammar, text: text, isDefinition: isDefinition}
	g.lexicon.tokenize(text,
		func(t token) { tokens = append(tokens, t) },
		func(i, position int) { m.find(i, position, &tokens, &hits) })
	matches := make(map[int32]int) // number of matches, by rule
	for i := range tokens {
		for _, n := range g.rulesByWord[tokens[i].word] {
			r := &g.rules[n]
			end := g.matchEnd(tokens, i, r)
			if end < 0 || matches[n] >= maxRuleHits || r.guarded && g.isNegated(tokens, i) {
				continue
			}
			matches[n]++
			h := hit{r.family, r.name, r.id, r.content, tokens[i].position, int(tokens[i].from),
				int(tokens[end].to)}
			if isDefinition {
				h.score = r.definition
			}
			hits = append(hits, h)
		}
	}
	hits = slices.DeleteFunc(hits, func(h hit) bool { return g.actions[h.family] == actionOff })
	if len(hits) == 0 {
		return scoredText{text: text}
	}
	if g.usesDiscount {
		g.discount(text.text, tokens, hits, isDefinition)
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.position, b.position) })
	scored := scoredText{text: text, allHits: hits}
	scored.score, scored.hits = highestWindow(hits)
	return scored
}

// highestWindow returns the score and the hits of the window of maxHitDistance words with the
// highest score. In a window, each rule counts once, with its highest score. The hits must be in
// the order of their positions.
func highestWindow(hits []hit) (score int, in []hit) {
	var best [2]int
	scores := make(map[int][]int) // the scores in the window, by id of the rule
	sum, from := 0, 0
	top := func(id int) int {
		if len(scores[id]) == 0 {
			return 0
		}
		return slices.Max(scores[id])
	}
	for to, h := range hits {
		sum -= top(h.id)
		scores[h.id] = append(scores[h.id], h.score)
		sum += top(h.id)
		for ; hits[from].position < h.position-maxHitDistance; from++ {
			id := hits[from].id
			sum -= top(id)
			scores[id] = scores[id][1:]
			sum += top(id)
		}
		if sum > score {
			score, best = sum, [2]int{from, to + 1}
		}
	}
	for _, h := range hits[best[0]:best[1]] {
		if h.score > 0 {
			in = append(in, h)
		}
	}
	return score, in
}
