package learn

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// step leads from a value to a value in it: the name of a member, or all items of an array.
type step struct {
	name  string
	items bool
}

// arguments makes the statements about the arguments of one tool.
func (w *writer) arguments(server, method, name string, n *nameUse) {
	a := &argumentWriter{writer: w, server: server, method: method, name: name}
	a.members(&n.arguments, nil)
}

// argumentWriter makes the statements about the arguments of one tool.
type argumentWriter struct {
	*writer
	server, method, name string
}

// members makes the statement about the names of the members of an object, and the statements about
// their values.
func (a *argumentWriter) members(s *shape, path []step) {
	if s.open {
		return // names that differ in each request are values themselves
	}
	names := slices.Sorted(maps.Keys(s.members))
	parts := map[string]*evidence{}
	for _, name := range names {
		parts[name] = &s.members[name].evidence
	}
	kind := "arguments"
	if len(path) > 0 {
		kind = "members"
	}
	a.statement(path, kind, "The names of the arguments", &s.evidence,
		few(&s.evidence, parts), fmt.Sprintf(`
names := %s

allowed(value) if {
	is_object(value)
	count(object.keys(value) - names) == 0
}
`, setOf(names)), s.example, `{"an argument that nobody used": 1}`)
	for _, name := range names {
		a.value(s.members[name], append(slices.Clone(path), step{name: name}))
	}
}

// value makes the statements about one value.
func (a *argumentWriter) value(s *shape, path []step) {
	var clauses strings.Builder
	parts := map[string]*evidence{}
	var rare []string // what one principal accounts for
	rule := ruleName(a.parts(path, "argument"))
	for _, kind := range slices.Sorted(maps.Keys(s.types)) {
		switch kind {
		case "string":
			clauses.WriteString(s.texts.clause(a.levels[rule]))
			if s.texts.isEnumeration() && a.levels[rule] == 0 {
				for text, v := range s.texts.values {
					parts[text] = &v.evidence
				}
			} else {
				rare = append(rare, s.texts.few()...)
			}
		case "number":
			low, high := s.numbers.bounds()
			rare = append(rare, s.numbers.few()...)
			clauses.WriteString(fmt.Sprintf("\nallowed(value) if {\n\tis_number(value)\n"+
				"\tvalue >= %.0f\n\tvalue <= %.0f\n", low, high))
			// beyond, floats have no fractions, and Rego does not compare them as floats
			if s.numbers.fractions == 0 && max(-low, high) < 1<<53 {
				clauses.WriteString("\tvalue == floor(value)\n")
			}
			clauses.WriteString("}\n")
		case "array":
			fmt.Fprintf(&clauses, "\nallowed(value) if {\n\tis_array(value)\n\tcount(value) <= "+
				"%.0f\n}\n", itemsBound(s.maxItems.most))
			if s.maxItems.byOne(itemsBound) {
				rare = append(rare, fmt.Sprintf("more than %.0f items",
					itemsBound(s.maxItems.others)))
			}
		default:
			fmt.Fprintf(&clauses, "\nallowed(value) if is_%s(value)\n", kind)
		}
	}
	refused := `{"an object": 1}`
	if s.types["object"] > 0 {
		refused = "17"
		if s.types["number"] > 0 {
			refused = "[[[]]]"
		}
	}
	a.statement(path, "argument", "The values of the argument "+pointer(path), &s.evidence,
		append(few(&s.evidence, parts), ifSeveral(&s.evidence, rare)...), clauses.String(),
		s.example, refused)
	if s.items != nil {
		a.value(s.items, append(slices.Clone(path), step{items: true}))
	}
	if s.types["object"] > 0 {
		a.members(s, path)
	}
}

