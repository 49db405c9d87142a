package connect

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"
)

// cookieName is the name of the cookie. Browsers accept the prefix only from https, for this host
// alone and for all its paths. http is only used on this machine, where there is no other way.
func (p *Pages) cookieName() string {
	if p.isSecure {
		return "__Host-gatekit-connect"
	}
	return "gatekit-connect"
}

// setCookie gives the browser the cookie of a session, or removes it if cookie is "".
func (p *Pages) setCookie(w http.ResponseWriter, cookie string) {
	// Lax: the cookie comes with the redirects of issuers and authorization servers, and not with
	// the forms of other sites.
	c := &http.Cookie{Name: p.cookieName(), Path: "/", Secure: p.isSecure, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, MaxAge: -1}
	if cookie != "" {
		c.Value, c.MaxAge = cookie, int(sessionLifetime/time.Second)
	}
	http.SetCookie(w, c)
}

// maxCookie bounds the value of a cookie that is looked up, in bytes.
const maxCookie = 100

// cookie returns the cookie of the browser that sent a request, or "".
func (p *Pages) cookie(r *http.Request) string {
	c, err := r.Cookie(p.cookieName())
	if err != nil || len(c.Value) > maxCookie {
		return ""
	}
	return c.Value
}

// session returns the session with a cookie, or nil.
func (p *Pages) session(ctx context.Context, cookie string) (*sessionState, error) {
	if cookie == "" {
		return nil, nil
	}
	s, _, err := load[sessionState](ctx, p.values, sessionKey(cookie))
	if err != nil || s == nil || !time.Now().Before(s.Expires) {
		return nil, err
	}
	return s, nil
}

// errTooManySessions is the error of a browser that gets no session.
var errTooManySessions = errors.New("there are too many sessions of browsers")

// newSession stores a session, and returns its cookie.
func (p *Pages) newSession(ctx context.Context, s sessionState) (cookie string, err error) {
	s.CSRF, s.Expires = rand.Text(), time.Now().Add(sessionLifetime)
	cookie = rand.Text()
	p.mu.Lock()
	if len(p.sessions) >= maxSessions {
		maps.DeleteFunc(p.sessions, func(_ string, expires time.Time) bool {
			return !time.Now().Before(expires)
		})
	}
	hasRoom := len(p.sessions) < maxSessions
	if hasRoom {
		p.sessions[cookie] = s.Expires
	}
	p.mu.Unlock()
	if !hasRoom {
		return "", errTooManySessions
	}
	return cookie, store(ctx, p.values, sessionKey(cookie), 0, &s)
}

// endSession removes a session, and returns it. It returns nil if there is none.
func (p *Pages) endSession(ctx context.Context, cookie string) (*sessionState, error) {
	p.mu.Lock()
	delete(p.sessions, cookie)
	p.mu.Unlock()
	return take[sessionState](ctx, p.values, sessionKey(cookie))
}

// updateSession changes the session with a cookie, without what can no longer succeed. It returns
// nil if there is none, or if change returns false.
func (p *Pages) updateSession(ctx context.Context, cookie string,
	change func(*sessionState) bool) (*sessionState, error) {
	if cookie == "" {
		return nil, nil
	}
	s, ok, err := update(ctx, p.values, sessionKey(cookie), func(s *sessionState) bool {
		s.forgetExpired()
		return time.Now().Before(s.Expires) && change(s)
	})
	if !ok {
		return nil, err
	}
	return s, nil
}

// forgetExpired removes the attempts and logins whose links have expired.
func (s *sessionState) forgetExpired() {
	now := time.Now()
	s.Attempts = slices.DeleteFunc(s.Attempts, func(a attempt) bool {
		return !now.Before(a.Expires)
	})
	s.Begun = slices.DeleteFunc(s.Begun, func(b begun) bool { return !now.Before(b.Expires) })
}
