package policies

import (
	"fmt"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk/scan"

	"github.com/open-policy-agent/opa/v1/ast"
)

// decision collects the effects of all rules on one message. Deny takes precedence over ask, ask
// over hide, and hide over redact and set.
type decision struct {
	shadow bool // effects are noted and not enforced

	denies, asks []string // reasons
	hidden       []hiddenItem
	redactions   []redaction
	sets         []setEdit
	labels       []string
	notes        []string // for the audit record only
}

// hiddenItem is a name that a rule hides.
type hiddenItem struct{ by, name string }

// setEdit is an edit by a set rule.
type setEdit struct {
	by   string
	edit mcp.Edit
}

// redaction replaces the value at a pointer, or what matches a pattern. One of both is empty.
type redaction struct {
	by, pointer, pattern, with string
}

// add adds one element of a rule's set. An element of the wrong type is an error, which denies the
// message.
func (d *decision) add(r effectRule, t *ast.Term) error {
	text, isText := t.Value.(ast.String)
	fields, isObject := t.Value.(ast.Object)
	wrong := func(want string) error {
		return fmt.Errorf("%s: %s contains an element of type %s, want %s", r.name, r.effect,
			ast.TypeName(t.Value), want)
	}
	if (r.shadow || d.shadow) && r.effect != "note" && r.effect != "label" {
		d.notes = append(d.notes, "would "+r.effect+": "+r.name+": "+t.String())
		return nil
	}
	switch r.effect {
	case "deny", "ask":
		reason := string(text)
		if isObject {
			reason, isText = member(fields, "reason")
		}
		if !isText {
			return wrong(`reasons, or objects with a "reason"`)
		}
		reason = r.name + ": " + reason
		if r.effect == "deny" {
			d.denies = append(d.denies, reason)
		} else {
			d.asks = append(d.asks, reason)
		}
	case "hide":
		if !isText {
			return wrong("names")
		}
		d.hidden = append(d.hidden, hiddenItem{r.name, string(text)})
	case "redact":
		if !isObject {
			return wrong(`objects with a "path" or a "pattern", and "with"`)
		}
		red := redaction{by: r.name}
		var at, what, with bool
		red.pointer, at = member(fields, "path")
		red.pattern, what = member(fields, "pattern")
		red.with, with = member(fields, "with")
		if at == what || !with {
			return wrong(`objects with a "path" or a "pattern", and "with"`)
		}
		d.redactions = append(d.redactions, red)
	case "set":
		path, ok := "", false
		if isObject {
			path, ok = member(fields, "path")
		}
		value := ast.Value(nil)
		if ok {
			if v := fields.Get(ast.StringTerm("value")); v != nil {
				value = v.Value
			}
		}
		if value == nil {
			return wrong(`objects with a "path" and a "value"`)
		}
		raw, err := toJSON(value)
		if err != nil {
			return fmt.Errorf("%s: set: %w", r.name, err)
		}
		d.sets = append(d.sets, setEdit{r.name, mcp.Set(path, raw)})
	case "label":
		if !isText {
			return wrong("words")
		}
		d.labels = append(d.labels, string(text))
	case "note":
		d.notes = append(d.notes, r.name+": "+t.String())
	}
	return nil
}

// member returns the text in a member of an object.
func member(o ast.Object, name string) (string, bool) {
	t := o.Get(ast.StringTerm(name))
	if t == nil {
		return "", false
	}
	s, ok := t.Value.(ast.String)
	return string(s), ok
}

// toJSON returns a Rego value as JSON.
func toJSON(v ast.Value) ([]byte, error) {
	native, err := ast.JSON(v)
	if err != nil {
		return nil, err
	}
	return marshal(native)
}

// maxNoteBytes is the length to which notes are cut, because policies can put anything into them.
const maxNoteBytes = 300 // bytes

