package injection

import "strings"

// Most words of a rule are frequent words, such as "you" and "all". A rule is therefore only tried
// near its trigger, which is the element (of a phrase) or the class (of a concept) whose words are
// the rarest. Any element and any class would find the same matches: without one of them near,
// the rule cannot match.

// phraseTriggers are the triggers of the phrases. Each trigger has one of 64 bits; several triggers
// may share a bit.
type phraseTriggers struct {
	words   []wordTriggers // by word
	longest int32          // the longest distance from the first word of a match to another one
}

// wordTriggers are the triggers of a word.
type wordTriggers struct {
	own    uint64 // the triggers that the word belongs to
	needed uint64 // the phrases that begin with the word need one of these triggers
}

// anyTrigger is the bit of rules whose first element is the trigger. It is always set.
const anyTrigger = 1 << 63

// newPhraseTriggers returns the triggers of the rules. sets has the words of each element.
func newPhraseTriggers(g *grammar, sets []map[int32]bool) (p phraseTriggers) {
	p.words = make([]wordTriggers, len(g.words))
	weights := make([]int, len(sets))
	for n, set := range sets {
		for w := range set {
			weights[n] += g.weight(w)
		}
	}
	bits := make(map[int]uint64) // by element
	for i := range g.rules {
		r := &g.rules[i]
		rarest, span := 0, int32(0)
		for n, e := range r.elements {
			span += e.maxGap + 1
			if weights[e.number] < weights[r.elements[rarest].number] {
				rarest = n
			}
		}
		p.longest = max(p.longest, span)
		if r.trigger = anyTrigger; rarest > 0 {
			number := r.elements[rarest].number
			if bits[number] == 0 {
				bits[number] = 1 << (len(bits) % 63)
			}
			r.trigger = bits[number]
			for w := range sets[number] {
				p.words[w].own |= r.trigger
			}
		}
		for w := range sets[r.elements[0].number] {
			p.words[w].needed |= r.trigger
		}
	}
	return p
}

// triggerBlock is how many tokens near looks at together.
const triggerBlock = 256

// near sets the bits of the triggers that are near each token of a block, at the token or behind
// it. The block is tokens[from:from+len(bits)]. The bits of a token are 0 if no phrase can begin
// with it. isOrdered is false if the position of a token may be less than that of the token before
// it.
func (p *phraseTriggers) near(bits []uint64, tokens []token, from int, isOrdered bool) {
	if !isOrdered {
		for i := range bits {
			bits[i] = ^uint64(0)
		}
		return
	}
	to := from + len(bits)
	end := to
	for end < len(tokens) && tokens[end].position-tokens[to-1].position <= p.longest {
		end++
	}
	// The triggers up to the position until, and those in the longest distance behind it.
	var recent, before uint64
	until := tokens[end-1].position
	for i := end - 1; i >= from; i-- {
		t := &tokens[i]
		if distance := until - t.position; distance > p.longest {
			if before = recent; distance > 2*p.longest {
				before = 0
			}
			recent, until = 0, t.position
		}
		if i < to {
			bits[i-from] = 0
			if all := recent | before | anyTrigger; all&p.words[t.word].needed != 0 {
				bits[i-from] = all
			}
		}
		recent |= p.words[t.word].own
	}
}

// weight returns a number that is higher the more frequent the word is in ordinary texts.
func (g *grammar) weight(word int32) int {
	text := g.words[word]
	if n := wordWeights[text]; n > 0 {
		return n
	}
	if text[0] == 0 { // a mark, a stem or a term
		return 5
	}
	return 1
}

// wordWeights has the weights of words that are frequent in ordinary texts, and that rules name.
var wordWeights = func() map[string]int {
	weights := make(map[string]int)
	for weight, words := range map[int]string{
		1000: `
			a all also an and any are as at be been but by can de do for from has have he i if in is
			it its la may more must my new no not of on one only or other our out s should so such
			that the their them then these they this time to two under up use used was we were what
			when which while will with would you your`,
		100: `
			about above access account add address after another ask available before begin below
			call change check client closed code come command content contents copy create d data
			default delete description die does document end every execute file files first
			following full get give given go help here host how id include input instead
			instruction instructions into invalid issue key keys language large list load log long
			look make me message messages mode model name need next non note nothing now number
			open order others pass path place point policy post previous print project prompt
			provide put read record records release replace report request requests response
			result results return review right rule rules run say section see send server session
			set shall share show start state step still store string system take task tell text
			token tokens tool tools true types update updated url user users using valid value
			version who without word words work write written zero`,
	} {
		for _, w := range strings.Fields(words) {
			weights[w] = weight
		}
	}
	return weights
}()
