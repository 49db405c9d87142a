package policies

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gatekit/core/pipeline"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Explanation is why a message is judged as it is.
type Explanation struct {
	Input   []byte // JSON: all that policies can see of it; ParseCase reads it
	Effects []Effect
	// the rules that had none; Line is where the rule begins, Value what of it did not hold
	NotMatched []Effect
	Outcome    pipeline.Outcome
}

// Effect is what one rule said of a message.
type Effect struct {
	Rule   string // its package, without gatekit: "roots/traversal"
	Effect string // deny, hide, …
	// as JSON; of an idle one, the source of the expression that did not hold, with its line
	Value  string
	Shadow bool // judged, and not enforced
	File   string
	Line   int
	Reads  []Read // what it read of the input, and what the rules that it uses did
}

// Read is a member of the input, and what it held; "" when there was none.
type Read struct{ Ref, Value string }

// Explain is Judge that also says why. The policies are asked once more for that, without the
// shortcuts that skip rules which cannot matter.
func (s *Stage) Explain(ctx context.Context, c *Case) (*Explanation, error) {
	session := s.sessions.session(c.Message)
	session.setState(c.Message, c.state, s.contextOf(c).now)
	takeBack, ok := session.countCall(c.Message, s.contextOf(c).now, true) // as it is when it is judged
	if !ok {
		return nil, errors.New("the session has called too many different tools to count its calls")
	}
	all := s.input(c.Message, session, s.contextOf(c), nil)
	takeBack()
	shown, err := toJSON(all)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Input: shown, Outcome: s.Evaluate(ctx, c)}
	if err := s.explain(ctx, e, s.all, all, s.contextOf(c).now); err != nil {
		return e, ctx.Err() // it is the outcome's, too
	}
	// what they say of the list that has what the message is about
	if hides := s.hideQuery(c.Message); len(hides.rules) > 0 {
		for _, u := range session.itemUses(c.Message) {
			list, err := session.listUsed(c.Message, u, nil)
			if err != nil {
				return e, ctx.Err() // it is the outcome's, too
			}
			listed := &Explanation{}
			if err := s.explain(ctx, listed, hides, s.input(list.message, session,
				messageContext{now: s.contextOf(c).now, items: list.items}, nil), s.contextOf(c).now); err != nil {
				return e, ctx.Err()
			}
			e.Effects = append(e.Effects, listed.Effects...)
		}
	}
	return e, nil
}

// explain adds to e what the rules of q say of an input.
func (s *Stage) explain(ctx context.Context, e *Explanation, q ruleQuery, all ast.Value,
	at time.Time) error {
	sets, t, err := q.trace(ctx, all, at, rego.EvalRuleIndexing(false), rego.EvalEarlyExit(false))
	if err != nil { // maybe of a function that is not come to otherwise
		sets, t, err = q.trace(ctx, all, at)
	}
	if err != nil {
		return err
	}
	for i, r := range q.rules {
		given := map[*ast.Rule]bool{}
		sets[i].Foreach(func(v *ast.Term) {
			for _, x := range t.order {
				if !x.produced(r, v) {
					continue
				}
				if !slices.ContainsFunc(e.Effects, func(f Effect) bool {
					return f.is(x.rule) && f.Value == compact(v.Value)
				}) {
					e.Effects = append(e.Effects, Effect{Rule: r.name, Effect: r.effect,
						Value: compact(v.Value), Shadow: s.shadow || r.shadow,
						File: x.rule.Location.File, Line: x.rule.Location.Row,
						Reads: s.readBy(x.rule, all)})
				}
				given[x.rule] = true
			}
		})
		for _, x := range t.order {
			if x.isRule(r) && !given[x.rule] {
				given[x.rule] = true
				e.NotMatched = append(e.NotMatched, Effect{Rule: r.name, Effect: r.effect, Value: x.failedExpression(),
					Shadow: s.shadow || r.shadow, File: x.rule.Location.File,
					Line: x.rule.Location.Row})
			}
		}
	}
	return nil
}

// traceTimeout is how long a traced evaluation may take: many times what the policies may.
const traceTimeout = 20 * time.Second

