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
	familySteering
	familyWording
	familyClassifier
	numFamilies
)

var familyNames = [numFamilies]string{"override", "role", "delimiter", "concealment",
	"exfiltration", "coercion", "hidden", "terminal", "confusable", "shadowing", "reference",
	"steering", "wording", "classifier"}

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
	tokens  []token
}

// Limits of scoring.
const (
	maxHitDistance = 120 // words over which the scores of hits are added up
	maxRuleHits    = 64  // of one rule in one text
	maxScore       = 10  // of one hit
)

// textScorer scores texts. It is immutable.
type textScorer struct {
	*grammar
	actions      *[numFamilies]action // families that are off score nothing
	usesDiscount bool                 // a text about attacks scores less
}

// scratch is memory that is used again for the next text, and for the next message.
type scratch struct {
	tokens []token
	finder conceptFinder
	edges  resultEdges
}

// maxKeptTokens limits the tokens in a scratch that is kept for the next message.
const maxKeptTokens = 1 << 14

// newScratch returns a scratch from the pool. release returns it to the pool.
func (s *stage) newScratch() (w *scratch, release func()) {
	w = s.scratches.Get().(*scratch)
	w.edges.reset()
	return w, func() {
		if cap(w.tokens) <= maxKeptTokens {
			s.scratches.Put(w)
		}
	}
}

// score returns the text with its hits. isDefinition is true if s is a definition or an
// instruction, and not content. The tokens of the result are valid until w is used again.
func (g textScorer) score(s string, isDefinition bool, w *scratch) scoredText {
	text := normalize(s)
	if w.tokens == nil {
		w.tokens = make([]token, 0, 8+min(len(text.text)/8, maxKeptTokens/2))
	}
	tokens := w.tokens[:0]
	var hits []hit
	m := markFinder{grammar: g.grammar, text: text, isDefinition: isDefinition}
	isOrdered := g.lexicon.tokenize(text, &tokens,
		func(i, position int) { m.find(i, position, &tokens, &hits) })
	w.tokens = tokens
	hits = g.matchPhrases(tokens, isOrdered, isDefinition, hits)
	addConcept := func(r *conceptRule, first, last token, isDoubtful bool) {
		h := hit{r.family, r.name, r.id, r.content, first.position, int(first.from), int(last.to)}
		if isDefinition {
			h.score = r.definition
		}
		if isDoubtful {
			h.score /= 2
		}
		hits = append(hits, h)
	}
	w.finder.find(&g.concepts, tokens, isOrdered, addConcept)
	hits = slices.DeleteFunc(hits, func(h hit) bool { return g.actions[h.family] == actionOff })
	if len(hits) == 0 {
		return scoredText{text: text, tokens: tokens}
	}
	if g.usesDiscount {
		g.discount(text.text, tokens, hits, isDefinition)
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.position, b.position) })
	scored := scoredText{text: text, allHits: hits, tokens: tokens}
	scored.score, scored.hits = highestWindow(hits)
	return scored
}

// matchPhrases appends the hits of phrases in the tokens to hits.
func (g textScorer) matchPhrases(tokens []token, isOrdered, isDefinition bool, hits []hit) []hit {
	var matches map[int32]int // number of matches, by rule
	var near [triggerBlock]uint64
	for i := range tokens {
		if i%triggerBlock == 0 {
			g.triggers.near(near[:min(triggerBlock, len(tokens)-i)], tokens, i, isOrdered)
		}
		if near[i%triggerBlock] == 0 {
			continue
		}
		for _, n := range g.rulesByWord[tokens[i].word] {
			r := &g.rules[n]
			if r.trigger&near[i%triggerBlock] == 0 {
				continue
			}
			end := g.matchEnd(tokens, i, r)
			if end < 0 || matches[n] >= maxRuleHits || r.guarded && g.isNegated(tokens, i) {
				continue
			}
			if matches == nil {
				matches = make(map[int32]int)
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
	return hits
}

// combinedMargin is subtracted from the scores of several families, since words of several families
// are often near each other by chance.
const combinedMargin = 2

// highestWindow returns the score and the hits of the window of maxHitDistance words with the
// highest score. In a window, each family counts once, with its highest score, since several rules
// of one family often match the same words. The hits must be in the order of their positions.
func highestWindow(hits []hit) (score int, in []hit) {
	var best [2]int
	var counts [numFamilies][maxScore + 1]int // of the hits in the window, by family and score
	from := 0
	for to, h := range hits {
		counts[h.family][h.score]++
		for ; hits[from].position < h.position-maxHitDistance; from++ {
			counts[hits[from].family][hits[from].score]--
		}
		sum, highest := -combinedMargin, 0
		for f := range counts {
			for n := maxScore; n > 0; n-- {
				if counts[f][n] > 0 {
					sum, highest = sum+n, max(highest, n)
					break
				}
			}
		}
		if n := max(sum, highest); n > score {
			score, best = n, [2]int{from, to + 1}
		}
	}
	for _, h := range hits[best[0]:best[1]] {
		if h.score > 0 {
			in = append(in, h)
		}
	}
	return score, in
}
