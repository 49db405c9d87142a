package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"

	"github.com/open-policy-agent/opa/v1/ast"
)

// itemUse is the use of listed items by a message. When the policies hide an item from the list,
// its use is denied, too. So a user's hide rule needs no deny rule beside it. A library rule does
// need a deny rule: see hideQuery.
type itemUse struct {
	list  string   // the method that lists such items
	names []string // names, URIs or templates
	// the ids of the tasks that the message names; names then has the tool of each task, at the
	// same index
	tasks []string
	// the definitions of items that the message itself contains, by name
	definitions map[string][]byte
}

// itemUses returns the items of lists that a message uses.
func (s *session) itemUses(m *mcp.Message) []itemUse {
	name := m.Name
	meth, _ := mcp.LookupMethod(m.Method)
	if name == "" && meth.NamePointer != "" && m.Kind != mcp.Response && m.Kind != mcp.Error {
		name, _ = m.Text(meth.NamePointer)
	}
	singleUse := func(list string) []itemUse {
		if name == "" {
			return nil
		}
		return []itemUse{{list: list, names: []string{name}}}
	}
	switch {
	case m.Method == "tasks/list" && m.Kind == mcp.Response:
		return s.taskUses(m, taskIDs(m))
	case m.Method == "resources/directory/read" && m.Kind == mcp.Response:
		u := itemUse{list: "resources/list", definitions: map[string][]byte{}}
		m.Items("/resources", func(_ int, raw []byte) bool {
			if uri, ok := mcp.NewResponse("", raw).Text("/uri"); ok {
				u.names, u.definitions[uri] = append(u.names, uri), raw
			}
			return true
		})
		return []itemUse{u}
	case m.Method == "skills/get" && m.Kind == mcp.Response:
		raw, _ := m.Get("/skill")
		if uri, ok := mcp.NewResponse("", raw).Text("/uri"); ok {
			return []itemUse{{list: "skills/list", names: []string{uri},
				definitions: map[string][]byte{uri: raw}}}
		}
		return nil
	case m.Kind != mcp.Request && m.Kind != mcp.Notification:
		return nil
	}
	switch m.Method {
	case "tools/call":
		return singleUse("tools/list")
	case "prompts/get":
		return singleUse("prompts/list")
	case "resources/read", "resources/subscribe", "resources/unsubscribe",
		"resources/directory/read", "notifications/resources/updated":
		return singleUse("resources/list")
	case "skills/get":
		return singleUse("skills/list")
	case "completion/complete":
		if kind, _ := m.Text("/ref/type"); kind == "ref/prompt" {
			return singleUse("prompts/list")
		}
		uses := singleUse("resources/templates/list")
		// without a variable, the reference can also be a resource
		if !strings.Contains(name, "{") {
			uses = append(uses, singleUse("resources/list")...)
		}
		return uses
	case "subscriptions/listen":
		var uris []string
		m.Items("/notifications/resourceSubscriptions", func(_ int, raw []byte) bool {
			if uri, ok := mcp.NewResponse("", raw).Text(""); ok {
				uris = append(uris, uri)
			}
			return true
		})
		if len(uris) > 0 {
			return []itemUse{{list: "resources/list", names: uris}}
		}
	}
	if strings.HasPrefix(m.Method, "tasks/") || strings.HasPrefix(m.Method, "notifications/tasks") {
		return s.taskUses(m, []string{name})
	}
	return nil
}

// taskUses returns the use of the tools whose tasks a message names. Unknown tasks are left out.
func (s *session) taskUses(m *mcp.Message, ids []string) []itemUse {
	u := itemUse{list: "tools/list"}
	for _, id := range ids {
		if tool, known := s.store.tasks.Name(m.Server, id, m.Principal); known {
			u.names, u.tasks = append(u.names, tool), append(u.tasks, id)
		}
	}
	if u.names == nil {
		return nil
	}
	return []itemUse{u}
}

// itemKinds are the words for listed items in reasons, by the method of the list.
var itemKinds = map[string]string{"tools/list": "tool", "prompts/list": "prompt",
	"resources/list": "resource", "resources/templates/list": "resource template",
	"skills/list": "skill"}

// Bounds of the items that one message uses. A message that exceeds them is denied.
const (
	maxUsedNames    = 10_000  // distinct names
	maxDecodedBytes = 2 << 20 // size of the definitions that are not kept as Rego values
)

// itemList is a list as a server would send it, reduced to the items that a message uses. The hide
// rules are evaluated for this list.
type itemList struct {
	message  *mcp.Message    // without a body
	items    *ast.Array      // each definition as it was listed; only the name of an unlisted item
	unlisted map[string]bool // the names that were not listed
}

