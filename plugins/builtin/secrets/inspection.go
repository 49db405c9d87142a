package secrets

import (
	"context"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk/scan"
)

// inspection is one look at a message.
type inspection struct {
	*stage
	ctx     context.Context
	message *mcp.Message
	secrets []secret
	// members whose names are secrets, by their pointers: what is told instead
	redactedNames map[string]string
	methodRules   []string // rules that found the method's name

	// the last text that may name the value beside it: {"name": "DB_PASSWORD", "value": …}
	label           scan.Text
	lastName        string // the last name that was looked up
	lastNameMatches bool   // it can be that of an assignment
}

// secret is what goes, and what stands in its place.
type secret struct {
	text        scan.Text
	pointer     string
	rule        string
	span        span
	placeholder string
}

// candidate is a secret before all candidates of a text are known.
type candidate struct {
	detection
	value string // that was found: at, or what is encoded there
}

func (l *inspection) isCancelled() bool { return l.ctx.Err() != nil }

// inspectMethod looks at the name of a method that nobody knows: it can be anything.
func (l *inspection) inspectMethod() bool {
	if l.message.Kind != mcp.Request && l.message.Kind != mcp.Notification {
		return false
	}
	if _, known := mcp.LookupMethod(l.message.Method); known {
		return false
	}
	for _, f := range l.rules.find(l.message.Method, l.isCancelled, nil) {
		l.methodRules = append(l.methodRules, f.rule)
	}
	return len(l.methodRules) > 0
}

// inspectText looks at one text of the message.
func (l *inspection) inspectText(t scan.Text) {
	var all []candidate
	var buffer [8]detection
	opaque := false
	for _, f := range l.rules.find(t.Value, l.isCancelled, buffer[:0]) {
		all = append(all, candidate{f, f.span.substring(t.Value)})
	}
	if t.Kind != mcp.NameLeaf {
		opaque, all = l.inspectMember(t, all)
	}
	if l.config.Entropy.Enabled && !opaque && t.Kind != mcp.NumberLeaf {
		for _, at := range l.config.Entropy.randomWords(t.Value) {
			all = append(all, candidate{detection{entropyID, at, true}, at.substring(t.Value)})
		}
	}
	if l.config.Decode {
		t.Decoded(func(plain string, at scan.Span) bool {
			secrets := l.rules.find(plain, l.isCancelled, nil)
			if len(secrets) == 0 {
				return !l.isCancelled()
			}
			where := percentOffsets(t.Value, span{at.From, at.To}, plain)
			for _, f := range secrets {
				in := span{at.From, at.To}
				if where != nil {
					in = span{where[f.span.from], where[f.span.to]}
				}
				all = append(all, candidate{detection{f.rule, in, f.weak}, f.span.substring(plain)})
			}
			return !l.isCancelled()
		})
	}
	if opaque {
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.weak })
	}
	if len(all) == 0 {
		return
	}
	pointer := t.Pointer()
	all = slices.DeleteFunc(all, func(c candidate) bool { return l.isAllowed(c, pointer) })
	name, cut := strings.Builder{}, 0
	for _, c := range mergeOverlapping(all) {
		s := secret{t, pointer, c.rule, c.span, l.placeholders.forSecret(c.rule, c.value)}
		l.secrets = append(l.secrets, s)
		name.WriteString(t.Value[cut:c.span.from] + s.placeholder)
		cut = c.span.to
	}
	if t.Kind == mcp.NameLeaf && cut > 0 {
		if l.redactedNames == nil {
			l.redactedNames = make(map[string]string)
		}
		l.redactedNames[pointer] = mcp.EscapePointer(name.String() + t.Value[cut:])
	}
}

// inspectMember looks at a value with the name of what it is. opaque says that it is the
// protocol's, and no more than random.
func (l *inspection) inspectMember(t scan.Text, all []candidate) (opaque bool, more []candidate) {
	name := t.MemberName()
	if name == "" {
		return false, all
	}
	if protocolMembers[name] && isProtocolPointer(t.Pointer()) {
		return true, all
	}
	if name == "value" && l.label.Value != "" {
		if parentPointer(l.label.Pointer()) == parentPointer(t.Pointer()) {
			name = l.label.Value
		}
	}
	if t.Kind == mcp.StringLeaf && labelMembers[name] && len(t.Value) <= maxNameLength {
		l.label = t
	}
	if len(name) > maxNameLength || len(t.Value) < 4 {
		return false, all
	}
	if l.lastName != name {
		l.lastName, l.lastNameMatches = name, l.rules.nameWords.containsAny(name)
	}
	if l.lastNameMatches {
		s := name + `="` + t.Value[:min(len(t.Value), maxContext)]
		if len(t.Value) <= maxContext {
			s += `"`
		}
		for _, f := range l.rules.find(s, l.isCancelled, nil) {
			at := span{f.span.from - len(name) - 2, f.span.to - len(name) - 2}
			if at.from >= 0 && at.to <= len(t.Value) {
				all = append(all, candidate{detection{f.rule, at, f.weak}, at.substring(t.Value)})
			}
		}
	}
	if l.namedEnabled && isNamedSecret(name, t.Value) {
		all = append(all, candidate{detection{namedID, span{0, len(t.Value)}, true}, t.Value})
	}
	return false, all
}

