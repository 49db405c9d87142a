package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Bounds of codes and sessions. When there are more, the oldest ends.
const (
	codeLifetime    = time.Minute
	sessionLifetime = 8 * time.Hour
	maxCodes        = 16
	maxSessions     = 64
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
	hash    [sha256.Size]byte // of the token
	name    string
	scope   Scope
	expires time.Time
	ended   context.Context // is done when the session was ended
	end     context.CancelFunc
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

// exchange returns a new session and its token for a code, or nil if the code is not valid. A code
// is not valid again afterwards.
func (a *access) exchange(text string) (token string, _ *session) {
	hash := sha256.Sum256([]byte(text))
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, c := range a.codes {
		if c.hash != hash {
			continue
		}
		a.codes = append(a.codes[:i:i], a.codes[i+1:]...)
		if !time.Now().Before(c.expires) {
			return "", nil
		}
		token = rand.Text() + rand.Text() // 260 random bits
		added := &session{hash: sha256.Sum256([]byte(token)), scope: c.scope,
			name:    "console session " + strings.ToLower(rand.Text()[:6]),
			expires: time.Now().Add(sessionLifetime)}
		added.ended, added.end = context.WithDeadline(context.Background(), added.expires)
		if len(a.sessions) >= maxSessions {
			a.sessions[0].end()
			a.sessions = a.sessions[1:]
		}
		a.sessions = append(a.sessions, added)
		return token, added
	}
	return "", nil
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

// onEnd calls f when the session of a request ends. The returned function stops that.
func (a *access) onEnd(r *http.Request, f func()) (stop func() bool) {
	s := a.session(r)
	if s == nil {
		f()
		return func() bool { return true }
	}
	return context.AfterFunc(s.ended, f)
}

// end ends a session.
func (a *access) end(ended *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, known := range a.sessions {
		if known == ended {
			a.sessions = append(a.sessions[:i:i], a.sessions[i+1:]...)
			break
		}
	}
	ended.end()
}
