package policies

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/tasks"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Memory is what policies are told of a session beside the message: who the client is, what was labelled, how often what was called, the roots, the definitions of what was listed.
// It outlives the policies that use it, and is safe for many goroutines. The zero Memory is ready.
type Memory struct {
	Definitions int64 // bytes of the definitions of all sessions that are kept; 0 is 256 MiB

	mu       sync.Mutex
	sessions map[string]*session
	defined  atomic.Int64 // bytes of the definitions of all sessions
	parsed   atomic.Int64 // bytes of those of them that are kept as values, too
	tasks    tasks.Begun  // by the names of their tools, whichever session they began in: their principals can ask for them in another
}

// Bounds of the memory. Beyond the number of sessions, the one that was quiet for the longest is forgotten: a policy then sees it as a new one, without labels. It is far above the number
// that a Gatekit serves at once. Beyond the bytes of definitions, the quietest session loses its own, until it lists again: its tools are then as if they had not been listed.
const (
	maxSessions    = 10_000
	maxAllDefined  = 256 << 20 // bytes of the definitions of all sessions, where the memory says nothing else
	maxLabels      = 100
	maxCounted     = 10_000    // names whose calls are counted in one session
	maxDefinitions = 4 << 20   // bytes of the definitions of one session
	maxDefined     = 1_000_000 // bytes of one
	maxParsed      = 8 << 20   // bytes of the definitions of all sessions that are kept as values, which take some twenty times that
)

// session is what is known of one.
type session struct {
	mu          sync.Mutex
	used        time.Time // guarded by the memory
	client      []byte    // clientInfo, as JSON
	labels      []string
	calls       map[string]int // "server name" of a tool, "method server" of what a server asks; "" is all of tools
	minute      minute         // the calls of the last minute, by the same
	roots       []byte         // as JSON, the last that the client said
	definitions map[string]definition
	bytes       int // of definitions
	parsed      int // bytes of those that are kept as values, too
	all         *Memory
	ended       bool // it is forgotten, and only messages under way still hold it
}

// of is the session of a message. Messages without one share one, for each principal.
func (m *Memory) of(msg *mcp.Message) *session {
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

// quietest is the key of the session that was quiet for the longest of those that are eligible; "" when none is. m.mu is held.
func (m *Memory) quietest(eligible func(*session) bool) (oldest string) {
	for key, s := range m.sessions {
		if eligible(s) && (oldest == "" || s.used.Before(m.sessions[oldest].used)) {
			oldest = key
		}
	}
	return oldest
}

// end forgets a session. m.mu is held.
func (m *Memory) end(key string) {
	m.sessions[key].undefine(true)
	delete(m.sessions, key)
}

// makeRoom has the quietest sessions but keep lose their definitions, while there are too many.
func (m *Memory) makeRoom(keep *session) {
	most := cmp.Or(m.Definitions, maxAllDefined)
	if m.defined.Load() <= most {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.defined.Load() > most {
		key := m.quietest(func(s *session) bool { return s != keep && s.defines() })
		if key == "" {
			return
		}
		m.sessions[key].undefine(false)
	}
}

// counted is what a message counts as: "server name" of a tool, "method server" of what a server asks; "" is what does not count.
func counted(m *mcp.Message) (key string, tool bool) {
	switch {
	case m.Kind != mcp.Request:
	case m.Method == "tools/call":
		return m.Server + " " + m.Name, true
	case m.Method == "sampling/createMessage", m.Method == "elicitation/create":
		return m.Method + " " + m.Server, false
	}
	return "", false
}

// count counts a message before it is judged, so that many at once cannot each be the last that is allowed; one that is refused is taken back. It says whether there was room: a
// session that has called so much that it cannot be counted could go round any limit. lately says that the calls of the last minute are of interest.
func (s *session) count(m *mcp.Message, now time.Time, lately bool) (takeBack func(), ok bool) {
	key, tool := counted(m)
	if key == "" {
		return func() {}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.calls[key]; !known && len(s.calls) >= maxCounted || lately && !s.minute.count(key, now) {
		return nil, false
	}
	s.calls[key]++
	if tool {
		s.calls[""]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.calls[key]--; s.calls[key] == 0 {
			delete(s.calls, key)
		}
		if tool {
			s.calls[""]--
		}
		if lately {
			s.minute.takeBack(key, now)
		}
	}, true
}

// counts are calls as an object, without the message that is being judged, which was counted.
func counts(calls map[string]int, m *mcp.Message) ast.Value {
	own, tool := counted(m)
	var members [][2]*ast.Term
	for name, n := range calls {
		if own != "" && (name == own || name == "" && tool) {
			n--
		}
		if n > 0 {
			members = append(members, [2]*ast.Term{ast.StringTerm(name), ast.NewTerm(ast.Number(strconv.Itoa(n)))})
		}
	}
	return ast.NewObject(members...)
}

// learn takes in a message that the policies let pass.
func (s *session) learn(m *mcp.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.Method == "initialize" && m.Kind == mcp.Request:
		s.client = kept(m, "/clientInfo")
	case m.Method == "roots/list" && m.Kind == mcp.Response:
		s.roots = kept(m, "/roots")
	case m.Kind == mcp.Response && items(m) != nil:
		s.define(m)
	case m.Method == "tools/call" && m.Kind == mcp.Response:
		if id, ok := mcp.TaskBegun(m); ok {
			s.all.tasks.Add(m.Server, id, m.Principal, m.Name)
		}
	}
	if s.client == nil && m.Kind == mcp.Request {
		if info, ok := m.Get(mcp.AtClientInfo); ok {
			s.client = slices.Clone(info)
		}
	}
}

func kept(m *mcp.Message, at string) []byte {
	raw, _ := m.Get(at)
	if len(raw) > maxDefined {
		return nil
	}
	return slices.Clone(raw)
}

// definition is what a list says of one name.
type definition struct {
	raw     []byte    // as JSON; of several, with commas between them
	several bool      // the list gives the name to several things: nobody knows which of them is used
	value   ast.Value // the same as raw, once a rule has read it, and while there is room
}

// define keeps the definitions of a list. Where there is no room for one, the one before it goes, too: it is as if it had not been listed. s.mu is held.
func (s *session) define(m *mcp.Message) {
	meth, _ := mcp.Lookup(m.Method)
	here := map[string]bool{} // keys of this list
	m.Items(meth.ItemsAt, func(_ int, raw []byte) bool {
		name, ok := mcp.NewResponse("", raw).Text(meth.ItemName)
		if !ok || s.ended {
			return true
		}
		key := meth.ItemsAt + " " + m.Server + " " + name
		old := s.definitions[key]
		next := definition{raw: slices.Clone(raw)}
		switch again := here[key]; {
		case again && (old.raw == nil || bytes.Equal(old.raw, raw)): // there was no room for it, or it is the same
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
}

// unparse forgets the value of a definition. s.mu is held.
func (s *session) unparse(d definition) {
	if d.value != nil {
		s.parsed -= len(d.raw)
		s.all.parsed.Add(-int64(len(d.raw)))
	}
}

// item is the definition of the tool, prompt or resource that a request is about; nil when it was not listed, or is one of several. A tool is called more often than listed: its
// definition is read once.
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
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range labels {
		if slices.Contains(s.labels, l) {
			continue
		}
		if len(s.labels) >= maxLabels {
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
	return object(r, []string{"id", "client", "labels", "calls", "minute"}, func(name string, r reads) ast.Value {
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
