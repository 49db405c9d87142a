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

	"gatekit/core/mcp"
	"gatekit/core/pipeline"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Explanation has the reasons for the verdict on a message.
type Explanation struct {
	Input   []byte // the whole input, as JSON that ParseCase accepts
	Effects []Effect
	// the rules that had no effect; Line is the first line of the rule, and Value is the expression
	// that failed
	NotMatched []Effect
	Outcome    pipeline.Outcome
}

// Effect is one effect of one rule on a message.
type Effect struct {
	Rule   string // its name as in the configuration: roots/traversal
	Effect string // deny, hide, …
	// the element of the rule's set, as JSON; in Explanation.NotMatched, the source of the
	// expression that failed, with file and line
	Value  string
	Shadow bool // recorded, and not enforced
	File   string
	Line   int
	Reads  []Read // the members of the input that are read by the rule or by the rules that it uses
}

// Read is a member of the input, with its value as JSON. Value is "" when the member is absent.
type Read struct{ Ref, Value string }

// Explain evaluates a case like Evaluate, and also returns the rules that caused the outcome. To
// find these rules, it evaluates the policies a second time, without the optimizations that skip
// rules. If this evaluation fails or takes too long, Explain returns an error, unless the outcome
// has an error too.
func (s *Stage) Explain(ctx context.Context, c *Case) (*Explanation, error) {
	session := s.sessions.session(c.Message)
	session.setState(c.Message, c.state, s.contextOf(c).now)
	// Inspect counts a message before it makes the input. Do the same here.
	undoCount, ok := session.countCall(c.Message, s.contextOf(c).now, true)
	if !ok {
		return nil, errors.New("the session has called too many different tools to count its calls")
	}
	input := s.input(c.Message, session, s.contextOf(c), nil)
	undoCount()
	inputJSON, err := toJSON(input)
	if err != nil {
		return nil, err
	}
	class := s.classOf(c.Message, session, s.contextOf(c)) // Evaluate changes the session
	e := &Explanation{Input: inputJSON, Outcome: s.Evaluate(ctx, c)}
	err = s.explainEffects(ctx, e, c, session, class, input)
	switch {
	case ctx.Err() != nil:
		return e, ctx.Err()
	case err == nil || e.Outcome.Err != nil:
		return e, nil
	}
	verdict := e.Outcome.Action
	if e.Outcome.Reason != "" {
		verdict += ": " + e.Outcome.Reason
	}
	return e, fmt.Errorf("the verdict is %q, but its reasons are not known: %w", verdict, err)
}

// explainEffects adds the effects of all rules on a case to e. class and input are those of the
// case's message.
func (s *Stage) explainEffects(ctx context.Context, e *Explanation, c *Case, session *session,
	class messageClass, input ast.Value) error {
	mc := s.contextOf(c)
	if err := s.explain(ctx, e, s.all, class, input, mc.now); err != nil {
		return err
	}
	canonical, err := canonicalMessage(c.Message)
	if err != nil {
		return err
	}
	if canonical != nil {
		class := s.classOf(canonical, session, mc)
		if err := s.explain(ctx, e, s.all, class, s.input(canonical, session, mc, nil),
			mc.now); err != nil {
			return err
		}
	}
	// Add the effects of hide rules on a list of the items that the message uses.
	hides := s.hideQuery(c.Message)
	if len(hides.rules) == 0 {
		return nil
	}
	for _, u := range session.itemUses(c.Message) {
		list, err := session.listUsed(c.Message, u, nil)
		if err != nil {
			return err
		}
		listed := &Explanation{}
		class := s.selector.classOf(mcp.ToClient, mcp.Response, u.list, c.Message.Server, "")
		if err := s.explain(ctx, listed, hides, class, s.input(list.message, session,
			messageContext{now: mc.now, items: list.items, describer: c.Message}, nil),
			mc.now); err != nil {
			return err
		}
		e.Effects = append(e.Effects, listed.Effects...)
	}
	return nil
}

