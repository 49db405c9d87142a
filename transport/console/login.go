package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/transport/connect"
)

// Bounds of logins at issuers.
const (
	loginLifetime = 10 * time.Minute // of an attempt, and of its cookie
	finishTimeout = 40 * time.Second // for the requests that a finished login makes
	maxAttempts   = 1000             // at the same time; when there are more, the oldest ends
)

// The last parts of the paths of a login.
const (
	loginPath    = "login"
	callbackPath = "callback"
)

// loggedInFragment makes the module exchange the cookie of a finished login for a token.
const loggedInFragment = "#login"

// Login is how users log in to a console that other machines can reach: at their issuer. All
// functions are required, and may be called at the same time.
type Login struct {
	// PublicURL is the URL at which browsers reach the listener: https, or http on this machine.
	PublicURL string
	// Issuers are the issuers at which users can log in.
	Issuers []string
	// Begin begins the login of a user at an issuer, which sends the user to the URL redirect.
	Begin func(ctx context.Context, issuer, redirect string) (connect.UserLogin, error)
	// Scope returns the scope of a principal, or "" if the principal may not use the console.
	Scope func(*identity.Principal) Scope
	// Revoked reports whether a principal was revoked. It is called for each request.
	Revoked func(*identity.Principal) bool
	// RecordOpened records that a principal opens the console. If it returns an error, the console
	// is not opened.
	RecordOpened func(ctx context.Context, p *identity.Principal, scope Scope) error
	// RecordRefusal records a request that is refused.
	RecordRefusal func(r *http.Request, refusal connect.Refusal)
}

// logins has the attempts of users to log in. It is safe for concurrent use.
type logins struct {
	mu       sync.Mutex
	attempts []*attempt // oldest first
}

// attempt is an attempt to log in. The cookie of its browser identifies it.
type attempt struct {
	hash    [sha256.Size]byte // of the cookie
	expires time.Time

	login connect.UserLogin
	// principal is nil until the issuer has sent the user back.
	principal *identity.Principal
	scope     Scope
}

// add adds an attempt and returns its cookie.
func (l *logins) add(a attempt) (cookie string) {
	cookie = rand.Text()
	a.hash, a.expires = sha256.Sum256([]byte(cookie)), time.Now().Add(loginLifetime)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.attempts) >= maxAttempts {
		l.attempts = slices.Delete(l.attempts, 0, 1)
	}
	l.attempts = append(l.attempts, &a)
	return cookie
}

// take removes and returns the attempt of a cookie for which matches is true, or returns nil.
func (l *logins) take(cookie string, matches func(*attempt) bool) *attempt {
	hash := sha256.Sum256([]byte(cookie))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = slices.DeleteFunc(l.attempts, func(a *attempt) bool {
		return !time.Now().Before(a.expires)
	})
	i := slices.IndexFunc(l.attempts, func(a *attempt) bool {
		return a.hash == hash && matches(a)
	})
	if i < 0 {
		return nil
	}
	taken := l.attempts[i]
	l.attempts = slices.Delete(l.attempts, i, i+1)
	return taken
}

// cookieName is the name of the cookie during a login. Browsers accept the prefix only from https,
// for this host alone. http is only used on this machine, where there is no other way.
func (c *Console) cookieName() string {
	if strings.HasPrefix(c.origin, "https:") {
		return "__Host-gatekit-console"
	}
	return "gatekit-console"
}