// pointer returns a path as text: edits[].oldText.
func pointer(path []step) string {
	var b strings.Builder
	for _, s := range path {
		switch {
		case s.items:
			b.WriteString("[]")
		case b.Len() > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}

func (a *argumentWriter) parts(path []step, kind string) []string {
	parts := []string{a.server, a.name, kind}
	if len(path) > 0 {
		var names []string
		for _, s := range path {
			if s.items {
				names = append(names, "items")
			} else {
				names = append(names, s.name)
			}
		}
		parts = append(parts, strings.Join(names, "."))
	}
	return parts
}

// statement adds a statement. definition defines the function allowed.
func (a *argumentWriter) statement(path []step, kind, title string, e *evidence, few []string,
	definition string, example any, refused string) {
	var find strings.Builder
	at := `object.get(input.params, "arguments", {})`
	if len(path) > 0 {
		at = "input.params.arguments"
	}
	for i, s := range path {
		if s.items {
			fmt.Fprintf(&find, "\tsome at%d in %s\n", i, at)
			at = fmt.Sprintf("at%d", i)
		} else {
			at += "[" + quote(s.name) + "]"
		}
	}
	body := definition + fmt.Sprintf(`
values contains value if {
%s	value := %s
}

deny contains "the argument is not like the learned ones" if {
	input.direction == "to_server"
	input.kind == "request"
	input.method == %s
	input.server == %s
	input.name == %s
	some value in values
	not allowed(value)
}
`, find.String(), at, quote(a.method), quote(a.server), quote(a.name))
	input := func(value string) string {
		for _, s := range slices.Backward(path) {
			if s.items {
				value = "[" + value + "]"
			} else {
				value = "{" + quote(s.name) + ": " + value + "}"
			}
		}
		return fmt.Sprintf(`{"direction": "to_server", "kind": "request", "method": %s, `+
			`"server": %s, "name": %s, "params": {"arguments": %s}}`, quote(a.method),
			quote(a.server), quote(a.name), value)
	}
	st := Statement{Rule: a.rule(a.parts(path, kind)...), FewPrincipals: few, body: body,
		Title:          title + " of the tool " + a.server + "/" + a.name,
		refusedExample: input(refused), place: []any{}}
	for _, s := range path {
		if s.items {
			st.place = append(st.place, true)
		} else {
			st.place = append(st.place, s.name)
		}
	}
	if raw, err := marshal(example); err == nil && len(raw) <= maxValueBytes {
		st.allowedExample = input(escape(raw))
	}
	a.add(st, e)
}

// clause returns the clause of the function allowed for texts.
func (t *texts) clause(level int) string {
	if level == 0 && t.isEnumeration() {
		var b strings.Builder
		b.WriteString("\nallowed(value) if {\n\tvalue in {\n")
		for _, text := range slices.Sorted(maps.Keys(t.values)) {
			fmt.Fprintf(&b, "\t\t%s,\n", quote(text))
		}
		return b.String() + "\t}\n}\n"
	}
	lines := []string{"is_string(value)"}
	bound := lengthBound(t.maxLength.most)
	if level >= maxLevel {
		bound *= 4
	}
	lines = append(lines, fmt.Sprintf("count(value) <= %.0f", bound))
	if level < maxLevel {
		lines = append(lines, "regex.match("+rawQuote(t.pattern())+", value)")
	}
	switch {
	case t.paths == t.count:
		lines = append(lines, t.pathLines(level)...)
	case t.urls == t.count:
		var hosts []string
		for h := range t.hosts {
			hosts = append(hosts, regexp.QuoteMeta(h))
		}
		slices.Sort(hosts)
		lines = append(lines, "regex.match("+rawQuote("^(?i:"+strings.Join(hosts, "|")+
			")([/?#]|$)")+", value)")
	case !t.embedded.any:
		lines = append(lines, `not contains(value, "://")`)
	}
	if !t.parents.any {
		lines = append(lines, "not regex.match("+rawQuote(`(^|[/\\])\.\.([/\\]|$)`)+", value)")
	}
	return "\nallowed(value) if {\n\t" + strings.Join(lines, "\n\t") + "\n}\n"
}

// pathLines returns the conditions for absolute paths.
func (t *texts) pathLines(level int) (lines []string) {
	var roots []string
	for _, r := range slices.Sorted(maps.Keys(t.roots())) {
		roots = append(roots, regexp.QuoteMeta(strings.TrimSuffix(r, "/")))
	}
	lines = append(lines, "regex.match("+rawQuote("^("+strings.Join(roots, "|")+")(/|$)")+
		", value)")
	if !t.dots.any {
		lines = append(lines, "not regex.match("+rawQuote(`(^|/)\.`)+", value)")
	}
	if level == 0 && len(t.extensions) <= 12 && t.count >= 8*len(t.extensions) &&
		t.newExt <= t.count/2 {
		var exts []string
		for e := range t.extensions {
			exts = append(exts, regexp.QuoteMeta(e))
		}
		slices.Sort(exts)
		// the name without its extension has no dot, or the extension is one of these
		lines = append(lines, "regex.match("+rawQuote(`(^|/)([^/]*[^/.])?(`+
			strings.Join(exts, "|")+`)/*$`)+", value)")
	}
	return lines
}
