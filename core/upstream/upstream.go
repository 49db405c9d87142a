package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
)

// Upstream is a configured server, running or not. Its methods may be called from many goroutines.
type Upstream struct {
	opts       *Options
	goroutines *taskgroup.Group
	connector  *connector
	prober     *prober
	pool       *modernPool

	mu     sync.Mutex // taken before modernPool.mu
	closed bool
	open   map[*openServer]struct{} // the servers that Open returned and that are not closed
}

var _ proxy.Upstream = (*Upstream)(nil)

// New returns the server that o configures. Nothing is started until a client needs it.
func New(o Options) *Upstream {
	opts, goroutines := o.withDefaults(), taskgroup.New()
	c := &connector{opts: opts, goroutines: goroutines}
	p := &prober{opts: opts, goroutines: goroutines, connector: c}
	return &Upstream{opts: opts, goroutines: goroutines, connector: c, prober: p,
		pool: &modernPool{connector: c, doubt: p.discardAny}, open: make(map[*openServer]struct{})}
}

// Revisions returns the revisions that the server speaks, the newest first. The first call probes
// the server, unless the configuration names its era.
func (u *Upstream) Revisions(ctx context.Context) ([]string, error) {
	return u.prober.revisions(ctx, nil)
}

// RevisionsFor is Revisions for a server that needs the credentials of a principal.
func (u *Upstream) RevisionsFor(ctx context.Context, p *identity.Principal) ([]string, error) {
	return u.prober.revisions(ctx, p)
}

// Open implements proxy.Upstream. In the messages that Call of the returned server returns, these
// fields are set: Kind, Direction and, on a result that asks for input, CarriesInput. The proxy
// sets the other fields.
func (u *Upstream) Open(ctx context.Context, o proxy.OpenOptions,
	feed proxy.Handler) (proxy.Server, error) {
	revisions, err := u.prober.revisions(ctx, o.Principal)
	if err != nil {
		return nil, err
	}
	era := mcp.EraOf(o.Revision)
	isNative := slices.ContainsFunc(revisions, func(r string) bool { return mcp.EraOf(r) == era })
	if !isNative {
		u.prober.discardGuess()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var s proxy.Server
	switch {
	case u.closed:
		return nil, closingError(u.opts.Name)
	case !isNative && u.opts.Bridge == nil:
		return nil, unavailable(u.opts.Name, fmt.Sprintf(
			"the server speaks revisions %q, and there is no bridge for clients of revision %s",
			revisions, o.Revision), nil)
	case !isNative:
		s = u.opts.Bridge.Open(nativeSessions{u}, o, feed)
	case era == mcp.Legacy:
		s = nativeSessions{u}.openLegacy(o, feed, startAtFirstUse)
	default:
		s = nativeSessions{u}.OpenModern(o)
	}
	opened := &openServer{s, u}
	u.open[opened] = struct{}{}
	return opened, nil
}

// openServer is a server that Open returned.
type openServer struct {
	proxy.Server
	upstream *Upstream
}

// Close implements proxy.Server.
func (s *openServer) Close() error {
	err := s.Server.Close()
	s.upstream.mu.Lock()
	defer s.upstream.mu.Unlock()
	delete(s.upstream.open, s)
	return err
}

// nativeSessions implements NativeSessions.
type nativeSessions struct{ u *Upstream }

func (n nativeSessions) Name() string { return n.u.opts.Name }

func (n nativeSessions) SpeaksModern() bool { return n.u.prober.speaksModern() }

func (n nativeSessions) SharesStream() bool {
	return n.u.opts.Dial.HTTP == nil || n.u.connector.prefersSSE()
}

func (n nativeSessions) StartContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return n.u.opts.startContext(ctx)
}

func (n nativeSessions) OpenLegacy(o proxy.OpenOptions, feed proxy.Handler) LegacySession {
	return n.openLegacy(o, feed, startAtInitialize)
}

