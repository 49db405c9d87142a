package pipeline

import (
	"crypto/sha256"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/uris"
)

const (
	maxHiddenOfList   = 10_000    // hidden names of one list
	maxTemplateBytes  = 8 << 10   // of one template or URI that is compared with templates
	maxTemplatesBytes = 256 << 10 // of all templates of one list
	// maxWeight bounds the weights of all lists. Beyond it, the list that was judged longest ago is
	// forgotten.
	maxWeight = 1 << 18
)

// HiddenItems remembers the items that stages hid from lists, until the stage judges the item
// again. A use of a hidden item is denied, even if the stage has forgotten what it hid: its process
// was restarted, or its settings have changed. After a reload, the new pipeline uses the same
// HiddenItems. The lists of one principal do not affect another. The zero HiddenItems is empty and
// ready. Many goroutines may use it.
type HiddenItems struct {
	mu     sync.RWMutex
	lists  map[listKey]*judgedList
	weight int    // of all lists
	judged uint64 // number of calls of judge that changed a list
}

// listKey identifies a list of items.
type listKey struct{ stage, principal, server, kind string }

// judgedList has the decisions of a stage about the items of a list.
type judgedList struct {
	hidden map[itemID]itemState // the hidden items
	// Templates has the hidden templates, and the others: a resource may be read if one of them
	// matches its URI.
	templates     map[string]itemState
	templateBytes int
	judged        uint64 // value of HiddenItems.judged when the list was judged last
}

// itemState is the decision of a stage about an item.
type itemState struct {
	hidden bool
	id     string // with which an operator can allow the item; "" for an item that is shown
}

// itemID is a digest of a name or of a canonical URI, since names may be long.
type itemID [16]byte

// The kinds of items, as reasons name them.
const (
	kindTool     = "tool"
	kindOwnTool  = "connect tool" // Gatekit's own tool of a server (Message.Own)
	kindPrompt   = "prompt"
	kindResource = "resource"
	kindTemplate = "resource template"
	kindSkill    = "skill"
)

// listKind returns the kind of items that the method lists, or "".
func listKind(method string) string {
	switch method {
	case "tools/list":
		return kindTool
	case "prompts/list":
		return kindPrompt
	case "resources/list", "resources/directory/read":
		return kindResource
	case "resources/templates/list":
		return kindTemplate
	case "skills/list":
		return kindSkill
	}
	return ""
}

// kindOf returns the kind of the items that m lists or uses, if it is kind for the server's own
// items. Gatekit's own tool is apart: a stage that hides a server's tool of the same name does not
// hide it, and does not show the server's tool if it shows this one.
func kindOf(m *mcp.Message, kind string) string {
	if m.Own && kind == kindTool {
		return kindOwnTool
	}
	return kind
}

// itemUse is how a request uses an item.
type itemUse struct {
	kind    string
	list    string // method that lists items of this kind
	pointer string // of the name or URI of the item
}

// usesOf returns the uses of items by a request. The request uses at most one of them.
func usesOf(method string) []itemUse {
	switch method {
	case "tools/call":
		return []itemUse{{kindTool, "tools/list", "/name"}}
	case "prompts/get":
		return []itemUse{{kindPrompt, "prompts/list", "/name"}}
	case "resources/read", "resources/subscribe", "resources/directory/read":
		return []itemUse{{kindResource, "resources/list", "/uri"},
			{kindTemplate, "resources/templates/list", "/uri"}}
	case "skills/get":
		return []itemUse{{kindSkill, "skills/list", "/uri"}}
	case "completion/complete":
		return []itemUse{{kindPrompt, "prompts/list", "/ref/name"},
			{kindTemplate, "resources/templates/list", "/ref/uri"}}
	}
	return nil
}

// newItemID returns the ID of an item. All spellings of a URI have the same ID.
func newItemID(kind, name string) (id itemID) {
	switch kind {
	case kindResource, kindSkill:
		name = uris.Canonical(name)
	}
	sum := sha256.Sum256([]byte(name))
	copy(id[:], sum[:])
	return id
}

// isEmpty reports whether no list is remembered.
func (h *HiddenItems) isEmpty() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.lists) == 0
}

// ListWith returns the list from which an item with this id is hidden: the principal whose list it
// is, the server, and the capability that has the list ("tools", "prompts" or "resources"; "" for
// skills). ok is false if there is none.
func (h *HiddenItems) ListWith(id string) (principal, server, capability string, ok bool) {
	hasID := func(states iter.Seq[itemState]) bool {
		for state := range states {
			if state.hidden && state.id == id {
				return true
			}
		}
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	for key, l := range h.lists {
		if hasID(maps.Values(l.hidden)) || hasID(maps.Values(l.templates)) {
			switch key.kind {
			case kindTool, kindPrompt, kindResource:
				capability = key.kind + "s"
			case kindOwnTool:
				capability = "tools"
			case kindTemplate:
				capability = "resources"
			}
			return key.principal, key.server, capability, true
		}
	}
	return "", "", "", false
}

// has reports whether a list is remembered.
func (h *HiddenItems) has(key listKey) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.lists[key] != nil
}

