package injection

import (
	_ "embed"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"gatekit/core/mcp"
	"gatekit/plugins/sdk/scan"
)

// wordingText is the model that TestTrainWording writes. Each line has a name and a number. The
// names with "=" are the settings of the model. The other names are words of the lexicon, classes
// of words (in capitals: see the files in languages), and pairs with a "+" between them, with their
// weights.
//
//go:embed wording.txt
var wordingText string

// wordingWords are further words that the model may use: one on each line.
//
//go:embed wordingwords.txt
var wordingWords string

// wordingModel is a linear classifier. It adds up the weights of the words in a part of a text, of
// the pairs of words that follow each other, of the classes of the words, such as AI and SEND, and
// of the pairs of classes. It finds attacks whose wording no rule knows. It also finds honest
// texts, so it only records findings by default.
//
// Only words of the lexicon count, because the lexicon has found them for the rules already. The
// classes are those of all languages, so a pair such as AI+SEND counts in each of them.
type wordingModel struct {
	weights []int32 // by word; behind the words, by class
	// pairs has the weights of pairs of words, in a hash table. Slots with the weight 0 are free.
	pairs   []pairWeight
	both    [maxClassNames][maxClassNames]int32 // weights of pairs of classes
	classes []uint64                            // for each word, its classes, as bits
	rough   []int16                             // for each word, the sum with its classes
	bias    int32
	gate    int32    // a part is only looked at closely if the rough weights reach this sum
	limits  [2]int32 // the sums from which a part is an attack: in content, in definitions
}

// wordPair is two words that follow each other, with at most maxPairGap other words between them,
// or two classes. If second is -1, it is a single word or class. Classes have numbers behind those
// of the words.
type wordPair struct{ first, second int32 }

// pairWeight is a slot of wordingModel.pairs.
type pairWeight struct {
	wordPair
	weight int32
}

// pairSlots is more than twice the number of pairs.
const (
	pairSlots    = 1 << pairSlotsLog
	pairSlotsLog = 15
)

// pair returns the slot of a pair of words, or the free slot where it belongs.
func (m *wordingModel) pair(w wordPair) *pairWeight {
	h := (uint64(uint32(w.first))<<32 | uint64(uint32(w.second))) * 0x9e3779b97f4a7c15
	for i := h >> (64 - pairSlotsLog); ; i = (i + 1) % pairSlots {
		if p := &m.pairs[i]; p.weight == 0 || p.wordPair == w {
			return p
		}
	}
}

// Sizes of the parts of a text, in words.
const (
	wordingSpan   = 40
	wordingStride = 20 // from the end of a part to the end of the next
	maxPairGap    = 3
	maxWordingSum = 128 // tokens of one part that count
)

// parseWording parses the model. The grammar must have its words and concepts.
func parseWording(text string, g *grammar) (*wordingModel, error) {
	m := &wordingModel{weights: make([]int32, len(g.words)+maxClassNames),
		pairs: make([]pairWeight, pairSlots), classes: make([]uint64, len(g.words)),
		rough: make([]int16, len(g.words))}
	for w, classes := range g.concepts.classesOf {
		for _, c := range classes {
			m.classes[w] |= 1 << g.concepts.nameOf[c]
		}
	}
	numbers := make(map[string]int32, len(m.weights))
	for n := range int32(len(m.weights)) {
		numbers[wordingName(g, n)] = n
	}
	settings := map[string]*int32{"=bias": &m.bias, "=gate": &m.gate, "=content": &m.limits[0],
		"=definition": &m.limits[1]}
	numPairs := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("wording.txt: %q: %w", line, err)
		}
		if p, ok := settings[name]; ok {
			*p = int32(n)
			continue
		}
		if n == 0 {
			return nil, fmt.Errorf("wording.txt: the weight of %q is 0", name)
		}
		first, second, isPair := strings.Cut(name, "+")
		a, ok := numbers[first]
		b, ok2 := numbers[second]
		switch {
		case !ok || isPair && !ok2:
			return nil, fmt.Errorf("wording.txt: the lexicon has no word %q: train the model "+
				"again", name)
		case isPair && int(a) >= len(g.words):
			m.both[int(a)-len(g.words)][int(b)-len(g.words)] = int32(n)
		case isPair:
			if numPairs++; numPairs > pairSlots/2 {
				return nil, errors.New("wording.txt: there are too many pairs")
			}
			*m.pair(wordPair{a, b}) = pairWeight{wordPair{a, b}, int32(n)}
		default:
			m.weights[a] = int32(n)
		}
	}
	for w := range m.rough {
		m.rough[w] = int16(m.weights[w])
		for c := range m.eachClass(m.classes[w]) {
			m.rough[w] += int16(m.weights[c])
		}
	}
	return m, nil
}

