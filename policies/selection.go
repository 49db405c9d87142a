package policies

import (
	"fmt"
	"slices"
	"sync"

	"gatekit/core/mcp"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
)

// classMembers are the members of the input that tell messages apart before anything is read of them. A
// rule that names a value of one (input.method == "tools/call", input.kind in {…}) says nothing of
// messages with another. The last is no member: it is "true" when
// gatekit.path.disguised(input.params.arguments) holds, which most calls are not worth asking
// anything else for.
var classMembers = [...]string{"direction", "kind", "method", "server", "name", encodedTraversalBuiltin}

const (
	encodedTraversalBuiltin = "gatekit.path.disguised"
	encodedTraversalMember  = len(classMembers) - 1
)

// Where settings and arguments are.
var (
	settingsRef  = ast.MustParseRef("data.config")
	argumentsRef = ast.MustParseRef("input.params.arguments")
)

// messageClass is messages that the same rules can say something of: their facts, each "" where no rule
// names its value.
type messageClass [len(classMembers)]string

// anyMessage is the class of all messages: any rule can say something of them.
const anyMessage = "*" // in the place of the direction

// ruleSelector is which rules can say something of which messages, and what they read of them. It only
// leaves out what cannot hold: the guards of a rule that it does not understand leave the rule in.
type ruleSelector struct {
	compiler *ast.Compiler
	data     storage.Store
	// data.config, which does not change; nil where packages have a part in it
	settings       ast.Value
	comparedValues [len(classMembers)]map[string]bool // values that rules name
	// rules are asked with something else in the place of the input or of each other (with): all of
	// them are of interest
	disabled bool

	mu      sync.RWMutex
	byClass map[queryKey]*ruleQuery
	byRules map[string]*ruleQuery // by the rules that they ask, and use
}

// queryKey tells questions apart.
type queryKey struct {
	set   ruleSet
	class messageClass
}

// newRuleSelector is that of compiled rules. settings are data.config.
func newRuleSelector(c *ast.Compiler, data storage.Store, settings ast.Value) *ruleSelector {
	i := &ruleSelector{compiler: c, data: data, settings: settings, byClass: map[queryKey]*ruleQuery{},
		byRules: map[string]*ruleQuery{}}
	for f := range classMembers {
		i.comparedValues[f] = map[string]bool{}
	}
	for _, m := range c.Modules {
		if m.Package.Path.HasPrefix(settingsRef) { // one without a rule is an empty object there
			i.settings = nil
		}
		ast.WalkWiths(m, func(*ast.With) bool {
			i.disabled = true
			return true
		})
		for _, r := range m.Rules {
			for f, values := range requiredValues(r.Body) {
				for _, v := range values {
					i.comparedValues[f][v] = true
				}
			}
		}
	}
	return i
}

// classOf is the class of messages without arguments, or before they are known.
func (i *ruleSelector) classOf(to mcp.Direction, kind mcp.Kind, method, server, name string) (c messageClass) {
	for f, v := range [...]string{to.String(), kind.String(), method, server, name} {
		if i.comparedValues[f][v] {
			c[f] = v
		}
	}
	return c
}

// classOfMessage is the class of a message, with its body unless that was not kept.
func (i *ruleSelector) classOfMessage(m *mcp.Message, bodyless bool) messageClass {
	c := i.classOf(m.Direction, m.Kind, m.Method, m.Server, m.Name)
	if i.comparedValues[encodedTraversalMember]["true"] && !bodyless && bodyOf[m.Kind] == "params" {
		if raw, ok := m.Get("/arguments"); ok && jsonMayHideTraversal(raw) {
			c[encodedTraversalMember] = "true"
		}
	}
	return c
}

// canHold says whether a rule can hold for messages of a class.
func (i *ruleSelector) canHold(r *ast.Rule, c messageClass) bool {
	if i.disabled || r.Else != nil || c[0] == anyMessage {
		return true
	}
	for f, values := range requiredValues(r.Body) {
		if !slices.Contains(values, c[f]) {
			return false
		}
	}
	return !slices.ContainsFunc(r.Body, func(e *ast.Expr) bool {
		return i.needsRuleThatCannotHold(e, c) || i.isFalseSetting(e)
	})
}