// setCookie gives the browser the cookie of an attempt, or removes it if the value is "".
func (c *Console) setCookie(w http.ResponseWriter, value string) {
	// Lax: the cookie comes with the redirect of the issuer, and not with requests of other sites.
	cookie := &http.Cookie{Name: c.cookieName(), Value: value, Path: "/", HttpOnly: true,
		Secure: strings.HasPrefix(c.origin, "https:"), SameSite: http.SameSiteLaxMode,
		MaxAge: int(loginLifetime / time.Second)}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// takeAttempt removes and returns the attempt of the browser that sent a request, or returns nil.
func (c *Console) takeAttempt(r *http.Request, matches func(*attempt) bool) *attempt {
	cookie, err := r.Cookie(c.cookieName())
	if err != nil {
		return nil
	}
	return c.logins.take(cookie.Value, matches)
}

// beginLogin sends the browser to an issuer.
func (c *Console) beginLogin(w http.ResponseWriter, r *http.Request) {
	l, issuer := c.o.Login, r.URL.Query().Get("issuer")
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		c.refuseLogin(w, r, http.StatusForbidden, "", "a page of another origin began a login",
			"Open this page again, and log in.")
		return
	}
	if !slices.Contains(l.Issuers, issuer) {
		c.refuseLogin(w, r, http.StatusBadRequest, "", fmt.Sprintf("users cannot log in at the "+
			"issuer %s", display.Quote(issuer, maxShownText)), "Choose one of these issuers.")
		return
	}
	login, err := l.Begin(r.Context(), issuer, c.base+callbackPath)
	if err != nil {
		c.refuseLogin(w, r, http.StatusServiceUnavailable, "", fmt.Sprintf("the login at the "+
			"issuer could not begin: %v", err), "The login cannot begin now. Try again in a few "+
			"minutes; Gatekit's audit log has the reason.")
		return
	}
	c.setCookie(w, c.logins.add(attempt{login: login}))
	redirect(w, login.URL)
}

// finishLogin takes the answer of an issuer. If the user may use the console, the browser gets
// another cookie, which the module exchanges for a token.
func (c *Console) finishLogin(w http.ResponseWriter, r *http.Request) {
	q, queryErr := url.ParseQuery(r.URL.RawQuery)
	a := c.takeAttempt(r, func(a *attempt) bool {
		return queryErr == nil && a.principal == nil && a.login.Matches(q)
	})
	if a == nil {
		c.refuseLogin(w, r, http.StatusBadRequest, "", "the answer of an issuer belongs to no "+
			"login of this browser", "The login was not finished in time, or began in another "+
			"browser. Log in again.")
		return
	}
	c.setCookie(w, "")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), finishTimeout)
	defer cancel()
	who, err := a.login.Finish(ctx, q)
	if err != nil {
		c.refuseLogin(w, r, http.StatusForbidden, "", fmt.Sprintf("the user did not show who they "+
			"are: %v", err), "The issuer did not confirm who you are. Log in again; Gatekit's "+
			"audit log has the reason.")
		return
	}
	scope := c.o.Login.Scope(who)
	switch {
	case c.o.Login.Revoked(who):
		c.refuseLogin(w, r, http.StatusForbidden, who.ID(), "the console is not opened: the "+
			"principal was revoked", notAllowed)
		return
	case scope != ScopeRead && scope != ScopeApprove:
		c.refuseLogin(w, r, http.StatusForbidden, who.ID(), "the console is not opened: the "+
			"principal has no role in [listen.auth.roles]", notAllowed)
		return
	}
	if err := c.o.Login.RecordOpened(ctx, who, scope); err != nil {
		c.log.Error("console not opened", "error", err)
		c.writeShell(w, r, http.StatusServiceUnavailable, "The console cannot be opened, because "+
			"this cannot be recorded. Gatekit's log has the reason.")
		return
	}
	// The cookie changes, so that nobody knows it who has known it before.
	c.setCookie(w, c.logins.add(attempt{principal: who, scope: scope}))
	redirect(w, c.base+loggedInFragment)
}

// notAllowed tells users without a role that they cannot use the console. It names no role.
const notAllowed = "You are logged in, but you may not use this console. Ask an operator of " +
	"Gatekit; its audit log has the reason."

// takeFinished removes and returns the finished attempt of the browser that sent a request, or
// returns nil. The browser forgets its cookie.
func (c *Console) takeFinished(w http.ResponseWriter, r *http.Request) *attempt {
	a := c.takeAttempt(r, func(a *attempt) bool { return a.principal != nil })
	if a != nil {
		c.setCookie(w, "")
	}
	return a
}

// refuseLogin records a refusal, and shows the page for logins with a message.
func (c *Console) refuseLogin(w http.ResponseWriter, r *http.Request, status int, principal,
	reason, message string) {
	c.recordRefusal(r, status, principal, reason)
	c.writeShell(w, r, status, message)
}

// redirect sends the browser to another page, which it gets with GET.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
