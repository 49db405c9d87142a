package secrets

import (
	"context"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk/scan"
)

// inspection is the search of one message for secrets.
type inspection struct {
	*stage
	message *mcp.Message
	found   []foundText // the texts with secrets, in the order of the message
	texts   int         // the number of texts that were searched by the rules
	secrets []secret    // made of found when all texts were searched
	// tooManySecrets is set if the copies of some secrets were not searched.
	tooManySecrets  bool
	methodHasSecret bool
	// redactedNames maps the pointer of each member whose name holds a secret to the name with
	// placeholders, escaped for a JSON pointer. Findings show that name.
	redactedNames map[string]string
	methodRules   []string // the rules that found a secret in the method's name

	redacted   []pipeline.Redacted // the values that Gatekit may restore
	restorable map[string]bool     // their placeholders

	// label is the last text that may name the value beside it, as in
	// {"name": "DB_PASSWORD", "value": …}.
	label           scan.Text
	lastName        string // the last name of a member that was looked up in nameWords
	lastNameMatches bool   // whether lastName holds a word of an assignment rule
}

// secret is a part of a text that is to be redacted.
type secret struct {
	text        scan.Text
	pointer     string
	rule        string
	span        span
	placeholder string
}

// candidate is a detection before allow entries are applied and overlaps are merged.
type candidate struct {
	detection
	value string // the secret itself: the text of the span, decoded if it is encoded
}

// search finds all secrets of the message. First the rules are applied to each text. Then all texts
// are searched for copies of the secrets that the rules found.
func (in *inspection) search(ctx context.Context) {
	if in.isMethodSearched() {
		for _, d := range in.rules.find(ctx, in.message.Method, nil) {
			in.methodRules = append(in.methodRules, d.rule)
		}
		in.methodHasSecret = len(in.methodRules) > 0
	}
	scan.Texts(in.message, func(t scan.Text) bool {
		in.inspectText(ctx, t)
		return ctx.Err() == nil
	})
	if len(in.found) == 0 || ctx.Err() != nil {
		return
	}
	in.addCopies(ctx)
	for _, f := range in.found {
		in.addSecrets(f)
	}
}

// isDefinition reports whether the message holds definitions of tools and other items. Passwords in
// definitions are examples, and a definition must not change.
func (in *inspection) isDefinition() bool {
	return in.message.Kind == mcp.Response && strings.HasSuffix(in.message.Method, "/list")
}

// isCursorInText reports whether the value at s[i] is that of a cursor in a text: the name before
// it is one of a cursor.
func isCursorInText(s string, i int) bool {
	isOperator := func(c byte) bool { return c == ':' || c == '=' || c == '>' }
	from, hasOperator := i, false
	for from > 0 && i-from < maxOpening && (isOperator(s[from-1]) ||
		byteClasses[s[from-1]]&openingByte != 0) {
		from--
		hasOperator = hasOperator || isOperator(s[from])
	}
	return hasOperator && from > 0 && classifyName(nameAround(s, from-1).substring(s)) == cursorName
}

// isMethodSearched reports whether the name of the message's method is searched: the specification
// does not define the method, so its name can hold anything.
func (in *inspection) isMethodSearched() bool {
	if in.message.Kind != mcp.Request && in.message.Kind != mcp.Notification {
		return false
	}
	_, known := mcp.LookupMethod(in.message.Method)
	return !known
}

// addSecrets adds the secrets of a text to in.secrets, with their placeholders.
func (in *inspection) addSecrets(f foundText) {
	name, copied := strings.Builder{}, 0
	for _, c := range f.secrets {
		s := secret{f.text, f.pointer, c.rule, c.span,
			in.placeholder(c, c.span.substring(f.text.Value))}
		in.secrets = append(in.secrets, s)
		name.WriteString(f.text.Value[copied:c.span.from] + s.placeholder)
		copied = c.span.to
	}
	if f.text.Kind == mcp.NameLeaf {
		if in.redactedNames == nil {
			in.redactedNames = make(map[string]string)
		}
		in.redactedNames[f.pointer] = mcp.EscapePointer(name.String() + f.text.Value[copied:])
	}
}

