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

// listKinds are what the lists hold that are judged item by item.
var listKinds = map[string]string{"tools/list": kindTool, "prompts/list": kindPrompt,
	"resources/list": kindResource, "resources/templates/list": kindTemplate}

// usedItem is what a request uses.
func usedItem(m *mcp.Message) (kind, name string) {
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
	pointer string
	id      itemID
	record  *itemRecord
	raw     []byte
}

// inspectList judges the items of a list one by one, remembers what came of it, and takes out what
// may not be used.
func (s *stage) inspectList(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	method, _ := mcp.LookupMethod(m.Method)
	kind := listKinds[m.Method]
	var items []*listedItem
	var texts []scan.Text // for the classifier, and whose they are
	var of []*listedItem
	m.Items(method.ItemsPointer, func(i int, raw []byte) bool {
		x := &listedItem{pointer: method.ItemsPointer + "/" + strconv.Itoa(i), raw: raw,
			record: &itemRecord{}}
		x.inspection = inspection{stage: s, isDefinition: true, base: x.pointer, action: actionOff,
			bestHits: make(map[int]hit), namePointers: map[string]bool{method.ItemNamePointer: true,
				"/name": true}}
		one := mcp.NewNotification("", raw)
		name, _ := one.Text(method.ItemNamePointer)
		x.id = itemID{kind, name}
		scan.Texts(one, func(t scan.Text) bool {
			x.inspectText(t)
			if kind == kindTool && t.Kind == mcp.StringLeaf {
				x.collectMentions(t.Value)
			}
			if s.classifier != nil && t.Kind == mcp.StringLeaf {
				texts, of = append(texts, t), append(of, x)
			}
			return ctx.Err() == nil
		})
		x.evaluatePooled()
		x.record.skeleton = skeleton(name)
		if f, bad := s.deceptiveName(kind, name); bad {
			x.addFinding(f, "name", method.ItemNamePointer)
			if a := s.actions[f]; a < actionFlag {
				x.escalate(min(a, actionHide), f, method.ItemNamePointer)
			}
		}
		items = append(items, x)
		return ctx.Err() == nil
	})
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, err
	}
	whole := inspection{stage: s, action: actionOff}
	s.classifyItems(ctx, &whole, texts, of)

	remembered := make(map[itemID]*itemRecord, len(items))
	for _, x := range items {
		x.record.hidden = x.action <= actionHide
		if old := remembered[x.id]; old != nil {
			old.hidden = old.hidden || x.record.hidden
			old.mentions = append(old.mentions, x.record.mentions...)
			x.record = old
		}
		remembered[x.id] = x.record
	}
	if !s.memory.store(m.Principal, m.Server, remembered) {
		return sdk.Deny("a list of more items, or of more servers, than can be remembered"), nil
	}
	if kind == kindTool {
		for _, x := range items {
			s.compareTool(m, x)
		}
	}
	return s.listVerdict(ctx, m, method, items, whole)
}

// listVerdict is the verdict about a list whose items are judged.
func (s *stage) listVerdict(ctx context.Context, m *mcp.Message, method mcp.Method,
	items []*listedItem,
	whole inspection) (sdk.Verdict, error) {
	v := sdk.Verdict{Action: pipeline.Allow}
	named := make(map[string]bool)
	for _, x := range items {
		for _, f := range x.findings {
			if len(v.Findings) < maxFindings {
				v.Findings = append(v.Findings, f)
			}
		}
		for f, is := range x.families {
			whole.families[f] = whole.families[f] || is
		}
		whole.action = stricter(whole.action, x.action)
		if x.action == actionHide && x.id.name != "" {
			named[x.id.name] = true
		}
	}
	v.Findings = append(v.Findings, whole.findings...)
	if whole.action == actionDeny {
		return sdk.Deny(whole.reason(), v.Findings...), nil
	}
	for _, x := range items {
		switch {
		case named[x.id.name] && x.id.name != "":
		case x.action == actionHide:
			v.Edits = append(v.Edits, mcp.Remove(x.pointer))
		case len(x.cuts) > 0:
			edits, err := scan.Redact(mcp.NewNotification("", x.raw), x.cuts)
			if err != nil {
				return sdk.Verdict{}, err
			}
			for _, e := range edits {
				v.Edits = append(v.Edits, mcp.Edit{Pointer: x.pointer + e.Pointer, Value: e.Value})
			}
		}
	}
	for name := range named {
		v.Hide = append(v.Hide, name)
	}
	// What is not in the list is read, too.
	if method.ItemsPointer != "" && m.Len(method.ItemsPointer) >= 0 {
		rest, err := m.Edit(mcp.Set(method.ItemsPointer, []byte("[]")))
		if err != nil {
			return sdk.Verdict{}, err
		}
		in := inspection{stage: s, isDefinition: true, action: actionOff}
		scan.Texts(rest, func(t scan.Text) bool { in.inspectText(t); return true })
		edits, err := scan.Redact(rest, in.cuts)
		if err != nil {
			return sdk.Verdict{}, err
		}
		v.Findings = append(v.Findings, in.findings...)
		if in.action <= actionHide || len(edits) == 1 && edits[0].Pointer == "" {
			return sdk.Deny(in.reason(), v.Findings...), nil
		}
		for f, is := range in.families {
			whole.families[f] = whole.families[f] || is
		}
		v.Edits = append(v.Edits, edits...)
	} else {
		return s.inspectContent(ctx, m, true)
	}
	if len(v.Edits)+len(v.Hide) > 0 {
		v.Action, v.Reason = pipeline.Modify, whole.reason()
	}
	return v, nil
}

