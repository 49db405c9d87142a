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

// Plugin returns the built-in plugin "pii".
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
		SelfTest: selfTest,
	}
}

// stage is the plugin with one configuration. It is immutable, so that many goroutines may use it.
type stage struct {
	finder       finder
	treatments   [numKinds]treatment
	placeholders placeholderMaker
	decode       bool
	directions   []mcp.Direction // an empty list means both
}

// Wants implements sdk.StageWithWants.
func (s *stage) Wants() pipeline.Wants { return pipeline.Wants{Directions: s.directions} }

// Reuse implements sdk.StageWithReuse.
func (s *stage) Reuse() *sdk.Reuse { return &sdk.Reuse{} }

// maxFindings limits the findings of one message. The number of redactions is not limited.
const maxFindings = 100

// Inspect implements sdk.Stage.
func (s *stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	if len(s.directions) > 0 && !slices.Contains(s.directions, m.Direction) {
		return sdk.Allow(), nil
	}
	var (
		found      summary
		search     = search{finder: &s.finder}
		unchanged  = unchangedPlaces{message: m}
		redactions []scan.Redaction
		err        error
	)
	scan.Texts(m, func(t scan.Text) bool {
		if err = ctx.Err(); err != nil {
			return false
		}
		var detections []detection
		if detections, err = s.findInText(ctx, &search, t); err != nil {
			return false
		}
		if len(detections) == 0 || isProtocolValue(m, t) {
			return true
		}
		for _, d := range detections {
			found.add(d, t)
			switch s.treatments[d.kind].action {
			case "block":
				found.block = true
			case "redact":
				if unchanged.contains(t) {
					found.unchanged++
					continue
				}
				redactions = append(redactions, scan.Redaction{Text: t, Span: d.Span,
					Replacement: s.replacement(d)})
			}
		}
		return true
	})
	switch {
	case err != nil:
		return sdk.Verdict{}, fmt.Errorf("search for personal data: %w", err)
	case found.total == 0:
		return sdk.Allow(), nil
	}
	reason := "personal data: " + found.String()
	switch {
	case found.block:
		return sdk.Deny(reason, found.findings...), nil
	case len(redactions) == 0:
		v := sdk.Allow()
		v.Reason, v.Findings = reason, found.findings
		return v, nil
	}
	edits, err := scan.Redact(m, redactions)
	if err != nil {
		return sdk.Verdict{}, err
	}
	return sdk.Modify(reason, edits, found.findings...), nil
}

// findInText returns the personal data in a text. Data in an encoded run has the span of the run,
// so spans may overlap: scan.Redact merges them.
func (s *stage) findInText(ctx context.Context, search *search,
	t scan.Text) ([]detection, error) {
	plain := t.Value
	if t.Kind == mcp.NumberLeaf {
		plain = integerForm(plain)
	}
	detections, err := search.findAll(ctx, plain, t.Leaf)
	if err != nil {
		return nil, err
	}
	if t.Kind == mcp.NumberLeaf {
		for i := range detections { // a number is redacted as a whole
			detections[i].From, detections[i].To = 0, len(t.Value)
		}
	}
	if s.decode && t.MayBeEncoded() {
		return search.findEncoded(ctx, t, detections)
	}
	return detections, nil
}

// findEncoded appends the personal data in the encoded runs of a text to detections, which has the
// data that is not encoded.
func (search *search) findEncoded(ctx context.Context, t scan.Text,
	detections []detection) (all []detection, err error) {
	unencoded := len(detections)
	t.Decoded(func(text string, run scan.Span) bool {
		var inRun []detection
		if inRun, err = search.findAll(ctx, text, t.Leaf); err != nil {
			return false
		}
		for _, d := range inRun {
			d.Span = run
			// d redacts the whole run. If the same value was also found without decoding, d is left
			// out: then only the value is redacted.
			if !slices.ContainsFunc(detections[:unencoded], func(p detection) bool {
				return p.From >= run.From && p.To <= run.To && p.value == d.value
			}) {
				detections = append(detections, d)
			}
		}
		return true
	})
	return detections, err
}

// isProtocolValue reports whether a text is an identifier or a cursor of the protocol. Its sender
// must get such a value back unchanged.
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

// unchangedPlaces has the places of a message in which nothing is redacted: definitions, names and
// URIs. A client sends names and URIs back as they were listed, and a changed definition would not
// describe its tool.
type unchangedPlaces struct {
	message *mcp.Message
	names   map[string]bool // the names and URIs in the message; nil until they are needed
}

// contains reports whether the text is in such a place.
func (u *unchangedPlaces) contains(t scan.Text) bool {
	pointer := t.Pointer()
	if list := definitionsPointer(u.message); list != "" && strings.HasPrefix(pointer, list) {
		return true
	}
	if t.Kind != mcp.StringLeaf {
		return false
	}
	if u.names == nil {
		u.names = map[string]bool{}
		mcp.RewriteNames(u.message, func(_ mcp.NamePlace, name string) (string, error) {
			u.names[name] = true
			return name, nil
		})
	}
	// IsIdentifier takes a pass over the message for the URI of a content block, so a message with
	// many URIs would take quadratic time. The map has these URIs.
	return u.names[t.Value] || (t.MemberName() != "uri" || u.message.Method == "roots/list") &&
		mcp.IsIdentifier(u.message, pointer)
}

// definitionsPointer returns the beginning of the pointers of all definitions of tools, prompts,
// resources, resource templates and skills in m. It returns "" if m has none.
func definitionsPointer(m *mcp.Message) string {
	if m.Kind != mcp.Response || m.Direction != mcp.ToClient {
		return ""
	}
	method, _ := mcp.LookupMethod(m.Method)
	switch {
	case m.Method == "skills/get":
		return "/skill/"
	case method.ItemsPointer != "" && m.Method != "tasks/list": // tasks are no definitions
		return method.ItemsPointer + "/"
	}
	return ""
}

// summary counts the personal data in a message.
type summary struct {
	findings []pipeline.Finding // up to maxFindings
	counts   [numKinds]int
	total    int
	// how many values are not redacted because of their place
	unchanged int
	block     bool // the message must be denied
}

func (s *summary) add(d detection, t scan.Text) {
	s.total++
	s.counts[d.kind]++
	if len(s.findings) < maxFindings {
		s.findings = append(s.findings, pipeline.Finding{Type: d.findingType, Pointer: t.Pointer()})
	}
}

// String returns the counts for people, as in "2 email, 1 card (1 in names, URIs or definitions,
// which are not redacted)".
func (s *summary) String() string {
	var parts []string
	for k, n := range s.counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind(k)))
		}
	}
	text := strings.Join(parts, ", ")
	if s.unchanged > 0 {
		text += fmt.Sprintf(" (%d in names, URIs or definitions, which are not redacted)",
			s.unchanged)
	}
	return text
}
