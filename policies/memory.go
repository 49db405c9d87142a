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

	mu       sync.Mutex
	sessions map[string]*session
	defined  atomic.Int64 // bytes of the definitions of all sessions
	kept     atomic.Int64 // bytes of all else, about
	parsed   atomic.Int64 // bytes of those of them that are kept as values, too
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
	maxAllDefined = 256 << 20
	// bytes of all else of all sessions, where the memory says nothing else
	maxAllKept = 256 << 20
	maxClient  = 4 << 10  // bytes of what a client says of itself
	maxRoots   = 64 << 10 // bytes of the roots of one client
	maxLabels  = 100
	maxLabel   = 1_000 // bytes of one
	// bytes of the names whose calls are counted in one session, as [nameBytes] has it
	maxNames       = 256 << 10
	maxDefinitions = 4 << 20   // bytes of the definitions of one session
	maxDefined     = 1_000_000 // bytes of one
	// bytes of the definitions of all sessions that are kept as values, which take some twenty
	// times that
	maxParsed = 8 << 20
)

// session is what is known of one.
type session struct {
	mu     sync.Mutex
	used   time.Time // guarded by the memory
	client []byte    // clientInfo, as JSON
	labels []string
	// "server name" of a tool, "method server" of what a server asks; "" is all of tools
	calls       map[string]int
	names       int    // bytes of the names of calls
	minute      minute // the calls of the last minute, by the same
	roots       []byte // as JSON, the last that the client said
	definitions map[string]definition
	bytes       int // of definitions
	parsed      int // bytes of those that are kept as values, too
	kept        int // bytes of all else, as the memory counts them
	all         *SessionStore
	ended       bool // it is forgotten, and only messages under way still hold it
}

// of is the session of a message. Messages without one share one, for each principal.
func (m *SessionStore) of(msg *mcp.Message) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := msg.Principal + "\x00" + msg.Session
	s := m.sessions[key]
	if s == nil {
		if m.sessions == nil {
			m.sessions = map[string]*session{}
		}
		if len(m.sessions) >= maxSessions {
			m.end(m.quietest(func(*session) bool { return true }))
		}
		s = &session{all: m, calls: map[string]int{}, definitions: map[string]definition{}}
		m.sessions[key] = s
	}
	s.used = time.Now()
	return s
}

// first is the key of the session that comes before all others of those that are eligible; "" when
// none is. m.mu is held.
func (m *SessionStore) first(eligible func(*session) bool,
	before func(a, b *session) bool) (first string) {
	for key, s := range m.sessions {
		if eligible(s) && (first == "" || before(s, m.sessions[first])) {
			first = key
		}
	}
	return first
}

// quietest is the key of the session that was quiet for the longest of those that are eligible; ""
// when none is. m.mu is held.
func (m *SessionStore) quietest(eligible func(*session) bool) string {
	return m.first(eligible, func(a, b *session) bool { return a.used.Before(b.used) })
}

// end forgets a session. m.mu is held.
func (m *SessionStore) end(key string) {
	m.sessions[key].undefine(true)
	delete(m.sessions, key)
}

