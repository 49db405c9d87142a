package connect

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/identity"
	"gatekit/core/shared"
)

// Bounds and times.
const (
	linkLifetime    = 10 * time.Minute
	sessionLifetime = 15 * time.Minute
	finishTimeout   = 40 * time.Second // for the requests that a finished login makes
	maxLinks        = 1000
	maxSessions     = 10_000
	maxOpened       = 20      // logins at the issuer that one link can begin
	maxAttempts     = 5       // of them, in one browser at the same time
	maxBegun        = 20      // logins at servers in one browser at the same time
	maxForm         = 4 << 10 // bytes of a form
)

// Path is the path of the pages, below the public URL.
const Path = "/connect/"

// Options configure the pages. All functions are required, and may be called at the same time. The
// functions that finish a login may be called in another replica than those that begin it.
type Options struct {
	// PublicURL is the URL at which browsers reach the listener: https, or http on this machine.
	PublicURL string
	// HasLogin reports whether users of an issuer can show who they are.
	HasLogin func(issuer string) bool
	// BeginLogin begins the login of a user at an issuer, which sends the user to the URL redirect.
	BeginLogin func(ctx context.Context, issuer, redirect string) (Begun, error)
	// FinishUser finishes such a login, whose Begun.Rest is rest, with the query of the answer. It
	// returns who has logged in.
	FinishUser func(ctx context.Context, issuer string, rest []byte,
		query url.Values) (*identity.Principal, error)
	// Finish finishes the login of a principal at a server, with the query of the answer.
	Finish func(ctx context.Context, login Login, query url.Values) error
	// Revoked reports whether a principal was revoked.
	Revoked func(*identity.Principal) bool
	// RecordRefusal records a request that is refused.
	RecordRefusal func(r *http.Request, refusal Refusal)

	// Values keep links and sessions. Replicas that share them can each serve all requests. nil
	// means the memory of this process.
	Values shared.Values
	// Key seals the ids of links: at least 32 bytes, the same in all replicas. nil means a random
	// key.
	Key []byte
}

// Begun is a login that has begun at an issuer.
type Begun struct {
	URL   string // of the page to open
	State string // the parameter state of the answer
	Rest  []byte // for Options.FinishUser
}

// UserLogin is a login with which a user shows who they are. It is finished in the process in which
// it has begun.
type UserLogin struct {
	URL     string                      // of the page to open
	Matches func(query url.Values) bool // the query is an answer to this login
	Finish  func(ctx context.Context, query url.Values) (*identity.Principal, error)
}

// Login is the login of a principal at a server.
type Login struct {
	Principal           *identity.Principal // whose login it is, as it asked
	Server              string
	AuthorizationServer string // the issuer of the tokens
	Scopes              []string
	URL                 string // of the page of the authorization server
	State               string // the parameter state of the answer
	Rest                []byte // for Options.Finish
}

// Refusal is a request that the pages refuse. Its texts have no credential.
type Refusal struct {
	Status    int
	Server    string // of the login; "" if unknown
	Principal string // ID of the principal whose login it is; "" if unknown
	Reason    string
}

// Pages are the web pages. All methods may be called at the same time.
type Pages struct {
	o        Options
	base     string   // public URL of the pages, with a slash
	paths    []string // of the pages on the listener, each with a slash
	isSecure bool     // the public URL is https
	sealer   sealer
	values   shared.Values
	isShared bool // other replicas use the values, too

	mu       sync.Mutex
	links    map[string]*Link     // whose callers wait, by their ids
	sessions map[string]time.Time // when the sessions that were made here expire, by their cookies
}

// Link is a link that a principal is asked to open.
type Link struct {
	// URL is the address of the page. It has no credential.
	URL string

	pages   *Pages
	id      string
	expires time.Time
	done    chan struct{} // closed after err was set
	ended   sync.Once     // closes done
	err     error
}

// openLink is a link that a browser has opened.
type openLink struct {
	*linkState
	id    string
	login Login
}

// New returns pages without links.
func New(o Options) (*Pages, error) {
	u, err := url.Parse(o.PublicURL)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(u.Path, "/") + Path
	p := &Pages{o: o, base: strings.TrimSuffix(o.PublicURL, "/") + Path,
		// Something before Gatekit may remove the beginning of the path.
		paths: []string{Path, base}, isSecure: u.Scheme == "https",
		links: map[string]*Link{}, sessions: map[string]time.Time{},
		values: o.Values, isShared: o.Values != nil}
	if !p.isShared {
		p.values = &shared.Memory{}
	}
	p.sealer, err = newSealer(o.Key)
	return p, err
}

// CanAsk reports whether a principal can open a link: it came with an access token of an issuer at
// which users can show who they are.
func (p *Pages) CanAsk(who *identity.Principal) bool {
	return who.Issuer() != "" && p.o.HasLogin(who.Issuer())
}

// Ask returns a link for the login of a principal. The caller must call Wait.
func (p *Pages) Ask(ctx context.Context, login Login) (*Link, error) {
	if !p.CanAsk(login.Principal) {
		return nil, errors.New("the principal cannot show who it is with a login at its issuer")
	}
	l := &Link{pages: p, id: rand.Text(), expires: time.Now().Add(linkLifetime),
		done: make(chan struct{})}
	sealed, err := p.sealer.seal(l.id, l.expires)
	if err != nil {
		return nil, err
	}
	l.URL = p.base + sealed
	p.mu.Lock()
	asked := len(p.links)
	if asked < maxLinks {
		p.links[l.id] = l
	}
	p.mu.Unlock()
	if asked >= maxLinks {
		return nil, fmt.Errorf("%d principals are asked to log in already", asked)
	}
	s := newLinkState(login, l.expires)
	if err := store(ctx, p.values, linkKey(l.id), 0, &s); err != nil {
		p.forget(l)
		return nil, err
	}
	return l, nil
}