// isFalseSetting says that an expression is nothing but a setting, or the contrary of one, that cannot hold.
func (i *ruleSelector) isFalseSetting(e *ast.Expr) bool {
	t, ok := e.Terms.(*ast.Term)
	if !ok || len(e.With) > 0 || i.settings == nil {
		return false
	}
	ref, ok := t.Value.(ast.Ref)
	if !ok || len(ref) < 3 || !ref.HasPrefix(settingsRef) {
		return false
	}
	v, holds := i.settings, true
	for _, step := range ref[2:] {
		_, text := step.Value.(ast.String)
		_, list := v.(*ast.Array) // whose elements data have by a text, too: rules["0"]
		if !text || list {
			return false
		}
		below, err := v.Find(ast.Ref{step})
		if err != nil {
			holds = false
			break
		}
		v = below
	}
	holds = holds && v.Compare(ast.Boolean(false)) != 0
	return holds == e.Negated
}

// needsRuleThatCannotHold says that an expression is nothing but a rule that cannot hold for messages of a class.
func (i *ruleSelector) needsRuleThatCannotHold(e *ast.Expr, c messageClass) bool {
	t, ok := e.Terms.(*ast.Term)
	if !ok || e.Negated || len(e.With) > 0 {
		return false
	}
	ref, ok := t.Value.(ast.Ref)
	if !ok || !ref.HasPrefix(ast.DefaultRootRef) || !ref.IsGround() {
		return false
	}
	rules := i.compiler.GetRulesExact(ref)
	return len(rules) > 0 && !slices.ContainsFunc(rules, func(r *ast.Rule) bool {
		return r.Head.RuleKind() != ast.SingleValue || len(r.Head.Ref()) > 1 ||
			r.Default && !r.Head.Value.Equal(ast.BooleanTerm(false)) || !r.Default && i.canHold(r,
			c)
	})
}

// requiredValues are the values that the expressions of a body each want of a fact; a body that has none
// for a fact says nothing of it.
func requiredValues(body ast.Body) map[int][]string {
	found, bound := map[int][]string{}, map[ast.Var]int{} // variables that are facts
	factOf := func(t *ast.Term) (int, bool) {
		switch v := t.Value.(type) {
		case ast.Var:
			f, ok := bound[v]
			return f, ok
		case ast.Ref:
			if len(v) == 2 && v.HasPrefix(ast.InputRootRef) {
				name, _ := v[1].Value.(ast.String)
				f := slices.Index(classMembers[:], string(name))
				return f, f >= 0
			}
		}
		return 0, false
	}
	want := func(f int, values []string) {
		if had, ok := found[f]; ok { // both have to hold
			values = slices.DeleteFunc(slices.Clone(values), func(v string) bool {
				return !slices.Contains(had, v)
			})
		}
		found[f] = values
	}
	arguments := map[ast.Var]bool{} // variables that are input.params.arguments
	isArguments := func(t *ast.Term) bool {
		v, ok := t.Value.(ast.Var)
		return ok && arguments[v] || t.Value.Compare(argumentsRef) == 0
	}
	for _, e := range body {
		if e.Negated || len(e.With) > 0 || !e.IsCall() {
			continue
		}
		if operands := e.Operands(); len(operands) == 1 && e.Operator().String() == encodedTraversalBuiltin &&
			isArguments(operands[0]) {
			want(encodedTraversalMember, []string{"true"})
		}
		if len(e.Operands()) != 2 {
			continue
		}
		a, b := e.Operand(0), e.Operand(1)
		switch e.Operator().String() {
		case ast.Equality.Name, ast.Equal.Name:
			if _, ok := factOf(a); !ok && !isArguments(a) {
				a, b = b, a
			}
			if v, ok := b.Value.(ast.Var); ok && isArguments(a) {
				arguments[v] = true
				continue
			}
			f, ok := factOf(a)
			if !ok {
				continue
			}
			switch v := b.Value.(type) {
			case ast.String:
				want(f, []string{string(v)})
			case ast.Var:
				bound[v] = f
			}
		case ast.Member.Name:
			f, ok := factOf(a)
			if values, constant := constantStrings(b.Value); ok && constant {
				want(f, values)
			}
		}
	}
	return found
}