// eachClass yields the numbers of the classes whose bits are set.
func (m *wordingModel) eachClass(classes uint64) func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		for ; classes != 0; classes &= classes - 1 {
			if !yield(int32(len(m.classes) + bits.TrailingZeros64(classes))) {
				return
			}
		}
	}
}

// wordingName returns the name of a word or a class in wording.txt. Names of stems end with "*",
// names of marks begin with ":".
func wordingName(g *grammar, n int32) string {
	if int(n) >= len(g.words) {
		return g.concepts.classNames[int(n)-len(g.words)]
	}
	word := g.words[n]
	if stem, ok := strings.CutPrefix(word, "\x00stem "); ok {
		return stem + "*"
	}
	return strings.Replace(word, "\x00", ":", 1)
}

// finds reports whether the model takes a part of a text for an attack.
func (m *wordingModel) finds(tokens []token, isDefinition bool) bool {
	limit := m.limits[0]
	if isDefinition {
		limit = m.limits[1]
	}
	sum := m.bias
	parts := wordingParts{tokens: tokens}
	entered, left := 0, 0
	for parts.next() {
		for ; entered < parts.to; entered++ {
			sum += int32(m.rough[tokens[entered].word])
		}
		for ; left < parts.from; left++ {
			sum -= int32(m.rough[tokens[left].word])
		}
		if sum >= m.gate && m.sum(tokens[left:entered]) >= limit {
			return true
		}
	}
	return false
}

// sum returns the sum of a part. Each word, class and pair counts once.
func (m *wordingModel) sum(part []token) int32 {
	sum := m.bias
	m.eachFeature(part, func(w wordPair) {
		words := int32(len(m.classes))
		switch {
		case w.second < 0:
			sum += m.weights[w.first]
		case w.first >= words:
			sum += m.both[w.first-words][w.second-words]
		default:
			sum += m.pair(w).weight
		}
	})
	return sum
}

// eachFeature calls yield for each word and class of a part, and for each pair, once.
func (m *wordingModel) eachFeature(part []token, yield func(wordPair)) {
	part = part[max(0, len(part)-maxWordingSum):]
	classes := uint64(0)
	for _, t := range part {
		classes |= m.classes[t.word]
	}
	for a := range m.eachClass(classes) {
		yield(wordPair{a, -1})
		classes &= classes - 1
		for b := range m.eachClass(classes) {
			yield(wordPair{a, b})
		}
	}
	for i, t := range part {
		isNew, isNewPair := true, i > 0 && t.position-part[i-1].position <= maxPairGap+1
		for j := i - 1; j >= 0 && (isNew || isNewPair); j-- {
			if part[j].word != t.word {
				continue
			}
			isNew = false
			if j > 0 && part[j-1].word == part[i-1].word {
				isNewPair = false
			}
		}
		if isNew {
			yield(wordPair{t.word, -1})
		}
		if isNewPair {
			yield(wordPair{part[i-1].word, t.word})
		}
	}
}

// wordingParts steps through the parts of a text. A part is tokens[from:to].
type wordingParts struct {
	tokens   []token
	from, to int
}

// next moves to the next part, which ends at least wordingStride words behind the last one. It
// returns false behind the last part.
func (p *wordingParts) next() bool {
	if p.to == len(p.tokens) {
		return false
	}
	end := p.tokens[p.to].position + wordingStride
	for p.to++; p.to < len(p.tokens) && p.tokens[p.to].position < end; p.to++ {
	}
	start := p.tokens[p.to-1].position - wordingSpan
	for p.tokens[p.from].position < start {
		p.from++
	}
	return true
}

// inspectWording records a finding if the model takes a text of a server for an attack that no rule
// has found.
func (in *inspection) inspectWording(t scan.Text, scored scoredText) {
	a := in.stage.actions[familyWording]
	if a == actionOff || t.Kind != mcp.StringLeaf || scored.score >= findingThreshold ||
		!in.isDefinition && !in.hidesSentences {
		return
	}
	if !in.stage.scorer.wording.finds(scored.tokens, in.isDefinition) {
		return
	}
	pointer := t.Pointer()
	in.addFinding(familyWording, "like-an-attack", pointer)
	if a < actionFlag {
		in.escalate(a, familyWording, pointer)
	}
}
