package pins

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Bounds of the memory of a Guard, for each server.
const (
	maxKnownItems = 20_000 // definitions whose comparison is remembered
	maxKnownPages = 1_000  // pages of lists without a held back item
	maxWaiting    = 10_000 // items without an approval that were seen
)

// Guard is a pipeline.Stage that holds back what a lock does not approve. It hides items from
// lists, refuses their use, and removes instructions. One decision applies to the list and to the
// use: a request passes if the lock has its item, and the item was as approved when any client saw
// it last. Many goroutines may use a Guard.
type Guard struct {
	kinds   []Kind
	servers map[string]*guardedServer
}

// GuardedServer is a server whose definitions a Guard compares.
type GuardedServer struct {
	Name  string
	Start Start // how the server is started now
	// OnlyWarn lets changed items pass; the record says what would have happened. Items that the
	// lock does not have are held back all the same.
	OnlyWarn bool
}

// guardedServer is the state of one server.
type guardedServer struct {
	approved *Server // nil if the lock does not have the server
	moved    bool    // the server is started in another way than approved
	onlyWarn bool

	mu    sync.Mutex
	known map[contents]Class // how definitions compare: the class of a held back one, or ""
	clean map[contents]bool  // pages of lists on which every item is as approved
	// the approved items that had changed when they were seen last
	held map[heldItem]Class
	// names of items without an approval, for the number of items that wait
	waiting map[contents]bool
}

// contents is the digest of a definition, of a page or of a name. The kind belongs to it: a server
// can answer two lists with the same bytes.
type contents struct {
	kind Kind
	sum  [sha256.Size]byte
}

type heldItem struct {
	kind Kind
	name string
}

// NewGuard returns a Guard for the servers and the kinds of items. A server that the lock does not
// have is held back as a whole. If previous is not nil, the new Guard remembers the items that
// previous holds back and that have the same approval.
func NewGuard(lock *Lock, kinds []Kind, servers []GuardedServer, previous *Guard) *Guard {
	g := &Guard{kinds: kinds, servers: make(map[string]*guardedServer, len(servers))}
	for _, s := range servers {
		now := newGuardedServer(lock.Servers[s.Name], s.OnlyWarn)
		now.moved = now.approved != nil && now.approved.Start.String() != s.Start.String()
		g.servers[s.Name] = now
	}
	if previous != nil {
		g.KeepHeld(previous)
	}
	return g
}

// KeepHeld remembers the changed items that previous holds back and that have the same approval.
// Call it again when g has replaced previous, because previous may have seen changes meanwhile.
func (g *Guard) KeepHeld(previous *Guard) {
	for name, s := range g.servers {
		s.keepHeld(previous.servers[name])
	}
}

func newGuardedServer(approved *Server, onlyWarn bool) *guardedServer {
	return &guardedServer{approved: approved, onlyWarn: onlyWarn, known: map[contents]Class{},
		clean: map[contents]bool{}, held: map[heldItem]Class{}, waiting: map[contents]bool{}}
}

// keepHeld keeps the changed items that the server before held back and that have the same
// approval.
func (s *guardedServer) keepHeld(before *guardedServer) {
	if before == nil {
		return
	}
	before.mu.Lock()
	held := maps.Clone(before.held)
	before.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for item, class := range held {
		if class != Launch && s.digestOf(item) == before.digestOf(item) {
			s.held[item] = class
		}
	}
}

// item returns the approved item, or nil.
func (s *guardedServer) item(item heldItem) *Item {
	if s.approved == nil {
		return nil
	}
	return s.approved.Item(item.kind, item.name)
}

// digestOf returns the digest of an approved item, or "".
func (s *guardedServer) digestOf(item heldItem) string {
	if i := s.item(item); i != nil {
		return i.digest
	}
	return ""
}

// Approves reports whether two guards approve the same of a server.
func (g *Guard) Approves(other *Guard, server string) bool {
	a, b := g.servers[server], other.servers[server]
	if a == nil || b == nil {
		return a == b
	}
	digests := func(s *guardedServer) []string {
		if s.approved == nil {
			return nil
		}
		var all []string
		for _, i := range s.approved.Items() {
			all = append(all, string(i.kind)+" "+i.Name()+" "+i.digest)
		}
		return all
	}
	return a.moved == b.moved && a.onlyWarn == b.onlyWarn &&
		(a.approved == nil) == (b.approved == nil) && slices.Equal(g.kinds, other.kinds) &&
		slices.Equal(digests(a), digests(b))
}

