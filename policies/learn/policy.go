package learn

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Policy is a learned policy.
type Policy struct {
	Statements []Statement // sorted by Rule
	Requests   int         // the honest requests that it was learned from
	Flagged    int         // requests left out: something was found in them or their answers
	Principals int
	Validation Validation
}

// Statement is one learned rule, in a file of its own.
type Statement struct {
	Rule    string    `json:"rule"`  // as in records: learned/files/read_text_file/arguments
	Title   string    `json:"title"` // what the rule allows
	File    string    `json:"file"`  // relative to the folder of the policy
	Count   int       `json:"count"` // requests
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Records []uint64  `json:"records"` // the first records and the last one
	// Principals is the number of principals; FewPrincipals is what one principal alone accounts
	// for, while the statement has at least three: values, folders, hosts, characters, and numbers
	// beyond the head-room of the others. It may come from an attacker who acted while the log was
	// written.
	Principals    int      `json:"principals"`
	FewPrincipals []string `json:"few_principals,omitempty"`

	place                                []any  // see Place; nil for other statements
	body, allowedExample, refusedExample string // Rego
}

// maxLevel is the level at which a statement about a value says nothing but its type and length.
const maxLevel = 2

// policy returns the policy for what was learned. The parameter levels has how much more general
// than at first the statements about values are, by their rules.
func (l *learner) policy(levels map[string]int) *Policy {
	w := &writer{levels: levels, rules: map[string]bool{}}
	w.servers(l)
	for _, server := range slices.Sorted(maps.Keys(l.servers)) {
		w.server(server, l.servers[server])
	}
	slices.SortFunc(w.statements, func(a, b Statement) int { return cmp.Compare(a.Rule, b.Rule) })
	return &Policy{Statements: w.statements, Requests: l.count, Principals: len(l.all.principals)}
}

// writer makes the statements of a policy.
type writer struct {
	levels     map[string]int
	rules      map[string]bool
	statements []Statement
}

var notInRule = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// ruleName returns the name of a rule. Each part is a segment of the name of its package and of its
// file, so characters that are not letters, digits, "_", "." or "-" are replaced.
func ruleName(parts []string) string {
	name := "learned"
	for _, part := range parts {
		clean := strings.TrimLeft(notInRule.ReplaceAllString(part, "_"), ".")
		name += "/" + cmp.Or(clean[:min(len(clean), 80)], "_")
	}
	// a file whose name ends in _test.rego has tests, and its rules are not in force
	if strings.HasSuffix(name, "_test") {
		name += "_"
	}
	return name
}

// rule returns a name that no other rule of the policy has.
func (w *writer) rule(parts ...string) string {
	name := ruleName(parts)
	for n := 2; w.rules[name]; n++ {
		name = fmt.Sprintf("%s-%d", ruleName(parts), n)
	}
	w.rules[name] = true
	return name
}

func (w *writer) add(s Statement, e *evidence) {
	s.File = strings.TrimPrefix(s.Rule, "learned/") + ".rego"
	s.Count, s.First, s.Last = e.count, e.first.UTC(), e.last.UTC()
	s.Records, s.Principals = slices.Clone(e.records), len(e.principals)
	if !slices.Contains(s.Records, e.lastRecord) {
		s.Records = append(s.Records, e.lastRecord)
	}
	w.statements = append(w.statements, s)
}

// ifSeveral returns what only one principal accounts for, if the whole has at least three.
func ifSeveral(whole *evidence, all []string) []string {
	if len(whole.principals) < 3 {
		return nil
	}
	return all
}

// few returns the texts that only one principal accounts for, if the whole has at least three.
func few(whole *evidence, parts map[string]*evidence) (all []string) {
	if len(whole.principals) < 3 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if len(parts[name].principals) == 1 {
			all = append(all, name)
		}
	}
	return all
}

// groupRego defines the group of the principal, as groupOf does.
const groupRego = `
group := trim_space(concat(" ", [input.principal.method, input.principal.issuer]))
`

// principalWith returns the principal of an input in a test.
func principalWith(group string) string {
	method, issuer, _ := strings.Cut(group, " ")
	return fmt.Sprintf(`"principal": {"method": %s, "issuer": %s}`, quote(method), quote(issuer))
}

