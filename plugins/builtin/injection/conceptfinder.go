package injection

import "slices"

// maxTermGap is how many words further a part of a term may be than the part before it. Words of
// scripts without spaces may be read as two words.
const maxTermGap = 2

// find calls yield for each match of a concept in the tokens. isDoubtful is true if a word of the
// classes in unless is near the match. isOrdered is false if the position of a token may be less
// than that of the token before it.
func (f *conceptFinder) find(c *conceptGrammar, tokens []token, isOrdered bool,
	yield func(r *conceptRule, first, last token, isDoubtful bool)) {
	f.reset(c)
	i := 0
	for ; !isOrdered && i < len(tokens); i++ {
		f.addToken(tokens, i)
	}
	// Only tokens within the reach of a trigger are added: see triggers.go.
	for i < len(tokens) {
		trigger := i
		for trigger < len(tokens) && c.triggerReach[tokens[trigger].word] == 0 {
			trigger++
		}
		if trigger == len(tokens) {
			break
		}
		end := tokens[trigger].position
		start, added := end-c.triggerReach[tokens[trigger].word], i
		for i = trigger; i > added && tokens[i-1].position >= start; {
			i--
		}
		for ; i < len(tokens) && (i <= trigger || tokens[i].position <= end); i++ {
			if reach := c.triggerReach[tokens[i].word]; reach > 0 {
				end = max(end, tokens[i].position+reach)
			}
			f.addToken(tokens, i)
		}
	}
	f.settle(len(f.seen))
	for _, m := range f.matches {
		yield(&c.rules[m.rule], m.first, m.last, m.isDoubtful)
	}
}

// addToken adds tokens[i], and the terms that begin with it.
func (f *conceptFinder) addToken(tokens []token, i int) {
	c, t := f.c, &tokens[i]
	if t.isPart {
		return
	}
	if c.startsTerm[t.word] {
		for _, part := range c.partsOf[t.word] {
			if len(c.terms[part]) > 0 {
				f.addTerms(tokens, i, i, part)
			}
		}
	}
	if len(c.classesOf[t.word]) > 0 {
		f.add(*t)
	}
}

// conceptFinder finds the matches of concepts in the tokens that are added to it.
type conceptFinder struct {
	c       *conceptGrammar
	matches []conceptMatch
	settled int     // the number of matches for which isDoubtful is known
	seen    []token // the last tokens with classes, and terms of several words
	dropped int32   // the number of tokens before seen
	last    []int32 // for each class, the number of tokens up to its last token
	// recent and before have a bit for each name of a class, by language and then for all
	// languages: whether it was seen since the position mark, and in the maxWithin words before.
	recent, before []uint64
	mark           int32
	ends           map[int32]int32 // of the last match of each rule
}

// reset makes the finder ready for another text.
func (f *conceptFinder) reset(c *conceptGrammar) {
	if f.c == nil {
		f.c = c
		f.last = make([]int32, c.numClasses)
		f.recent, f.before = make([]uint64, c.languages+1), make([]uint64, c.languages+1)
	}
	if len(f.seen) == 0 {
		return
	}
	f.matches, f.seen, f.mark = f.matches[:0], f.seen[:0], 0
	f.settled, f.dropped = 0, 0
	clear(f.last)
	clear(f.recent)
	clear(f.before)
	clear(f.ends)
}

// conceptMatch is a match of a rule. number is the number of tokens up to the token that completed
// it.
type conceptMatch struct {
	rule, number int32
	first, last  token
	isDoubtful   bool
}

// Limits of conceptFinder.seen: when it has maxSeen tokens, only the last keptSeen are kept.
const (
	maxSeen  = 1 << 12
	keptSeen = 1 << 8
)

// forget drops all but the last tokens.
func (f *conceptFinder) forget() {
	drop := len(f.seen) - keptSeen
	f.settle(drop)
	f.seen = append(f.seen[:0], f.seen[drop:]...)
	f.dropped += int32(drop)
}

// settle finds out whether the matches that ended before seen[end] are doubtful.
func (f *conceptFinder) settle(end int) {
	for ; f.settled < len(f.matches); f.settled++ {
		m := &f.matches[f.settled]
		i := int(m.number-f.dropped) - 1
		if i >= end {
			return
		}
		m.isDoubtful = f.isDoubtful(&f.c.rules[m.rule], i)
	}
}