// listUsed returns the list of the items that a message uses. It leaves out the items when r, the
// members of the input that are read, does not contain them.
func (s *session) listUsed(m *mcp.Message, u itemUse, r readSet) (itemList, error) {
	meth, _ := mcp.LookupMethod(u.list)
	list := mcp.NewResponse("", []byte("{}"))
	list.Direction, list.Session, list.Principal, list.Exchange = mcp.ToClient, m.Session,
		m.Principal,
		m.Exchange
	list.Method, list.Server = u.list, m.Server
	_, each := r.wants("items")
	if _, whole := r.wants("result"); !each && !whole {
		return itemList{message: list, items: ast.NewArray()}, nil
	}
	unlisted := map[string]bool{}
	var items []*ast.Term
	// the keys of the used items' definitions, and of resources with equivalent URIs
	var keys, equivalentKeys []string
	var keysByURI map[string][]string // set when it is first needed
	seen, decoded := map[string]bool{}, 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range u.names {
		if seen[name] {
			continue
		}
		if seen[name] = true; len(seen) > maxUsedNames {
			return itemList{}, errors.New("the message contains too many names to check which of " +
				"them are hidden")
		}
		key := meth.ItemsPointer + " " + m.Server + " " + name
		d := s.definitions[key]
		if raw := u.definitions[name]; raw != nil {
			if decoded += len(raw); decoded > maxDecodedBytes {
				return itemList{}, errors.New("the items in the message are too large to check " +
					"which of them are hidden")
			}
			items = append(items, ast.NewTerm(valueOf(raw, nil)))
			continue
		}
		if d.raw == nil {
			unlisted[name] = true
			items = append(items, ast.ObjectTerm([2]*ast.Term{ast.StringTerm(
				meth.ItemNamePointer[1:]),
				ast.StringTerm(name)}))
			if u.list != "resources/list" && u.list != "skills/list" {
				continue
			}
			// add what a server may read the URI as, because a rule may compare it with a prefix
			if keysByURI == nil {
				keysByURI = s.keysByLowerURI(meth.ItemsPointer + " " + m.Server + " ")
			}
			for i, r := range uriReadings(name) {
				if i > 0 {
					items = append(items, ast.ObjectTerm([2]*ast.Term{ast.StringTerm(
						meth.ItemNamePointer[1:]), ast.StringTerm(r)}))
				}
				equivalentKeys = append(equivalentKeys, keysByURI[strings.ToLower(r)]...)
			}
			continue
		}
		keys = append(keys, key)
	}
	slices.Sort(equivalentKeys)
	keys = append(keys, slices.Compact(equivalentKeys)...)
	for _, key := range keys {
		d := s.definitions[key]
		if d.value == nil {
			if decoded += len(d.raw); decoded > maxDecodedBytes {
				return itemList{}, errors.New("the definitions of the items in the message are " +
					"too large to check which of them are hidden")
			}
		}
		add := func(t *ast.Term) {
			items = append(items, t)
			if o, ok := t.Value.(ast.Object); ok && d.canonical != "" {
				o = o.Copy()
				o.Insert(ast.StringTerm("uri"), ast.StringTerm(d.canonical))
				items = append(items, ast.NewTerm(o))
			}
		}
		if v := s.parsedDefinition(key); d.ambiguous {
			v.(*ast.Array).Foreach(add)
		} else {
			add(ast.NewTerm(v))
		}
	}
	return itemList{list, ast.NewArray(items...), unlisted}, nil
}

// keysByLowerURI returns the keys of definitions with a prefix, by the canonical spelling of the
// rest of the key in lower case. s.mu must be held.
func (s *session) keysByLowerURI(prefix string) map[string][]string {
	keys := map[string][]string{}
	for key, d := range s.definitions {
		if uri, ok := strings.CutPrefix(key, prefix); ok {
			uri = strings.ToLower(cmp.Or(d.canonical, uri))
			keys[uri] = append(keys[uri], key)
		}
	}
	return keys
}

