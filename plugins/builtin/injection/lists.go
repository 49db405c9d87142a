package injection

import (
	"context"
	"strconv"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
	"gatekit/plugins/sdk/scan"
)

// Kinds of items.
const (
	kindTool     = "tool"
	kindPrompt   = "prompt"
	kindResource = "resource"
	kindTemplate = "resource template"
)

// kinds are what the lists hold that are judged item by item.
var kinds = map[string]string{"tools/list": kindTool, "prompts/list": kindPrompt,
	"resources/list": kindResource, "resources/templates/list": kindTemplate}

// kindOf is what a request uses.
func kindOf(m *mcp.Message) (kind, name string) {
	text := func(pointer string) string {
		s, _ := m.Text(pointer)
		return s
	}
	switch m.Method {
	case "tools/call":
		return kindTool, text("/name")
	case "prompts/get":
		return kindPrompt, text("/name")
	case "resources/read", "resources/subscribe":
		return kindResource, text("/uri")
	case "completion/complete":
		if uri := text("/ref/uri"); uri != "" {
			return kindTemplate, uri
		}
		return kindPrompt, text("/ref/name")
	}
	return "", ""
}

// listedItem is an item of a list, as it is judged.
type listedItem struct {
	inspection
	at    string
	name  item
	seen  *seen
	bytes []byte
}

// list judges the items of a list one by one, remembers what came of it, and takes out what may not
// be used.
func (s *stage) list(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	method, _ := mcp.Lookup(m.Method)
	kind := kinds[m.Method]
	var items []*listedItem
	var texts []scan.Text // for the classifier, and whose they are
	var of []*listedItem
	m.Items(method.ItemsAt, func(i int, raw []byte) bool {
		x := &listedItem{at: method.ItemsAt + "/" + strconv.Itoa(i), bytes: raw, seen: &seen{}}
		x.inspection = inspection{s: s, meta: true, at: x.at, action: off,
			pooled: make(map[int]hit), names: map[string]bool{method.ItemName: true, "/name": true}}
		one := mcp.NewNotification("", raw)
		name, _ := one.Text(method.ItemName)
		x.name = item{kind, name}
		scan.Texts(one, func(t scan.Text) bool {
			x.text(t)
			if kind == kindTool && t.Kind == mcp.String {
				x.mentions(t.Value)
			}
			if s.classifier != nil && t.Kind == mcp.String {
				texts, of = append(texts, t), append(of, x)
			}
			return ctx.Err() == nil
		})
		x.pool()
		x.seen.skeleton = skeleton(name)
		if f, bad := s.badName(kind, name); bad {
			x.find(f, "name", method.ItemName)
			if a := s.actions[f]; a < flagged {
				x.raise(min(a, hideIt), f, method.ItemName)
			}
		}
		items = append(items, x)
		return ctx.Err() == nil
	})
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, err
	}
	whole := inspection{s: s, action: off}
	s.classifyItems(ctx, &whole, texts, of)

	remembered := make(map[item]*seen, len(items))
	for _, x := range items {
		x.seen.hidden = x.action <= hideIt
		if old := remembered[x.name]; old != nil {
			old.hidden = old.hidden || x.seen.hidden
			old.mentions = append(old.mentions, x.seen.mentions...)
			x.seen = old
		}
		remembered[x.name] = x.seen
	}
	if !s.memory.put(m.Principal, m.Server, remembered) {
		return sdk.Deny("a list of more items, or of more servers, than can be remembered"), nil
	}
	if kind == kindTool {
		for _, x := range items {
			s.compare(m, x)
		}
	}
	return s.shown(ctx, m, method, items, whole)
}