func (q *ruleQuery) trace(ctx context.Context, input ast.Value, at time.Time,
	how ...rego.EvalOption) ([]ast.Set, *tracer, error) {
	ctx, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	t := &tracer{rules: map[uint64]*tracedRule{}}
	sets, err := q.eval(ctx, input, at, append(how, rego.EvalQueryTracer(t))...)
	return sets, t, err
}

func (f Effect) is(r *ast.Rule) bool {
	return f.File == r.Location.File && f.Line == r.Location.Row
}

// tracedRule is one evaluation of a rule.
type tracedRule struct {
	rule   *ast.Rule
	values []ast.Value
	last   *ast.Expr // the last expression of its own that did not hold
}

func (x *tracedRule) isRule(r effectRule) bool {
	return x.rule.Module.Package.Path.String()+"."+r.effect == r.ref &&
		x.rule.Head.Ref()[0].String() == r.effect
}

func (x *tracedRule) produced(r effectRule, v *ast.Term) bool {
	return x.isRule(r) && slices.ContainsFunc(x.values, func(a ast.Value) bool {
		return a.Compare(v.Value) == 0
	})
}

func (x *tracedRule) failedExpression() string {
	if x.last == nil || x.last.Location == nil {
		return ""
	}
	line, _, _ := strings.Cut(string(x.last.Location.Text), "\n")
	return fmt.Sprintf("%s:%d: %s", x.last.Location.File, x.last.Location.Row, line)
}

// tracer notes which rules gave what, and where the others stopped.
type tracer struct {
	rules map[uint64]*tracedRule // by query
	order []*tracedRule
}

// Enabled implements topdown.QueryTracer.
func (*tracer) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (*tracer) Config() topdown.TraceConfig { return topdown.TraceConfig{PlugLocalVars: true} }

// TraceEvent implements topdown.QueryTracer.
func (t *tracer) TraceEvent(e topdown.Event) {
	switch n := e.Node.(type) {
	case *ast.Rule:
		x := t.rules[e.QueryID]
		if x == nil || x.rule != n {
			x = &tracedRule{rule: n}
			t.rules[e.QueryID] = x
			t.order = append(t.order, x)
		}
		if e.Op != topdown.ExitOp || n.Head.Key == nil {
			return
		}
		v, err := ast.TransformVars(n.Head.Key.Copy().Value, func(v ast.Var) (ast.Value, error) {
			if at := e.Locals.Get(v); at != nil {
				return at, nil
			}
			return v, nil
		})
		if key, ok := v.(ast.Value); ok && err == nil {
			x.values = append(x.values, key)
		}
	case *ast.Expr:
		if x := t.rules[e.QueryID]; x != nil && e.Op == topdown.FailOp {
			x.last = n
		}
	}
}

// maxReadBytes is how much is shown of what a rule read.
const maxReadBytes = 120 // bytes

// readBy is what a rule, and those that it uses, read of the input.
func (s *Stage) readBy(r *ast.Rule, input ast.Value) (all []Read) {
	rules, seen := []*ast.Rule{r}, map[*ast.Rule]bool{r: true}
	for i := 0; i < len(rules); i++ {
		for d := range s.graph.Dependencies(rules[i]) {
			if d, ok := d.(*ast.Rule); ok && !seen[d] {
				seen[d] = true
				rules = append(rules, d)
			}
		}
		ast.WalkRefs(rules[i], func(ref ast.Ref) bool {
			ground := ref.GroundPrefix()
			if !ref.HasPrefix(ast.InputRootRef) || len(ground) < 2 {
				return false
			}
			one := Read{Ref: ground.String()}
			if v, err := input.Find(ground[1:]); err == nil {
				if one.Value = compact(v); len(one.Value) > maxReadBytes {
					one.Value = strings.ToValidUTF8(one.Value[:maxReadBytes], "") + "…"
				}
			}
			if !slices.Contains(all, one) {
				all = append(all, one)
			}
			return false
		})
	}
	slices.SortFunc(all, func(a, b Read) int { return strings.Compare(a.Ref, b.Ref) })
	return all
}

// compact is a value as JSON in a line.
func compact(v ast.Value) string {
	native, err := ast.JSON(v)
	if err != nil {
		return v.String()
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(native); err != nil {
		return v.String()
	}
	return strings.TrimSuffix(b.String(), "\n")
}