// applyHides changes v if a message uses hidden items. v then denies the message. For a list of
// tasks or a subscription filter, v removes the hidden items instead. effects are the effects of
// the rules on the message itself.
func (s *Stage) applyHides(ctx context.Context, m *mcp.Message, session *session, mc messageContext,
	effects *decision, v *pipeline.Verdict) error {
	hides := s.hideQuery(m)
	remembers := !s.shadow && session.remembersHidden()
	if len(hides.rules) == 0 && len(effects.hidden) == 0 && !remembers ||
		v.Action == pipeline.Deny {
		return nil
	}
	deny := func(reason string) {
		*v = pipeline.Verdict{Action: pipeline.Deny, Reason: reason, Findings: v.Findings}
	}
	for _, u := range session.itemUses(m) {
		hiddenBy := map[string]string{} // the rule that hides a name
		hide := func(items []hiddenItem) {
			for _, h := range items {
				if _, known := hiddenBy[h.name]; !known {
					hiddenBy[h.name] = h.rule
				}
			}
		}
		hide(effects.hidden)
		if remembers {
			hide(session.rememberedHidden(m.Server, u))
		}
		// the names of unlisted items, when their definitions decide whether they are hidden
		var unknown map[string]bool
		if len(hides.rules) > 0 {
			q, err := s.selector.query(hides, s.selector.classOf(mcp.ToClient, mcp.Response, u.list,
				m.Server, ""))
			if err != nil {
				return err
			}
			if len(q.rules) > 0 {
				list, err := session.listUsed(m, u, q.reads)
				if err != nil {
					return err
				}
				listEffects, err := s.evaluate(ctx, q, func() ast.Value {
					return s.input(list.message, session, messageContext{now: mc.now,
						items: list.items, describer: m}, q.reads)
				}, mc.now)
				if err != nil {
					return err
				}
				hide(listEffects.hidden)
				if meth, _ := mcp.LookupMethod(u.list); !s.shadow && needsDefinition(q.hideReads,
					meth.ItemNamePointer[1:]) {
					unknown = list.unlisted
				}
				if listEffects.would != nil {
					wouldHide(m, u, listEffects.would.hidden, v)
				}
				for _, n := range listEffects.notes {
					v.Findings = append(v.Findings,
						pipeline.Finding{Type: n[:min(len(n), maxNoteBytes)]})
				}
			}
		}
		if u.list == "skills/list" && m.Kind == mcp.Request {
			// a skill need not be listed; its entry is checked when the server answers with it
			unknown = nil
		}
		if u.list == "resources/list" || u.list == "skills/list" {
			hideSameURIs(u.names, hiddenBy)
			if err := addOtherSpellings(session.unlisted(m.Server, u), hiddenBy); err != nil {
				return err
			}
		}
		for i, name := range u.names {
			by, hidden := hiddenBy[name]
			if name == "" || !hidden && !unknown[name] {
				continue
			}
			switch {
			case u.tasks != nil && m.Kind == mcp.Response:
				v.Hide = append(v.Hide, u.tasks[i])
			case m.Method == "subscriptions/listen",
				m.Method == "resources/directory/read" && m.Kind == mcp.Response:
				v.Hide = append(v.Hide, name)
			case !hidden:
				deny(fmt.Sprintf("the %s %s was not listed, and may be hidden: request %s first",
					itemKinds[u.list], name, u.list))
				return nil
			case u.tasks != nil:
				deny(fmt.Sprintf("%s: the task belongs to the tool %s, which is hidden from "+
					"this client", by, name))
				return nil
			default:
				deny(fmt.Sprintf("%s: the %s is hidden from this client", by, itemKinds[u.list]))
				return nil
			}
		}
	}
	return nil
}

// wouldHide sets v.Would to a denial if a rule that is not enforced hides an item that m uses.
// Lists of tasks and subscription filters would lose the item instead.
func wouldHide(m *mcp.Message, u itemUse, hidden []hiddenItem, v *pipeline.Verdict) {
	if m.Kind == mcp.Response || m.Method == "subscriptions/listen" {
		return
	}
	for _, h := range hidden {
		if slices.Contains(u.names, h.name) && (v.Would == nil || v.Would.Action != pipeline.Deny) {
			v.Would = &pipeline.Verdict{Action: pipeline.Deny, Reason: fmt.Sprintf("%s: the %s is "+
				"hidden from this client", h.rule, itemKinds[u.list])}
		}
	}
}

// unlisted returns the used names that were not listed. Only these can be other spellings of hidden
// URIs: each listed item has been evaluated by the hide rules under its own URI.
func (s *session) unlisted(server string, u itemUse) []string {
	meth, _ := mcp.LookupMethod(u.list)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(u.names), func(name string) bool {
		return s.definitions[meth.ItemsPointer+" "+server+" "+name].raw != nil
	})
}

// hideSameURIs adds those uris to hiddenBy that have the same canonical spelling as a hidden URI.
func hideSameURIs(uris []string, hiddenBy map[string]string) {
	if len(hiddenBy) == 0 {
		return
	}
	byCanonical := map[string]string{}
	for _, uri := range slices.Sorted(maps.Keys(hiddenBy)) {
		byCanonical[canonicalURI(uri)] = hiddenBy[uri]
	}
	for _, uri := range uris {
		if by, hidden := byCanonical[canonicalURI(uri)]; hidden && hiddenBy[uri] == "" {
			hiddenBy[uri] = by
		}
	}
}