// inspectText searches one text of the message in three ways: unchanged, decoded, and together with
// the name of its member. In a cursor, which the next request must repeat, weak detections and
// tokens of the form JWT are ignored.
func (in *inspection) inspectText(ctx context.Context, t scan.Text) {
	in.texts++
	var all []candidate
	var buffer [8]detection
	for _, d := range in.rules.find(ctx, t.Value, buffer[:0]) {
		all = append(all, candidate{d, d.span.substring(t.Value)})
	}
	isCursor := false
	if t.Kind != mcp.NameLeaf {
		isCursor, all = in.inspectMember(ctx, t, all)
	}
	if in.config.Entropy.Enabled && !isCursor && t.Kind != mcp.NumberLeaf {
		for _, word := range in.config.Entropy.randomWords(t.Value) {
			all = append(all, candidate{detection{entropyID, word, true},
				word.substring(t.Value)})
		}
	}
	if in.config.Decode && t.MayBeEncoded() {
		all = in.inspectDecoded(ctx, t, all)
	}
	all = dropPlaceholders(all, t.Value)
	if in.isDefinition() {
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.rule == namedID })
	}
	if len(all) > 0 {
		isCursor = isCursor ||
			t.Kind != mcp.NameLeaf && classifyName(t.MemberName()) == cursorName
		all = slices.DeleteFunc(all, func(c candidate) bool {
			return (c.weak || c.rule == "jwt") &&
				(isCursor || isCursorInText(t.Value, c.span.from))
		})
	}
	if len(all) == 0 {
		if in.message.Direction == mcp.ToClient && !mcp.HasDefinitions(in.message) &&
			isHandle(t) {
			in.handles.add(in.message, t.Value)
		}
		return
	}
	pointer := t.Pointer()
	all = slices.DeleteFunc(all, func(c candidate) bool {
		return in.isAllowed(c, pointer) || c.weak && in.message.Direction == mcp.ToServer &&
			in.handles.has(in.message, c.value)
	})
	if len(all) > 0 {
		in.found = append(in.found, foundText{in.texts, t, pointer, mergeOverlapping(all)})
	}
}

// inspectDecoded searches the encoded runs of a text, and returns all with the new candidates. A
// secret in percent-encoding has a span of its own. A secret in base64 has the span of the whole
// run.
func (in *inspection) inspectDecoded(ctx context.Context, t scan.Text,
	all []candidate) []candidate {
	t.Decoded(func(plain string, at scan.Span) bool {
		secrets := in.rules.find(ctx, plain, nil)
		if len(secrets) == 0 {
			return ctx.Err() == nil
		}
		run := span{at.From, at.To}
		offsets := percentOffsets(t.Value, run, plain)
		for _, d := range secrets {
			encoded := run
			if offsets != nil {
				encoded = span{offsets[d.span.from], offsets[d.span.to]}
			}
			all = append(all, candidate{detection{d.rule, encoded, d.weak},
				d.span.substring(plain)})
		}
		return ctx.Err() == nil
	})
	return all
}

// inspectMember searches a value together with the name of its member, and returns all with the new
// candidates. isProtocolValue reports whether the value belongs to the protocol and is random by
// design.
func (in *inspection) inspectMember(ctx context.Context, t scan.Text,
	all []candidate) (isProtocolValue bool, more []candidate) {
	name := t.MemberName()
	if name == "" {
		return false, all
	}
	if protocolMembers[name] && isProtocolPointer(t.Pointer()) {
		return true, all
	}
	if name == "value" && in.label.Value != "" {
		if parentPointer(in.label.Pointer()) == parentPointer(t.Pointer()) {
			name = in.label.Value
		}
	}
	if t.Kind == mcp.StringLeaf && labelMembers[name] && len(t.Value) <= maxNameLength {
		in.label = t
	}
	if len(name) > maxNameLength || len(t.Value) < 4 {
		return false, all
	}
	if in.lastName != name {
		in.lastName, in.lastNameMatches = name, in.rules.nameWords.containsAny(name)
	}
	if in.lastNameMatches {
		assignment := name + `="` + t.Value[:min(len(t.Value), maxContext)]
		if len(t.Value) <= maxContext {
			assignment += `"`
		}
		before := len(name) + len(`="`)
		for _, d := range in.rules.find(ctx, assignment, nil) {
			value := span{d.span.from - before, d.span.to - before}
			if value.from >= 0 && value.to <= len(t.Value) {
				all = append(all, candidate{detection{d.rule, value, d.weak},
					value.substring(t.Value)})
			}
		}
	}
	if in.namedEnabled && isNamedSecret(name, t.Value) {
		all = append(all, candidate{detection{namedID, span{0, len(t.Value)}, true}, t.Value})
	}
	return false, all
}

// maxNameLength is the length of the longest name, in bytes, that is read together with its value.
const maxNameLength = 128

// labelMembers are the members whose value names the member "value" beside them.
var labelMembers = map[string]bool{"name": true, "key": true, "header": true, "field": true,
	"variable": true, "Name": true, "Key": true}

// protocolMembers are the members of the protocol whose values are random by design.
var protocolMembers = map[string]bool{"progressToken": true, "cursor": true, "nextCursor": true,
	"requestState": true, "requestId": true, "taskId": true, "elicitationId": true,
	"io.modelcontextprotocol/subscriptionId": true}