// allowedByGroup returns the definition of allowed: a set of names for each group.
func allowedByGroup(byGroup map[string][]string) string {
	var b strings.Builder
	b.WriteString("\nallowed := {\n")
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		fmt.Fprintf(&b, "\t%s: {\n", quote(group))
		for _, name := range byGroup[group] {
			fmt.Fprintf(&b, "\t\t%s,\n", quote(name))
		}
		b.WriteString("\t},\n")
	}
	return b.String() + "}\n"
}

// servers makes the statement about the servers that principals use.
func (w *writer) servers(l *learner) {
	byGroup, parts := map[string][]string{}, map[string]*evidence{}
	for _, name := range slices.Sorted(maps.Keys(l.servers)) {
		for group := range l.servers[name].groups {
			byGroup[group] = append(byGroup[group], name)
		}
		parts[name] = &l.servers[name].evidence
	}
	if len(byGroup) == 0 {
		return
	}
	group := slices.Sorted(maps.Keys(byGroup))[0]
	input := `{"direction": "to_server", "kind": "request", "method": "tools/call", ` +
		`"server": %s, ` + principalWith(group) + `}`
	w.add(Statement{Rule: w.rule("servers"), Title: "The servers that principals use",
		FewPrincipals: few(&l.all, parts),
		body: groupRego + allowedByGroup(byGroup) + `
learned if input.server in object.get(allowed, group, set())

deny contains "this group of principals did not use the server" if {
	input.direction == "to_server"
	input.kind == "request"
	input.server
	not learned
}
`,
		allowedExample: fmt.Sprintf(input, quote(byGroup[group][0])),
		refusedExample: fmt.Sprintf(input, `"a server that nobody used"`)}, &l.all)
}

// server makes the statements about one server.
func (w *writer) server(server string, u *serverUse) {
	for method, what := range learnedMethods {
		// without any use, the statement refuses every use
		w.names(server, u, method, what)
	}
	w.asks(server, u)
	w.rate(server, u)
	for _, name := range slices.Sorted(maps.Keys(u.names["tools/call"])) {
		if n := u.names["tools/call"][name]; n.bodies > 0 {
			w.arguments(server, "tools/call", name, n)
		}
	}
}

// names makes the statement about the tools, prompts or resources of a server.
func (w *writer) names(server string, u *serverUse, method, what string) {
	byGroup, parts := map[string][]string{}, map[string]*evidence{}
	group, whole := "", &evidence{principals: map[uint64]bool{}}
	for _, name := range slices.Sorted(maps.Keys(u.names[method])) {
		n := u.names[method][name]
		parts[name] = &n.evidence
		for g := range n.groups {
			byGroup[g], group = append(byGroup[g], name), g
		}
		whole.merge(&n.evidence)
	}
	rule := w.rule(server, what)
	if whole.count == 0 {
		whole = &u.evidence
	}
	input := fmt.Sprintf(`{"direction": "to_server", "kind": "request", "method": %s, `+
		`"server": %s, "name": %%s, `, quote(method), quote(server)) + principalWith(group) + `}`
	s := Statement{Rule: rule, Title: "The " + what + " of the server " + server +
		" that principals use", FewPrincipals: few(whole, parts)}
	definition := allowedByGroup(byGroup)
	if method == "resources/read" && len(byGroup) > 0 {
		patterns := map[string][]string{}
		for g, names := range byGroup {
			patterns[g] = uriPatterns(names)
		}
		definition = allowedByGroup(patterns)
		definition += `
learned if {
	some pattern in object.get(allowed, group, set())
	regex.match(pattern, input.name)
}
`
	} else {
		definition += "\nlearned if input.name in object.get(allowed, group, set())\n"
	}
	s.body = groupRego + definition + fmt.Sprintf(`
deny contains "this group of principals did not use it" if {
	input.direction == "to_server"
	input.kind == "request"
	input.method == %s
	input.server == %s
	not learned
}
`, quote(method), quote(server))
	if group != "" {
		s.allowedExample = fmt.Sprintf(input, quote(byGroup[group][0]))
	}
	s.refusedExample = fmt.Sprintf(input, `"<nobody used this>"`)
	w.add(s, whole)
}