// shown is the verdict about a list whose items are judged.
func (s *stage) shown(ctx context.Context, m *mcp.Message, method mcp.Method, items []*listedItem,
	whole inspection) (sdk.Verdict, error) {
	v := sdk.Verdict{Action: pipeline.Allow}
	named := make(map[string]bool)
	for _, x := range items {
		for _, f := range x.findings {
			if len(v.Findings) < maxFindings {
				v.Findings = append(v.Findings, f)
			}
		}
		for f, is := range x.why {
			whole.why[f] = whole.why[f] || is
		}
		whole.action = stricter(whole.action, x.action)
		if x.action == hideIt && x.name.name != "" {
			named[x.name.name] = true
		}
	}
	v.Findings = append(v.Findings, whole.findings...)
	if whole.action == deny {
		return sdk.Deny(whole.reason(), v.Findings...), nil
	}
	for _, x := range items {
		switch {
		case named[x.name.name] && x.name.name != "":
		case x.action == hideIt:
			v.Edits = append(v.Edits, mcp.Remove(x.at))
		case len(x.cuts) > 0:
			edits, err := scan.Redact(mcp.NewNotification("", x.bytes), x.cuts)
			if err != nil {
				return sdk.Verdict{}, err
			}
			for _, e := range edits {
				v.Edits = append(v.Edits, mcp.Edit{Pointer: x.at + e.Pointer, Value: e.Value})
			}
		}
	}
	for name := range named {
		v.Hide = append(v.Hide, name)
	}
	// What is not in the list is read, too.
	if method.ItemsAt != "" && m.Len(method.ItemsAt) >= 0 {
		rest, err := m.Edit(mcp.Set(method.ItemsAt, []byte("[]")))
		if err != nil {
			return sdk.Verdict{}, err
		}
		in := inspection{s: s, meta: true, action: off}
		scan.Texts(rest, func(t scan.Text) bool { in.text(t); return true })
		edits, err := scan.Redact(rest, in.cuts)
		if err != nil {
			return sdk.Verdict{}, err
		}
		v.Findings = append(v.Findings, in.findings...)
		if in.action <= hideIt || len(edits) == 1 && edits[0].Pointer == "" {
			return sdk.Deny(in.reason(), v.Findings...), nil
		}
		for f, is := range in.why {
			whole.why[f] = whole.why[f] || is
		}
		v.Edits = append(v.Edits, edits...)
	} else {
		return s.content(ctx, m, true)
	}
	if len(v.Edits)+len(v.Hide) > 0 {
		v.Action, v.Reason = pipeline.Modify, whole.reason()
	}
	return v, nil
}

// pool weighs the texts of an item together: a definition is read as one.
func (x *listedItem) pool() {
	if x.action <= hideIt {
		return
	}
	score, a := 0, off
	for _, h := range x.pooled {
		score += h.score
		a = stricter(a, x.s.actions[h.family])
	}
	if score < x.s.threshold || a > hideIt {
		return
	}
	for _, h := range x.pooled {
		x.find(h.family, h.name, "")
		x.raise(a, h.family, "")
	}
}

// classifyItems asks the classifier about all texts of a list at once.
func (s *stage) classifyItems(ctx context.Context, whole *inspection, texts []scan.Text,
	of []*listedItem) {
	if s.classifier == nil {
		return
	}
	plain := make([]string, len(texts))
	for i, t := range texts {
		plain[i] = t.Value
	}
	found, err := s.attacks(ctx, plain)
	if err != nil {
		whole.find(Model, "failed", "")
		if !s.texts.skip {
			whole.raise(deny, Model, "")
		}
		return
	}
	for i, is := range found {
		if is {
			pointer := texts[i].Pointer()
			of[i].find(Model, "attack", pointer)
			if a := s.actions[Model]; a < flagged {
				of[i].raise(a, Model, pointer)
			}
		}
	}
}

// badName says whether a name, or URI, has characters that are not seen, or letters that pretend to
// be others.
func (s *stage) badName(kind, name string) (f family, bad bool) {
	found, _ := findUnseen(name)
	for _, u := range found {
		if s.actions[u.family] != off {
			return u.family, true
		}
	}
	if (kind == kindTool || kind == kindPrompt) && s.actions[Confusable] != off && deceives(name) {
		return Confusable, true
	}
	return 0, false
}

