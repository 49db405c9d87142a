package policies

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk/scan"

	"github.com/open-policy-agent/opa/v1/ast"
)

// decision collects the effects of all rules on one message. Deny takes precedence over ask, and
// ask takes precedence over the other effects.
type decision struct {
	shadow bool // effects are only recorded as notes, and not enforced

	denies, asks []string // reasons
	hidden       []hiddenItem
	redactions   []redaction
	sets         []setEdit
	scopes       []string // that the principal's access token must have
	labels       []string
	notes        []string // for the audit record only
	final        bool     // a rule contributed that no allowance may change

	would *decision // the effects that are not enforced; nil if there are none
}

// hiddenItem is a name that a rule hides.
type hiddenItem struct{ rule, name string }

// setEdit is an edit by a set rule.
type setEdit struct {
	rule string
	edit mcp.Edit
}

// redaction replaces the value at a pointer, or all matches of a pattern. One of pointer and
// pattern is empty.
type redaction struct {
	rule, pointer, pattern, replacement string
}

// isFinal reports whether no allowance of an operator may change an effect of the rule. The rules
// below roots and sandbox are bounds that a user sets, and not findings that may be wrong.
func isFinal(rule string) bool {
	return strings.HasPrefix(rule, "roots/") || strings.HasPrefix(rule, "sandbox/")
}

// merge adds the effects of o that d does not have.
func (d *decision) merge(o *decision) {
	d.final = d.final || o.final
	d.denies, d.asks = union(d.denies, o.denies), union(d.asks, o.asks)
	d.hidden, d.redactions = union(d.hidden, o.hidden), union(d.redactions, o.redactions)
	d.scopes = union(d.scopes, o.scopes)
	d.labels, d.notes = union(d.labels, o.labels), union(d.notes, o.notes)
	if d.would == nil {
		d.would = o.would
	} else if o.would != nil {
		d.would.merge(o.would)
	}
	for _, s := range o.sets {
		if !slices.ContainsFunc(d.sets, func(e setEdit) bool {
			return e.edit.Pointer == s.edit.Pointer
		}) {
			d.sets = append(d.sets, s)
		}
	}
}

// union returns the elements of a, followed by the elements of b that are not in a.
func union[T comparable](a, b []T) []T {
	known := map[T]bool{}
	for _, x := range a {
		known[x] = true
	}
	for _, x := range b {
		if !known[x] {
			known[x] = true
			a = append(a, x)
		}
	}
	return a
}

// add adds the effect that an element t describes. The element is from the Rego set that the rule r
// returned. An element of the wrong type is an error, which denies the message.
func (d *decision) add(r effectRule, t *ast.Term) error {
	text, isText := t.Value.(ast.String)
	fields, isObject := t.Value.(ast.Object)
	wrong := func(want string) error {
		return fmt.Errorf("%s: %s contains an element of type %s, want %s", r.name, r.effect,
			ast.TypeName(t.Value), want)
	}
	if (r.shadow || d.shadow) && r.effect != "note" && r.effect != "label" {
		d.notes = append(d.notes, "would "+r.effect+": "+r.name+": "+t.String())
		if d.would == nil {
			d.would = &decision{}
		}
		r.shadow = false
		if err := d.would.add(r, t); err != nil {
			d.would.denies = append(d.would.denies, err.Error())
		}
		return nil
	}
	if r.effect != "note" && r.effect != "label" && isFinal(r.name) {
		d.final = true
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
			return wrong(redactMembers)
		}
		red := redaction{rule: r.name}
		var hasPath, hasPattern, hasReplacement bool
		red.pointer, hasPath = member(fields, "path")
		red.pattern, hasPattern = member(fields, "pattern")
		red.replacement, hasReplacement = member(fields, "with")
		if hasPath == hasPattern || !hasReplacement {
			return wrong(redactMembers)
		}
		if hasPath && !strings.HasPrefix(red.pointer, "/") {
			return fmt.Errorf(`%s: redact: the path %q must begin with "/"`, r.name, red.pointer)
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
		if !strings.HasPrefix(path, "/") {
			return fmt.Errorf(`%s: set: the path %q must begin with "/"`, r.name, path)
		}
		raw, err := toJSON(value)
		if err != nil {
			return fmt.Errorf("%s: set: %w", r.name, err)
		}
		d.sets = append(d.sets, setEdit{r.name, mcp.Set(path, raw)})
	case "scope":
		if !isText || !isScope(string(text)) {
			return wrong("scopes of OAuth")
		}
		d.scopes = append(d.scopes, string(text))
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

// isScope reports whether a text is one scope (RFC 6749, section 3.3).
func isScope(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r < '!' || r > '~' || r == '"' || r == '\\'
	})
}

// redactMembers describes the valid elements of a redact rule, for an error message.
const redactMembers = `objects that have "with", and either "path" or "pattern"`

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
	return json.Marshal(native)
}

// maxNoteBytes bounds a note in a finding, because a policy can make a note of any length. Longer
// notes are cut.
const maxNoteBytes = 300