// judge remembers what a stage decided about the items of the list m, which is the list that the
// stage saw. hide holds the names that the stage hides, and ids the ids of these items
// ([Allowances]). judge returns false if there are too many hidden items to remember.
func (h *HiddenItems) judge(stage string, m *mcp.Message, hide []string,
	ids map[string]string) bool {
	kind := kindOf(m, listKind(m.Method))
	key := listKey{stage, m.Principal.ID(), m.Server, kind}
	// A list of templates is remembered even if no template is hidden: a later page may hide one.
	if m.Kind != mcp.Response || kind == "" ||
		len(hide) == 0 && kind != kindTemplate && !h.has(key) {
		return true
	}
	isHidden := make(map[string]bool, len(hide))
	for _, name := range hide {
		isHidden[name] = true
	}
	items := make(map[string]itemState) // by name
	method, _ := mcp.LookupMethod(m.Method)
	m.ItemTexts(method.ItemsPointer, method.ItemNamePointer, func(_ int, _ []byte, name string,
		ok bool) bool {
		if ok && name != "" {
			items[name] = itemState{isHidden[name], ids[name]}
		}
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lists[key]
	if l == nil {
		l = &judgedList{hidden: map[itemID]itemState{}, templates: map[string]itemState{}}
		if h.lists == nil {
			h.lists = map[listKey]*judgedList{}
		}
		h.lists[key] = l
	}
	h.judged++
	l.judged = h.judged
	h.weight -= l.weight()
	fits := true
	for name, state := range items {
		fits = l.judgeItem(kind, name, state) && fits
	}
	h.weight += l.weight()
	if l.weight() == 0 {
		delete(h.lists, key)
	}
	h.forgetOldest(key)
	return fits
}

// weight is about the memory that the list takes, counted in hidden names.
func (l *judgedList) weight() int {
	return len(l.hidden) + (l.templateBytes+63)/64
}

// judgeItem remembers whether an item is hidden. It returns false if the item is hidden and cannot
// be remembered.
func (l *judgedList) judgeItem(kind, name string, state itemState) bool {
	if kind == kindTemplate {
		return l.judgeTemplate(name, state)
	}
	id := newItemID(kind, name)
	switch {
	case !state.hidden:
		delete(l.hidden, id)
	case len(l.hidden) >= maxHiddenOfList && !l.hidden[id].hidden:
		return false
	default:
		l.hidden[id] = state
	}
	return true
}

// judgeTemplate is judgeItem for a template. A hidden template takes the room of shown ones.
func (l *judgedList) judgeTemplate(template string, state itemState) bool {
	fits := func() bool { return l.templateBytes+len(template) <= maxTemplatesBytes }
	if _, known := l.templates[template]; !known {
		if len(template) > maxTemplateBytes {
			return !state.hidden
		}
		if state.hidden && !fits() {
			for shown, other := range l.templates {
				if !other.hidden {
					delete(l.templates, shown)
					l.templateBytes -= len(shown)
				}
			}
		}
		if !fits() {
			return !state.hidden
		}
		l.templateBytes += len(template)
	}
	l.templates[strings.Clone(template)] = state
	return true
}

// forgetOldest forgets the lists that were judged longest ago, but not the list with the given key,
// until the weight of all lists is at most maxWeight. The caller holds h.mu.
func (h *HiddenItems) forgetOldest(keep listKey) {
	for h.weight > maxWeight {
		oldest, found := keep, false
		for key, l := range h.lists {
			if key != keep && (!found || l.judged < h.lists[oldest].judged) {
				oldest, found = key, true
			}
		}
		if !found {
			return
		}
		h.weight -= h.lists[oldest].weight()
		delete(h.lists, oldest)
	}
}

// hiddenItem returns the state of the item that a request uses by this name: how the stage judged
// it last. An item whose id is allowed is not hidden. A URI uses a template if it matches that
// template; it is hidden if it matches a hidden template and no template that is shown.
func (p *Pipeline) hiddenItem(key listKey, name string) itemState {
	h := p.options.HiddenItems
	if key.kind == kindTemplate {
		return p.matchHidden(h.templates(key), name)
	}
	id := newItemID(key.kind, name)
	h.mu.RLock()
	defer h.mu.RUnlock()
	if l := h.lists[key]; l != nil {
		return p.allow(l.hidden[id])
	}
	return itemState{}
}

// allow returns the state of an item with the allowances of the operator.
func (p *Pipeline) allow(state itemState) itemState {
	if state.hidden && state.id != "" && p.options.Allowances != nil &&
		p.options.Allowances.Holds(state.id) {
		state.hidden = false
	}
	return state
}

// templates returns the templates of a list. It returns nil if none is hidden.
func (h *HiddenItems) templates(key listKey) map[string]itemState {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if l := h.lists[key]; l != nil {
		for _, state := range l.templates {
			if state.hidden {
				return maps.Clone(l.templates)
			}
		}
	}
	return nil
}

// matchHidden returns the state of the templates that could expand to the URI. A template is also a
// URI that it expands to. A URI that is too long to compare matches if there are templates.
func (p *Pipeline) matchHidden(templates map[string]itemState, uri string) itemState {
	if state, ok := templates[uri]; ok {
		return p.allow(state)
	}
	if len(uri) > maxTemplateBytes {
		return itemState{hidden: len(templates) > 0}
	}
	uri = uris.Canonical(uri)
	var matched itemState
	for _, template := range slices.Sorted(maps.Keys(templates)) {
		if !matchesTemplate(canonicalTemplate(template), uri) {
			continue
		}
		state := templates[template]
		if !state.hidden {
			return itemState{}
		}
		state = p.allow(state)
		if matched == (itemState{}) || matched.hidden && !state.hidden {
			matched = state
		}
	}
	return matched
}

// canonicalTemplate returns a template with its literals in the canonical spelling of URIs.
func canonicalTemplate(template string) string {
	return strings.NewReplacer("%7B", "{", "%7D", "}").Replace(uris.Canonical(template))
}

// matchesTemplate reports whether the template could expand to the URI: the literals of the
// template are in the URI, in order. It takes time in proportion to the length of both.
func matchesTemplate(template, uri string) bool {
	literal, rest, hasExpression := strings.Cut(template, "{")
	if !strings.HasPrefix(uri, literal) {
		return false
	}
	uri = uri[len(literal):]
	for hasExpression {
		var ends bool
		if _, rest, ends = strings.Cut(rest, "}"); !ends {
			return true
		}
		literal, rest, hasExpression = strings.Cut(rest, "{")
		if !hasExpression {
			return strings.HasSuffix(uri, literal)
		}
		i := strings.Index(uri, literal)
		if i < 0 {
			return false
		}
		uri = uri[i+len(literal):]
	}
	return uri == ""
}

// remembersHidden reports whether the items that the stage hides are remembered: to deny their use,
// or to know with which id an operator can allow it.
func (p *Pipeline) remembersHidden(s *stage) bool {
	return s.keepHidden || p.options.Allowances != nil
}

// mayUseHidden reports whether m may use an item that a stage hid.
func (p *Pipeline) mayUseHidden(m *mcp.Message) bool {
	return p.hiders != nil && m.Kind == mcp.Request && m.Direction == mcp.ToServer &&
		!p.options.HiddenItems.isEmpty()
}

// denyHiddenUse denies the request of o if it uses an item that a stage hid. It adds the allowances
// without which it would deny the request to used. A stage that no longer wants the lists of the
// server hides nothing, since it would never judge them again.
func (p *Pipeline) denyHiddenUse(o *Outcome, used *[]usedAllowance) *DeniedError {
	m := o.After
	if !p.mayUseHidden(m) {
		return nil
	}
	for _, use := range usesOf(m.Method) {
		for _, s := range p.hiders {
			kind := kindOf(m, use.kind)
			key := listKey{s.name, m.Principal.ID(), m.Server, kind}
			if !p.options.HiddenItems.has(key) || !s.wantsList(use.list, m.Server) {
				continue
			}
			name, ok := m.Text(use.pointer)
			if !ok {
				continue
			}
			reason := "the " + kind + " is hidden: the stage removed it from its list"
			if use.kind == kindTemplate && m.Method != "completion/complete" {
				if p.options.RecordableNames.has(m.Server, name) {
					continue // the resource is in a list itself
				}
				reason = "the resource matches only a resource template that is hidden"
			}
			state := p.hiddenItem(key, name)
			switch by := (usedAllowance{state.id, s.name}); {
			case state.hidden:
				return o.denyByHost(s.name, reason, state.id)
			case state.id != "" && !slices.Contains(*used, by):
				*used = append(*used, by)
				o.Steps = append(o.Steps, Step{Stage: s.name, Action: "allowed", Reason: reason,
					Allowed: []string{state.id}})
			}
		}
	}
	return nil
}

// NeedsList reports whether a stage may judge the request m by what it has seen in the list with
// this method: a stage with KeepHidden that inspects the list may hide items from it, and a
// ListReader says so itself.
func (p *Pipeline) NeedsList(m *mcp.Message, list string) bool {
	for _, s := range p.stages[mcp.Response][mcp.ToClient] {
		if !s.wantsList(list, m.Server) {
			continue
		}
		if s.keepHidden {
			return true
		}
		if r, ok := s.stage.(ListReader); ok && r.NeedsList(m, list) {
			return true
		}
	}
	return false
}

// wantsList reports whether the stage inspects the lists of the server with this method.
func (s *stage) wantsList(method, server string) bool {
	m := &mcp.Message{Kind: mcp.Response, Method: method, Server: server}
	return s.wants.includesKind(m.Kind, mcp.ToClient) && s.wants.includes(m)
}
