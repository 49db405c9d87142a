package transport

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// errRevoked is the cause with which the context of a request ends when its principal is revoked.
var errRevoked = errors.New("the principal was revoked")

// openRequests has the requests that are being served, by the ID of their principal, with the
// functions that cancel them. Only requests that were authenticated are in it.
type openRequests struct {
	mu  sync.Mutex
	all map[string]map[*http.Request]context.CancelCauseFunc
}

// add adds a request. It returns the request with a context that end cancels. The caller must call
// remove when it no longer serves the request.
func (o *openRequests) add(r *http.Request, principal string) (tracked *http.Request,
	remove func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	r = r.WithContext(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[string]map[*http.Request]context.CancelCauseFunc{}
	}
	if o.all[principal] == nil {
		o.all[principal] = map[*http.Request]context.CancelCauseFunc{}
	}
	o.all[principal][r] = cancel
	return r, func() {
		cancel(nil)
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all[principal], r)
		if len(o.all[principal]) == 0 {
			delete(o.all, principal)
		}
	}
}

// end cancels the requests of a principal.
func (o *openRequests) end(principal string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, cancel := range o.all[principal] {
		cancel(errRevoked)
	}
}

// EndPrincipal ends all requests, streams and sessions of a principal, and cancels their calls. The
// caller has revoked the principal before, so that Authenticator refuses it. EndPrincipal does not
// wait until everything has ended.
func (s *HTTPServer) EndPrincipal(principal string) {
	s.open.end(principal)
	s.o.Endpoint.EndPrincipal(principal)
}
