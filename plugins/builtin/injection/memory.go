package injection

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
)

// Limits of the memory. A list that exceeds maxNames or maxServers is denied. When maxPrincipals is
// exceeded, the principal whose last list is oldest is forgotten.
const (
	maxPrincipals = 256
	maxServers    = 64   // of one principal
	maxNames      = 4096 // of one server
	maxMentions   = 16   // of one definition
)

// listMemory remembers the lists that each principal has got. The lists of one principal do not
// affect another principal. The methods of listMemory may be called from many goroutines.
type listMemory struct {
	mu         sync.Mutex
	principals map[string]*list.Element // elements of recent, by principal
	// elements are *principalLists; the principal that got the most recent list is first
	recent *list.List
}

// principalLists holds the lists of one principal's servers.
type principalLists struct {
	principal       string
	servers         map[string]map[itemID]*itemRecord // by server
	toolsBySkeleton map[string]map[toolID]bool        // by the skeletons of their names
	toolsByMention  map[string]map[toolID]bool        // by the words that their definitions mention
	toolsByName     map[string]map[toolID]bool
	tail            []token // the last words of the last results, for splitFinder
}

// itemID identifies an item of a server.
type itemID struct{ kind, name string } // see newItemID

// toolID identifies a tool of a principal.
type toolID struct{ server, name string }

// itemRecord is the result of the last inspection of an item.
type itemRecord struct {
	hidden    bool // the item is hidden because of its own texts and name
	shadowing bool // the tool imitates another server's tool, or steers the use of it
	// skeletons are the skeletons of the name. Names that look alike share one.
	skeletons [2]string
	mentions  []mention
}

// mention is a word in a definition that may be the name of a tool.
type mention struct {
	word   string
	steers bool // the sentence is about which tool to use, such as "instead of" the word
}

func newListMemory() *listMemory {
	return &listMemory{principals: make(map[string]*list.Element), recent: list.New()}
}

// forPrincipal returns the lists of the principal, and makes it the most recent principal. The
// caller holds m.mu.
func (m *listMemory) forPrincipal(principal string) *principalLists {
	if e, ok := m.principals[principal]; ok {
		m.recent.MoveToFront(e)
		return e.Value.(*principalLists)
	}
	if len(m.principals) >= maxPrincipals {
		oldest := m.recent.Back()
		delete(m.principals, oldest.Value.(*principalLists).principal)
		m.recent.Remove(oldest)
	}
	l := &principalLists{
		principal:       principal,
		servers:         make(map[string]map[itemID]*itemRecord),
		toolsBySkeleton: make(map[string]map[toolID]bool),
		toolsByMention:  make(map[string]map[toolID]bool),
		toolsByName:     make(map[string]map[toolID]bool),
	}
	m.principals[principal] = m.recent.PushFront(l)
	return l
}

// find returns the lists of the principal, or nil if the principal has got none. The caller holds
// m.mu.
func (m *listMemory) find(principal string) *principalLists {
	if e, ok := m.principals[principal]; ok {
		return e.Value.(*principalLists)
	}
	return nil
}

// lookup returns a copy of the record of an item. ok is false if the item has not been listed.
func (m *listMemory) lookup(principal, server string, id itemID) (record itemRecord, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.find(principal)
	if l == nil {
		return record, false
	}
	stored, ok := l.servers[server][id]
	if !ok {
		return record, false
	}
	return *stored, true
}

// templates returns the resource templates of the server: those that are hidden, and the others.
// The caller compares them without holding m.mu, because many templates take long.
func (m *listMemory) templates(principal, server string) (hidden, shown []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(principal); l != nil {
		for id, record := range l.servers[server] {
			switch {
			case id.kind != kindTemplate:
			case record.hidden:
				hidden = append(hidden, id.name)
			default:
				shown = append(shown, id.name)
			}
		}
	}
	return hidden, shown
}

// isInHiddenSkill reports whether a URI is in the directory of a hidden skill of the server. Of
// nested skills, the innermost skill decides. A URI that is too long to compare counts as a file of
// a hidden skill if there is one. The URI has its canonical spelling.
func (m *listMemory) isInHiddenSkill(principal, server, uri string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.find(principal)
	if l == nil {
		return false
	}
	if len(uri) > maxMatchedURI {
		for id, record := range l.servers[server] {
			if id.kind == kindSkill && record.hidden {
				return true
			}
		}
		return false
	}
	for items := l.servers[server]; uri != ""; uri = directoryOf(uri) {
		if record, ok := items[itemID{kindSkill, uri}]; ok {
			return record.hidden
		}
	}
	return false
}

