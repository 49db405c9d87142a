package policies

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/tasks"
	"gatekit/core/uris"

	"github.com/open-policy-agent/opa/v1/ast"
)

// SessionStore keeps the state of sessions that policies can read: the client's information,
// labels, call counts, roots, and the definitions of listed items. The same SessionStore can be
// given to the next Stage, so that a reload keeps the sessions. It is safe for concurrent use, and
// its zero value is ready to use.
type SessionStore struct {
	MaxDefinitionBytes int64 // bounds the definitions of all sessions; 0 means 256 MiB
	MaxStateBytes      int64 // bounds all other state of all sessions; 0 means 256 MiB
	// Tasks has the tools of tasks that were created through other replicas; it is a *tasks.Owners.
	// It is nil if there are none.
	Tasks interface {
		Name(server, id, principal string) (tool string, ok bool)
	}

	mu              sync.Mutex
	sessions        map[string]*session
	definitionBytes atomic.Int64 // size of the definitions of all sessions
	stateBytes      atomic.Int64 // approximate size of all other state of all sessions
	parsedBytes     atomic.Int64 // size of the definitions that are also kept as Rego values

	// the labels of each principal that has any, for stages that keep labels by principal
	principalLabels     map[string][]string
	principalLabelBytes int // size of the labels and names of principals

	// the tool of each task, for all sessions: a principal can use its tasks in any session
	tasks tasks.Registry

	schemas schemaCache // the compiled schemas of listed tools, of all sessions
}

// Bounds of the store, which does not learn when a session ends.
//
//   - Above maxSessions, the least recently used session is forgotten. If the session is used
//     again, policies see a new session without labels. One Gatekit serves far fewer sessions at a
//     time.
//   - Above MaxDefinitionBytes, the least recently used session loses its definitions. Its items
//     are treated as not listed until they are listed again.
//   - Above MaxStateBytes, the largest session is forgotten. A client that fills its own session
//     can therefore not displace the state of other clients.
//   - Labels of principals are never forgotten. If there is no room for a label, the message that
//     sets the label is denied.
//   - A value of one session that is too long is ignored, or its message is denied.
const (
	maxSessions               = 10_000
	defaultMaxDefinitionBytes = 256 << 20
	defaultMaxStateBytes      = 256 << 20

	maxClientInfoBytes        = 4 << 10
	maxDescriptions           = 16 // descriptions of the clients that share a session
	maxRootsBytes             = 64 << 10
	maxLabels                 = 100
	maxLabelBytes             = 1_000     // size of one label
	maxPrincipals             = 10_000    // principals that have labels
	maxPrincipalLabelBytes    = 64 << 20  // size of the labels of all principals
	maxCallNameBytes          = 256 << 10 // size of the counted names of one session
	maxSessionDefinitionBytes = 4 << 20   // size of the definitions of one session
	maxDefinitionBytes        = 1_000_000 // size of one definition

	// JSON size of the definitions of all sessions that are also kept as Rego values; a Rego value
	// needs about twenty times the memory of its JSON
	maxParsedBytes = 8 << 20
)

// session is the state of one session.
type session struct {
	mu       sync.Mutex
	lastUsed time.Time // guarded by SessionStore.mu
	// clientInfo and the client's capabilities, as JSON, from the first request that declares them;
	// a request of a modern revision declares its own
	client, capabilities []byte
	logLevel             string // that the client set last with logging/setLevel
	// the digests of the descriptions of clients that came before the session had labels
	descriptions [][sha256.Size]byte
	labels       []string
	nextRenewal  time.Time // of the state that replicas share

	calls           map[string]int        // by callKey; "" counts the calls of all tools
	callNameBytes   int                   // size of the keys of calls
	lastMinute      rateWindow            // the calls of the last minute, by callKey
	unlistedCalls   map[string]bool       // callKeys of calls that passed for an unlisted tool
	unlistedBytes   int                   // size of unlistedCalls
	roots           []byte                // the roots that the client declared last, as JSON
	definitions     map[string]definition // of listed items; see definitionKey
	definitionBytes int                   // size of definitions
	parsedBytes     int                   // size of the definitions that are also Rego values
	hidden          map[string]string     // the rule that hid an item from a list, by hiddenKey
	hiddenBytes     int                   // size of the keys of hidden
	stateBytes      int                   // size of all other state, as counted in the store
	store           *SessionStore
	ended           bool // the store has removed the session; messages in flight may still use it
}