// parameterNames are names of arguments whose purpose is to carry away what the model knows, with
// their scores.
var parameterNames = map[string]int{
	"sidenote": 6, "side_note": 6, "system_prompt": 5, "conversation_history": 4, "chat_history": 4,
	"full_conversation": 6, "previous_messages": 4, "chain_of_thought": 5, "llm_model_name": 5,
	"model_name_and_version": 5, "tools_list": 4, "available_tools": 4, "list_of_tools": 5,
	"user_credentials": 6, "ssh_key": 4, "ssh_private_key": 6, "private_key_contents": 6,
	"env_file":     4,
	"env_contents": 6, "mcp_config": 5, "mcp_json": 6, "content_of_mcp_json": 7,
	"session_context": 2, "auth_context": 3,
}

// parameter judges the name of a parameter.
func (in *inspection) parameter(t scan.Text) {
	score, ok := parameterNames[strings.ToLower(strings.ReplaceAll(t.Value, "-", "_"))]
	if !ok {
		if !strings.Contains(t.Value, "_") || len(t.Value) < shortestName {
			return
		}
		// content_from_reading_ssh_id_rsa
		in.judge(t, in.s.reader.read(strings.ReplaceAll(t.Value, "_", " "), true), nil, 0)
		return
	}
	if in.s.actions[Exfiltration] == off {
		return
	}
	in.judge(t, reading{plain: plain{s: t.Value}, score: score,
		hits: []hit{{family: Exfiltration, name: "parameter", id: idName, score: score}}}, nil, 0)
}

// mentions remembers the names that a definition speaks of.
func (x *listedItem) mentions(s string) {
	if strings.IndexByte(s, ' ') < 0 {
		return
	}
	for i := 0; i < len(s) && len(x.seen.mentions) < maxMentions; {
		if bytesAre[s[i]]&letter == 0 || s[i] == '\'' {
			i++
			continue
		}
		from := i
		for i < len(s) && (bytesAre[s[i]]&letter != 0 && s[i] != '\'' || s[i] == '-') {
			i++
		}
		if word := s[from:i]; distinctive(word) && len(word) <= 128 {
			x.seen.mentions = append(x.seen.mentions, word)
		}
	}
}

// compare holds a tool against those of other servers.
func (s *stage) compare(m *mcp.Message, x *listedItem) {
	here := place{m.Server, x.name.name}
	if a := s.actions[Shadowing]; a != off && x.name.name != "" {
		for _, there := range s.memory.alike(m.Principal, here, x.seen.skeleton) {
			mine, theirs := pretence(here.name), pretence(there.name)
			switch {
			case strings.EqualFold(here.name, there.name), there.server == here.server &&
				mine < 1000 && theirs < 1000:
				if there.server != here.server {
					x.find(Shadowing, "same-name", "/name")
				}
			case a == flagged || mine == theirs:
				x.find(Shadowing, "lookalike", "/name")
			case mine > theirs:
				x.find(Shadowing, "lookalike", "/name")
				x.raise(a, Shadowing, "/name")
				s.memory.shadow(m.Principal, here)
			default: // the other one came first, and is the impostor
				x.find(Shadowing, "lookalike-elsewhere", "/name")
				s.memory.shadow(m.Principal, there)
			}
		}
	}
	a := s.actions[Reference]
	if a == off {
		return
	}
	for _, word := range x.seen.mentions {
		if s.memory.foreign(m.Principal, m.Server, word) {
			x.find(Reference, "names-another-servers-tool", "")
			if a < flagged {
				x.raise(min(a, hideIt), Reference, "")
				s.memory.shadow(m.Principal, here)
			}
			break
		}
	}
	for _, there := range s.memory.speaksOf(m.Principal, m.Server, here.name) {
		x.find(Reference, "named-by-another-server", "/name")
		if a < flagged {
			s.memory.shadow(m.Principal, there)
		}
	}
}

// expands says whether a URI could be made of a template: what stands between its expressions is
// there, in order.
func expands(template, uri string) bool {
	first := true
	for template != "" {
		literal, rest, more := strings.Cut(template, "{")
		i := strings.Index(uri, literal)
		switch {
		case first && !strings.HasPrefix(uri, literal), i < 0:
			return false
		case !more:
			return strings.HasSuffix(uri, literal)
		}
		uri, first = uri[i+len(literal):], false
		if _, template, more = strings.Cut(rest, "}"); !more {
			return true
		}
	}
	return !first
}
