package injection

import (
	"container/list"
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
}

// itemID identifies an item of a server.
type itemID struct{ kind, name string } // see newItemID

// toolID identifies a tool of a principal.
type toolID struct{ server, name string }

// itemRecord is the result of the last inspection of an item.
type itemRecord struct {
	hidden    bool     // the item is hidden because of its own texts and name
	shadowing bool     // the tool imitates or mentions another server's tool
	skeleton  string   // skeleton of the name; names that look alike have the same skeleton
	mentions  []string // words in the item's texts that may be names of tools
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

// index adds a tool to toolsBySkeleton and toolsByMention.
func (l *principalLists) index(tool toolID, record *itemRecord) {
	addToIndex(l.toolsBySkeleton, record.skeleton, tool)
	for _, word := range record.mentions {
		addToIndex(l.toolsByMention, word, tool)
	}
}

// unindex removes a tool from toolsBySkeleton and toolsByMention.
func (l *principalLists) unindex(tool toolID, record *itemRecord) {
	removeFromIndex(l.toolsBySkeleton, record.skeleton, tool)
	for _, word := range record.mentions {
		removeFromIndex(l.toolsByMention, word, tool)
	}
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

// lookalikes returns the other tools of the principal, on any server, whose names have this
// skeleton.
func (m *listMemory) lookalikes(principal string, tool toolID, skeleton string) (tools []toolID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(principal); l != nil {
		for other := range l.toolsBySkeleton[skeleton] {
			if other != tool {
				tools = append(tools, other)
			}
		}
	}
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
	for tool := range l.toolsBySkeleton[skeleton(word)] {
		if tool.server != server && tool.name == word {
			return true
		}
	}
	return false
}

// toolsMentioning returns the tools of other servers whose definitions mention the word. It leaves
// out a tool whose own server has a tool with the word as its name.
func (m *listMemory) toolsMentioning(principal, server, word string) (tools []toolID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.find(principal); l != nil {
		for tool := range l.toolsByMention[word] {
			_, own := l.servers[tool.server][itemID{kindTool, word}]
			if tool.server != server && !own {
				tools = append(tools, tool)
			}
		}
	}
	return tools
}

// markShadowing marks a tool as one that imitates or mentions another server's tool.
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
