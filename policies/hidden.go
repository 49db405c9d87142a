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
	"gatekit/core/uris"

	"github.com/open-policy-agent/opa/v1/ast"
)

// itemUse is the use of listed items by a message. When the policies hide an item from the list,
// the use of the item is denied, too. A user's hide rule therefore needs no deny rule beside it. A
// hide rule of the library needs a deny rule; see hideQuery.
type itemUse struct {
	list  string   // the method of the list, for example tools/list
	names []string // the names, URIs or URI templates of the items
	// the ids of the tasks that the message names; if there are any, names has the tool of each
	// task at the same index
	tasks []string
	// the definitions of items that the message itself contains, by name
	definitions map[string][]byte
}

// itemUses returns the uses of listed items by a message.
func (s *session) itemUses(m *mcp.Message) []itemUse {
	singleUse := func(list string) []itemUse {
		if m.Name == "" {
			return nil
		}
		return []itemUse{{list: list, names: []string{m.Name}}}
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
		// A reference without a variable can also be the URI of a resource.
		if !strings.Contains(m.Name, "{") {
			uses = append(uses, singleUse("resources/list")...)
		}
		return uses
	case "subscriptions/listen":
		var subscribed []string
		m.Items("/notifications/resourceSubscriptions", func(_ int, raw []byte) bool {
			if uri, ok := mcp.NewResponse("", raw).Text(""); ok {
				subscribed = append(subscribed, uri)
			}
			return true
		})
		if len(subscribed) > 0 {
			return []itemUse{{list: "resources/list", names: subscribed}}
		}
	}
	if strings.HasPrefix(m.Method, "tasks/") || strings.HasPrefix(m.Method, "notifications/tasks") {
		return s.taskUses(m, []string{m.Name})
	}
	return nil
}

