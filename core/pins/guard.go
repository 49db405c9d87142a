package pins

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Bounds of the memory of a Guard, for each server.
const (
	maxKnownItems = 20_000 // definitions whose comparison is remembered
	maxKnownPages = 1_000  // pages of lists without a held back item
	maxWaiting    = 10_000 // items without an approval that were seen
	maxTrusted    = 10_000 // items in the lock file, after which no more are trusted
)

// First decides about items that the lock does not have.
type First string

// The values of First.
const (
	Ask    First = "ask"    // it is held back until it is approved
	Trust  First = "trust"  // it is written into the lock file as it is first seen
	Locked First = "locked" // it is held back, and the lock file is never written
)

// Changed decides about items that are not as approved.
type Changed string

// The values of Changed.
const (
	Hide Changed = "hide" // it is held back until it is approved
	Keep Changed = "keep" // clients get the approved texts; other changes are held back
	Warn Changed = "warn" // it passes, and the record says what would have happened
)

// Guard is a pipeline.Stage that holds back what a lock does not approve. It hides items from
// lists, refuses their use, and removes instructions. One decision applies to the list and to the
// use: a request passes if the lock has its item, and the item was as approved when any client saw
// it last. Many goroutines may use a Guard.
type Guard struct {
	kinds   []Kind
	servers map[string]*guardedServer
	path    string // of the lock file
	trusted func(server string, items []*Item, lockDigest string) error
	lost    func(server string, err error) error
	store   *WaitingStore // nil if what waits is not kept
	shared  *Shared       // nil if the lock file is written
	report  func(server string, items []string, err error)
	// the digest of the lock file that the Guard has read or written last
	lockDigest atomic.Pointer[string]
}

// LockDigest returns the digest of the lock file that the Guard has read or written last. It
// returns "" if there was no file.
func (g *Guard) LockDigest() string { return *g.lockDigest.Load() }

// GuardOptions holds what a Guard compares.
type GuardOptions struct {
	Lock    *Lock
	Kinds   []Kind // the kinds of items that are compared
	Servers []GuardedServer
	// Previous is the Guard that the new one replaces; may be nil. The new Guard remembers the
	// items that Previous holds back and that have the same approval.
	Previous *Guard
	// Trusted is called before items are written into the lock file as they were first seen, with
	// the digest that the file will have. If it returns an error, the items are neither written nor
	// approved, and are hidden. It may be nil.
	Trusted func(server string, items []*Item, lockDigest string) error
	// NotWritten is called if the lock file cannot be written after Trusted has returned nil. It
	// may be nil.
	NotWritten func(server string, err error) error
	// Store keeps the definitions that wait for an approval; may be nil.
	Store *WaitingStore
	// Shared has what replicas approve together, if it is not nil. Then items are trusted for all
	// of them, and the lock file is not written.
	Shared *Shared
	// Report is called with the items that begin to wait for an approval, and with errors of
	// Store. It may be nil.
	Report func(server string, items []string, err error)
}

// GuardedServer is a server whose definitions a Guard compares.
type GuardedServer struct {
	Name    string
	Start   Start  // how the server is started now
	Package Source // the package that is started now
	// First decides about items that the lock does not have. Every value but Trust holds them back.
	First First
	// Changed decides about changed items. Every value but Keep and Warn holds them back.
	Changed Changed
	// HidePackage holds everything back if the package is not as approved.
	HidePackage bool
	// Unread means that it is not known what the replicas approve of the server, because the shared
	// state is not available. Everything is held back.
	Unread bool
	// Folders are the folders of the server, which become holes in items that are trusted.
	Folders []string
}

// guardedServer is the state of one server.
type guardedServer struct {
	GuardedServer

	writing sync.Mutex // held while the lock file or the store is written; locked before mu

	foreign foreignNames // of the other servers
	locked  *Server      // in the lock file; nil if it does not have the server
	shared  *Shared      // of the Guard

	mu       sync.Mutex
	approved *Server                // nil if the lock does not have the server
	moved    Class                  // Launch, Package, or "": why everything is held back
	known    map[contents]comparing // how definitions compare
	clean    map[contents]bool      // pages of lists on which every item is as approved
	// the approved items that had changed when they were seen last
	held map[heldItem]comparing
	// names of items without an approval, for the number of items that wait
	waiting map[contents]bool
	// the definitions in the store, at most maxSeen
	seen       map[heldItem]seenState
	movedSaved bool // the store knows whether the server has moved
}

