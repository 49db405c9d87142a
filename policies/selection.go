package policies

import (
	"fmt"
	"slices"
	"sync"

	"gatekit/core/mcp"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
)

// classMembers are members of the input that are known before a message's body is read. Many rules
// compare these members, and so cannot hold for some messages. For example, a rule with
// input.method == "tools/call" holds only for tool calls.
//
// The last element is not a member of the input. Its value is "true" when
// gatekit.path.disguised(input.params.arguments) holds. For most calls it does not hold, and the
// rules that require it are left out.
//
// The members schema.state and schema.unlisted are computed from the arguments or the result; see
// checkSchema. For most calls the state is "match", and the rules about problems are left out.
var classMembers = [...]string{"direction", "kind", "method", "server", "name", "schema.state",
	"schema.unlisted", encodedTraversalBuiltin}

const (
	encodedTraversalBuiltin = "gatekit.path.disguised"
	encodedTraversalMember  = len(classMembers) - 1
	unlistedMember          = len(classMembers) - 2
	schemaMember            = len(classMembers) - 3
)

// References to the settings of library rules, and to a call's arguments.
var (
	settingsRef  = ast.MustParseRef("data.config")
	argumentsRef = ast.MustParseRef("input.params.arguments")

	schemaStateRef = ast.MustParseRef("input.schema.state")
	unlistedRef    = ast.MustParseRef("input.schema.unlisted")
)

// messageClass identifies messages for which the same rules can hold. It has the values of
// classMembers in these messages. A value that no rule compares is "".
type messageClass [len(classMembers)]string

// anyMessage is the direction of the class that contains all messages. Every rule can hold for this
// class.
const anyMessage = "*"

// ruleSelector selects the rules that can hold for a message, and the members of the input that
// these rules read. It leaves out a rule only when the rule's body contains an expression that is
// false for the message. It ignores the expressions that it cannot analyze.
//
// # Why not OPA's rule index or partial evaluation
//
// The figures are from BenchmarkSelection with a call of 4 KiB. With OPA's rule index alone, the
// input must contain all members that any rule reads. An evaluation then takes 10 to 15 times as
// long for the default rules, and 1.2 to 14 times as long for fifty rules about one tool each.
//
// OPA's partial evaluation takes 20 to 50 ms for each combination of method, kind, server and name,
// compared with 0.4 to 5 ms for ruleSelector. The partially evaluated rules are slower for most
// calls, and as fast for a tool that a rule names. OPA cannot compile the partially evaluated
// default rules, because expressions of roots/traversal become unsafe. Partial evaluation also
// needs a bounded set of names and servers, but clients choose the names and servers. To find the
// relevant ones, the same analysis as in ruleSelector would be necessary.
//
// FuzzSelection compares this selection with the evaluation of all rules. A long run of
// TestSelectionOverManyModules compared them for a million pairs (10,000 generated modules with 100
// messages each, seeds from 1000000), and found no difference.
type ruleSelector struct {
	compiler *ast.Compiler
	data     storage.Store
	settings ast.Value // data.config, a constant; nil when packages define parts of it
	// for each of classMembers, the values with which rules compare the member
	comparedValues [len(classMembers)]map[string]bool
	// set if a rule replaces parts of the input with the keyword `with`; the analysis would then be
	// wrong, so all rules are selected
	disabled bool

	mu      sync.RWMutex
	byClass map[queryKey]*ruleQuery
	byRules map[string]*ruleQuery // by the evaluated rules and all rules that these rules use
}

// queryKey identifies a query.
type queryKey struct {
	set   ruleSet
	class messageClass
}