// taskUses returns the use of the tools whose tasks a message names. Unknown tasks are left out.
func (s *session) taskUses(m *mcp.Message, ids []string) []itemUse {
	u := itemUse{list: "tools/list"}
	for _, id := range ids {
		if tool, known := s.taskTool(m, id); known {
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
	maxDecodedBytes = 2 << 20 // size of the definitions that must be decoded for this message
)

// itemList is a list as a server would send it, reduced to the items that a message uses. The hide
// rules are evaluated for this list.
type itemList struct {
	message  *mcp.Message    // without a body
	items    *ast.Array      // the listed definitions; for an unlisted item, only its name
	unlisted map[string]bool // the names that were not listed
}

// listUsed returns the list of the items that a message uses. r is the set of input members that
// the hide rules read. If r does not contain the items, the list has no items.
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
			// A server may read this URI as another URI. Add these other URIs, too, because a
			// rule may compare URIs with a prefix.
			if keysByURI == nil {
				keysByURI = s.keysByLowerURI(meth.ItemsPointer + " " + m.Server + " ")
			}
			for i, r := range uris.Readings(name) {
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
		// add adds an item, and a copy of it with the canonical spelling of its URI.
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

// keysByLowerURI returns the keys in s.definitions that begin with prefix. The rest of each key is
// a URI. The result is indexed by the canonical spelling of this URI, in lower case. s.mu must be
// held.
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

// applyHides changes v to a denial if a message uses hidden items. If the message is a list of
// tasks, a result of resources/directory/read, or a subscriptions/listen, v removes the hidden
// items instead. The parameter effects has the effects of the rules on the message itself.
func (s *Stage) applyHides(ctx context.Context, m *mcp.Message, session *session, mc messageContext,
	effects *decision, v *pipeline.Verdict) error {
	hides := s.hideQuery(m)
	remembers := !s.shadow && session.remembersHidden()
	if len(hides.rules) == 0 && len(effects.hidden) == 0 && !remembers ||
		v.Action == pipeline.Deny {
		return nil
	}
	deny := func(by, reason string) {
		*v = pipeline.Verdict{Action: pipeline.Deny, Reason: reason, Findings: v.Findings,
			Final: v.Final || isFinal(by)}
	}
	for _, u := range session.itemUses(m) {
		hiddenBy := map[string]string{} // for each hidden name, the rule that hides it
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
		// the names of the unlisted items, if a hide rule needs definitions to decide
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
				listEffects, err := s.evaluate(ctx, q, list.message, func() ast.Value {
					return s.input(list.message, session, messageContext{now: mc.now,
						items: list.items, describer: m, knownClient: mc.knownClient}, q.reads)
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
			// A skill need not be listed. Its definition in the server's answer is checked.
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
				deny("", fmt.Sprintf("the %s %s was not listed, and may be hidden: request %s "+
					"first", itemKinds[u.list], name, u.list))
				return nil
			case u.tasks != nil:
				deny(by, fmt.Sprintf("%s: the task belongs to the tool %s, which is hidden from "+
					"this client", by, name))
				return nil
			default:
				isOnlyReason := v.Action == pipeline.Allow && len(v.Hide) == 0
				deny(by, fmt.Sprintf("%s: the %s is hidden from this client", by,
					itemKinds[u.list]))
				if isOnlyReason {
					v.Findings = append(v.Findings,
						pipeline.Finding{Type: pipeline.FindingHidden})
				}
				return nil
			}
		}
	}
	return nil
}

// wouldHide sets v.Would to a denial if a rule that is not enforced hides an item that m uses. It
// changes nothing for responses and subscription filters, which would only lose the item.
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

// unlisted returns the used names that were not listed. Only an unlisted name can be another
// spelling of a hidden URI, because the hide rules were evaluated for each listed item under its
// own URI.
func (s *session) unlisted(server string, u itemUse) []string {
	meth, _ := mcp.LookupMethod(u.list)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(u.names), func(name string) bool {
		return s.definitions[meth.ItemsPointer+" "+server+" "+name].raw != nil
	})
}

// hideSameURIs adds to hiddenBy each used URI that has the same canonical spelling as a hidden URI.
func hideSameURIs(used []string, hiddenBy map[string]string) {
	if len(hiddenBy) == 0 {
		return
	}
	byCanonical := map[string]string{}
	for _, uri := range slices.Sorted(maps.Keys(hiddenBy)) {
		byCanonical[uris.Canonical(uri)] = hiddenBy[uri]
	}
	for _, uri := range used {
		if by, hidden := byCanonical[uris.Canonical(uri)]; hidden && hiddenBy[uri] == "" {
			hiddenBy[uri] = by
		}
	}
}

// addOtherSpellings adds to hiddenBy each unlisted URI that a server may read as a hidden URI.
func addOtherSpellings(unlisted []string, hiddenBy map[string]string) error {
	if len(hiddenBy) == 0 {
		return nil
	}
	hiddenSpellings := map[string]string{} // for each spelling of a hidden URI, the hide rule
	for _, uri := range slices.Sorted(maps.Keys(hiddenBy)) {
		all, err := uriSpellings(uri)
		if err != nil {
			return fmt.Errorf("compare URIs with a hidden URI: %w", err)
		}
		for _, r := range all {
			hiddenSpellings[r] = hiddenBy[uri]
		}
	}
	for _, uri := range unlisted {
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
// frequent uses, it leaves out the library's hide rules, because the library's deny rules already
// cover these uses.
func (s *Stage) hideQuery(m *mcp.Message) ruleQuery {
	switch m.Method {
	case "tools/call", "resources/read", "resources/subscribe", "resources/unsubscribe",
		"subscriptions/listen":
		return s.ownHides
	}
	return s.hides
}

// maxHiddenBytes bounds the total size of the names that were hidden from the lists of a session.
const maxHiddenBytes = 1 << 20 // bytes

// hiddenKeys returns the keys of an item in session.hidden. A resource has a second key, for
// spellings that differ only in case.
func hiddenKeys(meth mcp.Method, server, name string) []string {
	prefix := meth.ItemsPointer + " " + server + " "
	if meth.ItemNamePointer != "/uri" {
		return []string{prefix + name}
	}
	name = uris.Canonical(name)
	return []string{prefix + name, "~" + prefix + strings.ToLower(name)}
}

// recordHidden remembers the items that rules hide from a list, and forgets the items that the list
// shows. A rule can hide an item because of another item in the list, or because of the item's
// position. When the item is used, the rule sees the item alone. An item that was hidden from a
// list therefore stays hidden until a later list shows it. recordHidden returns false when there is
// no room for a name.
func (s *session) recordHidden(m *mcp.Message, hidden []hiddenItem) bool {
	meth, known := mcp.LookupMethod(m.Method)
	if !known || meth.ItemsPointer == "" || m.Kind != mcp.Response ||
		len(hidden) == 0 && !s.remembersHidden() {
		return true
	}
	byName := map[string]string{} // for each hidden name, the rule that hides it
	for _, h := range hidden {
		byName[h.name] = h.rule
		if meth.ItemNamePointer == "/uri" {
			byName[uris.Canonical(h.name)] = h.rule
		}
	}
	hiddenNow := map[string]string{} // as session.hidden, for this list
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
			rule = byName[uris.Canonical(name)]
		}
		for _, key := range hiddenKeys(meth, m.Server, name) {
			if rule != "" {
				hiddenNow[key] = rule
			} else if _, was := s.hidden[key]; was {
				delete(s.hidden, key)
				s.hiddenBytes -= len(key)
			}
		}
		return true
	})
	for key, rule := range hiddenNow {
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

// rememberedHidden returns those of the used items that were hidden from a list.
func (s *session) rememberedHidden(server string, u itemUse) (found []hiddenItem) {
	meth, _ := mcp.LookupMethod(u.list)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range u.names {
		readings := []string{name}
		if meth.ItemNamePointer == "/uri" {
			readings = uris.Readings(name)
		}
		_, listed := s.definitions[meth.ItemsPointer+" "+server+" "+name]
		for _, r := range readings {
			keys := hiddenKeys(meth, server, r)
			if listed {
				keys = keys[:1] // a listed URI is not a spelling of a hidden URI
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