// errExpired is the error of a login that nobody has finished in time.
var errExpired = fmt.Errorf("nobody logged in within %s", linkLifetime)

// errForgotten is the error of a login that is in the shared state no more.
var errForgotten = errors.New("the login was forgotten: shared state was lost")

// Wait waits until the login has ended, in this replica or in another one, and returns why it
// failed, or nil. It ends the link at the latest when the link expires, or when ctx ends.
func (l *Link) Wait(ctx context.Context) error {
	ctx, cancel := context.WithDeadlineCause(ctx, l.expires, errExpired)
	defer cancel()
	defer l.pages.forget(l)
	for {
		var look <-chan time.Time
		if l.pages.isShared {
			look = time.After(shared.WatchInterval)
		}
		select {
		case <-l.done:
			return l.take(ctx, nil)
		case <-ctx.Done():
			return l.take(ctx, context.Cause(ctx))
		case <-look:
		}
		switch s, _, err := load[linkState](ctx, l.pages.values, linkKey(l.id)); {
		case err != nil: // it may be there again before the link expires
		case s == nil:
			return errForgotten
		case s.Ended:
			return l.take(ctx, s.result())
		}
	}
}

// take removes the link, and returns its result, or otherwise if it has none.
func (l *Link) take(ctx context.Context, otherwise error) error {
	s, err := take[linkState](context.WithoutCancel(ctx), l.pages.values, linkKey(l.id))
	select {
	case <-l.done:
		return l.err
	default:
	}
	if err == nil && s != nil && s.Ended {
		return s.result()
	}
	return otherwise
}

// forget removes a link from memory.
func (p *Pages) forget(l *Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l.id)
}

// end ends a link with the result of its login.
func (p *Pages) end(ctx context.Context, id string, result error) {
	_, _, _ = update(ctx, p.values, linkKey(id), func(s *linkState) bool {
		s.Ended = true
		if result != nil {
			s.Err = result.Error()
		}
		return true
	})
	p.mu.Lock()
	l := p.links[id]
	p.mu.Unlock()
	if l == nil {
		return // another replica asks for the result. Without the state, it waits in vain.
	}
	l.ended.Do(func() {
		l.err = result
		close(l.done)
	})
}

// isOpen reports whether the link can still begin a login.
func (p *Pages) isOpen(s *linkState, who *identity.Principal) bool {
	return !s.Used && p.isAlive(s, who)
}

// isAlive reports whether the login can still end with success.
func (p *Pages) isAlive(s *linkState, who *identity.Principal) bool {
	return !s.Ended && time.Now().Before(s.Expires) && !p.o.Revoked(who)
}

// link returns the link with the last part of its URL, or nil if it is not open.
func (p *Pages) link(ctx context.Context, sealed string) (*openLink, error) {
	id, expires, ok := p.sealer.open(sealed)
	if !ok || !time.Now().Before(expires) {
		return nil, nil
	}
	return p.linkByID(ctx, id)
}

// linkByID returns the link with an id, or nil if it is not open.
func (p *Pages) linkByID(ctx context.Context, id string) (*openLink, error) {
	s, _, err := load[linkState](ctx, p.values, linkKey(id))
	if err != nil || s == nil {
		return nil, err
	}
	login, err := s.login()
	if err != nil || !p.isOpen(s, login.Principal) {
		return nil, err
	}
	return &openLink{s, id, login}, nil
}

// rest returns the part of a path after that of the pages.
func (p *Pages) rest(path string) (string, bool) {
	for _, prefix := range p.paths {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			return rest, true
		}
	}
	return "", false
}

// The last parts of the paths to which issuers and authorization servers send browsers.
const (
	loginPath    = "login"
	callbackPath = "callback"
)

// Serves reports whether a path is one of the pages. All other paths are not public.
func (p *Pages) Serves(path string) bool {
	rest, ok := p.rest(path)
	return ok && (rest == loginPath || rest == callbackPath || isSealed(rest))
}

// ServeHTTP serves a page.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	rest, _ := p.rest(r.URL.Path)
	var handle func(http.ResponseWriter, *http.Request)
	methods := []string{http.MethodGet}
	switch {
	case rest == loginPath:
		handle = p.finishUserLogin
	case rest == callbackPath:
		handle = p.finishLogin
	case isSealed(rest):
		methods = append(methods, http.MethodPost)
		handle = func(w http.ResponseWriter, r *http.Request) { p.serveLink(w, r, rest) }
	default:
		p.refuse(w, r, Refusal{Status: http.StatusNotFound, Reason: "there is no such page"},
			badLink)
		return
	}
	if !slices.Contains(methods, r.Method) {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		p.refuse(w, r, Refusal{Status: http.StatusMethodNotAllowed,
			Reason: "a page for logins does not have this method"}, badLink)
		return
	}
	handle(w, r)
}

// refuseUnavailable refuses a request because the state of links and sessions is away.
func (p *Pages) refuseUnavailable(w http.ResponseWriter, r *http.Request, err error) {
	p.refuse(w, r, Refusal{Status: http.StatusServiceUnavailable, Reason: err.Error()}, tryLater)
}

// refuse records a refusal, and shows a page.
func (p *Pages) refuse(w http.ResponseWriter, r *http.Request, refusal Refusal, page message) {
	p.o.RecordRefusal(r, refusal)
	page.write(w, refusal.Status)
}

// query returns the query of a request, in which no parameter comes twice.
func query(r *http.Request) (url.Values, bool) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	for _, values := range q {
		if len(values) > 1 {
			return nil, false
		}
	}
	return q, err == nil
}
