package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/uris"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Stage evaluates a fixed set of policies. It implements pipeline.Stage. Apart from its sessions,
// a Stage is immutable: for changed policies, a new Stage is made.
type Stage struct {
	all      ruleQuery  // all rules
	hides    ruleQuery  // the hide rules, which are also evaluated for the use of an item
	ownHides ruleQuery  // the hide rules that are not from the library
	reads    readSet    // the members of the input that any rule reads
	graph    *ast.Graph // the dependencies between rules
	selector *ruleSelector
	files    []string
	shadow   bool
	// whether labels are kept for all sessions of a principal
	labelsByPrincipal bool
	shared            *SharedSessions // nil if there are no other replicas

	contributions []Contribution
	sessions      *SessionStore
	now           func() time.Time

	digest  string
	bundles []*Bundle

	patterns  patterns
	decisions *decisionCache // nil when decisions are not reused
}

// ruleQuery is a set of rules that are evaluated together.
type ruleQuery struct {
	ruleSet ruleSet
	rules   []effectRule
	query   rego.PreparedEvalQuery
	reads   readSet // the members of the input that the rules read; nil means all
	// the rules call a function that may return another value for equal arguments
	nondeterministic bool

	hideReads []hideReads // the members of an item that each enforced hide rule reads
}

// ruleSet identifies the rules from which the rules of a query are selected.
type ruleSet int

const (
	allRules ruleSet = iota
	hideRules
	ownHideRules
)

// effectRule is one effect (deny, hide, ...) of one package.
type effectRule struct {
	ref     string // the rule's reference in Rego: data.gatekit.roots.traversal.deny
	name    string // the rule's package, as the configuration names it: roots/traversal
	effect  string
	shadow  bool
	library bool
}

// effectNames are the names of the rules that have an effect on a message.
var effectNames = []string{"deny", "hide", "redact", "set", "ask", "scope", "label", "note"}