// addTerms adds a token for each term that begins with tokens[first] and continues after
// tokens[last], where its words have led to the state.
func (f *conceptFinder) addTerms(tokens []token, first, last int, state int32) {
	for j := last + 1; j < len(tokens) && j <= last+3; j++ {
		d := tokens[j].position - tokens[last].position
		if d > maxTermGap {
			break
		}
		if d <= 0 || tokens[j].isPart {
			continue
		}
		for _, step := range f.c.terms[state] {
			if !slices.Contains(f.c.partsOf[tokens[j].word], step.part) {
				continue
			}
			if step.word >= 0 {
				f.add(token{word: step.word, position: tokens[first].position,
					from: tokens[first].from, to: tokens[j].to})
			}
			if len(f.c.terms[step.next]) > 0 {
				f.addTerms(tokens, first, j, step.next)
			}
		}
	}
}

// add adds a token, and records the matches that it completes.
func (f *conceptFinder) add(t token) {
	c := f.c
	if len(f.seen) == maxSeen {
		f.forget()
	}
	f.seen = append(f.seen, t)
	number := f.dropped + int32(len(f.seen))
	if t.position-f.mark >= maxWithin {
		if t.position-f.mark >= 2*maxWithin {
			clear(f.recent)
		}
		f.recent, f.before = f.before, f.recent
		clear(f.recent)
		f.mark = t.position
	}
	classes := c.classesOf[t.word]
	for _, class := range classes {
		f.last[class] = number
		f.recent[c.languageOf[class]] |= 1 << c.nameOf[class]
	}
	shared := f.recent[c.languages] | f.before[c.languages]
	for _, class := range classes {
		for i := range c.byClass[class] {
			n := &c.byClass[class][i]
			if n.mask&^(shared|f.recent[n.language]|f.before[n.language]) != 0 {
				continue
			}
			first, end, ok := c.rules[n.rule].match(f.seen, f.last, f.dropped)
			if ok && first.from >= f.ends[n.rule] {
				if f.ends == nil {
					f.ends = make(map[int32]int32)
				}
				f.ends[n.rule] = end.to
				f.matches = append(f.matches, conceptMatch{rule: n.rule, number: number,
					first: first, last: end})
			}
		}
	}
}

// maxWithin is more than the largest distance in a rule.
const maxWithin = 64

// match reports whether the rule matches with the last token of seen as its last word. last holds
// the number of tokens up to the last token of each class, and dropped the number of tokens that
// are not in seen any more.
func (r *conceptRule) match(seen []token, last []int32, dropped int32) (first, end token,
	ok bool) {
	t := &seen[len(seen)-1]
	var at [maxClasses]int32
	for n, pair := range r.classes {
		k := int32(-1)
		if pair.own >= 0 {
			k = last[pair.own] - dropped - 1
		}
		if pair.shared >= 0 {
			k = max(k, last[pair.shared]-dropped-1)
		}
		if k < 0 || t.position-seen[k].position > r.within {
			return first, end, false
		}
		at[n] = k
	}
	first, end = *t, *t
	for n := range r.classes {
		u := &seen[at[n]]
		for _, k := range at[:n] {
			if o := &seen[k]; o.from < u.to && u.from < o.to {
				return first, end, false // one word cannot stand for two
			}
		}
		if u.from < first.from {
			first = *u
		}
		if u.to > end.to {
			end = *u
		}
	}
	return first, end, true
}

// maxClasses is the largest number of classes of a concept.
const maxClasses = 4

// doubtDistance is how far from the last word of a match, in words, the words in unless may be.
const doubtDistance = 14

// isDoubtful reports whether a word of the classes that r.unless names is near seen[i].
func (f *conceptFinder) isDoubtful(r *conceptRule, i int) bool {
	if len(r.unless) == 0 {
		return false
	}
	has := func(t token) bool {
		return slices.ContainsFunc(f.c.classesOf[t.word], func(class int32) bool {
			return slices.Contains(r.unless, class)
		})
	}
	at := f.seen[i].position
	for j := i; j >= 0 && f.seen[j].position >= at-doubtDistance; j-- {
		if has(f.seen[j]) {
			return true
		}
	}
	for j := i + 1; j < len(f.seen) && f.seen[j].position <= at+doubtDistance; j++ {
		if has(f.seen[j]) {
			return true
		}
	}
	return false
}
