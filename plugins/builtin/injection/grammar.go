package injection

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// The names of marks in rules. Marks are not words.
const (
	wordURL     = "URL"
	wordEmail   = "EMAIL"
	wordPicture = "PICTURE"
)

// grammar is the rules about words, compiled. It is immutable.
type grammar struct {
	lexicon
	rules []rule
	// for each word of the lexicon, stride integers with a bit for each element
	membership  []uint64
	stride      int
	rulesByWord [][]int32 // the rules that begin with each word of the lexicon
	triggers    phraseTriggers

	url, email, picture int32 // words that stand for marks
	// numbers of elements
	not, attack, about, subject, wish int

	concepts conceptGrammar
	wording  *wordingModel
}

// rule is a compiled phrase.
type rule struct {
	phrase
	id       int  // phrases of one family and name have the same id
	guarded  bool // a negation before the phrase prevents a match
	elements []element
	trigger  uint64 // see phraseTriggers
}

// element is an element of a rule's pattern.
type element struct {
	number int   // the number of its set of words: see grammar.isMember
	maxGap int32 // how many other words may stand before it
}

// defaultGrammar returns the grammar of phrases, which it compiles at the first call.
var defaultGrammar = sync.OnceValue(func() *grammar { return compileGrammar(phrases, wordClasses) })

// A phrase whose score in content is below actingContent is ordinary English in definitions, too.
// It scores at most maxWeakDefinition there, so that no such phrase hides an item alone.
const (
	actingContent     = 7
	maxWeakDefinition = 6
)

// compileGrammar compiles phrases. It panics on a pattern that is not valid, since the patterns are
// part of the program.
func compileGrammar(phrases []phrase, classes map[string]string) *grammar {
	g := &grammar{}
	numbers := make(map[string]int)        // the number of each element, by its text in a pattern
	sets := make([]map[int32]bool, 0, 256) // the words of each element
	number := func(text string) int {
		if n, ok := numbers[text]; ok {
			return n
		}
		set := make(map[int32]bool)
		for alternative := range strings.SplitSeq(text, "|") {
			for _, w := range classWords(alternative, classes) {
				set[g.add(w)] = true
			}
		}
		numbers[text] = len(sets)
		sets = append(sets, set)
		return len(sets) - 1
	}
	ids := make(map[string]int)
	for _, p := range phrases {
		name := fmt.Sprint(p.family, "/", p.name)
		if _, ok := ids[name]; !ok {
			ids[name] = len(ids)
		}
		r := rule{phrase: p, id: ids[name]}
		if p.content < actingContent {
			r.definition = min(r.definition, maxWeakDefinition)
		}
		pattern, guarded := strings.CutPrefix(p.pattern, "!")
		r.guarded = guarded
		gap := 0
		for field := range strings.FieldsSeq(pattern) {
			if n, ok := strings.CutPrefix(field, "~"); ok {
				var err error
				if gap, err = strconv.Atoi(n); err != nil {
					panic("injection: rule " + p.name + ": " + err.Error())
				}
				continue
			}
			r.elements = append(r.elements, element{number(field), int32(gap)})
			gap = 0
		}
		g.rules = append(g.rules, r)
	}
	g.not, g.attack, g.about = number(negations), number("ATTACK"), number("ABOUT")
	g.subject, g.wish = number("SUBJECT"), number("WISH")
	g.url, g.email, g.picture = g.add("\x00url"), g.add("\x00email"), g.add("\x00picture")
	for word := range strings.FieldsSeq(wordingWords) {
		g.add(strings.ToLower(normalize(word).text))
	}
	g.addConcepts(ids)
	var err error
	if g.wording, err = parseWording(wordingText, g); err != nil {
		panic("injection: " + err.Error()) // embedded: a fault of the build
	}
	g.stride = (len(sets) + 63) / 64
	g.membership = make([]uint64, g.stride*len(g.words))
	for n, set := range sets {
		for w := range set {
			g.membership[int(w)*g.stride+n/64] |= 1 << (n % 64)
		}
	}
	g.rulesByWord = make([][]int32, len(g.words))
	for i, r := range g.rules {
		for w := range sets[r.elements[0].number] {
			g.rulesByWord[w] = append(g.rulesByWord[w], int32(i))
		}
	}
	g.triggers = newPhraseTriggers(g, sets)
	return g
}

// classWords returns the normalized words of a class. If no class has the name, it returns the name
// as a normalized word. For classes whose words attackers disguise, it also returns the words in
// ROT13 and reversed.
func classWords(name string, classes map[string]string) []string {
	switch name {
	case wordURL, wordEmail, wordPicture:
		return []string{"\x00" + strings.ToLower(name)} // a word that no text has
	}
	text, isClass := classes[name]
	if !isClass {
		if name != strings.ToLower(name) {
			panic("injection: no class of words is named " + name)
		}
		return []string{strings.ToLower(normalize(name).text)}
	}
	var words []string
	for w := range strings.FieldsSeq(text) {
		w = strings.ToLower(normalize(w).text)
		words = append(words, w)
		if (name == "IGNORE" || name == "PRIOR" || name == "INSTR") && len(w) >= 5 && w[0] < 0x80 {
			words = append(words, rot13(w), reverse(w))
		}
	}
	return words
}

// isMember reports whether a word of the lexicon belongs to the element with the number.
func (g *grammar) isMember(word int32, number int) bool {
	return g.membership[int(word)*g.stride+number/64]&(1<<(number%64)) != 0
}

// maxAlternatives limits how many partial matches of a rule are followed at once.
const maxAlternatives = 8

// matchEnd returns the index of the last token of a match of the rule that begins at tokens[i], or
// -1 if there is none. The first element must match already.
func (g *grammar) matchEnd(tokens []token, i int, r *rule) int {
	var a, b [maxAlternatives]int
	// at holds the tokens at which the last element matched, next those at which e matches.
	at, next := append(a[:0], i), b[:0]
	for _, e := range r.elements[1:] {
		next = next[:0]
		for _, c := range at {
			limit := tokens[c].position + e.maxGap + 1
			for j := c + 1; j < len(tokens) && tokens[j].position <= limit &&
				len(next) < cap(next); j++ {
				if g.isMember(tokens[j].word, e.number) &&
					(len(next) == 0 || next[len(next)-1] < j) {
					next = append(next, j)
				}
			}
		}
		if len(next) == 0 {
			return -1
		}
		at, next = next, at
	}
	return at[0]
}

// isNegated reports whether there is a negation up to three words before tokens[i].
func (g *grammar) isNegated(tokens []token, i int) bool {
	for j := i - 1; j >= 0 && tokens[j].position >= tokens[i].position-3; j-- {
		if g.isMember(tokens[j].word, g.not) {
			return true
		}
	}
	return false
}
