package policies

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// RulesThatRead returns the names of the rules that read a member of the input, each with its
// effect, such as "roots/traversal: deny". path has the names that lead to the member: "session"
// and "labels" for input.session.labels. Rules that read the whole input, or members with computed
// names, are left out.
func (s *Stage) RulesThatRead(path ...string) (names []string) {
	for _, r := range s.all.rules {
		ref, err := ast.ParseRef(r.ref)
		if err != nil {
			continue // cannot happen: the reference was parsed when the policies were loaded
		}
		reads := readSet{}
		for _, body := range s.selector.reachableRules(s.selector.compiler.GetRulesExact(ref),
			messageClass{anyMessage}) {
			reads = reads.addPart(body)
		}
		found := true
		for _, name := range path {
			below, ok := reads.wants(name)
			found = found && ok && reads != nil
			reads = below
		}
		if found {
			names = append(names, r.name+": "+r.effect)
		}
	}
	slices.Sort(names)
	return names
}

// SetsLabels reports whether a rule sets labels.
func (s *Stage) SetsLabels() bool {
	return slices.ContainsFunc(s.all.rules, func(r effectRule) bool { return r.effect == "label" })
}
