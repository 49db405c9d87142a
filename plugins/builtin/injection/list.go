package injection

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/uris"
	"gatekit/plugins/sdk"
	"gatekit/plugins/sdk/scan"
)

// The kinds of items, as reasons name them.
const (
	kindTool     = "tool"
	kindPrompt   = "prompt"
	kindResource = "resource"
	kindTemplate = "resource template"
	kindSkill    = "skill"
)

// listKinds are the methods whose results are inspected item by item, with the kind of their items.
var listKinds = map[string]string{"tools/list": kindTool, "prompts/list": kindPrompt,
	"resources/list": kindResource, "resources/templates/list": kindTemplate,
	"skills/list": kindSkill}

// usedItem returns the kind and the name (or URI) of the item that a request uses. Both are "" if
// the request uses no item.
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
	case "skills/get":
		return kindSkill, text("/uri")
	case "completion/complete":
		if uri := text("/ref/uri"); uri != "" {
			return kindTemplate, uri
		}
		return kindPrompt, text("/ref/name")
	}
	return "", ""
}

// newItemID returns the id of an item. All spellings of a URI have the same id. The id of a skill
// has the URI of the skill's directory.
func newItemID(kind, name string) itemID {
	switch kind {
	case kindResource:
		name = uris.Canonical(name)
	case kindSkill:
		name = directoryOf(uris.Canonical(name))
	case kindTemplate:
		if len(name) <= maxMatchedURI {
			name = strings.NewReplacer("%7B", "{", "%7D", "}").Replace(uris.Canonical(name))
		}
	}
	return itemID{kind, name}
}

// directoryOf returns a URI without its last segment.
func directoryOf(uri string) string { return uri[:max(0, strings.LastIndexByte(uri, '/'))] }

// listedItem is an item of a list with its inspection.
type listedItem struct {
	inspection
	pointer string // in the message
	name    string // or URI, as the server wrote it
	id      itemID
	record  *itemRecord // for the memory; items with the same id share one record
	raw     []byte
}

// inspectList inspects the items of a list one by one, remembers the results, and removes the items
// that may not be used.
func (s *stage) inspectList(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	method, _ := mcp.LookupMethod(m.Method)
	kind := listKinds[m.Method]
	var items []*listedItem
	words, release := s.newScratch()
	defer release()
	var texts []scan.Text    // for the classifier
	var owners []*listedItem // the item of each text
	m.Items(method.ItemsPointer, func(i int, raw []byte) bool {
		item := &listedItem{pointer: method.ItemsPointer + "/" + strconv.Itoa(i), raw: raw,
			record: &itemRecord{}}
		item.inspection = inspection{stage: s, isDefinition: true, base: item.pointer,
			action: actionOff, scratch: words, bestHits: make(map[int]hit),
			namePointers: map[string]bool{method.ItemNamePointer: true, "/name": true,
				"/frontmatter/name": true}}
		content := mcp.NewNotification("", raw)
		name, _ := content.Text(method.ItemNamePointer)
		item.name, item.id = name, newItemID(kind, name)
		scan.Texts(content, func(t scan.Text) bool {
			item.inspectText(t)
			if kind == kindTool && t.Kind == mcp.StringLeaf {
				item.collectMentions(t.Value)
			}
			if s.classifier != nil && t.Kind == mcp.StringLeaf {
				texts, owners = append(texts, t), append(owners, item)
			}
			return ctx.Err() == nil
		})
		item.evaluatePooled()
		item.record.skeletons = skeletons(name)
		if f, bad := s.deceptiveName(kind, name); bad {
			item.addFinding(f, "name", method.ItemNamePointer)
			if a := s.actions[f]; a < actionFlag {
				item.escalate(min(a, actionHide), f, method.ItemNamePointer)
			}
		}
		items = append(items, item)
		return ctx.Err() == nil
	})
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, err
	}
	whole := inspection{stage: s, action: actionOff}
	s.classifyItems(ctx, &whole, texts, owners)

	records := make(map[itemID]*itemRecord, len(items))
	for _, item := range items {
		item.record.hidden = item.action <= actionHide
		if first := records[item.id]; first != nil {
			first.hidden = first.hidden || item.record.hidden
			first.mentions = append(first.mentions, item.record.mentions...)
			item.record = first
		}
		records[item.id] = item.record
	}
	if !s.memory.store(m.Principal.ID(), m.Server, records) {
		return sdk.Deny("the list has more items, or the client more servers, than the plugin "+
			"can remember", pipeline.Finding{Type: pipeline.FindingFull}), nil
	}
	if kind == kindTool {
		for _, item := range items {
			s.compareTool(m, item)
		}
	}
	return s.listVerdict(ctx, m, method, items, whole, words)
}

// pooledMargin is added to the threshold for all texts of an item together, since a large
// definition has many texts.
const pooledMargin = 3

