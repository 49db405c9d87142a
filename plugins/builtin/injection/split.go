package injection

import (
	"slices"

	"gatekit/core/mcp"
)

// maxEdgeWords is how many known words at each end of a result are read together with the results
// before and after it.
const maxEdgeWords = 24

// resultEdges collects the first and the last words of a result, for texts that are split over
// several results.
type resultEdges struct {
	head, tail []token
	position   int32 // after the last word, counted in words from the beginning of the result
}

// reset makes e ready for another result.
func (e *resultEdges) reset() { e.head, e.tail, e.position = e.head[:0], e.tail[:0], 0 }

// add adds the words of the next text of the result.
func (e *resultEdges) add(tokens []token) {
	if len(tokens) == 0 {
		return
	}
	shift := func(t token) token {
		t.position += e.position
		return t
	}
	for _, t := range tokens[:min(len(tokens), maxEdgeWords-len(e.head))] {
		e.head = append(e.head, shift(t))
	}
	for _, t := range tokens[max(0, len(tokens)-maxEdgeWords):] {
		e.tail = append(e.tail, shift(t))
	}
	if extra := len(e.tail) - maxEdgeWords; extra > 0 {
		e.tail = append(e.tail[:0], e.tail[extra:]...)
	}
	e.position += tokens[len(tokens)-1].position + 2
}

// inspectSplit inspects the beginning of a result together with the ends of the results before it.
// A match gets a finding. No action is taken, since the results before have been delivered.
func (in *inspection) inspectSplit(m *mcp.Message, e *resultEdges) {
	s := in.stage
	if len(e.head) == 0 {
		return
	}
	before := s.memory.replaceTail(m.Principal.ID(), e)
	if len(before) == 0 {
		return
	}
	tokens := make([]token, 0, len(before)+len(e.head))
	base := before[len(before)-1].position + 2
	for i, t := range slices.Concat(before, e.head) {
		if i >= len(before) {
			t.position += base
		}
		t.from, t.to = int32(2*i), int32(2*i+1) // the words are in different texts
		tokens = append(tokens, t)
	}
	boundary := int32(2 * len(before))
	report := func(f family, score int, from, to int32) {
		if from < boundary && to > boundary && score >= s.threshold && s.actions[f] != actionOff {
			in.addFinding(f, "split-over-results", "")
		}
	}
	g := s.scorer.grammar
	for i := range tokens {
		if tokens[i].from >= boundary {
			break
		}
		for _, n := range g.rulesByWord[tokens[i].word] {
			r := &g.rules[n]
			if end := g.matchEnd(tokens, i, r); end >= 0 {
				report(r.family, r.content, tokens[i].from, tokens[end].to)
			}
		}
	}
	var finder conceptFinder
	reportConcept := func(r *conceptRule, first, last token, isDoubtful bool) {
		if !isDoubtful {
			report(r.family, r.content, first.from, last.to)
		}
	}
	finder.find(&g.concepts, tokens, false, reportConcept)
}

// replaceTail remembers the end of a result of the principal, and returns the end of the results
// before it. It remembers nothing for a principal that has got no list.
func (m *listMemory) replaceTail(principal string, e *resultEdges) (before []token) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.find(principal)
	if l == nil {
		return nil
	}
	before = l.tail
	tail := make([]token, 0, maxEdgeWords)
	if len(before) > 0 && len(e.tail) < maxEdgeWords {
		last := before[len(before)-1].position + 2
		for _, t := range before[max(0, len(before)+len(e.tail)-maxEdgeWords):] {
			t.position -= last
			tail = append(tail, t)
		}
	}
	l.tail = append(tail, e.tail...)
	return before
}
