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

// memory is what lists have said, by principal: nothing in it crosses from one to another.
type memory struct {
	mu         sync.Mutex
	principals map[string]*list.Element // of *listed
	recent     *list.List               // the one heard last in front
}

// listed is what one principal's servers list.
type listed struct {
	principal string
	servers   map[string]map[item]*seen
	names     map[string]map[place]bool // tools by skeleton
	mentioned map[string]map[place]bool // tools by what they speak of
}

// item is one kind of thing with a name.
type item struct{ kind, name string }

// place is a tool of a server.
type place struct{ server, name string }

// seen is what is known of an item since it was last listed.
type seen struct {
	hidden   bool // by what it says
	shadows  bool // by its looks, or by what it says of others
	skeleton string
	mentions []string
}

func newMemory() *memory {
	return &memory{principals: make(map[string]*list.Element), recent: list.New()}
}

// of is what the principal's servers list. The lock is held.
func (m *memory) of(principal string) *listed {
	if e, ok := m.principals[principal]; ok {
		m.recent.MoveToFront(e)
		return e.Value.(*listed)
	}
	if len(m.principals) >= maxPrincipals {
		last := m.recent.Back()
		delete(m.principals, last.Value.(*listed).principal)
		m.recent.Remove(last)
	}
	l := &listed{principal, make(map[string]map[item]*seen), make(map[string]map[place]bool),
		make(map[string]map[place]bool)}
	m.principals[principal] = m.recent.PushFront(l)
	return l
}

// known says what is known of an item.
func (m *memory) known(principal, server string, i item) (s seen, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.principals[principal]
	if !ok {
		return s, false
	}
	p, ok := e.Value.(*listed).servers[server][i]
	if !ok {
		return s, false
	}
	return *p, true
}

// templates calls yield for each template of resources of the server, with whether it is hidden.
func (m *memory) templates(principal, server string, yield func(template string, hidden bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.principals[principal]; ok {
		for i, s := range e.Value.(*listed).servers[server] {
			if i.kind == kindTemplate {
				yield(i.name, s.hidden)
			}
		}
	}
}

// put remembers items of a server as they are listed now. It answers false when they are too many
// to be remembered.
func (m *memory) put(principal, server string, items map[item]*seen) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.of(principal)
	known := l.servers[server]
	if known == nil {
		if len(l.servers) >= maxServers {
			return false
		}
		known = make(map[item]*seen)
		l.servers[server] = known
	}
	for i, s := range items {
		if old, ok := known[i]; ok {
			l.forget(place{server, i.name}, old)
		} else if len(known) >= maxNames {
			return false
		}
		known[i] = s
		if i.kind == kindTool {
			l.remember(place{server, i.name}, s)
		}
	}
	return true
}

func (l *listed) remember(at place, s *seen) {
	note(l.names, s.skeleton, at)
	for _, word := range s.mentions {
		note(l.mentioned, word, at)
	}
}

func (l *listed) forget(at place, s *seen) {
	unnote(l.names, s.skeleton, at)
	for _, word := range s.mentions {
		unnote(l.mentioned, word, at)
	}
}

func note(in map[string]map[place]bool, word string, at place) {
	if in[word] == nil {
		in[word] = make(map[place]bool)
	}
	in[word][at] = true
}

func unnote(in map[string]map[place]bool, word string, at place) {
	delete(in[word], at)
	if len(in[word]) == 0 {
		delete(in, word)
	}
}

// alike are the tools of other servers, and other tools of the same, whose names look like that of
// the tool at.
func (m *memory) alike(principal string, at place, skeleton string) (places []place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.principals[principal]; ok {
		for p := range e.Value.(*listed).names[skeleton] {
			if p != at {
				places = append(places, p)
			}
		}
	}
	return places
}

// foreign says whether a word is the name of another server's tool, and not of the server's own.
func (m *memory) foreign(principal, server, word string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.principals[principal]
	if !ok {
		return false
	}
	l := e.Value.(*listed)
	if _, own := l.servers[server][item{kindTool, word}]; own {
		return false
	}
	for p := range l.names[skeleton(word)] {
		if p.server != server && p.name == word {
			return true
		}
	}
	return false
}

// speaksOf are the tools of other servers whose definitions speak of the word.
func (m *memory) speaksOf(principal, server, word string) (places []place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.principals[principal]; ok {
		l := e.Value.(*listed)
		for p := range l.mentioned[word] {
			if _, own := l.servers[p.server][item{kindTool, word}]; p.server != server && !own {
				places = append(places, p)
			}
		}
	}
	return places
}

// shadow marks a tool as one that may not be used.
func (m *memory) shadow(principal string, at place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.principals[principal]; ok {
		if s := e.Value.(*listed).servers[at.server][item{kindTool, at.name}]; s != nil {
			s.shadows = true
		}
	}
}

// distinctive says whether a word can only be a name: it has an underscore or a capital inside, and
// is not short.
func distinctive(word string) bool {
	if len(word) < 6 {
		return false
	}
	inner := word[1 : len(word)-1]
	return strings.IndexByte(inner, '_') >= 0 || strings.IndexByte(inner, '-') >= 0 ||
		strings.IndexFunc(inner, func(r rune) bool {
			return r >= 'A' && r <= 'Z'
		}) >= 0 && strings.ToUpper(word) != word
}