// explain evaluates the rules of q for an input of a class, and adds their effects to e.
func (s *Stage) explain(ctx context.Context, e *Explanation, q ruleQuery, class messageClass,
	input ast.Value, now time.Time) error {
	sets, t, err := q.trace(ctx, input, now, rego.EvalRuleIndexing(false),
		rego.EvalEarlyExit(false))
	if err != nil {
		// A function may have failed in a rule that is not evaluated for a live message. Try again
		// with the rules that are.
		selected, err := s.selector.query(q, class)
		if err != nil {
			return err
		}
		if q = *selected; len(q.rules) == 0 {
			return nil
		}
		if sets, t, err = q.trace(ctx, input, now); err != nil {
			return err
		}
	}
	for i, r := range q.rules {
		reported := map[*ast.Rule]bool{}
		sets[i].Foreach(func(v *ast.Term) {
			for _, x := range t.order {
				if !x.produced(r, v) {
					continue
				}
				if !slices.ContainsFunc(e.Effects, func(f Effect) bool {
					return f.isOf(x.rule) && f.Value == compact(v.Value)
				}) {
					e.Effects = append(e.Effects, Effect{Rule: r.name, Effect: r.effect,
						Value: compact(v.Value), Shadow: s.shadow || r.shadow,
						File: x.rule.Location.File, Line: x.rule.Location.Row,
						Reads: s.readBy(x.rule, input)})
				}
				reported[x.rule] = true
			}
		})
		for _, x := range t.order {
			if x.isRule(r) && !reported[x.rule] {
				reported[x.rule] = true
				e.NotMatched = append(e.NotMatched, Effect{Rule: r.name, Effect: r.effect,
					Value:  x.failedExpression(),
					Shadow: s.shadow || r.shadow, File: x.rule.Location.File,
					Line: x.rule.Location.Row})
			}
		}
	}
	return nil
}

// traceTimeout bounds a traced evaluation. It is many times the policies' own time limit.
const traceTimeout = 20 * time.Second

// trace evaluates a query with a tracer.
func (q *ruleQuery) trace(ctx context.Context, input ast.Value, now time.Time,
	options ...rego.EvalOption) ([]ast.Set, *tracer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, traceTimeout,
		fmt.Errorf("the traced evaluation took more than %v", traceTimeout))
	defer cancel()
	t := &tracer{rules: map[uint64]*tracedRule{}}
	sets, err := q.eval(ctx, input, now, append(options, rego.EvalQueryTracer(t))...)
	return sets, t, err
}

// isOf reports whether the effect comes from a rule.
func (f Effect) isOf(r *ast.Rule) bool {
	return f.File == r.Location.File && f.Line == r.Location.Row
}

// tracedRule is one evaluation of a rule.
type tracedRule struct {
	rule   *ast.Rule
	values []ast.Value
	last   *ast.Expr // the expression in the rule's body that failed last
}

// isRule reports whether x is an evaluation of the effect rule r.
func (x *tracedRule) isRule(r effectRule) bool {
	return x.rule.Module.Package.Path.String()+"."+r.effect == r.ref &&
		x.rule.Head.Ref()[0].String() == r.effect
}

// produced reports whether the evaluation x added the value v to the set of the effect rule r.
func (x *tracedRule) produced(r effectRule, v *ast.Term) bool {
	return x.isRule(r) && slices.ContainsFunc(x.values, func(a ast.Value) bool {
		return a.Compare(v.Value) == 0
	})
}

// failedExpression returns the expression that failed, with file and line.
func (x *tracedRule) failedExpression() string {
	if x.last == nil || x.last.Location == nil {
		return ""
	}
	line, _, _ := strings.Cut(string(x.last.Location.Text), "\n")
	return fmt.Sprintf("%s:%d: %s", x.last.Location.File, x.last.Location.Row, line)
}

// tracer records, for each evaluated rule, the values that it produced and the expression that
// failed last.
type tracer struct {
	rules map[uint64]*tracedRule // by the id of the query that evaluates the rule's body
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

// maxReadBytes bounds Read.Value.
const maxReadBytes = 120

// readBy returns the members of the input that are read by a rule or by the rules that it uses.
func (s *Stage) readBy(r *ast.Rule, input ast.Value) (reads []Read) {
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
			read := Read{Ref: ground.String()}
			if v, err := input.Find(ground[1:]); err == nil {
				if read.Value = compact(v); len(read.Value) > maxReadBytes {
					read.Value = strings.ToValidUTF8(read.Value[:maxReadBytes], "") + "…"
				}
			}
			if !slices.Contains(reads, read) {
				reads = append(reads, read)
			}
			return false
		})
	}
	slices.SortFunc(reads, func(a, b Read) int { return strings.Compare(a.Ref, b.Ref) })
	return reads
}

// compact returns a value as JSON on one line.
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
