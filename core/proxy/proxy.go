package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatekit/core/pipeline"
	"gatekit/core/tasks"
)

// Options configure a Proxy.
type Options struct {
	Pipeline *pipeline.Pipeline
	Servers  []ServerConfig // in the order of the configuration
	Naming   Naming
	Limits   Limits
	Version  string // Gatekit's version, for its serverInfo
	// key that seals cursors and requestState. If StateKey is empty, New makes a random key. Then
	// no other instance can serve the next page of a list or the next request of an input round.
	StateKey []byte
	Log      *slog.Logger

	// ListFirst means that a client may have got lists from other replicas. Before the first use of
	// an item in a session, the server is asked for the list that the stages need to judge the use.
	ListFirst bool

	// Tasks has the owners of tasks. If it is nil, the Proxy has its own, in memory. Apply does not
	// change it.
	Tasks *tasks.Owners
	// Answered remembers the questions that clients have answered at all instances with the same
	// StateKey. If it is nil, the Proxy remembers only those that it got the answers to.
	Answered AnsweredRounds

	Approvals Approvals // may be nil: then only a client's user can approve
	Observer  Observer  // may be nil

	// DescribeCause returns the text that clients get about a cause, which is the Err of an
	// UnavailableError. If the text is empty, or DescribeCause is nil, clients get only the Reason
	// of the error.
	DescribeCause func(cause error) string
}

// ServerConfig configures one server.
type ServerConfig struct {
	Name       string        // [a-z][a-z0-9-]*; the prefix of the server's tools, prompts and URIs
	Upstream   Upstream      // closed by its owner, after the Proxy
	Timeout    time.Duration // of a call without progress; default 60 s
	MaxTimeout time.Duration // of a whole call; default 10 min
	// vendor methods (requests and notifications) that are forwarded to and from this server;
	// "acme/*" stands for all methods that begin with "acme/"
	Methods []string
}

const (
	defaultTimeout    = time.Minute
	defaultMaxTimeout = 10 * time.Minute
)

// Naming configures how clients see names and URIs (docs/configuration.md).
type Naming struct {
	Prefix    string // "always" (default) or "never" (one server only)
	Resources string // "scheme" (default), "prefix" or "transparent"
}

// Limits bound the work for one client. A field that is 0 or negative has its default.
type Limits struct {
	InFlight      int // calls of one session at a time; default 256
	ListPages     int // pages taken from one server for one list; default 100
	ListItems     int // items of one merged list; default 10,000
	PageItems     int // items in one page towards the client; default 1,000
	Subscriptions int // open subscriptions/listen of one session; default 32
	InputRounds   int // times that the server may ask for input in one call; default 16
	InputRequests int // requests for input in one result, and answers in one request; default 256
	// AllLogs also forwards log messages below the level that the client set.
	AllLogs bool
}

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		v   *int
		def int
	}{{&l.InFlight, 256}, {&l.ListPages, 100}, {&l.ListItems, 10_000}, {&l.PageItems, 1000},
		{&l.Subscriptions, 32}, {&l.InputRounds, 16}, {&l.InputRequests, 256}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
	}
	return l
}

// settings is one configuration, in force from one Apply to the next. Only its caches change.
type settings struct {
	Options
	names  *prefixer
	byName map[string]*ServerConfig
	pages  *pageCache
}

var serverName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

func newSettings(o Options) (*settings, error) {
	set := &settings{Options: o, byName: map[string]*ServerConfig{},
		pages: &pageCache{pages: map[pageKey]*clientPage{}, lists: map[string]*mergedList{}}}
	set.Limits = o.Limits.withDefaults()
	if set.Log == nil {
		set.Log = slog.New(slog.DiscardHandler)
	}
	set.names = &prefixer{disabled: o.Naming.Prefix == "never", resources: o.Naming.Resources,
		servers: map[string]bool{}}
	if o.Pipeline == nil {
		return nil, errors.New("configure the proxy: no pipeline")
	}
	if len(o.Servers) == 0 {
		return nil, errors.New("configure the proxy: no server")
	}
	if set.names.disabled && len(o.Servers) > 1 {
		return nil, fmt.Errorf("configure the proxy: names without prefix need exactly one "+
			"server, not %d", len(o.Servers))
	}
	set.Servers = slices.Clone(o.Servers)
	for i := range set.Servers {
		s := &set.Servers[i]
		if !serverName.MatchString(s.Name) {
			return nil, fmt.Errorf("configure server %q: a name must have only lower-case "+
				"letters, digits and hyphens, and begin with a letter", s.Name)
		}
		if set.names.servers[s.Name] {
			return nil, fmt.Errorf("configure server %q: the name is taken", s.Name)
		}
		if s.Timeout <= 0 {
			s.Timeout = defaultTimeout
		}
		if s.MaxTimeout <= 0 {
			s.MaxTimeout = defaultMaxTimeout
		}
		set.names.servers[s.Name] = true
		set.byName[s.Name] = s
	}
	return set, nil
}

// hasSeveralServers reports whether there is more than one server, so that clients must be told
// which server a message comes from.
func (set *settings) hasSeveralServers() bool { return len(set.Servers) > 1 }

// allowsVendorMethod reports whether the configuration forwards a vendor method to and from the
// server.
func (set *settings) allowsVendorMethod(server, method string) bool {
	s := set.byName[server]
	return s != nil && slices.ContainsFunc(s.Methods, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(method, prefix)
		}
		return method == pattern
	})
}