// maxNameLength is how long a name can be that says what its value is.
const maxNameLength = 128

// labelMembers are members that name the value of the member "value" beside them.
var labelMembers = map[string]bool{"name": true, "key": true, "header": true, "field": true,
	"variable": true, "Name": true, "Key": true}

// protocolMembers are names of members in which the protocol puts what is random by intent.
var protocolMembers = map[string]bool{"progressToken": true, "cursor": true, "nextCursor": true,
	"requestState": true, "requestId": true, "taskId": true, "elicitationId": true,
	"io.modelcontextprotocol/subscriptionId": true}

// isProtocolPointer says whether the protocol's member of such a name is at the pointer: in the
// body itself, its _meta or a task.
func isProtocolPointer(pointer string) bool {
	at := parentPointer(pointer)
	return at == "" || strings.HasSuffix(at, "/_meta") || at == "/task" || strings.HasPrefix(at,
		"/tasks/") || strings.HasSuffix(at, "related-task")
}

func parentPointer(pointer string) string {
	return pointer[:max(strings.LastIndexByte(pointer, '/'), 0)]
}

// isAllowed says whether the configuration lets the finding pass.
func (l *inspection) isAllowed(c candidate, pointer string) bool {
	return slices.ContainsFunc(l.config.Allow, func(e allowEntry) bool {
		return (e.Rule == "" || e.Rule == c.rule) &&
			(e.Server == "" || e.Server == l.message.Server) &&
			matchesPattern(e.Method, l.message.Method) && matchesPattern(e.Tool, l.message.Name) &&
			matchesPattern(e.Pointer, pointer) &&
			(e.value == nil || e.value.MatchString(c.value)) &&
			(e.SHA256 == "" || e.SHA256 == sha256Of(c.value))
	})
}

// matchesPattern says whether s is what the pattern says: anything when it is empty, any rest where
// it ends in "*".
func matchesPattern(pattern, s string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(s, prefix)
	}
	return pattern == "" || pattern == s
}

// mergeOverlapping makes one of those that overlap, in order: under the name of the rule that knows
// best, and found longest.
func mergeOverlapping(all []candidate) []candidate {
	slices.SortStableFunc(all, func(a, b candidate) int { return a.span.from - b.span.from })
	var each []candidate
	for _, c := range all {
		if len(each) == 0 || c.span.from >= each[len(each)-1].span.to {
			each = append(each, c)
			continue
		}
		last := &each[len(each)-1]
		union := span{last.span.from, max(last.span.to, c.span.to)}
		if last.weak && !c.weak || last.weak == c.weak && len(c.value) > len(last.value) {
			*last = c
		}
		last.span = union
	}
	return each
}

// percentOffsets are where in s the bytes of plain stand, which is what is encoded at run, and
// where it ends; nil when they stand nowhere: it is not percent-encoded, or not only.
func percentOffsets(s string, run span, plain string) []int {
	where := make([]int, 0, len(plain)+1)
	for i := run.from; i < run.to; {
		n := len(where)
		where = append(where, i)
		c := s[i]
		if high, low := hexDigit(s, i+1, run.to), hexDigit(s, i+2, run.to); c == '%' && high >= 0 &&
			low >= 0 {
			c = byte(high<<4 | low)
			i += 2
		}
		if i++; n >= len(plain) || plain[n] != c {
			return nil
		}
	}
	if len(where) != len(plain) {
		return nil
	}
	return append(where, run.to)
}

func hexDigit(s string, i, end int) int {
	if i >= end {
		return -1
	}
	return strings.IndexByte("0123456789abcdef", lower(s[i]))
}

// publicFindings tells the rules and places of all that was found, and nothing of it.
func (l *inspection) publicFindings() (all []pipeline.Finding) {
	told := make(map[pipeline.Finding]bool)
	for _, rule := range l.methodRules {
		all = append(all, pipeline.Finding{Type: rule})
	}
	for _, s := range l.secrets {
		f := pipeline.Finding{Type: s.rule, Pointer: l.safePointer(s.pointer)}
		if !told[f] {
			told[f] = true
			all = append(all, f)
		}
	}
	return all
}

// safePointer is the pointer without the names in it that are secrets.
func (l *inspection) safePointer(pointer string) string {
	if len(l.redactedNames) == 0 || pointer == "" {
		return pointer
	}
	above := parentPointer(pointer)
	name, ok := l.redactedNames[pointer]
	if !ok {
		name = pointer[len(above)+1:]
	}
	return l.safePointer(above) + "/" + name
}
