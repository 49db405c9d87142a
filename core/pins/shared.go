package pins

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/core/shared"
)

// Shared keeps what replicas have approved of their servers while they ran, in addition to their
// lock files: what they trusted at first use, and what an operator approved beside one of them. The
// lock files are deployed with the configuration, and are not written.
//
// For each server, the state that replicas share has one value. A definition in it stands over the
// one in the lock file only while the lock file has what it had when the definition was approved.
// So a newer lock file stands over what was approved before. Its methods may be called at the same
// time.
type Shared struct {
	Values shared.Values
	// Accept is called before what other replicas have approved is used, with the items that are
	// new. If it returns an error, that is not used, and is read again later. It is not called for
	// what Load reads. It may be nil.
	Accept func(server string, o *Overlay, items []*Item) error

	failing atomic.Bool // the store did not answer the last time

	mu     sync.Mutex          // held while the store is asked
	known  map[string]*Overlay // what was read last, by server
	seen   uint64              // the version of the markers
	reread time.Time           // when all values were read last
	// adopted has the servers for which Update has used what another replica has approved
	adopted map[string]bool
}

// Overlay has the definitions and the launch of one server that replicas have approved in addition
// to their lock files. It does not change.
type Overlay struct {
	server *Server
	bases  map[string]string // by baseName: what the lock file had
	value  []byte            // as it is stored; nil if nothing is
}

// fileOverlay is the JSON of a shared value.
type fileOverlay struct {
	Server fileServer        `json:"server"`
	Bases  map[string]string `json:"bases"`
}

const (
	// Beside each value, which may be large, there is a small one that is listed: a marker that
	// changes after the value.
	overlayKind = "pins"
	markerKind  = "pins changed"
	lockKind    = "pins lock"
	// rereadInterval is how often all values are read, in case that a replica has ended before it
	// has changed the marker.
	rereadInterval = 10 * time.Second
	// updateTimeout bounds an update, and how long its lock is held.
	updateTimeout = 5 * time.Second
	// launchBase is the name of the launch and the package in Overlay.bases.
	launchBase = "launch"
)

func baseName(kind Kind, name string) string { return shared.Join(string(kind), name) }

// launchOf returns how a server is started, and its package, or "" for no server.
func launchOf(s *Server) string {
	if s == nil {
		return ""
	}
	return s.Start.String() + "\n" + s.Package.String()
}

// digestOfItem returns the digest of an item of a server, or "". The server may be nil.
func digestOfItem(s *Server, kind Kind, name string) string {
	if s == nil || s.Item(kind, name) == nil {
		return ""
	}
	return s.Item(kind, name).digest
}

// Digest returns the digest of the value, or "" if the replicas have approved nothing.
func (o *Overlay) Digest() string {
	if o == nil || o.value == nil {
		return ""
	}
	return digestOfFile(o.value)
}

// on returns what is approved of a server that is in the lock file as locked, or nil. Both may be
// nil.
func (o *Overlay) on(locked *Server) *Server {
	if o == nil || o.server == nil {
		return locked
	}
	base, launch := o.bases[launchBase]
	launch = launch && base == launchOf(locked)
	if locked == nil && !launch {
		return nil // it was removed from the lock file
	}
	approved := &Server{}
	if locked != nil {
		approved = locked.Clone()
	}
	if launch {
		approved.Start, approved.Package = o.server.Start, o.server.Package
	}
	for _, i := range o.server.Items() {
		base, ok := o.bases[baseName(i.kind, i.Name())]
		if ok && base == digestOfItem(locked, i.kind, i.Name()) {
			approved.Replace(i)
		}
	}
	return approved
}

// with returns the overlay after which approved becomes after, on a lock file that has locked.
func (o *Overlay) with(locked, approved, after *Server) (*Overlay, error) {
	next, isNew := &Overlay{server: &Server{}, bases: map[string]string{}}, false
	if o.server != nil {
		next.server, next.bases = o.server.Clone(), maps.Clone(o.bases)
	}
	if approved == nil || launchOf(approved) != launchOf(after) {
		isNew = true
		next.server.Start, next.server.Package = after.Start, after.Package
		next.bases[launchBase] = launchOf(locked)
	}
	for _, i := range after.Items() {
		if digestOfItem(approved, i.kind, i.Name()) != i.digest {
			isNew = true
			next.server.Replace(i)
			next.bases[baseName(i.kind, i.Name())] = digestOfItem(locked, i.kind, i.Name())
		}
	}
	if !isNew {
		return o, nil
	}
	value, err := json.Marshal(fileOverlay{next.server.file(), next.bases},
		json.Deterministic(true))
	next.value = value
	return next, err
}

