package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/core/identity"
)

// Bounds of codes and sessions. When there are more, the oldest ends.
const (
	codeLifetime    = time.Minute
	sessionLifetime = 8 * time.Hour // of a session that began with a code
	// of a session that began with a login: groups and accounts change, and the issuer does not
	// tell
	loginSessionLifetime = time.Hour
	maxCodes             = 16
	maxSessions          = 64   // of one principal, or of all who have a code
	maxAllSessions       = 1024 // of all principals
)

// access holds the codes and the sessions of a console. They end with the process. It is safe for
// concurrent use.
type access struct {
	mu       sync.Mutex
	codes    []code     // oldest first
	sessions []*session // oldest first
}

// code can be exchanged for a token once. The hash is kept, not the code: an equal hash is found
// without comparing secrets byte by byte.
type code struct {
	hash    [sha256.Size]byte
	scope   Scope
	expires time.Time
}

// session is the session of one viewer.
type session struct {
	hash      [sha256.Size]byte // of the token
	name      string
	principal *identity.Principal // who logged in; nil if the session began with a code
	scope     Scope
	expires   time.Time
	ended     context.Context // is done when the session has ended
	end       context.CancelFunc
}

// NewCode returns a code that can be exchanged for a token within a minute, once. The token has the
// scope "approve" only if the scope of the console and the parameter are both "approve".
func (c *Console) NewCode(scope Scope) string {
	if scope != ScopeApprove || c.o.Scope != ScopeApprove {
		scope = ScopeRead
	}
	return c.access.newCode(scope)
}

func (a *access) newCode(scope Scope) string {
	text := rand.Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.codes) >= maxCodes {
		a.codes = a.codes[1:]
	}
	a.codes = append(a.codes, code{sha256.Sum256([]byte(text)), scope,
		time.Now().Add(codeLifetime)})
	return text
}

// takeCode removes a code and returns its scope. ok is false if the code is not valid.
func (a *access) takeCode(text string) (scope Scope, ok bool) {
	hash := sha256.Sum256([]byte(text))
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.codes, func(c code) bool { return c.hash == hash })
	if i < 0 {
		return "", false
	}
	taken := a.codes[i]
	a.codes = slices.Delete(a.codes, i, i+1)
	return taken.scope, time.Now().Before(taken.expires)
}

// open returns a new session and its token. The principal is nil for a session with a code.
func (a *access) open(scope Scope, principal *identity.Principal) (token string, _ *session) {
	lifetime := sessionLifetime
	if principal != nil {
		lifetime = loginSessionLifetime
	}
	token = rand.Text() + rand.Text() // 260 random bits
	added := &session{hash: sha256.Sum256([]byte(token)), scope: scope, principal: principal,
		name:    "console session " + strings.ToLower(rand.Text()[:6]),
		expires: time.Now().Add(lifetime)}
	added.ended, added.end = context.WithDeadline(context.Background(), added.expires)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sessions = slices.DeleteFunc(a.sessions, func(s *session) bool {
		return s.ended.Err() != nil
	})
	isOwn := func(s *session) bool { return s.principal.ID() == principal.ID() }
	own := 0
	for _, s := range a.sessions {
		if isOwn(s) {
			own++
		}
	}
	if own >= maxSessions {
		a.remove(slices.IndexFunc(a.sessions, isOwn))
	} else if len(a.sessions) >= maxAllSessions {
		a.remove(0)
	}
	a.sessions = append(a.sessions, added)
	return token, added
}

// remove ends a session. a.mu is held.
func (a *access) remove(i int) {
	a.sessions[i].end()
	a.sessions = slices.Delete(a.sessions, i, i+1)
}

// session returns the session whose token a request has, or nil.
func (a *access) session(r *http.Request) *session {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil
	}
	hash := sha256.Sum256([]byte(token))
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, known := range a.sessions {
		if known.hash == hash && time.Now().Before(known.expires) {
			return known
		}
	}
	return nil
}

// end ends a session.
func (a *access) end(ended *session) {
	a.endWhere(func(s *session) bool { return s == ended })
}

// endWhere ends sessions.
func (a *access) endWhere(ends func(*session) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sessions = slices.DeleteFunc(a.sessions, func(s *session) bool {
		if ends(s) {
			s.end()
			return true
		}
		return false
	})
}