// Waiting returns the number of items of each server that were held back when they were seen last.
func (g *Guard) Waiting() map[string]int {
	waiting := make(map[string]int, len(g.servers))
	for name, s := range g.servers {
		s.mu.Lock()
		waiting[name] = len(s.held) + len(s.waiting)
		s.mu.Unlock()
	}
	return waiting
}

// Inspect implements pipeline.Stage.
func (g *Guard) Inspect(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	s := g.servers[m.Server]
	if s == nil { // nothing of a server that is not configured is approved
		s = newGuardedServer(nil, false)
	}
	switch {
	case m.Kind == mcp.Request && m.Direction == mcp.ToServer:
		return g.inspectUse(s, m), nil
	case m.Kind != mcp.Response || m.Direction != mcp.ToClient:
	case m.Method == "initialize" || m.Method == "server/discover":
		if slices.Contains(g.kinds, Instructions) {
			return s.inspectInstructions(m), nil
		}
	default:
		if kind := listedKind(m.Method); kind != "" && slices.Contains(g.kinds, kind) {
			return s.inspectList(ctx, kind, m)
		}
	}
	return pipeline.Verdict{Action: pipeline.Allow}, nil
}

// listedKind returns the kind of the items that a method lists, or "".
func listedKind(method string) Kind {
	switch method {
	case "tools/list":
		return Tool
	case "prompts/list":
		return Prompt
	case "resources/templates/list":
		return Template
	case "resources/list", "resources/directory/read":
		return Resource
	}
	return ""
}

// Methods returns the methods of the messages that a Guard inspects.
func (g *Guard) Methods() []string {
	return []string{"initialize", "server/discover", "tools/list", "prompts/list",
		"resources/templates/list", "resources/list", "resources/directory/read", "tools/call",
		"prompts/get", "completion/complete"}
}

// inspectUse refuses a request that uses an item that is not as approved.
func (g *Guard) inspectUse(s *guardedServer, m *mcp.Message) pipeline.Verdict {
	var class Class
	use := func(kind Kind, pointer string) {
		_, isThere := m.Get(pointer)
		if isThere && slices.Contains(g.kinds, kind) && class == "" {
			name, ok := m.Text(pointer)
			if class = New; ok {
				class = s.use(heldItem{kind, name})
			}
		}
	}
	switch m.Method {
	case "tools/call":
		use(Tool, "/name")
	case "prompts/get":
		use(Prompt, "/name")
	case "completion/complete":
		use(Prompt, "/ref/name")
		use(Template, "/ref/uri")
	}
	if class == "" {
		return pipeline.Verdict{Action: pipeline.Allow}
	}
	refused := pipeline.Verdict{Action: pipeline.Deny, Final: true,
		Reason: "not as approved: " + reasonOf(class)}
	if s.warns(class) {
		return pipeline.Verdict{Action: pipeline.Allow, Would: &refused}
	}
	return refused
}

