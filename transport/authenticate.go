package transport

import (
	"maps"
	"net/http"

	"gatekit/core/identity"
	"gatekit/transport/auth"
)

// Authenticator decides who sends a request; *auth.Authenticator implements it. Authenticate is
// called after the checks of Host, Origin and method, and before the body is read. It returns
// either a principal or a refusal.
type Authenticator interface {
	Authenticate(r *http.Request) (*identity.Principal, *auth.Refusal)
	// Challenge returns the headers of an answer with status 403 to a request of the principal that
	// needs the scopes, or nil if the principal cannot get other scopes.
	Challenge(principal *identity.Principal, scopes []string) http.Header
	// Revoked returns the refusal of a principal that was revoked since Authenticate returned it,
	// or nil.
	Revoked(principal *identity.Principal) *auth.Refusal
}

// authenticate returns the principal who sent r, and nil for the local user. If authentication
// fails, it answers the request and returns false.
func (s *HTTPServer) authenticate(w http.ResponseWriter,
	r *http.Request) (principal *identity.Principal, ok bool) {
	if s.o.Authenticator == nil {
		return nil, true
	}
	principal, refused := s.o.Authenticator.Authenticate(r)
	if refused != nil {
		s.refuseUnauthenticated(w, r, refused)
		return nil, false
	}
	return principal, true
}

func (s *HTTPServer) refuseUnauthenticated(w http.ResponseWriter, r *http.Request,
	refused *auth.Refusal) {
	maps.Copy(w.Header(), refused.Header)
	s.refuseWith(w, r, Refusal{Status: refused.Status, Reason: refused.Reason,
		Detail: refused.Detail, Principal: refused.Principal})
}