// Proxy connects clients with servers. It is safe for many goroutines.
type Proxy struct {
	settings  atomic.Pointer[settings]
	seal      *sealer
	answered  usedRounds
	longNames longNameWarnings
	tasks     *tasks.Owners
	patience  patience
	// number of skills, and of files of skills, that all sessions remember together
	skillItems atomic.Int64
	stopping   atomic.Bool // new calls are refused

	// guards the fields below; Apply holds it until every session has the new settings
	mu       sync.Mutex
	sessions map[*Session]struct{}
	closed   bool
}

// New returns a Proxy. It connects to no server yet.
func New(o Options) (*Proxy, error) {
	set, err := newSettings(o)
	if err != nil {
		return nil, err
	}
	seal, err := newSealer(o.StateKey)
	if err != nil {
		return nil, fmt.Errorf("make the key for cursors and request states: %w", err)
	}
	p := &Proxy{seal: seal, sessions: map[*Session]struct{}{}, tasks: o.Tasks}
	if p.tasks == nil {
		p.tasks = &tasks.Owners{}
	}
	p.settings.Store(set)
	return p, nil
}

// Apply puts new options in force without dropping sessions. Servers that are not in the new
// options, or have another Upstream there, are closed, and their unanswered calls fail. New servers
// are opened for the existing sessions, and the clients are notified that lists changed. Calls to
// unchanged servers are completed with the old options. The StateKey does not change. If the new
// options are invalid, Apply returns an error, and the old options stay in force.
func (p *Proxy) Apply(o Options) error {
	set, err := newSettings(o)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings.Store(set)
	p.patience.keepOnly(set.Servers)
	for s := range p.sessions {
		s.apply(set)
	}
	return nil
}

// Pipeline returns the pipeline in force, for the messages that core/downstream makes itself.
func (p *Proxy) Pipeline() *pipeline.Pipeline { return p.settings.Load().Pipeline }

// Open opens a session. A session serves one legacy client, all requests of one modern principal
// (HTTP), or all requests of one modern connection (stdio). feed gets the messages that servers
// send outside of any call. A session of a closed Proxy refuses all requests.
func (p *Proxy) Open(o OpenOptions, feed Client) *Session {
	s := &Session{proxy: p, options: o, feed: feed, calls: map[string]*Call{},
		servers: map[string]*sessionServer{}, subscriptions: map[*subscription]struct{}{},
		uriListing: make(chan struct{}, 1)}
	s.principal.Store(o.Principal)
	s.skills.total = &p.skillItems
	s.backgroundContext, s.endBackground = context.WithCancelCause(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		s.closed = true
		s.endBackground(errClosed)
		return s
	}
	s.updateServers(p.settings.Load())
	p.sessions[s] = struct{}{}
	return s
}

// AnnounceListChange notifies the clients of a principal that a list of the server may have
// changed. The capability is "tools", "prompts" or "resources". AnnounceListChange does not wait.
func (p *Proxy) AnnounceListChange(principal, server, capability string) {
	p.announce(server, func(s *Session) bool { return s.principal.Load().ID() == principal },
		func(ctx context.Context, s *Session, srv *sessionServer) {
			s.notifyListChange(ctx, srv, capability, s.notifyClient)
		})
}

// AnnounceListChanges notifies all clients that all lists of the server may have changed. It does
// not wait.
func (p *Proxy) AnnounceListChanges(server string) {
	p.announce(server, func(*Session) bool { return true },
		func(ctx context.Context, s *Session, srv *sessionServer) {
			s.notifyListChanges(ctx, srv, s.notifyClient)
		})
}

// announce calls notify in the background of each session that has the server and that wants it.
func (p *Proxy) announce(server string, wants func(*Session) bool,
	notify func(context.Context, *Session, *sessionServer)) {
	p.mu.Lock()
	sessions := slices.Collect(maps.Keys(p.sessions))
	p.mu.Unlock()
	for _, s := range sessions {
		if srv := s.server(server); srv != nil && wants(s) {
			s.runInBackground(func(ctx context.Context) { notify(ctx, s, srv) })
		}
	}
}

// UseNewCredentials notes that the credentials with which a server is asked have changed, for the
// principals with an ID for which affects returns true. Their sessions repeat an initialize that
// failed, or notify their clients that the server's lists changed.
func (p *Proxy) UseNewCredentials(server string, affects func(principal string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.sessions {
		if affects(s.principal.Load().ID()) {
			s.useNewCredentials(server)
		}
	}
}

// SessionCount returns the number of open sessions.
func (p *Proxy) SessionCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}

func (p *Proxy) forget(s *Session) {
	p.mu.Lock()
	delete(p.sessions, s)
	p.mu.Unlock()
}

// Close ends all sessions and waits for the goroutines that the sessions started.
// Sessions that are opened later refuse all requests.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	sessions := make([]*Session, 0, len(p.sessions))
	for s := range p.sessions {
		sessions = append(sessions, s)
	}
	p.mu.Unlock()
	return closeAll(sessions, (*Session).Close)
}

// closeAll calls closeOne for all elements concurrently, and waits for the calls.
func closeAll[T any](all []T, closeOne func(T) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, one := range all {
		wg.Go(func() { errs[i] = closeOne(one) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
