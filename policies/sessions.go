package policies

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/tasks"

	"github.com/open-policy-agent/opa/v1/ast"
)

// SessionStore is what policies are told of a session beside the message: who the client is, what
// was labelled, how often what was called, the roots, the definitions of what was listed. It
// outlives the policies that use it, and is safe for many goroutines. The zero Memory is ready.
type SessionStore struct {
	MaxDefinitionBytes int64 // bytes of the definitions of all sessions that are kept; 0 is 256 MiB
	MaxStateBytes      int64 // bytes of all else that is kept of all sessions; 0 is 256 MiB

	mu              sync.Mutex
	sessions        map[string]*session
	definitionBytes atomic.Int64 // bytes of the definitions of all sessions
	stateBytes      atomic.Int64 // bytes of all else, about
	parsedBytes     atomic.Int64 // bytes of those of them that are kept as values, too
	// by the names of their tools, whichever session they began in: their principals can ask for
	// them in another
	tasks tasks.Registry
}

// Bounds of the memory. Nobody tells it that a session has ended: beyond the number of sessions,
// the one that was quiet for the longest is forgotten. A policy then sees it as a new one, without
// labels. The number is far above what a Gatekit serves at once. Beyond the bytes of definitions,
// the quietest session loses its own, until it lists again: its tools are then as if they had not
// been listed. Beyond the bytes of all else, the session that takes the most is forgotten, so that
// nobody can have those of others forgotten by filling theirs. What is too long of one session is
// as if the client had not said it, or is refused.
const (
	maxSessions = 10_000
	// bytes of the definitions of all sessions, where the memory says nothing else
	defaultMaxDefinitionBytes = 256 << 20
	// bytes of all else of all sessions, where the memory says nothing else
	defaultMaxStateBytes = 256 << 20
	maxClientInfoBytes   = 4 << 10  // bytes of what a client says of itself
	maxRootsBytes        = 64 << 10 // bytes of the roots of one client
	maxLabels            = 100
	maxLabelBytes        = 1_000 // bytes of one
	// bytes of the names whose calls are counted in one session, as [nameBytes] has it
	maxCallNameBytes          = 256 << 10
	maxSessionDefinitionBytes = 4 << 20   // bytes of the definitions of one session
	maxDefinitionBytes        = 1_000_000 // bytes of one
	// bytes of the definitions of all sessions that are kept as values, which take some twenty
	// times that
	maxParsedBytes = 8 << 20
)

// session is what is known of one.
type session struct {
	mu       sync.Mutex
	lastUsed time.Time // guarded by the memory
	client   []byte    // clientInfo, as JSON
	labels   []string
	// "server name" of a tool, "method server" of what a server asks; "" is all of tools
	calls           map[string]int
	callNameBytes   int        // bytes of the names of calls
	lastMinute      rateWindow // the calls of the last minute, by the same
	roots           []byte     // as JSON, the last that the client said
	definitions     map[string]definition
	definitionBytes int // of definitions
	parsedBytes     int // bytes of those that are kept as values, too
	stateBytes      int // bytes of all else, as the memory counts them
	store           *SessionStore
	ended           bool // it is forgotten, and only messages under way still hold it
}

// session is the session of a message. Messages without one share one, for each principal.
func (m *SessionStore) session(msg *mcp.Message) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := msg.Principal + "\x00" + msg.Session
	s := m.sessions[key]
	if s == nil {
		if m.sessions == nil {
			m.sessions = map[string]*session{}
		}
		if len(m.sessions) >= maxSessions {
			m.forget(m.leastRecentlyUsed(func(*session) bool { return true }))
		}
		s = &session{store: m, calls: map[string]int{}, definitions: map[string]definition{}}
		m.sessions[key] = s
	}
	s.lastUsed = time.Now()
	return s
}

// firstSession is the key of the session that comes before all others of those that are eligible; "" when
// none is. m.mu is held.
func (m *SessionStore) firstSession(eligible func(*session) bool,
	before func(a, b *session) bool) (first string) {
	for key, s := range m.sessions {
		if eligible(s) && (first == "" || before(s, m.sessions[first])) {
			first = key
		}
	}
	return first
}

