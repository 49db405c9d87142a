package policies

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// hideReads describes which members of a list's items one hide rule reads.
type hideReads struct {
	member      string          // the member whose value the rule adds to hide; "" when unknown
	readMembers map[string]bool // the members of items that the rule reads
	readsAll    bool            // the rule may read any member
}

// analyzeHideRules returns the members of items that each of the hide rules, or a rule that it
// uses, reads.
func (i *ruleSelector) analyzeHideRules(rules []*ast.Rule, c messageClass) (all []hideReads) {
	for _, rule := range rules {
		h := hideReads{readMembers: map[string]bool{}}
		for _, r := range i.reachableRules([]*ast.Rule{rule}, c) {
			aliases := itemVariables(r)
			h.collect(r, aliases)
			if r == rule {
				h.member = hiddenMember(rule, aliases)
			}
		}
		all = append(all, h)
	}
	return all
}

// needsDefinition reports whether one of the hide rules needs more of an item than its name to
// decide. name is the member that holds the name of an item. A rule that hides another member is
// about another kind of list: a rule that hides item.name is not about resources, whose names are
// in item.uri.
func needsDefinition(rules []hideReads, name string) bool {
	return slices.ContainsFunc(rules, func(h hideReads) bool {
		if h.member != "" && h.member != name {
			return false
		}
		return h.readsAll || len(h.readMembers) > 1 || len(h.readMembers) == 1 &&
			!h.readMembers[name]
	})
}

// isListItem reports whether a term is input.items[x].
func isListItem(t *ast.Term) bool {
	ref, ok := t.Value.(ast.Ref)
	return ok && len(ref) == 3 && ref.HasPrefix(ast.InputRootRef) &&
		ref[1].Equal(ast.StringTerm("items"))
}

// itemAlias returns the variable to which an expression assigns an item.
func itemAlias(e *ast.Expr) (ast.Var, bool) {
	if !e.IsEquality() && !e.IsAssignment() || len(e.With) > 0 {
		return "", false
	}
	a, b := e.Operand(0), e.Operand(1)
	if isListItem(a) {
		a, b = b, a
	}
	v, ok := a.Value.(ast.Var)
	return v, ok && isListItem(b)
}

// itemVariables returns the variables of a rule to which it assigns items.
func itemVariables(r *ast.Rule) map[ast.Var]bool {
	found := map[ast.Var]bool{}
	ast.WalkExprs(r, func(e *ast.Expr) bool {
		if v, ok := itemAlias(e); ok {
			found[v] = true
		}
		return false
	})
	return found
}

// hiddenMember returns the member of an item whose value a rule adds to hide, or "".
func hiddenMember(r *ast.Rule, items map[ast.Var]bool) (member string) {
	setMember := func(t *ast.Term) {
		ref, ok := t.Value.(ast.Ref)
		if !ok || len(ref) < 2 {
			return
		}
		if head, ok := ref[0].Value.(ast.Var); ok && items[head] && len(ref) == 2 {
			if s, ok := ref[1].Value.(ast.String); ok {
				member = string(s)
			}
		}
	}
	setMember(r.Head.Key)
	for _, e := range r.Body {
		if e.IsEquality() || e.IsAssignment() {
			switch {
			case e.Operand(0).Equal(r.Head.Key):
				setMember(e.Operand(1))
			case e.Operand(1).Equal(r.Head.Key):
				setMember(e.Operand(0))
			}
		}
	}
	return member
}

// collect adds the members of items that a rule reads. If it cannot analyze an expression, it sets
// readsAll.
func (h *hideReads) collect(r *ast.Rule, items map[ast.Var]bool) {
	member := func(rest ast.Ref) {
		if len(rest) > 0 {
			if s, ok := rest[0].Value.(ast.String); ok {
				h.readMembers[string(s)] = true
				return
			}
		}
		h.readsAll = true
	}
	var walk func(any)
	walk = func(part any) {
		ast.NewGenericVisitor(func(x any) bool {
			switch x := x.(type) {
			case *ast.Expr:
				if _, ok := itemAlias(x); !ok {
					return false
				}
				for _, t := range x.Operands() {
					if ref, ok := t.Value.(ast.Ref); ok {
						walk(ref[2])
					}
				}
				return true
			case ast.Var:
				h.readsAll = h.readsAll || items[x] || x.Equal(ast.InputRootDocument.Value) ||
					x.Equal(ast.DefaultRootDocument.Value)
			case ast.Ref:
				head, isVar := x[0].Value.(ast.Var)
				switch {
				case isVar && items[head]:
					member(x[1:])
				case x.HasPrefix(ast.InputRootRef) && len(x) > 1 &&
					x[1].Equal(ast.StringTerm("items")) && len(x) > 3:
					member(x[3:])
				case x.HasPrefix(ast.InputRootRef):
					name, ok := ast.String(""), false
					if len(x) > 1 {
						name, ok = x[1].Value.(ast.String)
					}
					h.readsAll = h.readsAll || !ok || name == "items" || name == "result"
				case !isVar:
					walk(x[0])
				}
				for _, t := range x[1:] {
					walk(t)
				}
				return true
			}
			return false
		}).Walk(part)
	}
	walk(r)
}
