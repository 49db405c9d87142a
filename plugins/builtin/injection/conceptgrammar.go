package injection

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

// sharedLanguage stands for all languages.
const sharedLanguage = "*"

//go:embed languages/*.txt
var languageFiles embed.FS

// languagesWithoutSpaces are the languages whose words are often read as several words. Distances
// count less there.
var languagesWithoutSpaces = []string{"zh", "ja", "ko"}

// conceptRule is a concept in one language.
type conceptRule struct {
	*concept
	language string
	id       int
	classes  []classPair
	unless   []int32
	within   int32
}

// classPair is a class of a language, and the class of the same name that all languages share.
// Words of both count.
type classPair struct{ own, shared int32 }

// conceptGrammar is the concepts, compiled. It is immutable.
type conceptGrammar struct {
	classesOf  [][]int32    // the classes of each word of the lexicon
	partsOf    [][]int32    // the parts of terms that each word of the lexicon may be
	terms      [][]termStep // the next words of terms, by the state after the words before
	rules      []conceptRule
	byClass    [][]ruleOfClass // the rules that need each class
	numClasses int
	languageOf []int32 // the language of each class; the number of languages if they share it
	nameOf     []uint8 // the number of the name of each class
	classNames [maxClassNames]string
	languages  int32  // the number of languages
	startsTerm []bool // for each word: whether it may begin a term of several words
	// for each word that is a trigger (see triggers.go), how far from it the other words of a match
	// may be, and words that make the match doubtful; 0 for the other words
	triggerReach []int32
	calls        []bool // for each word: whether it is in the class CALL of a language
	retries      []bool // for each word: whether it is in the class RETRY of a language
}

// ruleOfClass is a rule that needs a class. mask has a bit for the name of each class of the rule.
type ruleOfClass struct {
	mask           uint64
	rule, language int32
}

// termStep is the step from a state of a term to the next word. State n is reached after the part
// n alone. word stands for the term that ends with this word; it is -1 if none does.
type termStep struct{ part, next, word int32 }

// addConcepts compiles the concepts, and adds their words to the lexicon.
func (g *grammar) addConcepts(ids map[string]int) {
	c := &g.concepts
	b := conceptBuilder{g: g, names: usedClasses(), classes: map[string]int32{},
		parts: map[string]int32{}, words: map[int32][]int32{}, wordParts: map[int32][]int32{},
		stems: map[string]int32{}, steps: map[[2]int32]termStep{}}
	entries, err := languageFiles.ReadDir("languages")
	if err != nil {
		panic(err) // embedded: a fault of the build
	}
	var languages []string
	for _, e := range entries {
		language := strings.TrimSuffix(e.Name(), path.Ext(e.Name()))
		if language == "any" {
			language = sharedLanguage
		} else {
			languages = append(languages, language)
		}
		for line := range strings.Lines(languageText(e.Name())) {
			fields := strings.Fields(line)
			if len(fields) == 0 || fields[0] == "#" {
				continue
			}
			if _, used := b.names[fields[0]]; !used {
				panic("injection: no concept uses the class " + fields[0] + " of " + e.Name())
			}
			class := b.class(language, fields[0])
			for _, term := range fields[1:] {
				b.addTerm(class, term)
			}
		}
	}
	for mark, word := range map[string]int32{wordURL: g.url, wordEmail: g.email} {
		b.words[word] = append(b.words[word], b.class(sharedLanguage, mark))
	}
	for _, language := range languages {
		own := otherConcepts
		if language == "en" {
			own = englishConcepts
		}
		for _, c := range slices.Concat(concepts, own) {
			b.addRule(language, &c, ids)
		}
	}
	b.inheritStems()
	c.classesOf, c.partsOf = make([][]int32, len(g.words)), make([][]int32, len(g.words))
	for w, classes := range b.words {
		slices.Sort(classes)
		c.classesOf[w] = slices.Compact(classes)
	}
	for w, parts := range b.wordParts {
		slices.Sort(parts)
		c.partsOf[w] = slices.Compact(parts)
	}
	c.calls, c.retries = b.wordsOf("CALL"), b.wordsOf("RETRY")
	c.numClasses = len(b.classes)
	c.byClass = make([][]ruleOfClass, c.numClasses)
	for n, r := range c.rules {
		entry := ruleOfClass{rule: int32(n), language: int32(slices.Index(languages, r.language))}
		for name := range strings.FieldsSeq(r.concept.classes) {
			entry.mask |= 1 << b.names[name]
		}
		for _, pair := range r.classes {
			for _, class := range []int32{pair.own, pair.shared} {
				if class >= 0 {
					c.byClass[class] = append(c.byClass[class], entry)
				}
			}
		}
	}
	for name, n := range b.names {
		c.classNames[n] = name
	}
	c.languages = int32(len(languages))
	c.languageOf, c.nameOf = make([]int32, c.numClasses), make([]uint8, c.numClasses)
	for key, class := range b.classes {
		language, name, _ := strings.Cut(key, " ")
		if c.languageOf[class] = c.languages; language != sharedLanguage {
			c.languageOf[class] = int32(slices.Index(languages, language))
		}
		c.nameOf[class] = b.names[name]
	}
	c.terms = make([][]termStep, len(b.parts)+int(b.states))
	for from, step := range b.steps {
		number := func(state int32) int32 { // states after the first part are negative until here
			if state < 0 {
				return int32(len(b.parts)) - 1 - state
			}
			return state
		}
		step.next = number(step.next)
		c.terms[number(from[0])] = append(c.terms[number(from[0])], step)
	}
	c.startsTerm = make([]bool, len(g.words))
	for w, parts := range b.wordParts {
		c.startsTerm[w] = slices.ContainsFunc(parts, func(part int32) bool {
			return len(c.terms[part]) > 0
		})
	}
	c.triggerReach = b.triggerReach()
}