// newRuleSelector returns a selector for compiled rules. settings is data.config.
func newRuleSelector(c *ast.Compiler, data storage.Store, settings ast.Value) *ruleSelector {
	i := &ruleSelector{compiler: c, data: data, settings: settings,
		byClass: map[queryKey]*ruleQuery{},
		byRules: map[string]*ruleQuery{}}
	for f := range classMembers {
		i.comparedValues[f] = map[string]bool{}
	}
	for _, m := range c.Modules {
		// in OPA, even a package without rules is an object
		if m.Package.Path.HasPrefix(settingsRef) {
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

// classOf returns the class of a message without arguments, or before its arguments are known.
func (i *ruleSelector) classOf(to mcp.Direction, kind mcp.Kind, method, server,
	name string) (c messageClass) {
	for f, v := range [...]string{to.String(), kind.String(), method, server, name} {
		if i.comparedValues[f][v] {
			c[f] = v
		}
	}
	return c
}

// classOfMessage returns the class of a message, with its arguments. The arguments of a message
// whose body is missing may hide a traversal.
func (i *ruleSelector) classOfMessage(m *mcp.Message, bodyMissing bool) messageClass {
	c := i.classOf(m.Direction, m.Kind, m.Method, m.Server, m.Name)
	if i.comparedValues[encodedTraversalMember]["true"] && bodyMember[m.Kind] == "params" {
		if raw, ok := m.Get("/arguments"); bodyMissing || ok && jsonMayHideTraversal(raw) {
			c[encodedTraversalMember] = "true"
		}
	}
	return c
}

// classOf returns the class of a message in its session.
func (s *Stage) classOf(m *mcp.Message, session *session, mc messageContext) messageClass {
	c := s.selector.classOfMessage(m, mc.bodyMissing)
	states, unlisted := s.selector.comparedValues[schemaMember],
		s.selector.comparedValues[unlistedMember]
	if len(states)+len(unlisted) == 0 || mc.bodyMissing {
		return c
	}
	if r, ok := session.checkSchema(m); ok {
		if states[r.state] {
			c[schemaMember] = r.state
		}
		if unlisted[r.unlisted] {
			c[unlistedMember] = r.unlisted
		}
	}
	return c
}

// canHold reports whether a rule can hold for messages of a class.
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

// isFalseSetting reports whether an expression is false because of the settings. The expression
// consists only of a setting, of the negation of a setting, or of a comparison of a setting with a
// string.
func (i *ruleSelector) isFalseSetting(e *ast.Expr) bool {
	if len(e.With) > 0 {
		return false
	}
	if t, ok := e.Terms.(*ast.Term); ok {
		v, known := i.setting(t)
		holds := v != nil && v.Compare(ast.Boolean(false)) != 0
		return known && holds == e.Negated
	}
	if e.Negated || !e.IsCall() || len(e.Operands()) != 2 ||
		e.Operator().String() != ast.Equal.Name && e.Operator().String() != ast.Equality.Name {
		return false
	}
	a, b := e.Operand(0), e.Operand(1)
	if _, constant := a.Value.(ast.String); constant {
		a, b = b, a
	}
	want, constant := b.Value.(ast.String)
	v, known := i.setting(a)
	return constant && known && (v == nil || v.Compare(want) != 0)
}

// setting returns the value of a setting, or nil if it is absent. known is false if the term is no
// setting, or its value is not constant.
func (i *ruleSelector) setting(t *ast.Term) (v ast.Value, known bool) {
	ref, ok := t.Value.(ast.Ref)
	if !ok || i.settings == nil || len(ref) < 3 || !ref.HasPrefix(settingsRef) {
		return nil, false
	}
	v = i.settings
	for _, step := range ref[2:] {
		_, text := step.Value.(ast.String)
		_, list := v.(*ast.Array) // in data, rules["0"] is an element like rules[0]
		if !text || list {
			return nil, false
		}
		below, err := v.Find(ast.Ref{step})
		if err != nil {
			return nil, true
		}
		v = below
	}
	return v, true
}

// needsRuleThatCannotHold reports whether an expression consists only of a reference to a rule that
// cannot hold for messages of a class.
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

// requiredValues returns, by the index in classMembers, the values of a member with which a rule's
// body can hold. Members that the body does not compare are left out.
func requiredValues(body ast.Body) map[int][]string {
	found := map[int][]string{}
	bound := map[ast.Var]int{} // the variables that equal one of classMembers
	classMember := func(t *ast.Term) (int, bool) {
		switch v := t.Value.(type) {
		case ast.Var:
			f, ok := bound[v]
			return f, ok
		case ast.Ref:
			switch {
			case v.Equal(schemaStateRef):
				return schemaMember, true
			case v.Equal(unlistedRef):
				return unlistedMember, true
			}
			if len(v) == 2 && v.HasPrefix(ast.InputRootRef) {
				name, _ := v[1].Value.(ast.String)
				f := slices.Index(classMembers[:], string(name))
				return f, f >= 0
			}
		}
		return 0, false
	}
	require := func(f int, values []string) {
		if earlier, ok := found[f]; ok { // both comparisons have to hold
			values = slices.DeleteFunc(slices.Clone(values), func(v string) bool {
				return !slices.Contains(earlier, v)
			})
		}
		found[f] = values
	}
	arguments := map[ast.Var]bool{} // the variables that equal input.params.arguments
	isArguments := func(t *ast.Term) bool {
		v, ok := t.Value.(ast.Var)
		return ok && arguments[v] || t.Value.Compare(argumentsRef) == 0
	}
	for _, e := range body {
		if e.Negated || len(e.With) > 0 || !e.IsCall() {
			continue
		}
		if operands := e.Operands(); len(operands) == 1 &&
			e.Operator().String() == encodedTraversalBuiltin &&
			isArguments(operands[0]) {
			require(encodedTraversalMember, []string{"true"})
		}
		if len(e.Operands()) != 2 {
			continue
		}
		a, b := e.Operand(0), e.Operand(1)
		switch e.Operator().String() {
		case ast.Equality.Name, ast.Equal.Name:
			if _, ok := classMember(a); !ok && !isArguments(a) {
				a, b = b, a
			}
			if v, ok := b.Value.(ast.Var); ok && isArguments(a) {
				arguments[v] = true
				continue
			}
			f, ok := classMember(a)
			if !ok {
				continue
			}
			switch v := b.Value.(type) {
			case ast.String:
				require(f, []string{string(v)})
			case ast.Var:
				bound[v] = f
			}
		case ast.Member.Name:
			f, ok := classMember(a)
			if values, constant := constantStrings(b.Value); ok && constant {
				require(f, values)
			}
		}
	}
	return found
}

// constantStrings returns the strings in a set or an array. ok is true only if all elements are
// constants.
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
			// IsGround is true for a reference without variables, but a reference is no constant.
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

// rulesFor returns the rules of a document, such as data.gatekit.mine.deny, that can hold for
// messages of a class.
func (i *ruleSelector) rulesFor(ref ast.Ref, c messageClass) []*ast.Rule {
	return slices.DeleteFunc(slices.Clone(i.compiler.GetRulesExact(ref)), func(r *ast.Rule) bool {
		return !i.canHold(r, c)
	})
}

// reachableRules returns the given rules, and all rules that they use for messages of a class.
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

// Bounds of the caches. The number of classes is the product of the numbers of methods, servers and
// names that rules compare. Most classes have the same rules. When a cache is full, messages of
// further classes are evaluated with all rules.
const (
	maxClasses  = 1 << 16
	maxPrepared = 4096
)

// query returns a query of the rules of q that can hold for messages of a class.
func (i *ruleSelector) query(q ruleQuery, c messageClass) (*ruleQuery, error) {
	classKey := queryKey{q.ruleSet, c}
	i.mu.RLock()
	cached, full := i.byClass[classKey], len(i.byClass) >= maxClasses
	i.mu.RUnlock()
	if cached == nil && full && c[0] != anyMessage {
		return i.query(q, messageClass{anyMessage})
	}
	if cached != nil {
		return cached, nil
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
	rulesKey := fmt.Sprint(q.ruleSet)
	for _, r := range reached {
		rulesKey += fmt.Sprintf(" %p", r) // unique, because the compiler keeps the rules alive
	}
	i.mu.RLock()
	cached, full = i.byRules[rulesKey], len(i.byRules) >= maxPrepared
	i.mu.RUnlock()
	if cached == nil && full && c[0] != anyMessage {
		return i.query(q, messageClass{anyMessage})
	}
	// Prepare the query without the lock, because this is slow. Several goroutines may prepare the
	// same query.
	if cached == nil {
		p, err := prepare(q.ruleSet, rules, i.compiler, i.data)
		if err != nil {
			return nil, fmt.Errorf("prepare the policies: %w", err)
		}
		p.reads = readSet{}
		for _, r := range reached {
			p.reads = p.reads.addPart(r)
			p.nondeterministic = p.nondeterministic || callsNondeterministic(r)
		}
		if q.ruleSet != allRules {
			p.hideReads = i.analyzeHideRules(enforced, c)
		}
		cached = &p
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if other := i.byRules[rulesKey]; other != nil {
		cached = other
	}
	i.byRules[rulesKey], i.byClass[classKey] = cached, cached
	return cached, nil
}