// addOtherSpellings adds each of uris to hiddenBy that a server may read as a hidden URI.
func addOtherSpellings(uris []string, hiddenBy map[string]string) error {
	if len(hiddenBy) == 0 {
		return nil
	}
	hiddenSpellings := map[string]string{} // the rule that hides a URI, by each spelling of it
	for _, uri := range slices.Sorted(maps.Keys(hiddenBy)) {
		all, err := uriSpellings(uri)
		if err != nil {
			return fmt.Errorf("compare URIs with a hidden URI: %w", err)
		}
		for _, r := range all {
			hiddenSpellings[r] = hiddenBy[uri]
		}
	}
	for _, uri := range uris {
		if _, hidden := hiddenBy[uri]; hidden {
			continue
		}
		all, err := uriSpellings(uri)
		if err != nil {
			return fmt.Errorf("compare a URI with the hidden URIs: %w", err)
		}
		for _, r := range all {
			if by, hidden := hiddenSpellings[r]; hidden {
				hiddenBy[uri] = by
				break
			}
		}
	}
	return nil
}

// onlyHides returns the hide rules among rules.
func onlyHides(rules []effectRule) []effectRule {
	return slices.DeleteFunc(slices.Clone(rules), func(r effectRule) bool {
		return r.effect != "hide"
	})
}

// hideQuery returns the hide rules to evaluate for the items that a message uses. For the most
// frequent uses, the library rules are left out: their deny rules already cover them.
func (s *Stage) hideQuery(m *mcp.Message) ruleQuery {
	switch m.Method {
	case "tools/call", "resources/read", "resources/subscribe", "resources/unsubscribe",
		"subscriptions/listen":
		return s.ownHides
	}
	return s.hides
}

// maxHiddenBytes bounds the names that were hidden from the lists of one session.
const maxHiddenBytes = 1 << 20 // bytes

// hiddenKeys returns the keys of an item in session.hidden. A resource has a second key, for
// spellings that differ only in case.
func hiddenKeys(meth mcp.Method, server, name string) []string {
	prefix := meth.ItemsPointer + " " + server + " "
	if meth.ItemNamePointer != "/uri" {
		return []string{prefix + name}
	}
	name = canonicalURI(name)
	return []string{prefix + name, "~" + prefix + strings.ToLower(name)}
}

// recordHidden keeps the items of a list that rules hide from it, and forgets those that the list
// shows. A rule can hide an item for a reason that is only in the list, such as another item or a
// position: when the item is used, the rule sees the item alone. So an item that a list hid stays
// hidden until it is listed again. recordHidden returns false when there is no room for a name.
func (s *session) recordHidden(m *mcp.Message, hidden []hiddenItem) bool {
	meth, known := mcp.LookupMethod(m.Method)
	if !known || meth.ItemsPointer == "" || m.Kind != mcp.Response ||
		len(hidden) == 0 && !s.remembersHidden() {
		return true
	}
	byName := map[string]string{} // the rule that hides a name
	for _, h := range hidden {
		byName[h.name] = h.rule
		if meth.ItemNamePointer == "/uri" {
			byName[canonicalURI(h.name)] = h.rule
		}
	}
	now := map[string]string{}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.updateSize()
	m.Items(meth.ItemsPointer, func(_ int, raw []byte) bool {
		name, ok := mcp.NewResponse("", raw).Text(meth.ItemNamePointer)
		if !ok {
			return true
		}
		rule := byName[name]
		if rule == "" && meth.ItemNamePointer == "/uri" {
			rule = byName[canonicalURI(name)]
		}
		for _, key := range hiddenKeys(meth, m.Server, name) {
			if rule != "" {
				now[key] = rule
			} else if _, was := s.hidden[key]; was {
				delete(s.hidden, key)
				s.hiddenBytes -= len(key)
			}
		}
		return true
	})
	for key, rule := range now {
		if _, was := s.hidden[key]; !was {
			if s.hiddenBytes += len(key); s.hiddenBytes > maxHiddenBytes {
				s.hiddenBytes -= len(key)
				return false
			}
		}
		if s.hidden == nil {
			s.hidden = map[string]string{}
		}
		s.hidden[key] = rule
	}
	return true
}

func (s *session) remembersHidden() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.hidden) > 0
}

// rememberedHidden returns those of the used items that a list hid.
func (s *session) rememberedHidden(server string, u itemUse) (found []hiddenItem) {
	meth, _ := mcp.LookupMethod(u.list)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range u.names {
		readings := []string{name}
		if meth.ItemNamePointer == "/uri" {
			readings = uriReadings(name)
		}
		_, listed := s.definitions[meth.ItemsPointer+" "+server+" "+name]
		for _, r := range readings {
			keys := hiddenKeys(meth, server, r)
			if listed {
				keys = keys[:1] // a resource that is listed is not another spelling of one
			}
			if i := slices.IndexFunc(keys, func(key string) bool {
				return s.hidden[key] != ""
			}); i >= 0 {
				found = append(found, hiddenItem{s.hidden[keys[i]], name})
				break
			}
		}
	}
	return found
}