// evaluatePooled scores all texts of an item together, since a model reads a definition as one
// text.
func (item *listedItem) evaluatePooled() {
	if item.action <= actionHide {
		return
	}
	a := actionOff
	var best [numFamilies]int            // score by family
	score := item.bestHits[idName].score // of a parameter's name
	for id, h := range item.bestHits {
		if id != idName {
			best[h.family] = max(best[h.family], h.score)
		}
		a = stricter(a, item.stage.actions[h.family])
	}
	for _, n := range best {
		score += n
	}
	if score < item.stage.threshold+pooledMargin || a > actionHide {
		return
	}
	// The order is fixed, so that the same list gets the same findings again.
	for _, id := range slices.Sorted(maps.Keys(item.bestHits)) {
		h := item.bestHits[id]
		item.addFinding(h.family, h.name, "")
		item.escalate(a, h.family, "")
	}
}

// classifyItems asks the classifier about all texts of a list at once. owners holds the item of
// each text. If the classifier fails, classifyItems records that in whole.
func (s *stage) classifyItems(ctx context.Context, whole *inspection, texts []scan.Text,
	owners []*listedItem) {
	if s.classifier == nil {
		return
	}
	plain := make([]string, len(texts))
	for i, t := range texts {
		plain[i] = t.Value
	}
	attacks, err := s.findAttacks(ctx, plain)
	if err != nil {
		whole.addFinding(familyClassifier, "failed", "")
		if !s.scoring.skipOnError {
			whole.escalate(actionDeny, familyClassifier, "")
		}
		return
	}
	for i, isAttack := range attacks {
		if !isAttack {
			continue
		}
		pointer := texts[i].Pointer()
		owners[i].addFinding(familyClassifier, "attack", pointer)
		if a := s.actions[familyClassifier]; a < actionFlag {
			owners[i].escalate(a, familyClassifier, pointer)
		}
	}
}

// listVerdict returns the verdict on a list whose items are inspected. whole is the inspection of
// the list itself.
func (s *stage) listVerdict(ctx context.Context, m *mcp.Message, method mcp.Method,
	items []*listedItem, whole inspection, words *scratch) (sdk.Verdict, error) {
	v := sdk.Verdict{Action: pipeline.Allow}
	hidden := make(map[string]bool) // names of items
	for _, item := range items {
		for _, f := range item.findings {
			if len(v.Findings) < maxFindings {
				v.Findings = append(v.Findings, f)
			}
		}
		whole.addFamilies(&item.inspection)
		whole.action = stricter(whole.action, item.action)
		if item.action == actionHide && item.name != "" {
			hidden[item.name] = true
		}
	}
	v.Findings = append(v.Findings, whole.findings...)
	if whole.action == actionDeny {
		return sdk.Deny(whole.reason(), v.Findings...), nil
	}
	if method.ItemsPointer == "" || m.Len(method.ItemsPointer) < 0 {
		return s.inspectContent(ctx, m, true) // not a list
	}
	for _, item := range items {
		switch {
		case hidden[item.name]:
		case item.action == actionHide: // an item without a name
			v.Edits = append(v.Edits, mcp.Remove(item.pointer))
		case len(item.redactions) > 0:
			edits, err := scan.Redact(mcp.NewNotification("", item.raw), item.redactions)
			if err != nil {
				return sdk.Verdict{}, err
			}
			for _, e := range edits {
				v.Edits = append(v.Edits, mcp.Edit{Pointer: item.pointer + e.Pointer,
					Value: e.Value})
			}
		}
	}
	for name := range hidden {
		v.Hide = append(v.Hide, name)
	}
	// The rest of the message is inspected, too.
	rest, err := m.Edit(mcp.Set(method.ItemsPointer, []byte("[]")))
	if err != nil {
		return sdk.Verdict{}, err
	}
	in := inspection{stage: s, isDefinition: true, action: actionOff, scratch: words}
	scan.Texts(rest, func(t scan.Text) bool { in.inspectText(t); return true })
	edits, err := scan.Redact(rest, in.redactions)
	if err != nil {
		return sdk.Verdict{}, err
	}
	v.Findings = append(v.Findings, in.findings...)
	// A single edit without a pointer renames members: it replaces the whole body, with the list.
	if in.action <= actionHide || len(edits) == 1 && edits[0].Pointer == "" {
		return sdk.Deny(in.reason(), v.Findings...), nil
	}
	whole.addFamilies(&in)
	v.Edits = append(v.Edits, edits...)
	if len(v.Edits)+len(v.Hide) > 0 {
		v.Action, v.Reason = pipeline.Modify, whole.reason()
	}
	return v, nil
}

// addFamilies adds the families of another inspection.
func (in *inspection) addFamilies(other *inspection) {
	for f, involved := range other.families {
		in.families[f] = in.families[f] || involved
	}
}

// maxMatchedURI bounds the URIs and templates that matchesTemplate compares.
const maxMatchedURI = 8 << 10

// matchesTemplate reports whether the template could expand to the URI: the literals of the
// template are in the URI, in order. It takes time in proportion to the length of both.
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