// decodeOverlay returns the overlay of a shared value. The value nil is an overlay of nothing.
func decodeOverlay(value []byte) (*Overlay, error) {
	if value == nil {
		return &Overlay{}, nil
	}
	var f fileOverlay
	if err := json.Unmarshal(value, &f, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: read the shared pins: %w", shared.ErrUnavailable, err)
	}
	s, _, err := f.Server.server()
	if err != nil {
		return nil, fmt.Errorf("%w: read the shared pins: %w", shared.ErrUnavailable, err)
	}
	return &Overlay{s, f.Bases, value}, nil
}

func overlayKey(server string) shared.Key { return shared.Key{Kind: overlayKind, Name: server} }

func (s *Shared) get(ctx context.Context, server string) (*Overlay, uint64, error) {
	value, generation, err := s.Values.Get(ctx, overlayKey(server))
	if err != nil {
		return nil, 0, err
	}
	if generation == 0 {
		value = nil
	}
	o, err := decodeOverlay(value)
	return o, generation, err
}

// Load returns what was read last of a server. If nothing was, it reads.
func (s *Shared) Load(ctx context.Context, server string) (*Overlay, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.known[server]; o != nil {
		return o, nil
	}
	o, _, err := s.get(ctx, server)
	if errors.Is(err, shared.ErrLost) { // the next call uses the store as it is now
		o, _, err = s.get(ctx, server)
	}
	if err != nil {
		return nil, err
	}
	s.know(server, o)
	return o, nil
}

// Known returns what was read last of a server, or nil.
func (s *Shared) Known(server string) *Overlay {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[server]
}

// know remembers what was read. s.mu must be held.
func (s *Shared) know(server string, o *Overlay) {
	if s.known == nil {
		s.known = map[string]*Overlay{}
	}
	s.known[server] = o
}

// Effective returns a lock with what is approved by l and by what was read last. It cannot be
// written. If s is nil, it is l.
func (s *Shared) Effective(l *Lock) *Lock {
	if s == nil {
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	effective := *l
	effective.Servers = maps.Clone(l.Servers)
	for name, o := range s.known {
		if approved := o.on(l.Servers[name]); approved != nil {
			effective.Servers[name] = approved
		}
	}
	return &effective
}

// on returns what is approved of a server by what was read last.
func (s *Shared) on(server string, locked *Server) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[server].on(locked)
}

// isAvailable reports whether the store has answered the last time.
func (s *Shared) isAvailable() bool { return !s.failing.Load() }

// Update changes what is approved of a server, for all replicas. It calls change with what is
// approved now, or nil, and stores what change returns. locked is the server in the lock file, or
// nil. record is called before the change is stored, with the digest of the value; it may be nil.
// If another replica changes the server meanwhile, the error matches ErrChanged.
func (s *Shared) Update(ctx context.Context, server string, locked *Server,
	change func(approved *Server) (*Server, error), record func(digest string) error) error {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	// The lock keeps two replicas from recording what only one of them can store.
	held, err := shared.Lock(ctx, s.Values, shared.Key{Kind: lockKind, Name: server}, updateTimeout)
	if err != nil {
		return fmt.Errorf("lock the shared pins: %w", err)
	}
	defer func() { _ = held.Unlock(ctx) }() // its time ends soon in any case
	before, generation, err := s.get(ctx, server)
	if err != nil {
		return fmt.Errorf("read the shared pins: %w", err)
	}
	if generation == 0 {
		before, generation, err = s.storeKnown(ctx, server)
	} else {
		err = s.adopt(server, before)
	}
	if err != nil {
		return err
	}
	approved := before.on(locked)
	var argument *Server
	if approved != nil {
		argument = approved.Clone()
	}
	after, err := change(argument)
	if err != nil {
		return err
	}
	next, err := before.with(locked, approved, after)
	if err != nil {
		return fmt.Errorf("encode the shared pins: %w", err)
	}
	if !bytes.Equal(before.value, next.value) {
		if err := shared.CheckSwap(overlayKey(server), next.value, 0); err != nil {
			return err
		}
		if record != nil {
			if err := record(next.Digest()); err != nil {
				return err
			}
		}
		if _, err := s.store(ctx, server, generation, next); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.know(server, next)
	return nil
}

// adopt uses what was read of a server that was read before.
func (s *Shared) adopt(server string, o *Overlay) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[server]
	if known == nil || known.Digest() == o.Digest() {
		return nil
	}
	if err := s.accept(server, o, known); err != nil {
		return err
	}
	if s.adopted == nil {
		s.adopted = map[string]bool{}
	}
	s.adopted[server] = true
	s.know(server, o)
	return nil
}