func (e *evidence) merge(o *evidence) {
	e.count += o.count
	if e.first.IsZero() || o.first.Before(e.first) {
		e.first, e.records = o.first, o.records
	}
	if o.last.After(e.last) {
		e.last, e.lastRecord = o.last, o.lastRecord
	}
	maps.Copy(e.principals, o.principals)
}

var digits = regexp.MustCompile(`[0-9]+`)

// uriPatterns returns regular expressions for URIs. URIs that differ only in their numbers have one
// pattern, and so have the URIs below one folder if there are many.
func uriPatterns(uris []string) (patterns []string) {
	seen := map[string]bool{}
	for _, uri := range uris {
		p := "^" + digits.ReplaceAllLiteralString(regexp.QuoteMeta(uri), "[0-9]+") + "$"
		if !seen[p] {
			seen[p] = true
			patterns = append(patterns, p)
		}
	}
	if len(patterns) <= 20 {
		return patterns
	}
	seen, patterns = map[string]bool{}, nil
	for _, uri := range uris {
		folder := uri[:strings.LastIndexAny(uri, "/:")+1]
		p := "^" + digits.ReplaceAllLiteralString(regexp.QuoteMeta(folder), "[0-9]+") +
			`[^/.%?#][^/%?#]*$`
		if !seen[p] {
			seen[p] = true
			patterns = append(patterns, p)
		}
	}
	return patterns
}

// asks makes the statement about what a server may ask of clients.
func (w *writer) asks(server string, u *serverUse) {
	methods := slices.Sorted(maps.Keys(u.asks))
	whole := &evidence{principals: map[uint64]bool{}}
	for _, e := range u.asks {
		whole.merge(e)
	}
	if whole.count == 0 {
		whole = &u.evidence
	}
	input := fmt.Sprintf(`{"direction": "to_client", "kind": "request", "method": %%s, `+
		`"server": %s}`, quote(server))
	s := Statement{Rule: w.rule(server, "asks"), Title: "What the server " + server +
		" asks of clients", FewPrincipals: few(whole, u.asks),
		body: fmt.Sprintf(`
allowed := %s

learned if input.method in allowed

deny contains "the server did not ask this of clients" if {
	input.direction == "to_client"
	input.kind == "request"
	input.server == %s
	input.method != "ping"
	not learned
}
`, setOf(methods), quote(server)),
		refusedExample: fmt.Sprintf(input, `"a/method"`)}
	if len(methods) > 0 {
		s.allowedExample = fmt.Sprintf(input, quote(methods[0]))
	}
	w.add(s, whole)
}

// setOf returns a set of texts in Rego, where {} is an object.
func setOf(all []string) string {
	if len(all) == 0 {
		return "set()"
	}
	quoted := make([]string, len(all))
	for i, s := range all {
		quoted[i] = quote(s)
	}
	return "{" + strings.Join(quoted, ", ") + "}"
}

// rate makes the statement about the calls of a server's tools within a minute.
func (w *writer) rate(server string, u *serverUse) {
	if !u.highest.any {
		return
	}
	most := int(rateBound(u.highest.most))
	var rare []string
	if u.highest.byOne(rateBound) {
		rare = ifSeveral(&u.evidence, []string{fmt.Sprintf("more than %.0f calls a minute",
			rateBound(u.highest.others))})
	}
	input := fmt.Sprintf(`{"direction": "to_server", "kind": "request", "method": "tools/call", `+
		`"server": %s, "name": "x", "session": {"minute": {%s: %%d}}}`, quote(server),
		quote(server+" x"))
	w.add(Statement{Rule: w.rule(server, "rate"), Title: fmt.Sprintf(
		"A session calls the tools of the server %s at most %d times a minute (highest seen: %.0f)",
		server, most, u.highest.most),
		body: fmt.Sprintf(`
most := %d

deny contains "the session calls the server more often than learned" if {
	input.direction == "to_server"
	input.kind == "request"
	input.method == "tools/call"
	input.server == %s
	sum([n | some key, n in input.session.minute; startswith(key, %s)]) > most
}
`, most, quote(server), quote(server+" ")),
		allowedExample: fmt.Sprintf(input, 1),
		refusedExample: fmt.Sprintf(input, most+1), FewPrincipals: rare}, &u.evidence)
}

// rateBound returns a number of calls with head-room.
func rateBound(calls float64) float64 { return 2*calls + 30 }
