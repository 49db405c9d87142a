package injection

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Words that stand for something that is no word.
const (
	wordURL     = "URL"
	wordEmail   = "EMAIL"
	wordPicture = "PICTURE"
)

// grammar is the phrases, made ready.
type grammar struct {
	lexicon
	rules       []rule
	elements    []string       // by number
	numbers     map[string]int // of elements
	membership  []uint64       // per word, a bit for each element that it belongs to
	stride      int
	rulesByWord [][]int32 // per word, the rules that begin with it

	url, email, picture int32 // words
	not, attack, about  int   // elements
}

type rule struct {
	phrase
	id       int // equal for rules of one name
	guarded  bool
	elements []element
}

type element struct {
	number int
	maxGap int32
}

// defaultGrammar is that of the phrases, made once, when the first stage is.
var defaultGrammar = sync.OnceValue(func() *grammar { return compileGrammar(phrases, wordClasses) })

func compileGrammar(phrases []phrase, classes map[string]string) *grammar {
	g := &grammar{numbers: make(map[string]int)}
	words := make([]map[int32]bool, 0, 256)
	number := func(text string) int {
		if n, ok := g.numbers[text]; ok {
			return n
		}
		set := make(map[int32]bool)
		for alternative := range strings.SplitSeq(text, "|") {
			for _, w := range classWords(alternative, classes) {
				set[g.add(w)] = true
			}
		}
		g.numbers[text] = len(words)
		g.elements = append(g.elements, text)
		words = append(words, set)
		return len(words) - 1
	}
	ids := make(map[string]int)
	for _, p := range phrases {
		name := fmt.Sprint(p.family, "/", p.name)
		if _, ok := ids[name]; !ok {
			ids[name] = len(ids)
		}
		r := rule{phrase: p, id: ids[name]}
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
	g.url, g.email, g.picture = g.add("\x00url"), g.add("\x00email"), g.add("\x00picture")
	g.stride = (len(words) + 63) / 64
	g.membership = make([]uint64, g.stride*len(g.words))
	for n, set := range words {
		for w := range set {
			g.membership[int(w)*g.stride+n/64] |= 1 << (n % 64)
		}
	}
	g.rulesByWord = make([][]int32, len(g.words))
	for i, r := range g.rules {
		for w := range words[r.elements[0].number] {
			g.rulesByWord[w] = append(g.rulesByWord[w], int32(i))
		}
	}
	return g
}

// classWords are the words of a class, or the word itself, as plainOf reads them; those of the
// families that are tried in disguise, so, too.
func classWords(name string, classes map[string]string) []string {
	switch name {
	case wordURL, wordEmail, wordPicture:
		return []string{"\x00" + strings.ToLower(name)} // no text has these as words
	}
	text, class := classes[name]
	if !class {
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

func (g *grammar) isMember(word int32, number int) bool {
	return g.membership[int(word)*g.stride+number/64]&(1<<(number%64)) != 0
}

// matchEnd is the last token of the rule's phrase that begins at token i, or -1.
func (g *grammar) matchEnd(ts []token, i int, r *rule) int {
	var a, b [8]int
	at, next := append(a[:0], i), b[:0]
	for _, e := range r.elements[1:] {
		next = next[:0]
		for _, c := range at {
			for j := c + 1; j < len(ts) && ts[j].position <= ts[c].position+e.maxGap+1 &&
				len(next) < cap(next); j++ {
				if g.isMember(ts[j].word, e.number) && (len(next) == 0 || next[len(next)-1] < j) {
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

// isNegated says whether a negation stands up to three words before token i.
func (g *grammar) isNegated(ts []token, i int) bool {
	for j := i - 1; j >= 0 && ts[j].position >= ts[i].position-3; j-- {
		if g.isMember(ts[j].word, g.not) {
			return true
		}
	}
	return false
}