// seenState is the state of a definition in the store.
type seenState struct {
	raw      contents // the bytes that the server sent last; zero if they are not known
	digest   string
	rejected bool
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

// comparing is the result of the comparison of a definition with the approved one.
type comparing struct {
	class Class // why the item is not as approved; "" if it is
	// keeps means that the item is as approved once its texts are replaced by the approved ones
	keeps bool
	// shadows means that the texts of the item name an item of another server
	shadows bool
}

// NewGuard returns a Guard. A server that the lock does not have is new as a whole.
func NewGuard(o GuardOptions) *Guard {
	g := &Guard{kinds: o.Kinds, servers: make(map[string]*guardedServer, len(o.Servers)),
		path: o.Lock.path, trusted: o.Trusted, lost: o.NotWritten, store: o.Store,
		shared: o.Shared, report: o.Report}
	digest := ""
	if !o.Lock.IsNew() {
		digest = o.Lock.Digest()
	}
	g.lockDigest.Store(&digest)
	if g.report == nil {
		g.report = func(string, []string, error) {}
	}
	approved := o.Shared.Effective(o.Lock).Servers
	for _, s := range o.Servers {
		now := newGuardedServer(s, approved[s.Name])
		now.foreign = namesOfOthers(approved, s.Name)
		now.locked, now.shared = o.Lock.Servers[s.Name], o.Shared
		g.servers[s.Name] = now
	}
	g.loadWaiting()
	if o.Previous != nil {
		g.KeepHeld(o.Previous)
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

func newGuardedServer(server GuardedServer, approved *Server) *guardedServer {
	s := &guardedServer{GuardedServer: server}
	if server.Unread {
		approved = nil
	}
	s.approve(approved)
	s.held, s.waiting = map[heldItem]comparing{}, map[contents]bool{}
	s.seen = map[heldItem]seenState{}
	return s
}

// approve makes approved the approved server. The caller must hold s.mu, or be the only one that
// knows s.
func (s *guardedServer) approve(approved *Server) {
	s.approved, s.moved = approved, ""
	s.known, s.clean = map[contents]comparing{}, map[contents]bool{}
	switch {
	case approved == nil:
	case approved.Start.String() != s.Start.String():
		s.moved = Launch
	case s.HidePackage && s.packageChanged():
		s.moved = Package
	}
}

// packageChanged reports whether the server has another package than approved. A lock that does
// not have the package approves every package.
func (s *guardedServer) packageChanged() bool {
	return s.approved != nil && s.approved.Package != (Source{}) &&
		s.approved.Package != s.Package
}

// keepHeld keeps the changed items that the server before held back and that have the same
// approval.
func (s *guardedServer) keepHeld(before *guardedServer) {
	if before == nil {
		return
	}
	before.mu.Lock()
	held, digests := maps.Clone(before.held), map[heldItem]string{}
	seen := maps.Clone(before.seen)
	for item := range held {
		digests[item] = before.digestOf(item)
	}
	before.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for item, compared := range held {
		class := compared.class
		if class == Launch || class == Package || s.digestOf(item) != digests[item] {
			continue
		}
		compared.keeps = compared.keeps && s.Changed == Keep
		s.held[item] = compared
	}
	for item, state := range seen {
		_, again := s.seen[item]
		if !again && len(s.seen) < maxSeen && s.digestOf(item) != state.digest {
			s.seen[item] = state
		}
	}
}

// item returns the approved item, or nil. The caller must hold s.mu.
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

// Approves reports whether two guards approve the same of a server. A guard of which a server is
// Unread does not approve the same as one that knows what the replicas approve of it.
func (g *Guard) Approves(other *Guard, server string) bool {
	a, b := g.servers[server], other.servers[server]
	if a == nil || b == nil {
		return a == b
	}
	state := func(s *guardedServer) []string {
		s.mu.Lock()
		defer s.mu.Unlock()
		all := []string{string(s.moved), string(s.First), string(s.Changed),
			strconv.FormatBool(s.Unread)}
		if s.approved == nil {
			return all
		}
		all = append(all, "approved")
		for _, i := range s.approved.Items() {
			all = append(all, string(i.kind)+" "+i.Name()+" "+i.digest)
		}
		return all
	}
	return slices.Equal(g.kinds, other.kinds) && slices.Equal(state(a), state(b))
}

// Moved returns the servers that are started in another way than approved (Launch) or have another
// package (Package), whether or not they are held back for it.
func (g *Guard) Moved() map[string]Class {
	moved := map[string]Class{}
	for name, s := range g.servers {
		s.mu.Lock()
		switch {
		case s.moved != "":
			moved[name] = s.moved
		case s.packageChanged():
			moved[name] = Package
		}
		s.mu.Unlock()
	}
	return moved
}

// Waiting returns the number of items of each server that were held back when they were seen last,
// without those that were rejected.
func (g *Guard) Waiting() map[string]int {
	waiting := make(map[string]int, len(g.servers))
	for name, s := range g.servers {
		s.mu.Lock()
		n := len(s.held) + len(s.waiting)
		for _, state := range s.seen {
			n -= map[bool]int{true: 1}[state.rejected]
		}
		waiting[name] = n
		s.mu.Unlock()
	}
	return waiting
}

// Inspect implements pipeline.Stage.
func (g *Guard) Inspect(ctx context.Context, m *mcp.Message) (pipeline.Verdict, error) {
	if m.Own { // the server has not declared it
		return pipeline.Verdict{Action: pipeline.Allow}, nil
	}
	s := g.servers[m.Server]
	if s == nil { // nothing of a server that is not configured is approved
		s = newGuardedServer(GuardedServer{}, nil)
	}
	switch {
	case m.Kind == mcp.Request && m.Direction == mcp.ToServer:
		return g.inspectUse(s, m), nil
	case m.Kind != mcp.Response || m.Direction != mcp.ToClient:
	case m.Method == "initialize" || m.Method == "server/discover":
		if slices.Contains(g.kinds, Instructions) {
			return g.inspectInstructions(ctx, s, m)
		}
	default:
		if kind := listedKind(m.Method); kind != "" && slices.Contains(g.kinds, kind) {
			return g.inspectList(ctx, s, kind, m)
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
		Reason: "not as approved: " + s.reasonOf(class)}
	if s.warns(class) {
		return pipeline.Verdict{Action: pipeline.Allow, Would: &refused}
	}
	return refused
}

// use returns the class for which the use of an item is refused, or "".
func (s *guardedServer) use(item heldItem) Class {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.item(item) == nil && s.trusts() && !s.waiting[nameOf(item)] &&
		(s.shared == nil || s.shared.isAvailable()):
		return "" // it was not seen yet
	case s.item(item) == nil:
		return New
	case s.moved != "":
		return s.moved
	case s.held[item].keeps:
		return ""
	}
	return s.held[item].class
}

// trusts reports whether items that the lock does not have are trusted. The caller must hold s.mu.
func (s *guardedServer) trusts() bool {
	return s.First == Trust && s.moved == "" && !s.Unread
}

func nameOf(item heldItem) contents {
	return contents{item.kind, sha256.Sum256([]byte(item.name))}
}

// warns reports whether an item with a change of this class passes all the same.
func (s *guardedServer) warns(class Class) bool { return s.Changed == Warn && class != New }

// reasonOf returns the reason for which a class is held back.
func (s *guardedServer) reasonOf(class Class) string {
	if s.Unread || class == New && s.shared != nil && !s.shared.isAvailable() {
		return unreadReason
	}
	switch class {
	case New:
		return "the lock file does not have it (new)"
	case Launch:
		return "the server is started in another way than approved (launch)"
	case Package:
		return "the server has another package than approved (package)"
	}
	return "it has changed (" + string(class) + ")"
}

// unreadReason is the reason for which everything of a server is held back that is Unread.
const unreadReason = "shared state is not available, so it is not known what the replicas approve"

// compare returns how a definition compares with the approved one.
func (s *guardedServer) compare(kind Kind, raw []byte) comparing {
	key := contents{kind, sha256.Sum256(raw)}
	s.mu.Lock()
	defer s.mu.Unlock()
	compared, ok := s.known[key]
	if ok {
		return compared
	}
	// Two goroutines may do the same work. That is cheaper than to hold the lock meanwhile.
	approved, moved := s.approved, s.moved
	s.mu.Unlock()
	compared, live := compareWith(approved, moved, s.Changed == Keep, kind, raw)
	if compared.class != "" && live != nil {
		name, _ := s.foreign.in(live)
		compared.shadows = name != ""
	}
	s.mu.Lock()
	if approved != s.approved {
		return compared
	}
	if len(s.known) >= maxKnownItems {
		clear(s.known)
	}
	s.known[key] = compared
	return compared
}

// compareWith compares a definition with an approved server. It returns the definition, too, or nil
// if it cannot be read.
func compareWith(server *Server, moved Class, keeps bool, kind Kind,
	raw []byte) (comparing, *Item) {
	live, err := NewItem(kind, raw)
	if err != nil || server == nil { // what cannot be read cannot have an approval
		return comparing{class: New}, live
	}
	approved := server.Item(kind, live.Name())
	switch {
	case approved == nil:
		return comparing{class: New}, live
	case moved != "":
		return comparing{class: moved}, live
	}
	for _, change := range approved.Compare(live) {
		if change.Class.IsHeldBack() {
			c := comparing{class: change.Class}
			if keeps {
				_, c.keeps = approved.restore(live)
			}
			return c, live
		}
	}
	return comparing{}, live
}

// note remembers how an item was seen last.
func (s *guardedServer) note(item heldItem, compared comparing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case compared.class == "":
		delete(s.held, item)
	case s.item(item) != nil:
		s.held[item] = compared // no more items than the lock has
	case len(s.waiting) < maxWaiting: // the use of an item without an approval is refused anyway
		s.waiting[nameOf(item)] = true
	}
}

// trust writes items into the lock file, after they were recorded, and makes them approved. Items
// that the file has already, because another Gatekit has written them, stay as they are there. It
// returns an error if ctx ends: then the caller must not wait for a slow disk.
func (g *Guard) trust(ctx context.Context, s *guardedServer, items []*Item) error {
	done := make(chan error, 1)
	go func() { done <- g.trustNow(s, items) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("write the lock file: %w", context.Cause(ctx))
	}
}

func (g *Guard) trustNow(s *guardedServer, items []*Item) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	var added []*Item
	recorded := false
	change := func(server *Server) (*Server, error) {
		added = nil
		switch {
		case server == nil:
			server = &Server{Start: s.Start, Package: s.Package}
		case server.Start.String() != s.Start.String():
			return nil, errors.New("another command or URL is approved for the server")
		}
		here := Surroundings{Now: time.Now(), Folders: s.Folders}
		for _, i := range items {
			if server.Item(i.kind, i.Name()) != nil {
				continue
			}
			learned, _ := i.Learn(nil, here)
			server.Add(learned)
			added = append(added, learned)
		}
		if n := len(server.Items()); n > maxTrusted && len(added) > 0 {
			return nil, fmt.Errorf("the server has declared more than %d items", maxTrusted)
		}
		return server, nil
	}
	record := func(digest string) error {
		if g.trusted == nil {
			return nil
		}
		err := g.trusted(s.Name, added, digest)
		recorded = err == nil
		return err
	}
	approved, err := g.update(s, change, record)
	if err != nil && recorded && g.lost != nil {
		err = errors.Join(err, g.lost(s.Name, err))
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.approve(approved)
	for _, i := range items {
		delete(s.waiting, nameOf(heldItem{i.kind, i.Name()}))
	}
	return nil
}

// update changes what is approved of a server: in the lock file, or in the state that replicas
// share. record is called before, with a digest of what is written. update returns what is approved
// then.
func (g *Guard) update(s *guardedServer, change func(*Server) (*Server, error),
	record func(digest string) error) (*Server, error) {
	if g.shared != nil {
		err := g.shared.Update(context.Background(), s.Name, s.locked, change, record)
		return g.shared.on(s.Name, s.locked), err
	}
	lock, err := UpdateRecorded(g.path, func(l *Lock) error {
		server, err := change(l.Servers[s.Name])
		if err == nil {
			l.Servers[s.Name] = server
		}
		return err
	}, record)
	if err != nil {
		return nil, err
	}
	digest := lock.Digest()
	g.lockDigest.Store(&digest)
	return lock.Servers[s.Name], nil
}

// canTrust returns the item to trust if raw is new and the server's new items are trusted, or nil.
// An item that names one of another server needs an approval.
func (s *guardedServer) canTrust(kind Kind, raw []byte, compared comparing) *Item {
	s.mu.Lock()
	trusts := s.trusts()
	s.mu.Unlock()
	if compared.class != New || compared.shadows || !trusts {
		return nil
	}
	i, err := NewItem(kind, raw)
	if err != nil || kind != Instructions && i.Name() == "" {
		return nil
	}
	return i
}

// inspectInstructions removes instructions that are not as approved.
func (g *Guard) inspectInstructions(ctx context.Context, s *guardedServer,
	m *mcp.Message) (pipeline.Verdict, error) {
	raw, ok := m.Get("/instructions")
	var compared comparing
	var untrusted error
	if ok {
		compared = s.compare(Instructions, raw)
		if i := s.canTrust(Instructions, raw, compared); i != nil {
			if untrusted = g.trust(ctx, s, []*Item{i}); untrusted == nil {
				compared = s.compare(Instructions, raw)
			}
		}
	}
	s.note(heldItem{kind: Instructions}, compared)
	g.remember(ctx, s, []sighting{{heldItem{kind: Instructions}, compared.class, raw}})
	class := compared.class
	if class == "" {
		return pipeline.Verdict{Action: pipeline.Allow}, nil
	}
	modified := pipeline.Verdict{Action: pipeline.Modify, Final: true,
		Edits: []mcp.Edit{mcp.Remove("/instructions")},
		Reason: "the instructions are not as approved: " + s.reasonOf(class) +
			describeUntrusted(untrusted)}
	if compared.keeps {
		for _, edit := range s.restore(Instructions, raw) {
			modified.Edits = []mcp.Edit{mcp.Set("/instructions", edit.value)}
			modified.Reason += "; clients get the approved text"
		}
	}
	if compared.shadows {
		modified.Findings = []pipeline.Finding{{Type: shadowFinding, Pointer: "/instructions"}}
	}
	if s.warns(class) {
		return pipeline.Verdict{Action: pipeline.Allow, Findings: modified.Findings,
			Would: &modified}, nil
	}
	return modified, nil
}

// restore returns the edits that replace the changed texts of a definition by the approved ones.
func (s *guardedServer) restore(kind Kind, raw []byte) []textEdit {
	live, err := NewItem(kind, raw)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	approved := s.item(heldItem{kind, live.Name()})
	s.mu.Unlock()
	if approved == nil {
		return nil
	}
	edits, _ := approved.restore(live)
	return edits
}

// inspectList hides the items of a page that are not as approved.
func (g *Guard) inspectList(ctx context.Context, s *guardedServer, kind Kind,
	m *mcp.Message) (pipeline.Verdict, error) {
	page := contents{kind, m.Digest()}
	s.mu.Lock()
	isClean := len(s.held) == 0 && s.clean[page]
	s.mu.Unlock()
	if isClean {
		return pipeline.Verdict{Action: pipeline.Allow}, nil
	}
	p := s.comparePage(ctx, kind, m)
	var untrusted error
	if len(p.trusted) > 0 && ctx.Err() == nil {
		if untrusted = g.trust(ctx, s, p.trusted); untrusted == nil {
			p = s.comparePage(ctx, kind, m)
		}
	}
	if err := ctx.Err(); err != nil {
		return pipeline.Verdict{}, fmt.Errorf("compare with the lock file: %w", err)
	}
	sightings := make([]sighting, 0, len(p.items))
	for name, compared := range p.items {
		s.note(heldItem{kind, name}, compared)
		sightings = append(sightings, sighting{heldItem{kind, name}, compared.class, p.raw[name]})
	}
	g.remember(ctx, s, sightings)
	if len(p.counts) == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.clean) >= maxKnownPages {
			clear(s.clean)
		}
		s.clean[page] = true
		return pipeline.Verdict{Action: pipeline.Allow}, nil
	}
	v := p.verdict()
	if s.Unread {
		v.Reason += ": " + unreadReason
	}
	v.Reason += describeUntrusted(untrusted)
	return v, nil
}