// session returns the session of a message. All messages of a principal that have no session ID
// share one session.
func (m *SessionStore) session(msg *mcp.Message) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := msg.Principal.ID() + "\x00" + msg.Session
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

// firstSession returns the key of the first eligible session, in the order that the function less
// defines, or "". m.mu must be held.
func (m *SessionStore) firstSession(eligible func(*session) bool,
	less func(a, b *session) bool) (first string) {
	for key, s := range m.sessions {
		if eligible(s) && (first == "" || less(s, m.sessions[first])) {
			first = key
		}
	}
	return first
}

// leastRecentlyUsed returns the key of the eligible session that was unused for the longest, or "".
// m.mu must be held.
func (m *SessionStore) leastRecentlyUsed(eligible func(*session) bool) string {
	return m.firstSession(eligible, func(a, b *session) bool {
		return a.lastUsed.Before(b.lastUsed)
	})
}

// forget removes a session. m.mu must be held.
func (m *SessionStore) forget(key string) {
	m.sessions[key].dropDefinitions(true)
	delete(m.sessions, key)
}

// evict frees memory until the store is within its bounds. It forgets the largest sessions, and
// drops the definitions of the least recently used sessions, except those of the current session.
func (m *SessionStore) evict(current *session) {
	maxDefinitions, maxState := cmp.Or(m.MaxDefinitionBytes, defaultMaxDefinitionBytes),
		cmp.Or(m.MaxStateBytes,
			defaultMaxStateBytes)
	if m.definitionBytes.Load() <= maxDefinitions && m.stateBytes.Load() <= maxState {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.stateBytes.Load() > maxState {
		key := m.firstSession(func(s *session) bool {
			return s.stateSize() > 0
		}, func(a, b *session) bool { return a.stateSize() > b.stateSize() })
		if key == "" {
			break
		}
		m.forget(key)
	}
	for m.definitionBytes.Load() > maxDefinitions {
		key := m.leastRecentlyUsed(func(s *session) bool {
			return s != current && s.hasDefinitions()
		})
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

// updateSize computes stateBytes again, and updates the store's sum. s.mu must be held.
func (s *session) updateSize() {
	before := s.stateBytes
	s.stateBytes = 0
	if !s.ended {
		s.stateBytes = len(s.client) + len(s.capabilities) + len(s.roots) + s.callNameBytes +
			s.unlistedBytes + s.lastMinute.bytes() + sha256.Size*len(s.descriptions) + s.hiddenBytes
		for _, l := range s.labels {
			s.stateBytes += len(l)
		}
	}
	if s.stateBytes != before {
		s.store.stateBytes.Add(int64(s.stateBytes - before))
	}
}

// record keeps the parts of an allowed message that rules need for later messages.
// principalLabels are labels that the session has beside its own. describes is set if the
// description of the client is kept, too.
func (s *session) record(m *mcp.Message, principalLabels []string, describes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.updateSize()
	switch {
	case m.Method == "initialize" && m.Kind == mcp.Request:
		s.client = copyMember(m, "/clientInfo", maxClientInfoBytes)
		s.capabilities = copyMember(m, "/capabilities", maxClientInfoBytes)
	case m.Method == "roots/list" && m.Kind == mcp.Response:
		s.roots = copyMember(m, "/roots", maxRootsBytes) // m has no hidden roots
	case m.Method == "logging/setLevel" && m.Kind == mcp.Response && m.Request != nil:
		if level, _ := m.Request.Text("/level"); mcp.LogLevelRank(level) >= 0 {
			s.logLevel = level
		}
	case m.Kind == mcp.Response && listedItems(m) != nil:
		s.recordDefinitions(m)
	case m.Method == "tools/call" && m.Kind == mcp.Request:
		s.recordUnlistedCall(m)
	case m.Method == "tools/call" && m.Kind == mcp.Response:
		if id, ok := mcp.CreatedTaskID(m); ok {
			s.store.tasks.Add(m.Server, id, m.Principal.ID(), m.Name)
		}
	}
	if client, capabilities, ok := description(m); ok && m.Kind == mcp.Request {
		if m.Method != "initialize" && s.client == nil {
			s.client = clone(client, maxClientInfoBytes)
		}
		if m.Method != "initialize" && s.capabilities == nil {
			s.capabilities = clone(capabilities, maxClientInfoBytes)
		}
		if d := descriptionDigest(client, capabilities); describes && (len(s.descriptions) == 0 ||
			len(s.labels)+len(principalLabels) == 0 && len(s.descriptions) < maxDescriptions &&
				!slices.Contains(s.descriptions, d)) {
			s.descriptions = append(s.descriptions, d)
		}
	}
}

// description returns clientInfo and the client's capabilities, as JSON, if m has them. For the
// answer to a request of a modern revision, it returns those of the request.
func description(m *mcp.Message) (client, capabilities []byte, ok bool) {
	from, clientAt, capabilitiesAt := m, mcp.PointerClientInfo, mcp.PointerCapabilities
	switch {
	case m.Method == "initialize" && m.Kind == mcp.Request:
		clientAt, capabilitiesAt = "/clientInfo", "/capabilities"
	case m.Request != nil:
		from = m.Request
	}
	if from.Direction != mcp.ToServer || from.Kind != mcp.Request {
		return nil, nil, false
	}
	client, hasClient := from.Get(clientAt)
	capabilities, hasCapabilities := from.Get(capabilitiesAt)
	return client, capabilities, hasClient || hasCapabilities
}

// currentLogLevel returns the log level that applies to m, or "" if the client has set none. A
// request of a modern revision has its own level. s.mu must be held.
func (s *session) currentLogLevel(m *mcp.Message) string {
	if m.Request != nil {
		m = m.Request
	}
	if _, isModern := m.Get(mcp.PointerProtocolVersion); isModern &&
		m.Direction == mcp.ToServer {
		level, _ := m.Text(mcp.PointerLogLevel)
		if mcp.LogLevelRank(level) < 0 {
			return ""
		}
		return level
	}
	return s.logLevel
}

func descriptionDigest(client, capabilities []byte) [sha256.Size]byte {
	return sha256.Sum256(slices.Concat(client, []byte{0}, capabilities))
}

// maxFirstDescription bounds the first description of a client. If it is longer, the client does
// not count as known, because a long description could carry data.
const maxFirstDescription = 1_000

// isKnownClient reports whether the client that m describes is known. A client is known if an
// earlier request described it in the same bytes, before the session had labels. isKnownClient also
// returns true if m has no description. For the first description in the session, it returns true
// unless the description is longer than maxFirstDescription. s.mu must be held.
func (s *session) isKnownClient(m *mcp.Message) bool {
	client, capabilities, ok := description(m)
	switch {
	case !ok:
		return true
	case len(s.descriptions) == 0:
		return len(client)+len(capabilities) <= maxFirstDescription
	}
	return slices.Contains(s.descriptions, descriptionDigest(client, capabilities))
}

// copyMember returns a copy of a member of a message. It returns nil when the member is absent or
// longer than limit.
func copyMember(m *mcp.Message, pointer string, limit int) []byte {
	raw, _ := m.Get(pointer)
	return clone(raw, limit)
}

// clone returns a copy of b, or nil when b is longer than limit.
func clone(b []byte, limit int) []byte {
	if len(b) > limit {
		return nil
	}
	return slices.Clone(b)
}

// definition is the definition of one name in a list.
type definition struct {
	raw       []byte    // as JSON; several definitions are separated by commas
	ambiguous bool      // the list has several items of this name; it is unknown which one is used
	value     ast.Value // raw as a Rego value; set when a rule reads raw and there is room
	canonical string    // canonical spelling of a resource's URI; "" if it is the URI itself
	// of raw; set when the schemas of a tool are needed
	digest *[sha256.Size]byte
}

// recordDefinitions keeps the definitions of a list. If there is no room for a definition, the
// item's previous definition is removed, too, and the item is treated as not listed. s.mu must be
// held.
func (s *session) recordDefinitions(m *mcp.Message) {
	meth, _ := mcp.LookupMethod(m.Method)
	seen := map[string]bool{} // the keys of this list so far
	m.Items(meth.ItemsPointer, func(_ int, raw []byte) bool {
		name, ok := mcp.NewResponse("", raw).Text(meth.ItemNamePointer)
		if !ok || s.ended {
			return true
		}
		key := meth.ItemsPointer + " " + m.Server + " " + name
		old := s.definitions[key]
		next := definition{raw: slices.Clone(raw)}
		switch again := seen[key]; {
		case again && (old.raw == nil || bytes.Equal(old.raw, raw)):
			// there was no room for the first definition, or both are equal
			return true
		case again:
			next = definition{raw: slices.Concat(old.raw, []byte(","), raw), ambiguous: true}
		}
		seen[key] = true
		if len(next.raw) > maxDefinitionBytes ||
			s.definitionBytes-len(old.raw)+len(next.raw) > maxSessionDefinitionBytes {
			next = definition{}
		}
		s.definitionBytes += len(next.raw) - len(old.raw)
		s.store.definitionBytes.Add(int64(len(next.raw) - len(old.raw)))
		s.dropParsed(old)
		if next.raw != nil && meth.ItemNamePointer == "/uri" {
			if c := uris.Canonical(name); c != name {
				next.canonical = c
			}
		}
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

// dropDefinitions removes all definitions. If ended is set, the session will record no definitions
// any more.
func (s *session) dropDefinitions(ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = s.ended || ended
	s.store.definitionBytes.Add(-int64(s.definitionBytes))
	s.store.parsedBytes.Add(-int64(s.parsedBytes))
	s.definitions, s.definitionBytes, s.parsedBytes = map[string]definition{}, 0, 0
	s.updateSize()
}

// dropParsed subtracts the Rego value of a definition from the sizes. s.mu must be held.
func (s *session) dropParsed(d definition) {
	if d.value != nil {
		s.parsedBytes -= len(d.raw)
		s.store.parsedBytes.Add(-int64(len(d.raw)))
	}
}

// item returns the definition of the tool, prompt, resource or skill that a message uses. It
// returns nil when the item was not listed, or its definition is ambiguous. item keeps the Rego
// value of the definition, because a tool is called more often than listed.
func (s *session) item(m *mcp.Message) ast.Value {
	key, ok := definitionKey(m)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.definitions[key].raw == nil && strings.HasPrefix(key, "/resources ") {
		key = s.otherSpelling("/resources "+m.Server+" ", m.Name)
	}
	if d := s.definitions[key]; d.raw == nil || d.ambiguous {
		return nil
	}
	return s.parsedDefinition(key)
}

// otherSpelling returns the key of the listed resource whose URI has the same canonical spelling as
// uri, or "". prefix is the part of the key before the URI. s.mu must be held.
func (s *session) otherSpelling(prefix, uri string) string {
	uri = uris.Canonical(uri)
	if _, listed := s.definitions[prefix+uri]; listed {
		return prefix + uri
	}
	for key, d := range s.definitions {
		if d.canonical == uri && strings.HasPrefix(key, prefix) {
			return key
		}
	}
	return ""
}

// parsedDefinition returns the Rego value of an existing definition. For an ambiguous definition,
// it returns an array of definitions. s.mu must be held.
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

// definitionKey returns the key of the definition of the item that a message uses.
func definitionKey(m *mcp.Message) (key string, ok bool) {
	switch m.Method {
	case "tools/call":
		key = "/tools"
	case "prompts/get":
		key = "/prompts"
	case "resources/read", "resources/subscribe", "resources/directory/read":
		key = "/resources"
	case "skills/get":
		key = "/skills"
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

// addLabels adds labels, and reports whether there was room for all of them.
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
		// a new array, because callers of currentLabels have the old one
		s.labels = append(slices.Clip(s.labels), l)
	}
	return true
}

// addLabels adds labels to a message's session, and to its principal if labels are kept by
// principal. It reports whether there was room for all of them.
func (s *Stage) addLabels(session *session, m *mcp.Message, labels []string) bool {
	return session.addLabels(labels) && (!s.labelsByPrincipal ||
		s.sessions.addPrincipalLabels(m.Principal.ID(), session.currentLabels()))
}

// principalLabels returns the labels of a message's principal. It returns nil when labels are not
// kept by principal.
func (s *Stage) principalLabels(m *mcp.Message) []string {
	if !s.labelsByPrincipal {
		return nil
	}
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return s.sessions.principalLabels[m.Principal.ID()]
}

// currentLabels returns the labels of the session. The caller must not change them.
func (s *session) currentLabels() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.labels
}

// addPrincipalLabels adds labels to a principal, and reports whether there was room for all of
// them.
func (m *SessionStore) addPrincipalLabels(principal string, labels []string) bool {
	if len(labels) == 0 {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.principalLabels[principal]
	if own == nil && len(m.principalLabels) >= maxPrincipals {
		return false
	}
	for _, l := range labels {
		if slices.Contains(own, l) {
			continue
		}
		if len(own) >= maxLabels ||
			m.principalLabelBytes+len(principal)+len(l) > maxPrincipalLabelBytes {
			return false
		}
		if m.principalLabels == nil {
			m.principalLabels = map[string][]string{}
		}
		// a new array, because inputs that are being evaluated have the old one
		own = append(slices.Clip(own), l)
		m.principalLabels[principal] = own
		m.principalLabelBytes += len(principal) + len(l)
	}
	return true
}

// inputValue returns input.session for a message that countCall has counted. principalLabels are
// labels that the session has beside its own. input.session.client is the client that the message
// describes, because several clients of a modern revision may share a session.
func (s *session) inputValue(m *mcp.Message, mc messageContext, principalLabels []string,
	r readSet) ast.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	describer := cmp.Or(mc.describer, m)
	client, capabilities, described := description(describer)
	if client = clone(client, maxClientInfoBytes); !described {
		client = s.client
	}
	if capabilities = clone(capabilities, maxClientInfoBytes); !described {
		capabilities = s.capabilities
	}
	return object(r, []string{"id", "client", "capabilities", "known_client", "log_level",
		"labels", "calls", "minute"},
		func(name string, r readSet) ast.Value {
			switch name {
			case "id":
				return ast.String(m.Session)
			case "client":
				return valueOf(client, r)
			case "capabilities":
				return valueOf(capabilities, r)
			case "known_client":
				if mc.knownClient != nil {
					return ast.Boolean(*mc.knownClient)
				}
				return ast.Boolean(s.isKnownClient(describer))
			case "log_level":
				if level := s.currentLogLevel(describer); level != "" {
					return ast.String(level)
				}
				return nil
			case "labels":
				if mc.replicas.known {
					return stringArray(mc.replicas.labels)
				}
				return stringArray(union(slices.Clip(s.labels), principalLabels))
			case "calls":
				if mc.replicas.known {
					return callCounts(mc.replicas.calls, m)
				}
				return callCounts(s.calls, m)
			}
			if mc.replicas.known {
				return callCounts(mc.replicas.minute, m)
			}
			return callCounts(s.lastMinute.calls(mc.now), m)
		})
}
