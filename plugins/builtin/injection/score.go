package injection

import (
	"cmp"
	"slices"
	"strings"
)

// family is a kind of attack. Its text is its name in the configuration.
type family uint8

// The families. Those up to Coercion are scored together: an attack is seldom of one only.
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
	familyClassifier // what the classifier finds
	numFamilies
)

var familyNames = [numFamilies]string{"override", "role", "delimiter", "concealment",
	"exfiltration",
	"coercion", "hidden", "terminal", "confusable", "shadowing", "reference", "classifier"}

func (f family) String() string { return familyNames[f] }

// hit is a rule that a text meets.
type hit struct {
	family   family
	name     string
	id       int // equal for hits that count once
	score    int
	position int32 // in words
	from, to int   // in plain.s
}

// scoredText is what a text holds.
type scoredText struct {
	text    normalizedText
	score   int   // of the worst window
	hits    []hit // in it
	allHits []hit
}

// maxHitDistance is how many words attacks are spread over at most: what stands further apart is
// not added up.
const maxHitDistance = 120

// discountedScore is what remains of a score where the text speaks about attacks: attack and about
// count the words that say so. A definition has no reason to, but to quote one.
func discountedScore(h *hit, quoted bool, attack, about int, meta bool) int {
	score := h.score
	switch {
	case quoted && attack+about > 0:
		return 0
	case meta:
		return score
	case quoted && h.family == familyDelimiter: // the name of a token
		return score / 2
	case attack > 3:
		return score / 4
	case attack > 1:
		return score / 2
	}
	return score
}

// textScorer is how texts are read.
type textScorer struct {
	*grammar
	actions          *[numFamilies]action // families that are off score nothing
	discountMentions bool                 // a text that speaks about attacks is less of one
}

// score scores a text. meta says that it is a definition or an instruction, and not content.
func (g textScorer) score(s string, meta bool) scoredText {
	p := normalize(s)
	ts := make([]token, 0, 8+len(p.text)/16)
	var hits []hit
	m := markFinder{grammar: g.grammar, text: p, isDefinition: meta}
	g.lexicon.tokenize(p, func(t token) { ts = append(ts, t) }, func(i, place int) {
		m.find(i, place, &ts,
			&hits)
	})
	met := make(map[int32]int) // how often a rule has been met
	for i := range ts {
		for _, n := range g.rulesByWord[ts[i].word] {
			r := &g.rules[n]
			end := g.matchEnd(ts, i, r)
			if end < 0 || met[n] >= 64 || r.guarded && g.isNegated(ts, i) {
				continue
			}
			met[n]++
			h := hit{r.family, r.name, r.id, r.content, ts[i].position, int(ts[i].from),
				int(ts[end].to)}
			if meta {
				h.score = r.definition
			}
			hits = append(hits, h)
		}
	}
	hits = slices.DeleteFunc(hits, func(h hit) bool { return g.actions[h.family] == actionOff })
	if len(hits) == 0 {
		return scoredText{text: p}
	}
	if g.discountMentions {
		g.discount(p.text, ts, hits, meta)
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.position, b.position) })
	r := scoredText{text: p, allHits: hits}
	r.score, r.hits = highestWindow(hits)
	return r
}

// highestWindow is the window with the highest score. A rule counts once in it, with its highest
// score.
func highestWindow(hits []hit) (score int, in []hit) {
	var best [2]int
	counts := make(map[int][]int) // by rule, the scores in the window
	sum, from := 0, 0
	top := func(id int) int {
		if len(counts[id]) == 0 {
			return 0
		}
		return slices.Max(counts[id])
	}
	for to, h := range hits {
		sum -= top(h.id)
		counts[h.id] = append(counts[h.id], h.score)
		sum += top(h.id)
		for ; hits[from].position < h.position-maxHitDistance; from++ {
			id := hits[from].id
			sum -= top(id)
			counts[id] = counts[id][1:]
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

// discount takes score from the hits that are quoted, or stand among words about attacks.
func (g *grammar) discount(s string, ts []token, hits []hit, meta bool) {
	for i := range hits {
		h := &hits[i]
		attack, about := 0, 0
		first, _ := slices.BinarySearchFunc(ts, h.position-18, func(t token, place int32) int {
			return cmp.Compare(t.position, place)
		})
		for j := first; j < len(ts) && ts[j].position <= h.position+24; j++ {
			from := int(ts[j].from)
			switch {
			case from >= h.from && from < h.to, from > 0 && (s[from-1] == '.' || s[from-1] == '@' ||
				s[from-1] == '/'):
				// of the phrase itself, or of an address
			case g.isMember(ts[j].word, g.attack):
				attack++
			case g.isMember(ts[j].word, g.about):
				about++
			}
		}
		from := h.from
		for from < h.to && s[from] == '\'' { // a word may begin with an apostrophe
			from++
		}
		h.score = discountedScore(h, isQuoted(s, from), attack, about, meta)
	}
}

// maxQuoteDistance is how far quotation marks may be from what they quote.
const maxQuoteDistance = 240

// isQuoted says whether what stands at i is within quotation marks, or within a span of code, of
// its line. Strings of JSON are no quotations: most results are JSON.
func isQuoted(s string, i int) bool {
	line := s[max(0, i-2000):i]
	if n := strings.LastIndexByte(line, '\n'); n >= 0 {
		line = line[n+1:]
	}
	rest := s[i:min(len(s), i+maxQuoteDistance)]
	for _, mark := range []string{`"`, "`"} {
		open := strings.LastIndex(line, mark)
		if open < 0 || len(line)-open > maxQuoteDistance || strings.Count(line, mark)%2 == 0 ||
			!strings.Contains(rest, mark) {
			continue
		}
		before := strings.TrimRight(line[:open], " ")
		if mark == "`" || before == "" || !strings.HasSuffix(before, `":`) &&
			strings.IndexByte("[{,", before[len(before)-1]) < 0 {
			return true
		}
	}
	near := line[max(0, len(line)-maxQuoteDistance):]
	return strings.Count(near, "“") > strings.Count(near, "”") && strings.Contains(rest, "”") ||
		strings.Count(near, "«") > strings.Count(near, "»") && strings.Contains(rest, "»") ||
		strings.Count(near, "„") > strings.Count(near, "“") && strings.Contains(rest, "“") ||
		strings.Count(near, " '") > strings.Count(near, "' ")+strings.Count(near,
			"',")+strings.Count(near, "'.") && strings.Contains(rest, "'")
}
