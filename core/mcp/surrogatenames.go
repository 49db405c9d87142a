package mcp

import (
	"bytes"
	"fmt"
	"slices"
)

// A name of a member may have an escaped lone surrogate, such as "\ud83d". Parsers in JavaScript
// and Python keep it. Parsers in Go, among them OPA and the plugins, read it as U+FFFD. Others read
// a question mark or nothing. So this file refuses the names that such parsers would confuse. All
// names that are accepted are still different after each of these replacements.

// checkSurrogateName notes a fault if a name with a lone surrogate is not allowed. The parameter l
// is the level of the object with the name, and text has U+FFFD for each lone surrogate. Objects
// whose names belong to the protocol, and objects whose names Gatekit writes again, must not have
// such names.
func (s *scanner) checkSurrogateName(l level, text []byte, at int) {
	s.hasSurrogateNames = true
	if l != levelOther {
		s.noteFault(at, "a name with a lone surrogate at this place")
		return
	}
	rest := withoutReplacements(text)
	for _, known := range []nameSet{envelopeNameSet, paramsNameSet, resultNameSet} {
		if like, ok := known[string(fold(nil, rest))]; ok {
			s.noteFault(at, "a name with a lone surrogate that can be taken for "+like)
			return
		}
	}
}

// noteSurrogateDuplicates notes a fault if an object has a name with a lone surrogate that a parser
// could read as another name of the object. The parameter names holds the names of the object.
func (s *scanner) noteSurrogateDuplicates(names []seenName) {
	if !slices.ContainsFunc(names, func(n seenName) bool { return n.hasSurrogate }) {
		return
	}
	rests := make([]seenName, len(names))
	for i, n := range names {
		rests[i] = seenName{withoutReplacements(n.text), n.at, n.hasSurrogate}
	}
	slices.SortStableFunc(rests, func(a, b seenName) int { return bytes.Compare(a.text, b.text) })
	hasSurrogate := false // one of the equal names up to n has a lone surrogate
	for i, n := range rests {
		isEqual := i > 0 && bytes.Equal(rests[i-1].text, n.text)
		hasSurrogate = isEqual && hasSurrogate || n.hasSurrogate
		if isEqual && hasSurrogate {
			s.noteFault(n.at, "a name with a lone surrogate that can be taken for another name")
			return
		}
	}
}

// withoutReplacements returns a name without the characters that parsers put in place of a lone
// surrogate.
func withoutReplacements(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r == '\uFFFD' || r == '?' {
			return -1
		}
		return r
	}, text)
}

// withCheckedNames returns m, a message that Edit has made. It returns an error if the body has
// names with a lone surrogate that Parse refuses. An edit can add such a name, or a name that is
// like one.
func (m *Message) withCheckedNames() (*Message, error) {
	if !hasSurrogateEscape(m.bodySpan.bytes(m.raw)) {
		return m, nil
	}
	s := scanner{input: m.raw, pos: int(m.bodySpan.from), limits: unlimited, depth: 1}
	l := levelBody
	if m.Kind == Request || m.Kind == Notification {
		l = levelParams
	}
	f := s.scanValue(l)
	if f == nil {
		f = s.firstFault
	}
	if f != nil {
		return nil, fmt.Errorf("the edited message%s: %s",
			inPointer(pointerTo(m.raw, f.at)), f.reason)
	}
	return m, nil
}

// hasSurrogateEscape reports whether JSON has an escape of a surrogate, lone or not.
func hasSurrogateEscape(b []byte) bool {
	return bytes.Contains(b, []byte(`\ud`)) || bytes.Contains(b, []byte(`\uD`))
}