// leastRecentlyUsed is the key of the session that was quiet for the longest of those that are eligible; ""
// when none is. m.mu is held.
func (m *SessionStore) leastRecentlyUsed(eligible func(*session) bool) string {
	return m.firstSession(eligible, func(a, b *session) bool { return a.lastUsed.Before(b.lastUsed) })
}

// forget forgets a session. m.mu is held.
func (m *SessionStore) forget(key string) {
	m.sessions[key].dropDefinitions(true)
	delete(m.sessions, key)
}

// evict has the largest sessions forgotten, and the quietest but keep lose their definitions,
// while there is too much.
func (m *SessionStore) evict(keep *session) {
	most, mostKept := cmp.Or(m.MaxDefinitionBytes, defaultMaxDefinitionBytes), cmp.Or(m.MaxStateBytes,
		defaultMaxStateBytes)
	if m.definitionBytes.Load() <= most && m.stateBytes.Load() <= mostKept {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.stateBytes.Load() > mostKept {
		key := m.firstSession(func(s *session) bool {
			return s.stateSize() > 0
		}, func(a, b *session) bool { return a.stateSize() > b.stateSize() })
		if key == "" {
			break
		}
		m.forget(key)
	}
	for m.definitionBytes.Load() > most {
		key := m.leastRecentlyUsed(func(s *session) bool { return s != keep && s.hasDefinitions() })
		if key == "" {
			return
		}
		m.sessions[key].dropDefinitions(false)
	}
}

func (s *session) stateSize() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateBytes
}

// updateSize has the memory know what the session takes now, beside definitions. s.mu is held.
func (s *session) updateSize() {
	was := s.stateBytes
	s.stateBytes = 0
	if !s.ended {
		s.stateBytes = len(s.client) + len(s.roots) + s.callNameBytes + s.lastMinute.bytes()
		for _, l := range s.labels {
			s.stateBytes += len(l)
		}
	}
	if s.stateBytes != was {
		s.store.stateBytes.Add(int64(s.stateBytes - was))
	}
}

// record takes in a message that the policies let pass.
func (s *session) record(m *mcp.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.updateSize()
	switch {
	case m.Method == "initialize" && m.Kind == mcp.Request:
		s.client = copyMember(m, "/clientInfo", maxClientInfoBytes)
	case m.Method == "roots/list" && m.Kind == mcp.Response:
		s.roots = copyMember(m, "/roots", maxRootsBytes)
	case m.Kind == mcp.Response && items(m) != nil:
		s.recordDefinitions(m)
	case m.Method == "tools/call" && m.Kind == mcp.Response:
		if id, ok := mcp.CreatedTaskID(m); ok {
			s.store.tasks.Add(m.Server, id, m.Principal, m.Name)
		}
	}
	if s.client == nil && m.Kind == mcp.Request {
		s.client = copyMember(m, mcp.PointerClientInfo, maxClientInfoBytes)
	}
}

// copyMember is a copy of what a message says; nil, as if it did not say it, when that is longer than
// most.
func copyMember(m *mcp.Message, at string, most int) []byte {
	raw, _ := m.Get(at)
	if len(raw) > most {
		return nil
	}
	return slices.Clone(raw)
}

// definition is what a list says of one name.
type definition struct {
	raw []byte // as JSON; of several, with commas between them
	// the list gives the name to several things: nobody knows which of them is used
	ambiguous bool
	value     ast.Value // the same as raw, once a rule has read it, and while there is room
}

