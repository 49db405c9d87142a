package connect

import (
	"crypto/rand"
	"net/http"
	"slices"
	"time"
)

// session holds the state of one browser. Pages.mu guards it.
type session struct {
	cookie    string
	expires   time.Time
	issuer    string     // at which the user has logged in; "" if nowhere yet
	principal string     // ID of the user; "" if nobody has logged in yet
	csrf      string     // is in the forms of the pages
	attempts  []*attempt // logins at issuers that have begun in the browser
	begun     []*Link    // links whose logins at servers have begun in the browser
}

// attempt is a login at an issuer that has begun, to open a link.
type attempt struct {
	login UserLogin
	link  *Link
}

// cookieName is the name of the cookie. Browsers accept the prefix only from https, for this host
// alone and for all its paths. http is only used on this machine, where there is no other way.
func (p *Pages) cookieName() string {
	if p.isSecure {
		return "__Host-gatekit-connect"
	}
	return "gatekit-connect"
}

// setCookie gives the browser the cookie of a session, or removes it if there is no session.
func (p *Pages) setCookie(w http.ResponseWriter, s *session) {
	// Lax: the cookie comes with the redirects of issuers and authorization servers, and not with
	// the forms of other sites.
	c := &http.Cookie{Name: p.cookieName(), Path: "/", Secure: p.isSecure, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, MaxAge: -1}
	if s != nil {
		c.Value, c.MaxAge = s.cookie, int(sessionLifetime/time.Second)
	}
	http.SetCookie(w, c)
}

// session returns the session of the browser that sent a request, or nil. p.mu is held.
func (p *Pages) session(r *http.Request) *session {
	c, err := r.Cookie(p.cookieName())
	if err != nil {
		return nil
	}
	s := p.sessions[c.Value]
	if s == nil || !time.Now().Before(s.expires) {
		return nil
	}
	return s
}

// newSession adds a session, or returns nil if there are too many. p.mu is held.
func (p *Pages) newSession() *session {
	if len(p.sessions) >= maxSessions {
		for cookie, s := range p.sessions {
			if !time.Now().Before(s.expires) {
				delete(p.sessions, cookie)
			}
		}
		if len(p.sessions) >= maxSessions {
			return nil
		}
	}
	s := &session{cookie: rand.Text(), csrf: rand.Text(),
		expires: time.Now().Add(sessionLifetime)}
	p.sessions[s.cookie] = s
	return s
}

// end removes the session. pages.mu is held.
func (p *Pages) end(s *session) { delete(p.sessions, s.cookie) }

// forgetEnded removes the attempts and logins that can no longer succeed. Pages.mu is held.
func (s *session) forgetEnded() {
	s.attempts = slices.DeleteFunc(s.attempts, func(a *attempt) bool { return !a.link.isOpen() })
	s.begun = slices.DeleteFunc(s.begun, func(l *Link) bool { return !l.isAlive() })
}