// makeRoom has the largest sessions forgotten, and the quietest but keep lose their definitions,
// while there is too much.
func (m *SessionStore) makeRoom(keep *session) {
	most, mostKept := cmp.Or(m.MaxDefinitionBytes, maxAllDefined), cmp.Or(m.MaxStateBytes,
		maxAllKept)
	if m.defined.Load() <= most && m.kept.Load() <= mostKept {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.kept.Load() > mostKept {
		key := m.first(func(s *session) bool {
			return s.keeps() > 0
		}, func(a, b *session) bool { return a.keeps() > b.keeps() })
		if key == "" {
			break
		}
		m.end(key)
	}
	for m.defined.Load() > most {
		key := m.quietest(func(s *session) bool { return s != keep && s.defines() })
		if key == "" {
			return
		}
		m.sessions[key].undefine(false)
	}
}

func (s *session) keeps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// weigh has the memory know what the session takes now, beside definitions. s.mu is held.
func (s *session) weigh() {
	was := s.kept
	s.kept = 0
	if !s.ended {
		s.kept = len(s.client) + len(s.roots) + s.names + s.minute.bytes()
		for _, l := range s.labels {
			s.kept += len(l)
		}
	}
	if s.kept != was {
		s.all.kept.Add(int64(s.kept - was))
	}
}

// learn takes in a message that the policies let pass.
func (s *session) learn(m *mcp.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.weigh()
	switch {
	case m.Method == "initialize" && m.Kind == mcp.Request:
		s.client = kept(m, "/clientInfo", maxClient)
	case m.Method == "roots/list" && m.Kind == mcp.Response:
		s.roots = kept(m, "/roots", maxRoots)
	case m.Kind == mcp.Response && items(m) != nil:
		s.define(m)
	case m.Method == "tools/call" && m.Kind == mcp.Response:
		if id, ok := mcp.CreatedTaskID(m); ok {
			s.all.tasks.Add(m.Server, id, m.Principal, m.Name)
		}
	}
	if s.client == nil && m.Kind == mcp.Request {
		s.client = kept(m, mcp.PointerClientInfo, maxClient)
	}
}

// kept is a copy of what a message says; nil, as if it did not say it, when that is longer than
// most.
func kept(m *mcp.Message, at string, most int) []byte {
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
	several bool
	value   ast.Value // the same as raw, once a rule has read it, and while there is room
}

// define keeps the definitions of a list. Where there is no room for one, the one before it goes,
// too: it is as if it had not been listed. s.mu is held.
func (s *session) define(m *mcp.Message) {
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
			next = definition{raw: slices.Concat(old.raw, []byte(","), raw), several: true}
		}
		here[key] = true
		if len(next.raw) > maxDefined || s.bytes-len(old.raw)+len(next.raw) > maxDefinitions {
			next = definition{}
		}
		s.bytes += len(next.raw) - len(old.raw)
		s.all.defined.Add(int64(len(next.raw) - len(old.raw)))
		s.unparse(old)
		if s.definitions[key] = next; next.raw == nil {
			delete(s.definitions, key)
		}
		return true
	})
}

func (s *session) defines() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes > 0
}

// undefine forgets all definitions. A session that has ended learns no more.
func (s *session) undefine(ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = s.ended || ended
	s.all.defined.Add(-int64(s.bytes))
	s.all.parsed.Add(-int64(s.parsed))
	s.definitions, s.bytes, s.parsed = map[string]definition{}, 0, 0
	s.weigh()
}

// unparse forgets the value of a definition. s.mu is held.
func (s *session) unparse(d definition) {
	if d.value != nil {
		s.parsed -= len(d.raw)
		s.all.parsed.Add(-int64(len(d.raw)))
	}
}

// item is the definition of the tool, prompt or resource that a request is about; nil when it was
// not listed, or is one of several. A tool is called more often than listed: its definition is read
// once.
func (s *session) item(m *mcp.Message) ast.Value {
	key, ok := definitionOf(m)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.definitions[key]; d.raw == nil || d.several {
		return nil
	}
	return s.valueOf(key)
}

// valueOf is a definition that there is as a value; of several, an array of them. s.mu is held.
func (s *session) valueOf(key string) ast.Value {
	d := s.definitions[key]
	if d.value != nil {
		return d.value
	}
	raw := d.raw
	if d.several {
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	}
	v := valueOf(raw, nil)
	if s.ended || s.all.parsed.Add(int64(len(d.raw))) > maxParsed {
		s.all.parsed.Add(-int64(len(d.raw)))
		return v
	}
	d.value = v
	s.definitions[key] = d
	s.parsed += len(d.raw)
	return v
}

// definitionOf is the key of the definition that a message is about.
func definitionOf(m *mcp.Message) (key string, ok bool) {
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

func (s *session) rootsOf() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roots
}

// label adds labels, and says whether there was room for all.
func (s *session) label(labels []string) bool {
	if len(labels) == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.weigh()
	for _, l := range labels {
		if slices.Contains(s.labels, l) {
			continue
		}
		if len(s.labels) >= maxLabels || len(l) > maxLabel {
			return false
		}
		s.labels = append(s.labels, l)
	}
	return true
}

// value is input.session, for a message that was counted.
func (s *session) value(m *mcp.Message, now time.Time, r reads) ast.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	return object(r, []string{"id", "client", "labels", "calls", "minute"},
		func(name string, r reads) ast.Value {
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
				return counts(s.calls, m)
			}
			return counts(s.minute.calls(now), m)
		})
}
