package secrets

import (
	"context"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk/scan"
)

// look is one look at a message.
type look struct {
	*stage
	ctx     context.Context
	m       *mcp.Message
	secrets []secret
	// members whose names are secrets, by their pointers: what is told instead
	renamed map[string]string
	inName  []string // rules that found the method's name

	// the last text that may name the value beside it: {"name": "DB_PASSWORD", "value": …}
	label  scan.Text
	asked  string // the last name that was looked up
	assign bool   // it can be that of an assignment
}

// secret is what goes, and what stands in its place.
type secret struct {
	text        scan.Text
	pointer     string
	rule        string
	at          span
	placeholder string
}

// candidate is a secret before all candidates of a text are known.
type candidate struct {
	found
	value string // that was found: at, or what is encoded there
}

func (l *look) stop() bool { return l.ctx.Err() != nil }

// method looks at the name of a method that nobody knows: it can be anything.
func (l *look) method() bool {
	if l.m.Kind != mcp.Request && l.m.Kind != mcp.Notification {
		return false
	}
	if _, known := mcp.Lookup(l.m.Method); known {
		return false
	}
	for _, f := range l.rules.find(l.m.Method, l.stop, nil) {
		l.inName = append(l.inName, f.rule)
	}
	return len(l.inName) > 0
}

// text looks at one text of the message.
func (l *look) text(t scan.Text) {
	var all []candidate
	var buffer [8]found
	opaque := false
	for _, f := range l.rules.find(t.Value, l.stop, buffer[:0]) {
		all = append(all, candidate{f, f.at.of(t.Value)})
	}
	if t.Kind != mcp.Name {
		opaque, all = l.inMember(t, all)
	}
	if l.config.Entropy.Enabled && !opaque && t.Kind != mcp.Number {
		for _, at := range l.config.Entropy.words(t.Value) {
			all = append(all, candidate{found{entropyID, at, true}, at.of(t.Value)})
		}
	}
	if l.config.Decode {
		t.Decoded(func(plain string, at scan.Span) bool {
			secrets := l.rules.find(plain, l.stop, nil)
			if len(secrets) == 0 {
				return !l.stop()
			}
			where := places(t.Value, span{at.From, at.To}, plain)
			for _, f := range secrets {
				in := span{at.From, at.To}
				if where != nil {
					in = span{where[f.at.from], where[f.at.to]}
				}
				all = append(all, candidate{found{f.rule, in, f.low}, f.at.of(plain)})
			}
			return !l.stop()
		})
	}
	if opaque {
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.low })
	}
	if len(all) == 0 {
		return
	}
	pointer := t.Pointer()
	all = slices.DeleteFunc(all, func(c candidate) bool { return l.allowed(c, pointer) })
	name, cut := strings.Builder{}, 0
	for _, c := range merged(all) {
		s := secret{t, pointer, c.rule, c.at, l.replaced.placeholder(c.rule, c.value)}
		l.secrets = append(l.secrets, s)
		name.WriteString(t.Value[cut:c.at.from] + s.placeholder)
		cut = c.at.to
	}
	if t.Kind == mcp.Name && cut > 0 {
		if l.renamed == nil {
			l.renamed = make(map[string]string)
		}
		l.renamed[pointer] = mcp.EscapePointer(name.String() + t.Value[cut:])
	}
}

// inMember looks at a value with the name of what it is. opaque says that it is the protocol's, and
// no more than random.
func (l *look) inMember(t scan.Text, all []candidate) (opaque bool, more []candidate) {
	name := t.Member()
	if name == "" {
		return false, all
	}
	if protocols[name] && ofProtocol(t.Pointer()) {
		return true, all
	}
	if name == "value" && l.label.Value != "" {
		if parent(l.label.Pointer()) == parent(t.Pointer()) {
			name = l.label.Value
		}
	}
	if t.Kind == mcp.String && labels[name] && len(t.Value) <= longestName {
		l.label = t
	}
	if len(name) > longestName || len(t.Value) < 4 {
		return false, all
	}
	if l.asked != name {
		l.asked, l.assign = name, l.rules.names.any(name)
	}
	if l.assign {
		s := name + `="` + t.Value[:min(len(t.Value), longest)]
		if len(t.Value) <= longest {
			s += `"`
		}
		for _, f := range l.rules.find(s, l.stop, nil) {
			at := span{f.at.from - len(name) - 2, f.at.to - len(name) - 2}
			if at.from >= 0 && at.to <= len(t.Value) {
				all = append(all, candidate{found{f.rule, at, f.low}, at.of(t.Value)})
			}
		}
	}
	if l.named && named(name, t.Value) {
		all = append(all, candidate{found{namedID, span{0, len(t.Value)}, true}, t.Value})
	}
	return false, all
}