// findEffectRules returns the rules with an effect in the packages below data.gatekit. A rule that
// has the name of an effect, but is not a set, is an error. A rule whose effect can never work is
// an error, too.
func findEffectRules(modules map[string]*ast.Module) (rules []effectRule, err error) {
	var faults []error
	seen := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(modules)) {
		m := modules[file]
		pkg := m.Package.Path
		if len(pkg) < 2 || !pkg[1].Equal(ast.StringTerm("gatekit")) {
			continue
		}
		for _, r := range m.Rules {
			effect := r.Head.Ref()[0].String()
			if !slices.Contains(effectNames, effect) {
				continue
			}
			if r.Head.Key == nil || r.Head.Value != nil || len(r.Head.Ref()) > 1 {
				faults = append(faults, fmt.Errorf("%s:%d: %s must be a set: write `%s contains … "+
					"if …`", file, r.Location.Row, effect, effect))
				continue
			}
			if err := checkEffect(r, effect); err != nil {
				faults = append(faults, fmt.Errorf("%s:%d: %w", file, r.Location.Row, err))
				continue
			}
			ref := pkg.String() + "." + effect
			if seen[ref] {
				continue
			}
			seen[ref] = true
			var segments []string
			for _, t := range pkg[2:] {
				s, _ := t.Value.(ast.String)
				segments = append(segments, string(s))
			}
			rules = append(rules, effectRule{ref: ref, name: strings.Join(segments, "/"),
				effect: effect,
				shadow: isShadow(m), library: strings.HasPrefix(file, "library/")})
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if len(rules) == 0 {
		return nil, errors.New("the policies decide nothing: no package below data.gatekit has " +
			"a rule " + effectList)
	}
	return rules, nil
}

// isShadow reports whether a package's metadata contain custom: {mode: shadow}. The effects of such
// a package are recorded, but not enforced.
func isShadow(m *ast.Module) bool {
	for _, a := range m.Annotations {
		if a.Scope == "package" && a.Custom["mode"] == "shadow" {
			return true
		}
	}
	return false
}

// Files returns the names of the .rego files that are not from the library, including those in
// bundles.
func (s *Stage) Files() []string { return s.files }

// Contributions returns what each file of Files contributes, in the same order.
func (s *Stage) Contributions() []Contribution { return slices.Clone(s.contributions) }

// Bundles returns the bundles among the policies.
func (s *Stage) Bundles() []*Bundle { return slices.Clone(s.bundles) }

// Digest returns a hexadecimal SHA-256 that identifies the policies. It covers the modules, the
// data with the settings of library rules, shadow mode, and whether labels are kept by principal.
// It does not depend on file names, nor on tests.
func (s *Stage) Digest() string { return s.digest }

// Inspect implements pipeline.Stage.
func (s *Stage) Inspect(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	found := pipeline.PriorFindingsFrom(ctx)
	return s.inspect(ctx, m, messageContext{findings: found.Findings, labels: found.Labels,
		now: s.now()})
}

// maxQuickBytes bounds the messages for InspectQuickly: the search for hidden paths in a text that
// is made to slow it down takes about a second for each MiB.
const maxQuickBytes = 128 << 10

// InspectQuickly implements pipeline.QuickStage, for calls of tools for which no rule is evaluated.
func (s *Stage) InspectQuickly(ctx context.Context, m *mcp.Message) (v pipeline.Verdict, ok bool,
	err error) {
	if m.Method != "tools/call" || len(m.Body()) > maxQuickBytes {
		return v, false, nil
	}
	if s.shared != nil { // may wait for the state of the replicas
		return v, false, nil
	}
	found := pipeline.PriorFindingsFrom(ctx)
	mc := messageContext{findings: found.Findings, labels: found.Labels, now: s.now()}
	q, err := s.selector.query(s.all, s.classOf(m, s.sessions.session(m), mc))
	if err != nil || len(q.rules) > 0 {
		return v, false, nil // Inspect returns the error
	}
	hides, err := s.selector.query(s.hideQuery(m), s.selector.classOf(mcp.ToClient, mcp.Response,
		"tools/list", m.Server, ""))
	if err != nil || len(hides.rules) > 0 {
		return v, false, nil
	}
	mc.query = q
	v, err = s.inspect(ctx, m, mc)
	return v, true, err
}

// messageContext has the information that rules get in addition to a message and its session.
type messageContext struct {
	findings    []pipeline.Finding
	labels      []string
	now         time.Time
	bodyMissing bool       // the message comes from a log without bodies
	items       *ast.Array // replaces the items in the body of a list
	tools       []string   // replaces input.tools, when not nil
	// the message that describes the client; nil for the message itself
	describer   *mcp.Message
	knownClient *bool      // replaces input.session.known_client, when not nil
	query       *ruleQuery // the rules that can hold for the message; nil if not known
	replicas    replicaState
}

// inspect returns the verdict for a message. If the message passes, inspect records it in its
// session. The message is counted before the rules are evaluated, so that concurrent calls cannot
// exceed a limit. The count is undone when the message does not pass.
func (s *Stage) inspect(ctx context.Context, m *mcp.Message,
	mc messageContext) (pipeline.Verdict, error) {
	session := s.sessions.session(m)
	state, reason, err := s.share(ctx, session, m, &mc)
	if err != nil || reason != "" && !s.shadow { // in shadow mode, nothing is enforced
		return sharedDenial(reason), err
	}
	mc.replicas = state
	client, reason, err := s.knowClient(ctx, session, m, &mc)
	if err != nil || reason != "" && !s.shadow {
		state.undo(ctx)
		return sharedDenial(reason), err
	}
	if !s.addLabels(session, m, mc.labels) {
		state.undo(ctx)
		return pipeline.Verdict{Reason: "the session has too many labels, or a label is too long"},
			nil
	}
	_, needsMinute := s.reads.below("session").wants("minute")
	undo, ok := session.countCall(m, mc.now, needsMinute)
	if !ok {
		state.undo(ctx)
		return pipeline.Verdict{Reason: "the session has called too many different tools to " +
			"count its calls"}, nil
	}
	v, hidden, err := s.decide(ctx, m, session, mc)
	if err == nil && v.Action != pipeline.Deny && !awaitsApproval(ctx, v) &&
		!s.addLabels(session, m, v.Labels) {
		v = pipeline.Verdict{Action: pipeline.Deny,
			Reason: "the session has too many labels, or a label is too long"}
	}
	if err == nil && v.Action != pipeline.Deny && !awaitsApproval(ctx, v) {
		if reason := s.shareLabels(ctx, m, v.Labels); reason != "" && !s.shadow {
			v = sharedDenial(reason)
		}
	}
	if err == nil && v.Action != pipeline.Deny && !session.recordHidden(m, hidden) {
		v = pipeline.Verdict{Action: pipeline.Deny,
			Reason: "the policies hide too many items of the list to keep them hidden"}
	}
	if err != nil || v.Action == pipeline.Deny || awaitsApproval(ctx, v) {
		undo()
		state.undo(ctx)
		return v, err
	}
	s.recordClient(ctx, session, m, client, mc, v.Labels)
	session.record(withoutHiddenRoots(m, v.Hide), s.principalLabels(m), !s.sharesClients(m))
	s.sessions.evict(session)
	return v, nil
}

// withoutHiddenRoots returns a message without the hidden roots, if it is a client's list of roots.
func withoutHiddenRoots(m *mcp.Message, hidden []string) *mcp.Message {
	if m.Method != "roots/list" || m.Kind != mcp.Response || len(hidden) == 0 {
		return m
	}
	var edits []mcp.Edit
	m.Items("/roots", func(i int, raw []byte) bool {
		if uri, ok := mcp.NewResponse("", raw).Text("/uri"); ok && slices.Contains(hidden, uri) {
			edits = append(edits, mcp.Remove("/roots/"+strconv.Itoa(i)))
		}
		return true
	})
	shown, err := m.Edit(edits...)
	if err != nil {
		return mcp.NewResponse(m.ID(), []byte("{}")) // no root is declared
	}
	return shown
}

// awaitsApproval reports whether a message must wait for a human's approval.
func awaitsApproval(ctx context.Context, v pipeline.Verdict) bool {
	return v.Action == pipeline.Ask && !pipeline.IsApproved(ctx)
}

// decide returns the verdict of the rules that can hold for a message. It does not change the
// session.
func (s *Stage) decide(ctx context.Context, m *mcp.Message, session *session,
	mc messageContext) (pipeline.Verdict, []hiddenItem, error) {
	q, err := mc.query, error(nil)
	if q == nil {
		if q, err = s.selector.query(s.all, s.classOf(m, session, mc)); err != nil {
			return pipeline.Verdict{}, nil, err
		}
	}
	effects, err := s.evaluate(ctx, q, m, func() ast.Value {
		return s.input(m, session, mc, q.reads)
	}, mc.now)
	if err != nil {
		return pipeline.Verdict{}, nil, err
	}
	canonical, err := canonicalMessage(m)
	if err != nil {
		return pipeline.Verdict{}, nil, err
	}
	if canonical != nil {
		more, err := s.evaluateCanonical(ctx, canonical, session, mc)
		if err != nil {
			return pipeline.Verdict{}, nil, err
		}
		effects.merge(more)
	}
	v, err := effects.verdict(m, &s.patterns)
	hideOtherSpellings(m, effects, &v)
	if err == nil {
		err = s.applyHides(ctx, m, session, mc, effects, &v)
	}
	if err != nil {
		return pipeline.Verdict{}, nil, err
	}
	return v, effects.hidden, nil
}

// evaluateCanonical returns the effects of the rules on m, in which URIs have their canonical
// spelling. A rule that denies a URI therefore denies every spelling of the URI. A rule that allows
// only some URIs must allow both the spelling in the message and the canonical spelling.
func (s *Stage) evaluateCanonical(ctx context.Context, m *mcp.Message, session *session,
	mc messageContext) (*decision, error) {
	q, err := s.selector.query(s.all, s.classOf(m, session, mc))
	if err != nil {
		return nil, err
	}
	return s.evaluate(ctx, q, m, func() ast.Value {
		return s.input(m, session, mc, q.reads)
	}, mc.now)
}

// hideOtherSpellings hides the listed resources whose URIs have the same canonical spelling as the
// URI of a hidden resource.
func hideOtherSpellings(m *mcp.Message, effects *decision, v *pipeline.Verdict) {
	meth, _ := mcp.LookupMethod(m.Method)
	if meth.ItemNamePointer != "/uri" || m.Kind != mcp.Response || len(effects.hidden) == 0 {
		return
	}
	hidden := map[string]bool{}
	for _, h := range effects.hidden {
		hidden[uris.Canonical(h.name)] = true
	}
	m.Items(meth.ItemsPointer, func(_ int, raw []byte) bool {
		if uri, ok := mcp.NewResponse("", raw).Text("/uri"); ok && hidden[uris.Canonical(uri)] {
			v.Hide = append(v.Hide, uri)
		}
		return true
	})
}

// evaluate evaluates a query for m and returns the effects of its rules. It calls input only when
// the query has rules.
func (s *Stage) evaluate(ctx context.Context, q *ruleQuery, m *mcp.Message, input func() ast.Value,
	now time.Time) (*decision, error) {
	d := &decision{shadow: s.shadow}
	if len(q.rules) == 0 {
		return d, nil
	}
	sets, err := s.decisions.eval(ctx, q, m, input(), now)
	if err != nil {
		return nil, err
	}
	for i, r := range q.rules {
		if err := sets[i].Iter(func(t *ast.Term) error { return d.add(r, t) }); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// eval returns the Rego set of each rule of the query. If ctx ends first, eval returns
// context.Cause(ctx) as the error.
func (q *ruleQuery) eval(ctx context.Context, input ast.Value, now time.Time,
	more ...rego.EvalOption) ([]ast.Set, error) {
	// Cancel the evaluation when ctx ends. OPA itself would start a goroutine for this each time.
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	results, err := q.query.Eval(ctx, append(more, rego.EvalExternalCancel(cancel),
		rego.EvalParsedInput(input), rego.EvalTime(now), rego.EvalGenerateJSON(func(t *ast.Term,
			_ *rego.EvalContext) (any, error) {
			return t, nil
		}))...)
	switch {
	case topdown.IsCancel(err) && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("evaluate the policies: %w", err)
	case len(results) != 1:
		return nil, fmt.Errorf("the policies returned %d results, want 1", len(results))
	}
	t, ok := results[0].Bindings["x"].(*ast.Term)
	if !ok {
		return nil, errors.New("the policies returned no result")
	}
	values, ok := t.Value.(*ast.Array)
	if !ok || values.Len() != len(q.rules) {
		return nil, errors.New("the policies did not return one value for each rule")
	}
	sets := make([]ast.Set, len(q.rules))
	for i, r := range q.rules {
		if sets[i], ok = values.Elem(i).Value.(ast.Set); !ok {
			return nil, fmt.Errorf("%s is not a set", r.ref)
		}
	}
	return sets, nil
}