// store replaces the records of items of a server. It returns false if a limit is exceeded. The
// memory owns the records from then on, and changes only their field shadowing.
func (m *listMemory) store(principal, server string, records map[itemID]*itemRecord) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.forPrincipal(principal)
	items := l.servers[server]
	if items == nil {
		if len(l.servers) >= maxServers {
			return false
		}
		items = make(map[itemID]*itemRecord)
		l.servers[server] = items
	}
	for id, record := range records {
		if old, ok := items[id]; ok {
			l.unindex(toolID{server, id.name}, old)
		} else if len(items) >= maxNames {
			return false
		}
		items[id] = record
		if id.kind == kindTool {
			l.index(toolID{server, id.name}, record)
		}
	}
	return true
}

// index adds a tool to the indexes.
func (l *principalLists) index(tool toolID, record *itemRecord) {
	for _, skeleton := range record.skeletons {
		addToIndex(l.toolsBySkeleton, skeleton, tool)
	}
	for _, m := range record.mentions {
		addToIndex(l.toolsByMention, m.word, tool)
	}
	addToIndex(l.toolsByName, tool.name, tool)
}

// unindex removes a tool from the indexes.
func (l *principalLists) unindex(tool toolID, record *itemRecord) {
	for _, skeleton := range record.skeletons {
		removeFromIndex(l.toolsBySkeleton, skeleton, tool)
	}
	for _, m := range record.mentions {
		removeFromIndex(l.toolsByMention, m.word, tool)
	}
	removeFromIndex(l.toolsByName, tool.name, tool)
}

func addToIndex(byWord map[string]map[toolID]bool, word string, tool toolID) {
	if byWord[word] == nil {
		byWord[word] = make(map[toolID]bool)
	}
	byWord[word][tool] = true
}

func removeFromIndex(index map[string]map[toolID]bool, word string, tool toolID) {
	delete(index[word], tool)
	if len(index[word]) == 0 {
		delete(index, word)
	}
}

// lookalikes returns the other tools of the principal, on any server, whose names have one of these
// skeletons. They are sorted, so that the same list gets the same findings again.
func (m *listMemory) lookalikes(principal string, tool toolID,
	skeletons [2]string) (tools []toolID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(principal); l != nil {
		for _, skeleton := range skeletons {
			for other := range l.toolsBySkeleton[skeleton] {
				if other != tool && !slices.Contains(tools, other) {
					tools = append(tools, other)
				}
			}
		}
	}
	slices.SortFunc(tools, func(a, b toolID) int {
		return cmp.Or(cmp.Compare(a.server, b.server), cmp.Compare(a.name, b.name))
	})
	return tools
}

// isForeignTool reports whether the word is the name of a tool of another server, and the server
// itself has no tool of that name.
func (m *listMemory) isForeignTool(principal, server, word string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.find(principal)
	if l == nil {
		return false
	}
	if _, own := l.servers[server][itemID{kindTool, word}]; own {
		return false
	}
	return len(l.toolsByName[word]) > 0
}

// listsTool reports whether the principal has a listed tool with the name, of the server or of
// another server.
func (m *listMemory) listsTool(principal, server, name string) (own, other bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(principal); l != nil {
		for tool := range l.toolsByName[name] {
			own, other = own || tool.server == server, other || tool.server != server
		}
	}
	return own, other
}

// toolsMentioning returns the tools of other servers whose definitions mention the word, with
// whether they steer its use. It leaves out a tool whose own server has a tool with the word as its
// name.
func (m *listMemory) toolsMentioning(principal, server, word string) map[toolID]bool {
	tools := make(map[toolID]bool)
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(principal); l != nil {
		for tool := range l.toolsByMention[word] {
			_, own := l.servers[tool.server][itemID{kindTool, word}]
			if tool.server != server && !own {
				record := l.servers[tool.server][itemID{kindTool, tool.name}]
				tools[tool] = record != nil && slices.ContainsFunc(record.mentions,
					func(m mention) bool { return m.word == word && m.steers })
			}
		}
	}
	return tools
}

// markShadowing marks a tool as one that imitates another server's tool, or steers its use.
func (m *listMemory) markShadowing(principal string, tool toolID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(principal); l != nil {
		record := l.servers[tool.server][itemID{kindTool, tool.name}]
		if record != nil {
			record.shadowing = true
		}
	}
}