// isProtocolPointer reports whether a member at the pointer belongs to the protocol: it is a member
// of the body itself, of _meta, or of a task. Elsewhere, a member with the same name belongs to a
// tool.
func isProtocolPointer(pointer string) bool {
	parent := parentPointer(pointer)
	return parent == "" || strings.HasSuffix(parent, "/_meta") || parent == "/task" ||
		strings.HasPrefix(parent, "/tasks/") || strings.HasSuffix(parent, "related-task")
}

func parentPointer(pointer string) string {
	return pointer[:max(strings.LastIndexByte(pointer, '/'), 0)]
}

// isAllowed reports whether an entry of the option "allow" accepts the candidate.
func (in *inspection) isAllowed(c candidate, pointer string) bool {
	return slices.ContainsFunc(in.config.Allow, func(e allowEntry) bool {
		return (e.Rule == "" || e.Rule == c.rule) &&
			(e.Server == "" || e.Server == in.message.Server) &&
			matchesPattern(e.Method, in.message.Method) &&
			matchesPattern(e.Tool, in.message.Name) &&
			matchesPattern(e.Pointer, pointer) &&
			(e.value == nil || e.value.MatchString(c.value)) &&
			(e.SHA256 == "" || e.SHA256 == sha256Of(c.value))
	})
}

// matchesPattern reports whether s matches the pattern of an allow entry. An empty pattern matches
// everything; a "*" at its end matches any rest.
func matchesPattern(pattern, s string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(s, prefix)
	}
	return pattern == "" || pattern == s
}

// mergeOverlapping returns the candidates in the order of the text. Candidates that overlap are
// merged into one, which has the span of all of them. The merged candidate has the rule and the
// value of a candidate that is not weak, if there is one. Among several such candidates, the
// longest value decides, and then a rule other than "named-secret".
func mergeOverlapping(all []candidate) []candidate {
	slices.SortStableFunc(all, func(a, b candidate) int { return a.span.from - b.span.from })
	var merged []candidate
	for _, c := range all {
		if len(merged) == 0 || c.span.from >= merged[len(merged)-1].span.to {
			merged = append(merged, c)
			continue
		}
		last := &merged[len(merged)-1]
		both := span{last.span.from, max(last.span.to, c.span.to)}
		if last.weak && !c.weak || last.weak == c.weak && (len(c.value) > len(last.value) ||
			len(c.value) == len(last.value) && last.rule == namedID) {
			*last = c
		}
		last.span = both
	}
	return merged
}

// percentOffsets returns the index in s of each byte of plain, and then the end of the run. It
// returns nil if the run has another encoding besides percent-encoding, because the bytes of plain
// then have no indexes of their own in s.
func percentOffsets(s string, run span, plain string) []int {
	offsets := make([]int, 0, len(plain)+1)
	for i := run.from; i < run.to; {
		n := len(offsets)
		offsets = append(offsets, i)
		c := s[i]
		high, low := hexDigit(s, i+1, run.to), hexDigit(s, i+2, run.to)
		if c == '%' && high >= 0 && low >= 0 {
			c = byte(high<<4 | low)
			i += 2
		}
		if i++; n >= len(plain) || plain[n] != c {
			return nil
		}
	}
	if len(offsets) != len(plain) {
		return nil
	}
	return append(offsets, run.to)
}

// hexDigit returns the value of the hexadecimal digit s[i]. It returns -1 if s[i] is no such digit,
// or if i is not before end.
func hexDigit(s string, i, end int) int {
	if i >= end {
		return -1
	}
	return strings.IndexByte("0123456789abcdef", lower(s[i]))
}

// publicFindings returns the rule and the pointer of each secret, without duplicates and without
// any part of a secret.
func (in *inspection) publicFindings() (all []pipeline.Finding) {
	seen := make(map[pipeline.Finding]bool)
	for _, rule := range in.methodRules {
		all = append(all, pipeline.Finding{Type: rule})
	}
	for _, s := range in.secrets {
		f := pipeline.Finding{Type: s.rule, Pointer: in.safePointer(s.pointer)}
		if !seen[f] {
			seen[f] = true
			all = append(all, f)
		}
	}
	return all
}

// safePointer returns the pointer with placeholders in the names of members that hold a secret.
func (in *inspection) safePointer(pointer string) string {
	if len(in.redactedNames) == 0 || pointer == "" {
		return pointer
	}
	parent := parentPointer(pointer)
	name, ok := in.redactedNames[pointer]
	if !ok {
		name = pointer[len(parent)+1:]
	}
	return in.safePointer(parent) + "/" + name
}