// describeUntrusted returns why items could not be trusted at first use.
func describeUntrusted(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("; not trusted at first use: %v", err)
}

// shadowFinding is the type of a finding about an item that names an item of another server.
const shadowFinding = "shadow"

// comparedPage is a page of a list, compared with the lock.
type comparedPage struct {
	hidden  []string // names of items that are hidden
	warned  []string // names of items that pass, and would be hidden
	kept    int      // items with approved texts
	edits   []mcp.Edit
	items   map[string]comparing // by name; an item that is listed twice must be right twice
	raw     map[string][]byte    // the definitions of the items that are not as approved
	counts  map[Class]int
	trusted []*Item // items to trust
	shadows []pipeline.Finding
}

// comparePage compares the items of a page until ctx ends.
func (s *guardedServer) comparePage(ctx context.Context, kind Kind,
	m *mcp.Message) *comparedPage {
	method, _ := mcp.LookupMethod(m.Method)
	p := &comparedPage{items: map[string]comparing{}, counts: map[Class]int{},
		raw: map[string][]byte{}}
	m.ItemTexts(method.ItemsPointer, "/"+kind.nameMember(), func(i int, raw []byte, name string,
		ok bool) bool {
		compared := comparing{class: New}
		if ok {
			compared = s.compare(kind, raw)
			if new := s.canTrust(kind, raw, compared); new != nil {
				p.trusted = append(p.trusted, new)
			}
			old, again := p.items[name]
			if !again || old.class == "" || old.keeps && compared.class != "" {
				if p.items[name] = compared; compared.class != "" {
					p.raw[name] = raw
				}
			}
		}
		at := method.ItemsPointer + "/" + strconv.Itoa(i)
		if compared.shadows {
			p.shadows = append(p.shadows, pipeline.Finding{Type: shadowFinding, Pointer: at})
		}
		switch {
		case compared.class == "":
			return ctx.Err() == nil
		case !ok || name == "": // without a name, it cannot be hidden by its name
			p.edits = append(p.edits, mcp.Remove(at))
		case s.warns(compared.class):
			p.warned = append(p.warned, name)
		case compared.keeps:
			p.kept++
			for _, e := range s.restore(kind, raw) {
				p.edits = append(p.edits, mcp.Edit{Pointer: at + e.pointer, Value: e.value})
			}
		default:
			p.hidden = append(p.hidden, name)
		}
		p.counts[compared.class]++
		return ctx.Err() == nil
	})
	return p
}

// verdict returns the verdict on a page with items that are not as approved.
func (p *comparedPage) verdict() pipeline.Verdict {
	v := pipeline.Verdict{Action: pipeline.Allow, Hide: p.hidden, Edits: p.edits, Final: true,
		Findings: p.shadows,
		Reason:   "not as approved: " + describeCounts(p.counts)}
	if p.kept > 0 {
		v.Reason += fmt.Sprintf("; %d with the approved texts", p.kept)
	}
	if len(p.edits) > 0 {
		v.Action = pipeline.Modify
	}
	if len(p.warned) > 0 {
		would := v
		would.Hide = slices.Concat(p.hidden, p.warned)
		v.Would = &would
	}
	return v
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
