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

// Options configure the pages. All functions are required, and may be called at the same time.
type Options struct {
	// PublicURL is the URL at which browsers reach the listener: https, or http on this machine.
	PublicURL string
	// HasLogin reports whether users of an issuer can show who they are.
	HasLogin func(issuer string) bool
	// BeginLogin begins the login of a user at an issuer, which sends the user to the URL redirect.
	BeginLogin func(ctx context.Context, issuer, redirect string) (UserLogin, error)
	// Revoked reports whether a principal was revoked.
	Revoked func(*identity.Principal) bool
	// RecordRefusal records a request that is refused.
	RecordRefusal func(r *http.Request, refusal Refusal)
}

// UserLogin is a login with which a user shows who they are.
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
	URL                 string                      // of the page of the authorization server
	Matches             func(query url.Values) bool // the query is an answer to this login
	Finish              func(ctx context.Context, query url.Values) error
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

	mu       sync.Mutex
	links    map[string]*Link    // by their ids
	sessions map[string]*session // by the values of their cookies
}

// Link is a link that a principal is asked to open.
type Link struct {
	// URL is the address of the page. It has no credential.
	URL string

	pages   *Pages
	id      string
	sealed  string // the last part of the URL
	login   Login
	expires time.Time
	done    chan struct{} // closed after err was set

	// guarded by pages.mu
	opened  int  // logins at the issuer that the link has begun
	isUsed  bool // the login at the server has begun
	isEnded bool // done is closed or will be
	err     error
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
		links: map[string]*Link{}, sessions: map[string]*session{}}
	p.sealer, err = newSealer()
	return p, err
}

// CanAsk reports whether a principal can open a link: it came with an access token of an issuer at
// which users can show who they are.
func (p *Pages) CanAsk(who *identity.Principal) bool {
	return who.Issuer() != "" && p.o.HasLogin(who.Issuer())
}

// Ask returns a link for the login of a principal. The caller must call Wait.
func (p *Pages) Ask(login Login) (*Link, error) {
	if !p.CanAsk(login.Principal) {
		return nil, errors.New("the principal cannot show who it is with a login at its issuer")
	}
	l := &Link{pages: p, id: rand.Text(), login: login, expires: time.Now().Add(linkLifetime),
		done: make(chan struct{})}
	var err error
	if l.sealed, err = p.sealer.seal(l.id, l.expires); err != nil {
		return nil, err
	}
	l.URL = p.base + l.sealed
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.links) >= maxLinks {
		return nil, fmt.Errorf("%d principals are asked to log in already", len(p.links))
	}
	p.links[l.id] = l
	return l, nil
}

// errExpired is the error of a login that nobody has finished in time.
var errExpired = fmt.Errorf("nobody logged in within %s", linkLifetime)

// Wait waits until the login has ended, and returns why it failed, or nil. It ends the link at the
// latest when the link expires, or when ctx ends.
func (l *Link) Wait(ctx context.Context) error {
	ctx, cancel := context.WithDeadlineCause(ctx, l.expires, errExpired)
	defer cancel()
	select {
	case <-l.done:
	case <-ctx.Done():
	}
	l.pages.mu.Lock()
	defer l.pages.mu.Unlock()
	delete(l.pages.links, l.id)
	select {
	case <-l.done:
		return l.err
	default:
		l.isEnded = true
		return context.Cause(ctx)
	}
}

// isOpen reports whether the link can still begin a login. pages.mu is held.
func (l *Link) isOpen() bool { return !l.isUsed && l.isAlive() }

// isAlive reports whether the login can still end with success. pages.mu is held.
func (l *Link) isAlive() bool {
	return !l.isEnded && time.Now().Before(l.expires) && !l.pages.o.Revoked(l.login.Principal)
}

// link returns the link with the last part of its URL, or nil if it is not open.
func (p *Pages) link(sealed string) *Link {
	id, expires, ok := p.sealer.open(sealed)
	if !ok || !time.Now().Before(expires) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[id]; l != nil && l.isOpen() {
		return l
	}
	return nil
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