// longestName is how long a name can be that says what its value is.
const longestName = 128

// labels are members that name the value of the member "value" beside them.
var labels = map[string]bool{"name": true, "key": true, "header": true, "field": true,
	"variable": true, "Name": true, "Key": true}

// protocols are names of members in which the protocol puts what is random by intent.
var protocols = map[string]bool{"progressToken": true, "cursor": true, "nextCursor": true,
	"requestState": true, "requestId": true, "taskId": true, "elicitationId": true,
	"io.modelcontextprotocol/subscriptionId": true}

// ofProtocol says whether the protocol's member of such a name is at the pointer: in the body
// itself, its _meta or a task.
func ofProtocol(pointer string) bool {
	at := parent(pointer)
	return at == "" || strings.HasSuffix(at, "/_meta") || at == "/task" || strings.HasPrefix(at,
		"/tasks/") || strings.HasSuffix(at, "related-task")
}

func parent(pointer string) string { return pointer[:max(strings.LastIndexByte(pointer, '/'), 0)] }

// allowed says whether the configuration lets the finding pass.
func (l *look) allowed(c candidate, pointer string) bool {
	return slices.ContainsFunc(l.config.Allow, func(e exception) bool {
		return (e.Rule == "" || e.Rule == c.rule) &&
			(e.Server == "" || e.Server == l.m.Server) &&
			like(e.Method, l.m.Method) && like(e.Tool, l.m.Name) && like(e.Pointer, pointer) &&
			(e.value == nil || e.value.MatchString(c.value)) &&
			(e.SHA256 == "" || e.SHA256 == sha256Of(c.value))
	})
}

// like says whether s is what the pattern says: anything when it is empty, any rest where it ends
// in "*".
func like(pattern, s string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(s, prefix)
	}
	return pattern == "" || pattern == s
}

// merged makes one of those that overlap, in order: under the name of the rule that knows best, and
// found longest.
func merged(all []candidate) []candidate {
	slices.SortStableFunc(all, func(a, b candidate) int { return a.at.from - b.at.from })
	var each []candidate
	for _, c := range all {
		if len(each) == 0 || c.at.from >= each[len(each)-1].at.to {
			each = append(each, c)
			continue
		}
		last := &each[len(each)-1]
		union := span{last.at.from, max(last.at.to, c.at.to)}
		if last.low && !c.low || last.low == c.low && len(c.value) > len(last.value) {
			*last = c
		}
		last.at = union
	}
	return each
}

// places are where in s the bytes of plain stand, which is what is encoded at run, and where it
// ends; nil when they stand nowhere: it is not percent-encoded, or not only.
func places(s string, run span, plain string) []int {
	where := make([]int, 0, len(plain)+1)
	for i := run.from; i < run.to; {
		n := len(where)
		where = append(where, i)
		c := s[i]
		if high, low := digit(s, i+1, run.to), digit(s, i+2, run.to); c == '%' && high >= 0 &&
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

func digit(s string, i, end int) int {
	if i >= end {
		return -1
	}
	return strings.IndexByte("0123456789abcdef", lower(s[i]))
}

// findings tells the rules and places of all that was found, and nothing of it.
func (l *look) findings() (all []pipeline.Finding) {
	told := make(map[pipeline.Finding]bool)
	for _, rule := range l.inName {
		all = append(all, pipeline.Finding{Type: rule})
	}
	for _, s := range l.secrets {
		f := pipeline.Finding{Type: s.rule, Pointer: l.tell(s.pointer)}
		if !told[f] {
			told[f] = true
			all = append(all, f)
		}
	}
	return all
}

// tell is the pointer without the names in it that are secrets.
func (l *look) tell(pointer string) string {
	if len(l.renamed) == 0 || pointer == "" {
		return pointer
	}
	above := parent(pointer)
	name, ok := l.renamed[pointer]
	if !ok {
		name = pointer[len(above)+1:]
	}
	return l.tell(above) + "/" + name
}