// evaluatePooled weighs the texts of an item together: a definition is read as one.
func (x *listedItem) evaluatePooled() {
	if x.action <= actionHide {
		return
	}
	score, a := 0, actionOff
	for _, h := range x.bestHits {
		score += h.score
		a = stricter(a, x.stage.actions[h.family])
	}
	if score < x.stage.threshold || a > actionHide {
		return
	}
	for _, h := range x.bestHits {
		x.addFinding(h.family, h.name, "")
		x.escalate(a, h.family, "")
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
	found, err := s.findAttacks(ctx, plain)
	if err != nil {
		whole.addFinding(familyClassifier, "failed", "")
		if !s.scoring.skipOnError {
			whole.escalate(actionDeny, familyClassifier, "")
		}
		return
	}
	for i, is := range found {
		if is {
			pointer := texts[i].Pointer()
			of[i].addFinding(familyClassifier, "attack", pointer)
			if a := s.actions[familyClassifier]; a < actionFlag {
				of[i].escalate(a, familyClassifier, pointer)
			}
		}
	}
}

// deceptiveName says whether a name, or URI, has characters that are not seen, or letters that
// pretend to be others.
func (s *stage) deceptiveName(kind, name string) (f family, bad bool) {
	found, _ := findHidden(name)
	for _, u := range found {
		if s.actions[u.family] != actionOff {
			return u.family, true
		}
	}
	if (kind == kindTool || kind == kindPrompt) && s.actions[familyConfusable] != actionOff &&
		isDeceptive(name) {
		return familyConfusable, true
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

// inspectParameter judges the name of a parameter.
func (in *inspection) inspectParameter(t scan.Text) {
	score, ok := parameterNames[strings.ToLower(strings.ReplaceAll(t.Value, "-", "_"))]
	if !ok {
		if !strings.Contains(t.Value, "_") || len(t.Value) < minNameLength {
			return
		}
		// content_from_reading_ssh_id_rsa
		in.evaluate(t, in.stage.scorer.score(strings.ReplaceAll(t.Value, "_", " "), true), nil, 0)
		return
	}
	if in.stage.actions[familyExfiltration] == actionOff {
		return
	}
	in.evaluate(t, scoredText{text: normalizedText{text: t.Value}, score: score,
		hits: []hit{{family: familyExfiltration, name: "parameter", id: idName, score: score}}},
		nil, 0)
}

// collectMentions remembers the names that a definition speaks of.
func (x *listedItem) collectMentions(s string) {
	if strings.IndexByte(s, ' ') < 0 {
		return
	}
	for i := 0; i < len(s) && len(x.record.mentions) < maxMentions; {
		if byteClasses[s[i]]&letterByte == 0 || s[i] == '\'' {
			i++
			continue
		}
		from := i
		for i < len(s) && (byteClasses[s[i]]&letterByte != 0 && s[i] != '\'' || s[i] == '-') {
			i++
		}
		if word := s[from:i]; isDistinctive(word) && len(word) <= 128 {
			x.record.mentions = append(x.record.mentions, word)
		}
	}
}

// compareTool holds a tool against those of other servers.
func (s *stage) compareTool(m *mcp.Message, x *listedItem) {
	here := toolID{m.Server, x.id.name}
	if a := s.actions[familyShadowing]; a != actionOff && x.id.name != "" {
		for _, there := range s.memory.lookalikes(m.Principal, here, x.record.skeleton) {
			mine, theirs := disguiseScore(here.name), disguiseScore(there.name)
			switch {
			case strings.EqualFold(here.name, there.name), there.server == here.server &&
				mine < 1000 && theirs < 1000:
				if there.server != here.server {
					x.addFinding(familyShadowing, "same-name", "/name")
				}
			case a == actionFlag || mine == theirs:
				x.addFinding(familyShadowing, "lookalike", "/name")
			case mine > theirs:
				x.addFinding(familyShadowing, "lookalike", "/name")
				x.escalate(a, familyShadowing, "/name")
				s.memory.markShadowing(m.Principal, here)
			default: // the other one came first, and is the impostor
				x.addFinding(familyShadowing, "lookalike-elsewhere", "/name")
				s.memory.markShadowing(m.Principal, there)
			}
		}
	}
	a := s.actions[familyReference]
	if a == actionOff {
		return
	}
	for _, word := range x.record.mentions {
		if s.memory.isForeignTool(m.Principal, m.Server, word) {
			x.addFinding(familyReference, "names-another-servers-tool", "")
			if a < actionFlag {
				x.escalate(min(a, actionHide), familyReference, "")
				s.memory.markShadowing(m.Principal, here)
			}
			break
		}
	}
	for _, there := range s.memory.toolsMentioning(m.Principal, m.Server, here.name) {
		x.addFinding(familyReference, "named-by-another-server", "/name")
		if a < actionFlag {
			s.memory.markShadowing(m.Principal, there)
		}
	}
}

// matchesTemplate says whether a URI could be made of a template: what stands between its
// expressions is there, in order.
func matchesTemplate(template, uri string) bool {
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
