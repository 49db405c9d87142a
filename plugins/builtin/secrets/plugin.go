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

// Plugin is the built-in plugin "secrets".
func Plugin() sdk.Plugin {
	return sdk.Plugin{
		Name:     "secrets",
		Version:  "1.0.0",
		Doc:      "finds credentials in messages, also encoded ones, and takes them out",
		Needs:    sdk.Needs{Body: true},
		Schema:   schema,
		New:      func(config []byte) (sdk.Stage, error) { return newStage(config) },
		SelfTest: canary,
	}
}

// stage is the plugin in use. It is not changed after it was made.
type stage struct {
	config       *config
	rules        *ruleset
	namedEnabled bool
	placeholders placeholderMaker
	wants        pipeline.Wants
}

func newStage(b []byte) (*stage, error) {
	c, err := parseConfig(b)
	if err != nil {
		return nil, err
	}
	all, everywhere, err := builtinRules()
	if err != nil {
		return nil, err
	}
	if all, err = c.selectRules(all); err != nil {
		return nil, err
	}
	s := &stage{config: c, namedEnabled: c.isEnabled(namedID, true),
		placeholders: newPlaceholderMaker(c.Key)}
	if s.rules, err = newRuleset(all, everywhere); err != nil {
		return nil, err
	}
	for _, d := range c.Directions {
		s.wants.Directions = append(s.wants.Directions, parseDirection(d))
	}
	return s, nil
}

// Wants implements sdk.StageWithWants.
func (s *stage) Wants() pipeline.Wants { return s.wants }

// Inspect implements sdk.Stage.
func (s *stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	l := inspection{stage: s, ctx: ctx, message: m}
	inMethod := l.inspectMethod()
	scan.Texts(m, func(t scan.Text) bool {
		l.inspectText(t)
		return ctx.Err() == nil
	})
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, fmt.Errorf("not all of the message was looked at: %w",
			context.Cause(ctx))
	}
	if len(l.secrets) == 0 && !inMethod {
		return sdk.Allow(), nil
	}
	findings := l.publicFindings()
	what := ruleNames(findings)
	switch s.config.Action {
	case "audit":
		v := sdk.Allow()
		v.Reason, v.Findings = "found "+what, findings
		return v, nil
	case "redact":
		if inMethod {
			return sdk.Deny("found "+what+" in the name of the method, which cannot be changed",
				findings...), nil
		}
		edits, reason := l.redact()
		if reason != "" {
			return sdk.Deny("found "+what+", which cannot be taken out: "+reason, findings...), nil
		}
		return sdk.Modify("took out "+what, edits, findings...), nil
	}
	return sdk.Deny("found "+what, findings...), nil
}

// ruleNames names the rules of the findings.
func ruleNames(findings []pipeline.Finding) string {
	var ids []string
	for _, f := range findings {
		ids = append(ids, f.Type)
	}
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), ", ")
}

// redact answers the edits that take the secrets out, or why that cannot be.
func (l *inspection) redact() (edits []mcp.Edit, reason string) {
	var cuts []scan.Redaction
	for _, s := range l.secrets {
		if s.text.Kind != mcp.NameLeaf && l.isRouting(s.pointer) {
			return nil, "it stands where the message says where it goes"
		}
		cuts = append(cuts, scan.Redaction{Text: s.text, Span: scan.Span{From: s.span.from,
			To: s.span.to},
			Replacement: s.placeholder})
	}
	edits, err := scan.Redact(l.message, cuts)
	if err != nil {
		// the error may hold some of them
		return nil, "names of members cannot be changed, or not so many"
	}
	if _, err = l.message.Edit(edits...); err != nil {
		return nil, "the message would not be valid"
	}
	return edits, ""
}

// isRouting says whether the value at the pointer tells where the message goes, so that it must
// stay.
func (l *inspection) isRouting(pointer string) bool {
	if l.message.Kind != mcp.Request && l.message.Kind != mcp.Notification {
		return false
	}
	method, _ := mcp.LookupMethod(l.message.Method)
	switch method.Route {
	case mcp.RouteByReference:
		return strings.HasPrefix(pointer, "/ref/")
	case mcp.RouteByExchange:
		return pointer == "/requestId" || pointer == "/progressToken"
	}
	return pointer == method.NamePointer
}

// canary is a tool's arguments, or its result, with a key in them.
func canary(b []byte) *sdk.SelfTest {
	c, err := parseConfig(b)
	if err != nil {
		return nil
	}
	for _, try := range []struct{ rule, what, secret string }{
		// not in one piece, lest those who look for secrets in source find them
		{"aws-access-token", "an AWS access key", "AKIA" + "Q7Z2XN4VLHPK3M6T"},
		{"github-pat", "a GitHub token", "ghp" + "_x7Kq2Lw9Rt4Zp8Vb3Nm6Yc1Hd5Jf0SgAuE2i"},
		{"private-key", "a private key",
			"-----BEGIN " + "PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\\n-----END " +
				"PRIVATE KEY-----"},
	} {
		if !c.isEnabled(try.rule, true) {
			continue
		}
		m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"canary","arguments":{"note":"`+
			try.secret+`"}}`))
		what := try.what + " in a tool's arguments"
		m.Direction = mcp.ToServer
		if !slices.Contains(c.Directions, mcp.ToServer.String()) {
			request := m
			m = mcp.NewResponse("1", []byte(`{"content":[{"type":"text","text":"`+try.secret+
				`"}]}`))
			m.Direction, m.Method, m.Request = mcp.ToClient, "tools/call", request
			what = try.what + " in a tool's result"
		}
		m.Server, m.Name = "canary", "canary"
		action := map[string]pipeline.Action{"redact": pipeline.Modify, "block": pipeline.Deny,
			"audit": pipeline.Allow}[c.Action]
		return &sdk.SelfTest{Description: what, Message: m, Action: action}
	}
	return nil
}