// recordDefinitions keeps the definitions of a list. Where there is no room for one, the one before it goes,
// too: it is as if it had not been listed. s.mu is held.
func (s *session) recordDefinitions(m *mcp.Message) {
	meth, _ := mcp.LookupMethod(m.Method)
	here := map[string]bool{} // keys of this list
	m.Items(meth.ItemsPointer, func(_ int, raw []byte) bool {
		name, ok := mcp.NewResponse("", raw).Text(meth.ItemNamePointer)
		if !ok || s.ended {
			return true
		}
		key := meth.ItemsPointer + " " + m.Server + " " + name
		old := s.definitions[key]
		next := definition{raw: slices.Clone(raw)}
		switch again := here[key]; {
		case again && (old.raw == nil || bytes.Equal(old.raw, raw)):
			// there was no room for it, or it is the same
			return true
		case again:
			next = definition{raw: slices.Concat(old.raw, []byte(","), raw), ambiguous: true}
		}
		here[key] = true
		if len(next.raw) > maxDefinitionBytes || s.definitionBytes-len(old.raw)+len(next.raw) > maxSessionDefinitionBytes {
			next = definition{}
		}
		s.definitionBytes += len(next.raw) - len(old.raw)
		s.store.definitionBytes.Add(int64(len(next.raw) - len(old.raw)))
		s.dropParsed(old)
		if s.definitions[key] = next; next.raw == nil {
			delete(s.definitions, key)
		}
		return true
	})
}

func (s *session) hasDefinitions() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.definitionBytes > 0
}

// dropDefinitions forgets all definitions. A session that has ended learns no more.
func (s *session) dropDefinitions(ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = s.ended || ended
	s.store.definitionBytes.Add(-int64(s.definitionBytes))
	s.store.parsedBytes.Add(-int64(s.parsedBytes))
	s.definitions, s.definitionBytes, s.parsedBytes = map[string]definition{}, 0, 0
	s.updateSize()
}

// dropParsed forgets the value of a definition. s.mu is held.
func (s *session) dropParsed(d definition) {
	if d.value != nil {
		s.parsedBytes -= len(d.raw)
		s.store.parsedBytes.Add(-int64(len(d.raw)))
	}
}

// item is the definition of the tool, prompt or resource that a request is about; nil when it was
// not listed, or is one of several. A tool is called more often than listed: its definition is read
// once.
func (s *session) item(m *mcp.Message) ast.Value {
	key, ok := definitionKey(m)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.definitions[key]; d.raw == nil || d.ambiguous {
		return nil
	}
	return s.parsedDefinition(key)
}

// parsedDefinition is a definition that there is as a value; of several, an array of them. s.mu is held.
func (s *session) parsedDefinition(key string) ast.Value {
	d := s.definitions[key]
	if d.value != nil {
		return d.value
	}
	raw := d.raw
	if d.ambiguous {
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	}
	v := valueOf(raw, nil)
	if s.ended || s.store.parsedBytes.Add(int64(len(d.raw))) > maxParsedBytes {
		s.store.parsedBytes.Add(-int64(len(d.raw)))
		return v
	}
	d.value = v
	s.definitions[key] = d
	s.parsedBytes += len(d.raw)
	return v
}

// definitionKey is the key of the definition that a message is about.
func definitionKey(m *mcp.Message) (key string, ok bool) {
	switch m.Method {
	case "tools/call":
		key = "/tools"
	case "prompts/get":
		key = "/prompts"
	case "resources/read", "resources/subscribe":
		key = "/resources"
	default:
		return "", false
	}
	return key + " " + m.Server + " " + m.Name, true
}

func (s *session) declaredRoots() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roots
}

// addLabels adds labels, and says whether there was room for all.
func (s *session) addLabels(labels []string) bool {
	if len(labels) == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.updateSize()
	for _, l := range labels {
		if slices.Contains(s.labels, l) {
			continue
		}
		if len(s.labels) >= maxLabels || len(l) > maxLabelBytes {
			return false
		}
		s.labels = append(s.labels, l)
	}
	return true
}

// inputValue is input.session, for a message that was counted.
func (s *session) inputValue(m *mcp.Message, now time.Time, r readSet) ast.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	return object(r, []string{"id", "client", "labels", "calls", "minute"},
		func(name string, r readSet) ast.Value {
			switch name {
			case "id":
				return ast.String(m.Session)
			case "client":
				return valueOf(s.client, r)
			case "labels":
				terms := make([]*ast.Term, len(s.labels))
				for i, l := range s.labels {
					terms[i] = ast.StringTerm(l)
				}
				return ast.NewArray(terms...)
			case "calls":
				return callCounts(s.calls, m)
			}
			return callCounts(s.lastMinute.calls(now), m)
		})
}