// triggerReach returns conceptGrammar.triggerReach. A concept has a trigger in each language: the
// class whose words are the rarest. Of a term, the rarest part is the trigger.
func (b *conceptBuilder) triggerReach() []int32 {
	c := &b.g.concepts
	partWords := make([][]int32, len(b.parts)) // the words of each part of terms
	partWeights := make([]int, len(b.parts))
	for w, parts := range c.partsOf {
		for _, part := range parts {
			partWords[part] = append(partWords[part], int32(w))
			partWeights[part] += b.g.weight(int32(w))
		}
	}
	reached := make([][]int32, len(b.g.words)) // the classes of each word, and of terms with it
	for w := range b.g.words {
		reached[w] = slices.Clone(c.classesOf[w])
	}
	// addTerms adds the classes of the terms that continue from the state to the words of their
	// rarest parts. rarest is that of the parts before.
	longest := int32(0) // the number of parts of the longest term
	var addTerms func(state, rarest, length int32)
	addTerms = func(state, rarest, length int32) {
		longest = max(longest, length)
		for _, step := range c.terms[state] {
			rarest := rarest
			if partWeights[step.part] < partWeights[rarest] {
				rarest = step.part
			}
			if step.word >= 0 {
				for _, w := range partWords[rarest] {
					reached[w] = append(reached[w], c.classesOf[step.word]...)
				}
			}
			addTerms(step.next, rarest, length+1)
		}
	}
	for part := range int32(len(b.parts)) {
		addTerms(part, part, 1)
	}
	weights := make([]int, c.numClasses)
	for w := range b.g.words {
		slices.Sort(reached[w])
		reached[w] = slices.Compact(reached[w])
		for _, class := range reached[w] {
			weights[class] += b.g.weight(int32(w))
		}
	}
	reach := make([]int32, c.numClasses)
	for _, r := range c.rules {
		weight := func(pair classPair) (n int) {
			for _, class := range []int32{pair.own, pair.shared} {
				if class >= 0 {
					n += weights[class]
				}
			}
			return n
		}
		rarest := slices.MinFunc(r.classes,
			func(a, b classPair) int { return weight(a) - weight(b) })
		for _, class := range []int32{rarest.own, rarest.shared} {
			if class >= 0 {
				reach[class] = max(reach[class], r.within+doubtDistance+longest*maxTermGap)
			}
		}
	}
	words := make([]int32, len(b.g.words))
	for w := range words {
		for _, class := range reached[w] {
			words[w] = max(words[w], reach[class])
		}
	}
	return words
}

// maxClassNames limits the names of classes, because a bit stands for each of them.
const maxClassNames = 64

// usedClasses returns a number below maxClassNames for the name of each class that the concepts
// need, and of the classes that inspectSteering needs.
func usedClasses() map[string]uint8 {
	names := map[string]uint8{"CALL": 0, "RETRY": 1}
	for _, c := range slices.Concat(concepts, otherConcepts, englishConcepts) {
		for name := range strings.FieldsSeq(c.classes + " " + c.unless) {
			if _, ok := names[name]; !ok {
				names[name] = uint8(len(names))
			}
		}
	}
	if len(names) > maxClassNames {
		panic("injection: the concepts have too many classes")
	}
	return names
}

func languageText(name string) string {
	text, err := languageFiles.ReadFile("languages/" + name)
	if err != nil {
		panic(err) // embedded: a fault of the build
	}
	return string(text)
}

// conceptBuilder holds what is only needed while the concepts are compiled.
type conceptBuilder struct {
	g         *grammar
	names     map[string]uint8 // numbers of the names of classes
	classes   map[string]int32 // by language and name
	parts     map[string]int32 // parts of terms, by text
	words     map[int32][]int32
	wordParts map[int32][]int32
	stems     map[string]int32      // words that stand for stems
	steps     map[[2]int32]termStep // by state and part
	states    int32
}

