package pii

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
	"gatekit/plugins/sdk/scan"
)

//go:embed schema.json
var schema []byte

// Plugin is the plugin "pii".
func Plugin() sdk.Plugin {
	return sdk.Plugin{
		Name:    "pii",
		Version: "1.0.0",
		Doc: "finds personal data: e-mail and IP addresses, phone numbers, cards, bank " +
			"accounts, national ids",
		Needs:  sdk.Needs{Body: true},
		Schema: schema,
		New: func(config []byte) (sdk.Stage, error) {
			s, err := parseConfig(config)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		SelfTest: canary,
	}
}

// stage is a configuration in use.
type stage struct {
	finder       finder
	treatments   [numKinds]treatment
	placeholders placeholderMaker
	decode       bool
	directions   []mcp.Direction
}

// Wants implements sdk.StageWithWants.
func (s *stage) Wants() pipeline.Wants { return pipeline.Wants{Directions: s.directions} }

// maxFindings bounds what is recorded of one message; what is done about it has no bound.
const maxFindings = 100

// Inspect implements sdk.Stage.
func (s *stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	if len(s.directions) > 0 && !slices.Contains(s.directions, m.Direction) {
		return sdk.Allow(), nil
	}
	var (
		found summary
		cost  = &messageCost{ctx: ctx}
		cuts  []scan.Redaction
		err   error
	)
	scan.Texts(m, func(t scan.Text) bool {
		if err = ctx.Err(); err != nil {
			return false
		}
		var hits []detection
		if hits, err = s.findInText(cost, t); err != nil {
			return false
		}
		if len(hits) == 0 || isProtocolValue(m, t) {
			return true
		}
		for _, h := range hits {
			found.add(h, t)
			switch s.treatments[h.kind].action {
			case "block":
				found.block = true
			case "redact":
				cuts = append(cuts, scan.Redaction{Text: t, Span: h.Span,
					Replacement: s.replacement(h)})
			}
		}
		return true
	})
	switch {
	case err != nil:
		return sdk.Verdict{}, fmt.Errorf("look for personal data: %w", err)
	case found.total == 0:
		return sdk.Allow(), nil
	case found.block:
		return sdk.Deny("personal data: "+found.String(), found.findings...), nil
	case len(cuts) == 0:
		v := sdk.Allow()
		v.Reason, v.Findings = "personal data: "+found.String(), found.findings
		return v, nil
	}
	if at := routingPointer(m, cuts); at != "" {
		return sdk.Deny(fmt.Sprintf("personal data: %s; %s says where the message goes and "+
			"cannot be redacted", found.String(), at), found.findings...), nil
	}
	edits, err := scan.Redact(m, cuts)
	if err != nil {
		return sdk.Verdict{}, err
	}
	return sdk.Modify("personal data: "+found.String(), edits, found.findings...), nil
}

// findInText answers what is in a text. What was found in an encoded run has the run's place, so
// those may overlap: scan.Redact makes one cut of them.
func (s *stage) findInText(cost *messageCost, t scan.Text) ([]detection, error) {
	plain := t.Value
	if t.Kind == mcp.NumberLeaf {
		plain = integerForm(plain)
	}
	hits, err := s.finder.findAll(cost, plain, t.Leaf)
	if err != nil {
		return nil, err
	}
	if t.Kind == mcp.NumberLeaf {
		for i := range hits {
			hits[i].From, hits[i].To = 0, len(t.Value) // a number goes as a whole
		}
	}
	if !s.decode {
		return hits, nil
	}
	seen := len(hits)
	t.Decoded(func(text string, at scan.Span) bool {
		var inside []detection
		if inside, err = s.finder.findAll(cost, text, t.Leaf); err != nil {
			return false
		}
		for _, h := range inside {
			h.Span = at
			// What stands there in clear is cut there; the rest of the run may stay.
			if !slices.ContainsFunc(hits[:seen], func(p detection) bool {
				return p.From >= at.From && p.To <= at.To && p.value == h.value
			}) {
				hits = append(hits, h)
			}
		}
		return true
	})
	return hits, err
}

// isProtocolValue says that a text is the protocol's own: a number of an exchange or a place in a
// list, that whoever made it must get back as it was.
func isProtocolValue(m *mcp.Message, t scan.Text) bool {
	switch t.MemberName() {
	case "progressToken", "requestId", "cursor", "nextCursor", "requestState", "taskId",
		"protocolVersion":
	case "code":
		return m.Kind == mcp.Error && t.Pointer() == "/code"
	default:
		return false
	}
	switch t.Pointer() {
	case "/progressToken", "/_meta/progressToken", "/requestId", "/nextCursor", "/requestState",
		"/taskId", "/protocolVersion":
		return true
	case "/cursor":
		method, _ := mcp.LookupMethod(m.Method)
		return method.ItemsPointer != ""
	}
	return false
}

// routingPointer is the first of the places of cuts that says where m goes; "" when there is none.
func routingPointer(m *mcp.Message, cuts []scan.Redaction) string {
	if m.Kind != mcp.Request && m.Kind != mcp.Notification {
		return ""
	}
	method, _ := mcp.LookupMethod(m.Method)
	for _, c := range cuts {
		at := c.Text.Pointer()
		if c.Text.Kind != mcp.NameLeaf && (at == method.NamePointer ||
			method.Route == mcp.RouteByReference &&
				(at == "/ref/name" || at == "/ref/uri" || at == "/ref/type")) {
			return at
		}
	}
	return ""
}

// summary is what was found in a message.
type summary struct {
	findings []pipeline.Finding
	counts   [numKinds]int
	total    int
	block    bool
}

func (s *summary) add(h detection, t scan.Text) {
	s.total++
	s.counts[h.kind]++
	if len(s.findings) < maxFindings {
		s.findings = append(s.findings, pipeline.Finding{Type: h.findingType, Pointer: t.Pointer()})
	}
}

// String says how many of what: "2 email, 1 card".
func (s *summary) String() string {
	var parts []string
	for k, n := range s.counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind(k)))
		}
	}
	return strings.Join(parts, ", ")
}
