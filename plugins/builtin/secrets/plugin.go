package secrets

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
	"gatekit/plugins/sdk/scan"
)

// Plugin returns the built-in plugin "secrets".
func Plugin() sdk.Plugin {
	return sdk.Plugin{
		Name:     "secrets",
		Version:  "1.0.0",
		Doc:      "finds credentials in messages, including encoded ones, and redacts them",
		Needs:    sdk.Needs{Body: true},
		Schema:   schema,
		New:      func(config []byte) (sdk.Stage, error) { return newStage(config) },
		SelfTest: selfTest,
	}
}

// stage is the plugin with one configuration. Many goroutines may use it: only handles changes.
type stage struct {
	config       *config
	rules        *ruleset
	namedEnabled bool // whether the rule "named-secret" applies
	placeholders placeholderMaker
	wants        pipeline.Wants
	handles      *handleTable
}

func newStage(b []byte) (*stage, error) {
	c, err := parseConfig(b)
	if err != nil {
		return nil, err
	}
	sources, everywhere, err := builtinRules()
	if err != nil {
		return nil, err
	}
	if sources, err = c.selectRules(sources); err != nil {
		return nil, err
	}
	s := &stage{config: c, namedEnabled: c.isEnabled(namedID, true),
		placeholders: newPlaceholderMaker(c.Key), handles: newHandleTable()}
	if s.rules, err = newRuleset(sources, everywhere); err != nil {
		return nil, err
	}
	for _, d := range c.Directions {
		s.wants.Directions = append(s.wants.Directions, parseDirection(d))
	}
	return s, nil
}

// Wants implements sdk.StageWithWants.
func (s *stage) Wants() pipeline.Wants { return s.wants }

// Reuse implements sdk.StageWithReuse.
func (s *stage) Reuse() *sdk.Reuse { return &sdk.Reuse{} }

// Inspect implements sdk.Stage.
func (s *stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	in := inspection{stage: s, message: m}
	in.search(ctx)
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, fmt.Errorf("only part of the message was searched: %w",
			context.Cause(ctx))
	}
	if len(in.secrets) == 0 && !in.methodHasSecret {
		return sdk.Allow(), nil
	}
	findings := in.publicFindings()
	rules := ruleNames(findings)
	switch s.config.Action {
	case "audit":
		v := sdk.Allow()
		v.Reason, v.Findings = "found "+rules, findings
		return v, nil
	case "redact":
		if in.methodHasSecret {
			return sdk.Deny("found "+rules+" in the method's name, which cannot be redacted",
				findings...), nil
		}
		edits, problem := in.redact()
		if problem != "" {
			return sdk.Deny("found "+rules+", which cannot be redacted: "+problem,
				findings...), nil
		}
		v := sdk.Modify("redacted "+rules, edits, findings...)
		v.Redacted = in.redacted
		return v, nil
	}
	return sdk.Deny("found "+rules, findings...), nil
}

// ruleNames returns the rules of the findings, sorted and separated by commas.
func ruleNames(findings []pipeline.Finding) string {
	var ids []string
	for _, f := range findings {
		ids = append(ids, f.Type)
	}
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), ", ")
}

// redact returns the edits that replace the secrets by placeholders. If that is not possible, it
// returns the problem, in words for people.
func (in *inspection) redact() (edits []mcp.Edit, problem string) {
	if in.tooManySecrets {
		return nil, "there are too many different secrets"
	}
	var redactions []scan.Redaction
	for _, s := range in.secrets {
		if s.text.Kind != mcp.NameLeaf && in.isRouting(s.pointer) {
			return nil, "the request is routed by " + s.pointer
		}
		redactions = append(redactions, scan.Redaction{Text: s.text,
			Span: scan.Span{From: s.span.from, To: s.span.to}, Replacement: s.placeholder})
	}
	edits, err := scan.Redact(in.message, redactions)
	if err != nil {
		// The error is not passed on: it may hold a secret.
		return nil, "secrets are in member names that cannot be changed, or in more than 100 " +
			"member names"
	}
	if _, err = in.message.Edit(edits...); err != nil {
		return nil, "the redacted message would be invalid"
	}
	return edits, ""
}

// isRouting reports whether the value at the pointer decides where the message goes, so that it
// must not change.
func (in *inspection) isRouting(pointer string) bool {
	if in.message.Kind != mcp.Request && in.message.Kind != mcp.Notification {
		return false
	}
	method, _ := mcp.LookupMethod(in.message.Method)
	switch method.Route {
	case mcp.RouteByReference:
		return strings.HasPrefix(pointer, "/ref/")
	case mcp.RouteByExchange:
		return pointer == "/requestId" || pointer == "/progressToken"
	}
	return pointer == method.NamePointer
}