// constantStrings are the texts in a set or an array that holds nothing but constants.
func constantStrings(v ast.Value) (all []string, ok bool) {
	if !v.IsGround() {
		return nil, false
	}
	ok = true
	add := func(t *ast.Term) {
		switch v := t.Value.(type) {
		case ast.String:
			all = append(all, string(v))
		case ast.Ref, ast.Call:
			// a reference without variables counts as ground, and is no constant
			ok = false
		}
	}
	switch v := v.(type) {
	case ast.Set:
		v.Foreach(add)
	case *ast.Array:
		v.Foreach(add)
	default:
		return nil, false
	}
	return all, ok
}

// rulesFor are those of a document, like data.gatekit.mine.deny, that can hold for messages of a
// class.
func (i *ruleSelector) rulesFor(ref ast.Ref, c messageClass) []*ast.Rule {
	return slices.DeleteFunc(slices.Clone(i.compiler.GetRulesExact(ref)), func(r *ast.Rule) bool {
		return !i.canHold(r, c)
	})
}

// reachableRules are rules, and those that they use for messages of a class.
func (i *ruleSelector) reachableRules(rules []*ast.Rule, c messageClass) (all []*ast.Rule) {
	seen := map[*ast.Rule]bool{}
	rules = slices.Clone(rules)
	for n := 0; n < len(rules); n++ {
		if seen[rules[n]] {
			continue
		}
		seen[rules[n]] = true
		all = append(all, rules[n])
		ast.WalkRefs(rules[n], func(r ast.Ref) bool {
			if !r.HasPrefix(ast.DefaultRootRef) {
				return false
			}
			for _, used := range i.compiler.GetRulesDynamicWithOpts(r,
				ast.RulesOptions{IncludeHiddenModules: true}) {
				if i.canHold(used, c) {
					rules = append(rules, used)
				}
			}
			return false
		})
	}
	return all
}

// Bounds of what is kept. Rules that name methods, servers and names make as many classes of
// messages as all of these multiplied, of which most have the same rules. Messages beyond are asked
// all rules, with all that these read.
const (
	maxClasses  = 1 << 16
	maxPrepared = 4096
)

// query answers those rules of q that can say something of messages of a class.
func (i *ruleSelector) query(q ruleQuery, c messageClass) (*ruleQuery, error) {
	at := queryKey{q.ruleSet, c}
	i.mu.RLock()
	made, full := i.byClass[at], len(i.byClass) >= maxClasses
	i.mu.RUnlock()
	if made == nil && full && c[0] != anyMessage {
		return i.query(q, messageClass{anyMessage})
	}
	if made != nil {
		return made, nil
	}
	var rules []effectRule
	var bodies, enforced []*ast.Rule
	for _, r := range q.rules {
		ref, err := ast.ParseRef(r.ref)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", r.ref, err)
		}
		if b := i.rulesFor(ref, c); len(b) > 0 {
			rules, bodies = append(rules, r), append(bodies, b...)
			if r.effect == "hide" && !r.shadow {
				enforced = append(enforced, b...)
			}
		}
	}
	reached := i.reachableRules(bodies, c)
	key := fmt.Sprint(q.ruleSet)
	for _, r := range reached {
		key += fmt.Sprintf(" %p", r) // the rules live as long as the compiler
	}
	i.mu.RLock()
	made, full = i.byRules[key], len(i.byRules) >= maxPrepared
	i.mu.RUnlock()
	if made == nil && full && c[0] != anyMessage {
		return i.query(q, messageClass{anyMessage})
	}
	// it takes a while: several may do it at once, and no message waits for another's
	if made == nil {
		p, err := prepare(q.ruleSet, rules, i.compiler, i.data)
		if err != nil {
			return nil, fmt.Errorf("prepare the policies: %w", err)
		}
		p.reads = readSet{}
		for _, r := range reached {
			p.reads = p.reads.addPart(r)
		}
		if q.ruleSet != allRules {
			p.hideReads = i.analyzeHideRules(enforced, c)
		}
		made = &p
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if other := i.byRules[key]; other != nil {
		made = other
	}
	i.byRules[key], i.byClass[at] = made, made
	return made, nil
}