// verdict combines the effects into a verdict.
func (d *decision) verdict(m *mcp.Message, patterns *patterns) (pipeline.Verdict, error) {
	v := pipeline.Verdict{Action: pipeline.Allow, Labels: d.labels, Final: d.final}
	for _, note := range d.notes {
		v.Findings = append(v.Findings, pipeline.Finding{Type: note[:min(len(note), maxNoteBytes)]})
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
	if lacking := d.lackingScopes(m); len(lacking) > 0 {
		slices.Sort(d.scopes)
		v.Action, v.Final, v.Scopes = pipeline.Deny, true, d.scopes
		v.Reason = "the access token lacks the scopes " + strings.Join(lacking, ", ")
		if m.Kind != mcp.Request || m.Direction != mcp.ToServer {
			v.Scopes = nil
			v.Reason = "scopes can only be demanded of requests to servers: add input.direction " +
				"== \"to_server\" and input.kind == \"request\" to the rule scope"
		}
		return v, nil
	}
	if d.would != nil {
		would, err := d.would.verdict(m, patterns)
		if err != nil {
			would = pipeline.Verdict{Action: pipeline.Deny, Reason: err.Error()}
		}
		if would.Reason == "" {
			var rules []string
			for _, h := range d.would.hidden {
				rules = append(rules, h.rule)
			}
			slices.Sort(rules)
			would.Reason = strings.Join(slices.Compact(rules), "; ")
		}
		v.Would = &would
	}
	edits, rules, err := d.edits(m, patterns)
	if err != nil {
		return pipeline.Verdict{}, err
	}
	v.Edits, v.Reason = edits, strings.Join(rules, "; ")
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

// lackingScopes returns the scopes that the rules demand and m's principal does not have, sorted.
// For a message that is not a request to a server, it returns all scopes, because its sender cannot
// get more scopes.
func (d *decision) lackingScopes(m *mcp.Message) (lacking []string) {
	for _, s := range d.scopes {
		if m.Kind != mcp.Request || m.Direction != mcp.ToServer || !m.Principal.HasScope(s) {
			lacking = append(lacking, s)
		}
	}
	slices.Sort(lacking)
	return lacking
}

// edits returns the edits of the set and redact rules, and the names of these rules. If a set rule
// and a redact rule name the same value, the value is redacted.
func (d *decision) edits(m *mcp.Message,
	patterns *patterns) (edits []mcp.Edit, rules []string, err error) {
	edited := map[string]bool{}
	overlapsEdit := func(pointer string) bool {
		for p := range edited {
			if pointer == p || strings.HasPrefix(pointer, p+"/") || strings.HasPrefix(p,
				pointer+"/") {
				return true
			}
		}
		return false
	}
	// Outer values come first: the redaction of an outer value also redacts the values inside it.
	for _, r := range slices.SortedStableFunc(slices.Values(d.redactions),
		func(a, b redaction) int { return len(a.pointer) - len(b.pointer) }) {
		if !slices.Contains(rules, r.rule) {
			rules = append(rules, r.rule)
		}
		if r.pattern != "" || overlapsEdit(r.pointer) {
			continue
		}
		if _, there := m.Get(r.pointer); there {
			edited[r.pointer] = true
			edits = append(edits, mcp.Set(r.pointer, mcp.Quote(r.replacement)))
		}
	}
	for _, s := range d.sets {
		if !overlapsEdit(s.edit.Pointer) {
			edited[s.edit.Pointer] = true
			edits = append(edits, s.edit)
			if !slices.Contains(rules, s.rule) {
				rules = append(rules, s.rule)
			}
		}
	}
	var textRedactions []scan.Redaction
	for _, r := range d.redactions {
		if r.pattern == "" {
			continue
		}
		re, err := patterns.compiled(r.pattern)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: redact: %w", r.rule, err)
		}
		scan.Texts(m, func(t scan.Text) bool {
			if t.Kind == mcp.NumberLeaf || overlapsEdit(t.Pointer()) {
				return true
			}
			spans := re.FindAllStringIndex(t.Value, -1)
			if len(spans) > 0 && t.Kind == mcp.StringLeaf && mcp.IsIdentifier(m, t.Pointer()) {
				return true // the peer needs the identifier; a pattern does not redact it
			}
			for _, span := range spans {
				textRedactions = append(textRedactions, scan.Redaction{Text: t,
					Span:        scan.Span{From: span[0], To: span[1]},
					Replacement: r.replacement})
			}
			return true
		})
	}
	if len(textRedactions) == 0 {
		return edits, rules, nil
	}
	if len(edits) == 0 {
		edits, err = scan.Redact(m, textRedactions)
		return edits, rules, err
	}
	more, err := scan.Redact(m, textRedactions)
	// If a member's name was redacted, more has only one edit, which replaces the whole body. Apply
	// edits to that body.
	if err == nil && len(more) == 1 && more[0].Pointer == "" {
		var redacted *mcp.Message
		if redacted, err = m.Edit(more...); err == nil {
			if redacted, err = redacted.Edit(edits...); err == nil {
				return []mcp.Edit{mcp.Set("", redacted.Body())}, rules, nil
			}
		}
	}
	return append(edits, more...), rules, err
}
