package policies

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// hider is what one rule that hides reads of the items of a list, and which member of them it hides
// by.
type hider struct {
	by    string          // "" is not known
	reads map[string]bool // members of items
	all   bool            // it may read others, too
}

// hidersOf is what the bodies of rules that hide read.
func (i *interest) hidersOf(bodies []*ast.Rule, c class) (all []hider) {
	for _, b := range bodies {
		h := hider{reads: map[string]bool{}}
		for _, r := range i.reached([]*ast.Rule{b}, c) {
			aliases := itemsIn(r)
			h.of(r, aliases)
			if r == b {
				h.by = memberOf(b, aliases)
			}
		}
		all = append(all, h)
	}
	return all
}

// undecided says whether what is hidden of a list depends on more of an item than its name. A rule
// that hides by another member than the name does not speak of this list: one that hides item.name
// is not about resources, whose name is item.uri.
func undecided(hiders []hider, name string) bool {
	return slices.ContainsFunc(hiders, func(h hider) bool {
		if h.by != "" && h.by != name {
			return false
		}
		return h.all || len(h.reads) > 1 || len(h.reads) == 1 && !h.reads[name]
	})
}

// anItem says that a term is input.items[x].
func anItem(t *ast.Term) bool {
	ref, ok := t.Value.(ast.Ref)
	return ok && len(ref) == 3 && ref.HasPrefix(ast.InputRootRef) &&
		ref[1].Equal(ast.StringTerm("items"))
}

// aliasing is the variable that an expression makes an item.
func aliasing(e *ast.Expr) (ast.Var, bool) {
	if !e.IsEquality() && !e.IsAssignment() || len(e.With) > 0 {
		return "", false
	}
	a, b := e.Operand(0), e.Operand(1)
	if anItem(a) {
		a, b = b, a
	}
	v, ok := a.Value.(ast.Var)
	return v, ok && anItem(b)
}

// itemsIn are the variables of a rule that are items.
func itemsIn(r *ast.Rule) map[ast.Var]bool {
	found := map[ast.Var]bool{}
	ast.WalkExprs(r, func(e *ast.Expr) bool {
		if v, ok := aliasing(e); ok {
			found[v] = true
		}
		return false
	})
	return found
}

// memberOf is the member of an item that a rule hides.
func memberOf(r *ast.Rule, items map[ast.Var]bool) (member string) {
	of := func(t *ast.Term) {
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
	of(r.Head.Key)
	for _, e := range r.Body {
		if e.IsEquality() || e.IsAssignment() {
			switch {
			case e.Operand(0).Equal(r.Head.Key):
				of(e.Operand(1))
			case e.Operand(1).Equal(r.Head.Key):
				of(e.Operand(0))
			}
		}
	}
	return member
}

// of takes in what a rule reads of items. What it does not understand may read all.
func (h *hider) of(r *ast.Rule, items map[ast.Var]bool) {
	member := func(rest ast.Ref) {
		if len(rest) > 0 {
			if s, ok := rest[0].Value.(ast.String); ok {
				h.reads[string(s)] = true
				return
			}
		}
		h.all = true
	}
	var walk func(any)
	walk = func(part any) {
		ast.NewGenericVisitor(func(x any) bool {
			switch x := x.(type) {
			case *ast.Expr:
				if _, ok := aliasing(x); !ok {
					return false
				}
				for _, t := range x.Operands() {
					if ref, ok := t.Value.(ast.Ref); ok {
						walk(ref[2])
					}
				}
				return true
			case ast.Var:
				h.all = h.all || items[x] || x.Equal(ast.InputRootDocument.Value) ||
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
					h.all = h.all || !ok || name == "items" || name == "result"
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