// storeKnown stores what was read last of a server of which the store has nothing, because it has
// lost it, and returns that.
func (s *Shared) storeKnown(ctx context.Context, server string) (*Overlay, uint64, error) {
	s.mu.Lock()
	known := s.known[server]
	s.mu.Unlock()
	if known.Digest() == "" {
		return &Overlay{}, 0, nil
	}
	generation, err := s.store(ctx, server, 0, known)
	return known, generation, err
}

// accept calls Accept. s.mu must be held.
func (s *Shared) accept(server string, o, known *Overlay) error {
	if s.Accept == nil {
		return nil
	}
	return s.Accept(server, o, o.newIn(known))
}

// store stores an overlay, and then changes its marker. If the marker cannot be changed, the other
// replicas read the overlay within rereadInterval. It returns the new generation.
func (s *Shared) store(ctx context.Context, server string, was uint64, o *Overlay) (uint64, error) {
	generation, err := s.Values.Swap(ctx, overlayKey(server), was, o.value, 0)
	if errors.Is(err, shared.ErrChanged) {
		return 0, fmt.Errorf("store the shared pins: %w: another replica has changed them",
			ErrChanged)
	}
	if err != nil {
		return 0, fmt.Errorf("store the shared pins: %w", err)
	}
	marker := shared.Key{Kind: markerKind, Name: server, Listed: true}
	if _, old, err := s.Values.Get(ctx, marker); err == nil {
		sum := sha256.Sum256(o.value)
		// If it has changed, another replica has changed it after this one has stored the overlay.
		_, _ = s.Values.Swap(ctx, marker, old, sum[:], 0)
	}
	return generation, nil
}

// Look reads what other replicas have approved of servers since the last Look, and returns the
// servers for which there is something new. A replica calls it regularly. If the store has lost
// what is known, Look stores it again.
func (s *Shared) Look(ctx context.Context, servers []string) (changed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if s.failing.Store(err != nil); err != nil {
			s.seen = 0
		}
	}()
	l, err := s.Values.List(ctx, markerKind, s.seen)
	if err != nil {
		return nil, err
	}
	all := time.Since(s.reread) >= rereadInterval
	markers := map[string]string{}
	for _, e := range l.Entries {
		markers[e.Key.Name] = "sha256:" + hex.EncodeToString(e.Value)
	}
	var errs []error
	for _, name := range servers {
		if s.adopted[name] {
			delete(s.adopted, name)
			changed = append(changed, name)
		}
		known := s.known[name]
		if known != nil && !all && (!l.Changed || markers[name] == known.Digest()) {
			continue
		}
		isNew, err := s.look(ctx, name, known)
		if err != nil {
			errs = append(errs, fmt.Errorf("server %q: %w", name, err))
		}
		if isNew {
			changed = append(changed, name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return changed, err
	}
	if s.seen = l.Version; all {
		s.reread = time.Now()
	}
	return changed, nil
}

// look reads what is approved of one server, and reports whether it is new. s.mu must be held.
func (s *Shared) look(ctx context.Context, name string, known *Overlay) (isNew bool, err error) {
	o, generation, err := s.get(ctx, name)
	if err != nil {
		return false, err
	}
	switch {
	case known == nil && generation == 0:
	case o.Digest() == known.Digest():
		return false, nil
	case generation == 0: // the store has lost it
		_, err := s.store(ctx, name, 0, known)
		return false, err
	default:
		if err := s.accept(name, o, known); err != nil {
			return false, err
		}
	}
	s.know(name, o)
	return true, nil
}

// newIn returns the items of o that the overlay before does not have.
func (o *Overlay) newIn(before *Overlay) []*Item {
	return slices.DeleteFunc(o.server.Items(), func(i *Item) bool {
		return before != nil && digestOfItem(before.server, i.kind, i.Name()) == i.digest
	})
}

// Launch returns how the server is started as the replicas have approved it.
func (o *Overlay) Launch() string {
	if o.server == nil {
		return ""
	}
	return strings.TrimSpace(o.server.Start.String() + " " + o.server.Package.String())
}