func (n nativeSessions) openLegacy(o proxy.OpenOptions, feed proxy.Handler,
	when startMoment) *legacySession {
	return newLegacySession(n.u.connector, n.u.prober, o, feed, when)
}

func (n nativeSessions) OpenModern(o proxy.OpenOptions) ModernSession {
	return newModernSession(n.u.prober, n.u.pool, o)
}

// Close closes all sessions, connections and processes, and waits for their end. It is safe to call
// twice.
func (u *Upstream) Close() error {
	u.mu.Lock()
	u.closed = true
	open := make([]*openServer, 0, len(u.open))
	for s := range u.open {
		open = append(open, s)
	}
	u.mu.Unlock()

	errs := make([]error, len(open)+2)
	var wg sync.WaitGroup
	for i, s := range open {
		wg.Go(func() { errs[i] = s.Close() })
	}
	wg.Go(func() { errs[len(open)] = u.connector.close() })
	wg.Wait()
	errs[len(open)+1] = u.pool.close()
	u.goroutines.Close()
	return errors.Join(errs...)
}

// State returns the state of the server, without sending anything to it. "up" means that a
// connection is open. "down" means that the last connection was lost or could not be opened while
// sessions are open, or that the last process that was started never answered. "idle" means that no
// connection is open and that the server is not "down". A server over Streamable HTTP has no
// lasting connection, so its state is "idle".
func (u *Upstream) State() string {
	state, _, _ := u.status()
	return state
}

// Era returns the newest era that the server is configured or known to speak: "modern" or "legacy",
// or "" if no client has used the server yet. It sends nothing.
func (u *Upstream) Era() string { return u.prober.knownEra() }

// status returns the same state as State. It also returns some of the open connections and, when
// the server is down, the reason.
func (u *Upstream) status() (state string, conns []*pipeConn, fault error) {
	u.mu.Lock()
	hasSessions := len(u.open) > 0
	u.mu.Unlock()
	conns, fault, startFault := u.connector.status()
	switch {
	case len(conns) > 0:
		return "up", conns, nil
	case fault != nil && hasSessions:
		return "down", nil, fault
	case startFault != nil: // clients are refused for as long as the server does not start
		return "down", nil, startFault
	}
	return "idle", nil, nil
}

// Ready checks that the server answers. It sends server/discover to a URL, and server/discover or
// ping to running processes. It starts no process: a server that no client has used is "idle",
// without an error. Any response of a URL that an older server might send counts as an answer, even
// HTTP 404. So does a response that a user has to log in. state is one of the values that State
// returns. err is the reason why a client would not be served now.
func (u *Upstream) Ready(ctx context.Context) (state string, err error) {
	if u.opts.Dial.HTTP != nil {
		result := u.prober.probeURL(ctx, nil)
		if refused, ok := errors.AsType[*CredentialsError](result.err); ok && refused.LoginNeeded {
			return "up", nil
		}
		if result.err != nil {
			return "down", u.explainTimeout(ctx, "server/discover", result.err)
		}
		return "up", nil
	}
	state, conns, err := u.status()
	if state != "up" {
		return state, err
	}
	errs := make([]error, len(conns))
	var wg sync.WaitGroup
	for i, conn := range conns {
		wg.Go(func() {
			request := pingRequest()
			if conn.modern.Load() {
				request = discoverRequest("0", u.opts.Version)
			}
			_, err := conn.send(ctx, request, nil, nil) // an error message is an answer, too
			errs[i] = u.explainTimeout(ctx, request.m.Method, err)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err == nil {
			return "up", nil
		}
	}
	return "down", errs[0]
}

// explainTimeout returns err or, when ctx has ended, an error that describes the timeout or the
// cancellation.
func (u *Upstream) explainTimeout(ctx context.Context, method string, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	reason := fmt.Sprintf("the server did not answer %s in time", method)
	if deadline, ok := ctx.Deadline(); ok && time.Now().Before(deadline) {
		reason = "the check was cancelled before the server answered"
	}
	return unavailable(u.opts.Name, reason, nil)
}
