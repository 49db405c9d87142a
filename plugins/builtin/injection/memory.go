package injection

import (
	"container/list"
	"strings"
	"sync"
)

// Bounds of what is remembered. A list with more names than one server may have is refused; the
// principals that were not heard for longest, and servers of one principal, are forgotten.
const (
	maxPrincipals = 256
	maxServers    = 64
	maxNames      = 4096 // of one server
	maxMentions   = 16   // names of tools that one definition speaks of
)

// listMemory is what lists have said, by principal: nothing in it crosses from one to another.
type listMemory struct {
	mu         sync.Mutex
	principals map[string]*list.Element // of *listed
	recent     *list.List               // the one heard last in front
}

// principalLists is what one principal's servers list.
type principalLists struct {
	principal       string
	servers         map[string]map[itemID]*itemRecord
	toolsBySkeleton map[string]map[toolID]bool // tools by skeleton
	toolsByMention  map[string]map[toolID]bool // tools by what they speak of
}

// itemID is one kind of thing with a name.
type itemID struct{ kind, name string }

// toolID is a tool of a server.
type toolID struct{ server, name string }

// itemRecord is what is known of an item since it was last listed.
type itemRecord struct {
	hidden    bool // by what it says
	shadowing bool // by its looks, or by what it says of others
	skeleton  string
	mentions  []string
}

func newListMemory() *listMemory {
	return &listMemory{principals: make(map[string]*list.Element), recent: list.New()}
}

// forPrincipal is what the principal's servers list. The lock is held.
func (m *listMemory) forPrincipal(principal string) *principalLists {
	if e, ok := m.principals[principal]; ok {
		m.recent.MoveToFront(e)
		return e.Value.(*principalLists)
	}
	if len(m.principals) >= maxPrincipals {
		last := m.recent.Back()
		delete(m.principals, last.Value.(*principalLists).principal)
		m.recent.Remove(last)
	}
	l := &principalLists{principal, make(map[string]map[itemID]*itemRecord),
		make(map[string]map[toolID]bool),
		make(map[string]map[toolID]bool)}
	m.principals[principal] = m.recent.PushFront(l)
	return l
}

// lookup says what is known of an item.
func (m *listMemory) lookup(principal, server string, i itemID) (s itemRecord, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.principals[principal]
	if !ok {
		return s, false
	}
	p, ok := e.Value.(*principalLists).servers[server][i]
	if !ok {
		return s, false
	}
	return *p, true
}

// eachTemplate calls yield for each template of resources of the server, with whether it is hidden.
func (m *listMemory) eachTemplate(principal, server string, yield func(template string,
	hidden bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.principals[principal]; ok {
		for i, s := range e.Value.(*principalLists).servers[server] {
			if i.kind == kindTemplate {
				yield(i.name, s.hidden)
			}
		}
	}
}

// store remembers items of a server as they are listed now. It answers false when they are too many
// to be remembered.
func (m *listMemory) store(principal, server string, items map[itemID]*itemRecord) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.forPrincipal(principal)
	known := l.servers[server]
	if known == nil {
		if len(l.servers) >= maxServers {
			return false
		}
		known = make(map[itemID]*itemRecord)
		l.servers[server] = known
	}
	for i, s := range items {
		if old, ok := known[i]; ok {
			l.unindex(toolID{server, i.name}, old)
		} else if len(known) >= maxNames {
			return false
		}
		known[i] = s
		if i.kind == kindTool {
			l.index(toolID{server, i.name}, s)
		}
	}
	return true
}

func (l *principalLists) index(at toolID, s *itemRecord) {
	addToIndex(l.toolsBySkeleton, s.skeleton, at)
	for _, word := range s.mentions {
		addToIndex(l.toolsByMention, word, at)
	}
}

func (l *principalLists) unindex(at toolID, s *itemRecord) {
	removeFromIndex(l.toolsBySkeleton, s.skeleton, at)
	for _, word := range s.mentions {
		removeFromIndex(l.toolsByMention, word, at)
	}
}

func addToIndex(in map[string]map[toolID]bool, word string, at toolID) {
	if in[word] == nil {
		in[word] = make(map[toolID]bool)
	}
	in[word][at] = true
}

func removeFromIndex(in map[string]map[toolID]bool, word string, at toolID) {
	delete(in[word], at)
	if len(in[word]) == 0 {
		delete(in, word)
	}
}

// lookalikes are the tools of other servers, and other tools of the same, whose names look like
// that of the tool at.
func (m *listMemory) lookalikes(principal string, at toolID, skeleton string) (places []toolID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.principals[principal]; ok {
		for p := range e.Value.(*principalLists).toolsBySkeleton[skeleton] {
			if p != at {
				places = append(places, p)
			}
		}
	}
	return places
}

// isForeignTool says whether a word is the name of another server's tool, and not of the server's
// own.
func (m *listMemory) isForeignTool(principal, server, word string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.principals[principal]
	if !ok {
		return false
	}
	l := e.Value.(*principalLists)
	if _, own := l.servers[server][itemID{kindTool, word}]; own {
		return false
	}
	for p := range l.toolsBySkeleton[skeleton(word)] {
		if p.server != server && p.name == word {
			return true
		}
	}
	return false
}

// toolsMentioning are the tools of other servers whose definitions speak of the word.
func (m *listMemory) toolsMentioning(principal, server, word string) (places []toolID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.principals[principal]; ok {
		l := e.Value.(*principalLists)
		for p := range l.toolsByMention[word] {
			if _, own := l.servers[p.server][itemID{kindTool, word}]; p.server != server && !own {
				places = append(places, p)
			}
		}
	}
	return places
}

// markShadowing marks a tool as one that may not be used.
func (m *listMemory) markShadowing(principal string, at toolID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.principals[principal]; ok {
		if s := e.Value.(*principalLists).servers[at.server][itemID{kindTool, at.name}]; s != nil {
			s.shadowing = true
		}
	}
}

// isDistinctive says whether a word can only be a name: it has an underscore or a capital inside,
// and is not short.
func isDistinctive(word string) bool {
	if len(word) < 6 {
		return false
	}
	inner := word[1 : len(word)-1]
	return strings.IndexByte(inner, '_') >= 0 || strings.IndexByte(inner, '-') >= 0 ||
		strings.IndexFunc(inner, func(r rune) bool {
			return r >= 'A' && r <= 'Z'
		}) >= 0 && strings.ToUpper(word) != word
}
