package policies

import (
	"fmt"
	"slices"
	"sync"

	"gatekit/core/mcp"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
)

// facts are the members of the input that tell messages apart before anything is read of them. A
// rule that names a value of one (input.method == "tools/call", input.kind in {…}) says nothing of
// messages with another. The last is no member: it is "true" when
// gatekit.path.disguised(input.params.arguments) holds, which most calls are not worth asking
// anything else for.
var facts = [...]string{"direction", "kind", "method", "server", "name", glance}

const (
	glance  = "gatekit.path.disguised"
	glanced = len(facts) - 1
)

// Where settings and arguments are.
var (
	settingsRef  = ast.MustParseRef("data.config")
	argumentsRef = ast.MustParseRef("input.params.arguments")
)

// class is messages that the same rules can say something of: their facts, each "" where no rule
// names its value.
type class [len(facts)]string

// every is the class of all messages: any rule can say something of them.
const every = "*" // in the place of the direction

// interest is which rules can say something of which messages, and what they read of them. It only
// leaves out what cannot hold: the guards of a rule that it does not understand leave the rule in.
type interest struct {
	compiler *ast.Compiler
	data     storage.Store
	// data.config, which does not change; nil where packages have a part in it
	settings ast.Value
	named    [len(facts)]map[string]bool // values that rules name
	// rules are asked with something else in the place of the input or of each other (with): all of
	// them are of interest
	off bool

	mu       sync.RWMutex
	of       map[subject]*question
	prepared map[string]*question // by the rules that they ask, and use
}

// subject tells questions apart.
type subject struct {
	set   set
	class class
}

// newInterest is that of compiled rules. settings are data.config.
func newInterest(c *ast.Compiler, data storage.Store, settings ast.Value) *interest {
	i := &interest{compiler: c, data: data, settings: settings, of: map[subject]*question{},
		prepared: map[string]*question{}}
	for f := range facts {
		i.named[f] = map[string]bool{}
	}
	for _, m := range c.Modules {
		if m.Package.Path.HasPrefix(settingsRef) { // one without a rule is an empty object there
			i.settings = nil
		}
		ast.WalkWiths(m, func(*ast.With) bool {
			i.off = true
			return true
		})
		for _, r := range m.Rules {
			for f, values := range guards(r.Body) {
				for _, v := range values {
					i.named[f][v] = true
				}
			}
		}
	}
	return i
}

// classOf is the class of messages without arguments, or before they are known.
func (i *interest) classOf(to mcp.Direction, kind mcp.Kind, method, server, name string) (c class) {
	for f, v := range [...]string{to.String(), kind.String(), method, server, name} {
		if i.named[f][v] {
			c[f] = v
		}
	}
	return c
}

// classIn is the class of a message, with its body unless that was not kept.
func (i *interest) classIn(m *mcp.Message, bodyless bool) class {
	c := i.classOf(m.Direction, m.Kind, m.Method, m.Server, m.Name)
	if i.named[glanced]["true"] && !bodyless && bodyOf[m.Kind] == "params" {
		if raw, ok := m.Get("/arguments"); ok && disguisedIn(raw) {
			c[glanced] = "true"
		}
	}
	return c
}

// possible says whether a rule can hold for messages of a class.
func (i *interest) possible(r *ast.Rule, c class) bool {
	if i.off || r.Else != nil || c[0] == every {
		return true
	}
	for f, values := range guards(r.Body) {
		if !slices.Contains(values, c[f]) {
			return false
		}
	}
	return !slices.ContainsFunc(r.Body, func(e *ast.Expr) bool {
		return i.lacks(e, c) || i.unset(e)
	})
}

// unset says that an expression is nothing but a setting, or the contrary of one, that cannot hold.
func (i *interest) unset(e *ast.Expr) bool {
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

// lacks says that an expression is nothing but a rule that cannot hold for messages of a class.
func (i *interest) lacks(e *ast.Expr, c class) bool {
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
			r.Default && !r.Head.Value.Equal(ast.BooleanTerm(false)) || !r.Default && i.possible(r,
			c)
	})
}

// guards are the values that the expressions of a body each want of a fact; a body that has none
// for a fact says nothing of it.
func guards(body ast.Body) map[int][]string {
	found, bound := map[int][]string{}, map[ast.Var]int{} // variables that are facts
	factOf := func(t *ast.Term) (int, bool) {
		switch v := t.Value.(type) {
		case ast.Var:
			f, ok := bound[v]
			return f, ok
		case ast.Ref:
			if len(v) == 2 && v.HasPrefix(ast.InputRootRef) {
				name, _ := v[1].Value.(ast.String)
				f := slices.Index(facts[:], string(name))
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
		if operands := e.Operands(); len(operands) == 1 && e.Operator().String() == glance &&
			isArguments(operands[0]) {
			want(glanced, []string{"true"})
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
			if values, constant := texts(b.Value); ok && constant {
				want(f, values)
			}
		}
	}
	return found
}

// texts are the texts in a set or an array that holds nothing but constants.
func texts(v ast.Value) (all []string, ok bool) {
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

// rulesOf are those of a document, like data.gatekit.mine.deny, that can hold for messages of a
// class.
func (i *interest) rulesOf(ref ast.Ref, c class) []*ast.Rule {
	return slices.DeleteFunc(slices.Clone(i.compiler.GetRulesExact(ref)), func(r *ast.Rule) bool {
		return !i.possible(r, c)
	})
}

// reached are rules, and those that they use for messages of a class.
func (i *interest) reached(rules []*ast.Rule, c class) (all []*ast.Rule) {
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
				if i.possible(used, c) {
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

// question answers those rules of q that can say something of messages of a class.
func (i *interest) question(q question, c class) (*question, error) {
	at := subject{q.set, c}
	i.mu.RLock()
	made, full := i.of[at], len(i.of) >= maxClasses
	i.mu.RUnlock()
	if made == nil && full && c[0] != every {
		return i.question(q, class{every})
	}
	if made != nil {
		return made, nil
	}
	var rules []rule
	var bodies, enforced []*ast.Rule
	for _, r := range q.rules {
		ref, err := ast.ParseRef(r.ref)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", r.ref, err)
		}
		if b := i.rulesOf(ref, c); len(b) > 0 {
			rules, bodies = append(rules, r), append(bodies, b...)
			if r.effect == "hide" && !r.shadow {
				enforced = append(enforced, b...)
			}
		}
	}
	reached := i.reached(bodies, c)
	key := fmt.Sprint(q.set)
	for _, r := range reached {
		key += fmt.Sprintf(" %p", r) // the rules live as long as the compiler
	}
	i.mu.RLock()
	made, full = i.prepared[key], len(i.prepared) >= maxPrepared
	i.mu.RUnlock()
	if made == nil && full && c[0] != every {
		return i.question(q, class{every})
	}
	// it takes a while: several may do it at once, and no message waits for another's
	if made == nil {
		p, err := prepare(q.set, rules, i.compiler, i.data)
		if err != nil {
			return nil, fmt.Errorf("prepare the policies: %w", err)
		}
		p.reads = reads{}
		for _, r := range reached {
			p.reads = p.reads.of(r)
		}
		if q.set != ofAll {
			p.hiders = i.hidersOf(enforced, c)
		}
		made = &p
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if other := i.prepared[key]; other != nil {
		made = other
	}
	i.prepared[key], i.of[at] = made, made
	return made, nil
}