// class returns the number of a class of a language.
func (b *conceptBuilder) class(language, name string) int32 {
	key := language + " " + name
	n, ok := b.classes[key]
	if !ok {
		n = int32(len(b.classes))
		b.classes[key] = n
	}
	return n
}

// addTerm adds a term to a class. A term has one word or several words with "_" between them. "*"
// at the end of a word stands for any ending.
func (b *conceptBuilder) addTerm(class int32, term string) {
	texts := strings.Split(strings.ToLower(normalize(term).text), "_")
	for i := range texts {
		texts[i] = strings.ReplaceAll(texts[i], "`", "_")
	}
	if strings.Trim(term, "_") != term {
		panic("injection: the term " + term + " is not valid")
	}
	if len(texts) == 1 {
		w := b.word(texts[0])
		b.words[w] = append(b.words[w], class)
		return
	}
	state := b.part(texts[0])
	for i, text := range texts[1:] {
		key := [2]int32{state, b.part(text)}
		step, ok := b.steps[key]
		if !ok {
			b.states++
			step = termStep{part: key[1], next: -b.states, word: -1}
		}
		if i == len(texts)-2 {
			if step.word < 0 {
				step.word = b.g.add("\x00term " + strings.Join(texts, " "))
			}
			b.words[step.word] = append(b.words[step.word], class)
		}
		b.steps[key] = step
		state = step.next
	}
}

// word returns the number of a word or a stem in the lexicon.
func (b *conceptBuilder) word(text string) int32 {
	stem, isStem := strings.CutSuffix(text, "*")
	if !isStem {
		return b.g.add(text)
	}
	if len(stem) < minStem {
		panic("injection: the stem " + text + " is too short")
	}
	w, ok := b.stems[stem]
	if !ok {
		w = b.g.add("\x00stem " + stem)
		b.stems[stem] = w
		b.g.addStem(stem, w)
	}
	return w
}

// part returns the number of a part of a term.
func (b *conceptBuilder) part(text string) int32 {
	n, ok := b.parts[text]
	if !ok {
		n = int32(len(b.parts))
		b.parts[text] = n
		w := b.word(text)
		b.wordParts[w] = append(b.wordParts[w], n)
	}
	return n
}

// inheritStems gives each word, and each stem, the classes of the stems that it begins with.
func (b *conceptBuilder) inheritStems() {
	inherit := func(text string, w int32) {
		for n := 1; n <= len(text); n++ {
			if stem, ok := b.stems[text[:n]]; ok && stem != w {
				b.words[w] = append(b.words[w], b.words[stem]...)
				b.wordParts[w] = append(b.wordParts[w], b.wordParts[stem]...)
			}
		}
	}
	for w, text := range b.g.words {
		if text[0] != 0 {
			inherit(text, int32(w))
		}
	}
	for stem, w := range b.stems {
		inherit(stem, w)
	}
}

// wordsOf reports for each word of the lexicon whether it belongs to the class in any language.
func (b *conceptBuilder) wordsOf(class string) []bool {
	words := make([]bool, len(b.g.words))
	for key, n := range b.classes {
		if !strings.HasSuffix(key, " "+class) {
			continue
		}
		for w, classes := range b.words {
			words[w] = words[w] || slices.Contains(classes, n)
		}
	}
	return words
}

// addRule adds a concept for a language, unless the language lacks one of its classes.
func (b *conceptBuilder) addRule(language string, c *concept, ids map[string]int) {
	r := conceptRule{concept: c, language: language, within: int32(c.within)}
	if slices.Contains(languagesWithoutSpaces, language) {
		r.within = int32(c.within * 5 / 2)
	}
	number := func(language, name string) int32 {
		if n, ok := b.classes[language+" "+name]; ok {
			return n
		}
		return -1
	}
	for name := range strings.FieldsSeq(c.classes) {
		pair := classPair{number(language, name), number(sharedLanguage, name)}
		if pair.own < 0 && pair.shared < 0 {
			return
		}
		r.classes = append(r.classes, pair)
	}
	if len(r.classes) > maxClasses || r.within >= maxWithin {
		panic("injection: the concept " + c.name + " has too many classes, or is too wide")
	}
	for name := range strings.FieldsSeq(c.unless) {
		r.unless = append(r.unless, number(language, name), number(sharedLanguage, name))
	}
	name := fmt.Sprint(c.family, "/", c.name)
	if _, ok := ids[name]; !ok {
		ids[name] = len(ids)
	}
	r.id = ids[name]
	b.g.concepts.rules = append(b.g.concepts.rules, r)
}