// use returns the class for which the use of an item is refused, or "".
func (s *guardedServer) use(item heldItem) Class {
	switch {
	case s.item(item) == nil:
		return New
	case s.moved:
		return Launch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[item]
}

// warns reports whether an item with a change of this class passes all the same.
func (s *guardedServer) warns(class Class) bool { return s.onlyWarn && class != New }

// reasonOf returns the reason for which a class is held back.
func reasonOf(class Class) string {
	switch class {
	case New:
		return "the lock file does not have it (new)"
	case Launch:
		return "the server is started in another way than approved (launch)"
	}
	return "it has changed (" + string(class) + ")"
}

// compare returns the class for which a definition is held back, or "".
func (s *guardedServer) compare(kind Kind, raw []byte) Class {
	key := contents{kind, sha256.Sum256(raw)}
	s.mu.Lock()
	class, ok := s.known[key]
	s.mu.Unlock()
	if ok {
		return class
	}
	class = s.classOf(kind, raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnownItems {
		clear(s.known)
	}
	s.known[key] = class
	return class
}

func (s *guardedServer) classOf(kind Kind, raw []byte) Class {
	live, err := NewItem(kind, raw)
	if err != nil { // what cannot be read cannot have an approval
		return New
	}
	approved := s.item(heldItem{kind, live.Name()})
	switch {
	case approved == nil:
		return New
	case s.moved:
		return Launch
	}
	for _, change := range approved.Compare(live) {
		if change.Class.IsHeldBack() {
			return change.Class
		}
	}
	return ""
}

// note remembers how an item was seen last.
func (s *guardedServer) note(item heldItem, class Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case class == "":
		delete(s.held, item)
	case s.item(item) != nil:
		s.held[item] = class // no more items than the lock has
	case len(s.waiting) < maxWaiting: // the use of an item without an approval is refused anyway
		s.waiting[contents{item.kind, sha256.Sum256([]byte(item.name))}] = true
	}
}

// inspectInstructions removes instructions that are not as approved.
func (s *guardedServer) inspectInstructions(m *mcp.Message) pipeline.Verdict {
	raw, ok := m.Get("/instructions")
	class := Class("")
	if ok {
		class = s.compare(Instructions, raw)
	}
	s.note(heldItem{kind: Instructions}, class)
	if class == "" {
		return pipeline.Verdict{Action: pipeline.Allow}
	}
	removed := pipeline.Verdict{Action: pipeline.Modify, Final: true,
		Edits:  []mcp.Edit{mcp.Remove("/instructions")},
		Reason: "the instructions are not as approved: " + reasonOf(class)}
	if s.warns(class) {
		return pipeline.Verdict{Action: pipeline.Allow, Would: &removed}
	}
	return removed
}

// inspectList hides the items of a page that are not as approved.
func (s *guardedServer) inspectList(ctx context.Context, kind Kind,
	m *mcp.Message) (pipeline.Verdict, error) {
	page := contents{kind, m.Digest()}
	s.mu.Lock()
	isClean := len(s.held) == 0 && s.clean[page]
	s.mu.Unlock()
	if isClean {
		return pipeline.Verdict{Action: pipeline.Allow}, nil
	}
	method, _ := mcp.LookupMethod(m.Method)
	var hidden, changed []string
	var broken []mcp.Edit
	classes := map[string]Class{} // by name; an item that is listed twice must be right twice
	counts := map[Class]int{}
	m.ItemTexts(method.ItemsPointer, "/"+kind.nameMember(), func(i int, raw []byte, name string,
		ok bool) bool {
		class := New
		if ok {
			class = s.compare(kind, raw)
			if old, again := classes[name]; !again || old == "" {
				classes[name] = class
			}
		}
		switch {
		case class == "":
			return ctx.Err() == nil
		case !ok || name == "": // without a name, it cannot be hidden by its name
			broken = append(broken, mcp.Remove(method.ItemsPointer+"/"+strconv.Itoa(i)))
		case s.warns(class):
			changed = append(changed, name)
		default:
			hidden = append(hidden, name)
		}
		counts[class]++
		return ctx.Err() == nil
	})
	if err := ctx.Err(); err != nil {
		return pipeline.Verdict{}, fmt.Errorf("compare with the lock file: %w", err)
	}
	for name, class := range classes {
		s.note(heldItem{kind, name}, class)
	}
	if len(counts) == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.clean) >= maxKnownPages {
			clear(s.clean)
		}
		s.clean[page] = true
		return pipeline.Verdict{Action: pipeline.Allow}, nil
	}
	v := pipeline.Verdict{Action: pipeline.Allow, Hide: hidden, Edits: broken, Final: true,
		Reason: "not as approved: " + describeCounts(counts)}
	if len(broken) > 0 {
		v.Action = pipeline.Modify
	}
	if len(changed) > 0 {
		would := v
		would.Hide = slices.Concat(hidden, changed)
		v.Would = &would
	}
	return v, nil
}

// describeCounts returns the number of items of each class, such as "2 text, 1 new".
func describeCounts(counts map[Class]int) string {
	var parts []string
	for _, class := range Classes() {
		if n := counts[class]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, class))
		}
	}
	return strings.Join(parts, ", ")
}