// verdict combines the effects into a verdict.
func (d *decision) verdict(m *mcp.Message, patterns *patterns) (pipeline.Verdict, error) {
	v := pipeline.Verdict{Action: pipeline.Allow, Labels: d.labels}
	for _, n := range d.notes {
		v.Findings = append(v.Findings, pipeline.Finding{Type: n[:min(len(n), maxNoteBytes)]})
	}
	switch {
	case len(d.denies) > 0:
		slices.Sort(d.denies)
		v.Action, v.Reason = pipeline.Deny, strings.Join(d.denies, "; ")
		return v, nil
	case len(d.asks) > 0 && (m.Kind != mcp.Request || m.Direction != mcp.ToServer):
		v.Action, v.Reason = pipeline.Deny,
			d.asks[0]+" (only requests to servers can be approved: add input.direction == "+
				"\"to_server\" and input.kind == \"request\" to the rule)"
		return v, nil
	}
	edits, by, err := d.edits(m, patterns)
	if err != nil {
		return pipeline.Verdict{}, err
	}
	v.Edits, v.Reason = edits, strings.Join(by, "; ")
	for _, h := range d.hidden {
		v.Hide = append(v.Hide, h.name)
	}
	switch {
	case len(d.asks) > 0:
		slices.Sort(d.asks)
		v.Action, v.Reason = pipeline.Ask, "needs approval: "+strings.Join(d.asks, "; ")
	case len(edits) > 0:
		v.Action = pipeline.Modify
	}
	return v, nil
}

// edits returns the edits of set and redact, and the names of the rules that make them. Where both
// name the same value, it is redacted.
func (d *decision) edits(m *mcp.Message,
	patterns *patterns) (edits []mcp.Edit, by []string, err error) {
	covered := map[string]bool{}
	within := func(at string) bool {
		for p := range covered {
			if at == p || strings.HasPrefix(at, p+"/") || strings.HasPrefix(p, at+"/") {
				return true
			}
		}
		return false
	}
	// outer values first: redacting one also redacts the values inside it
	for _, r := range slices.SortedStableFunc(slices.Values(d.redactions),
		func(a, b redaction) int { return len(a.pointer) - len(b.pointer) }) {
		if !slices.Contains(by, r.by) {
			by = append(by, r.by)
		}
		if r.pointer == "" || within(r.pointer) {
			continue
		}
		if _, there := m.Get(r.pointer); there {
			covered[r.pointer] = true
			edits = append(edits, mcp.Set(r.pointer, mcp.Quote(r.with)))
		}
	}
	for _, s := range d.sets {
		if !within(s.edit.Pointer) {
			covered[s.edit.Pointer] = true
			edits = append(edits, s.edit)
			if !slices.Contains(by, s.by) {
				by = append(by, s.by)
			}
		}
	}
	var cuts []scan.Redaction
	for _, r := range d.redactions {
		if r.pattern == "" {
			continue
		}
		re, err := patterns.compiled(r.pattern)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: redact: %w", r.by, err)
		}
		scan.Texts(m, func(t scan.Text) bool {
			if t.Kind == mcp.NumberLeaf || within(t.Pointer()) {
				return true
			}
			for _, at := range re.FindAllStringIndex(t.Value, -1) {
				cuts = append(cuts, scan.Redaction{Text: t, Span: scan.Span{From: at[0], To: at[1]},
					Replacement: r.with})
			}
			return true
		})
	}
	if len(cuts) == 0 {
		return edits, by, nil
	}
	if len(edits) == 0 {
		edits, err = scan.Redact(m, cuts)
		return edits, by, err
	}
	more, err := scan.Redact(m, cuts)
	// a member's name was redacted, which replaces the whole body: apply the edits to that body
	if err == nil && len(more) == 1 && more[0].Pointer == "" {
		var next *mcp.Message
		if next, err = m.Edit(more...); err == nil {
			if next, err = next.Edit(edits...); err == nil {
				return []mcp.Edit{mcp.Set("", next.Body())}, by, nil
			}
		}
	}
	return append(edits, more...), by, err
}
