package cluster

import (
	"net/http"

	"gatekit/core/identity"
)

// Forwarded describes a request that another replica forwards.
type Forwarded struct {
	Via       string              // name of the other replica
	Principal *identity.Principal // as the other replica authenticated the client

	envelope *envelope
}

// HasBody reports whether body is the body that the client sent to the other replica. A request
// with another body must be refused.
func (f Forwarded) HasBody(body []byte) bool { return f.envelope.hasBody(body) }

// Handler serves the requests that other replicas forward. *transport.HTTPServer implements it. It
// has to bound the body, and must not forward a request again.
type Handler interface {
	ServeForwarded(w http.ResponseWriter, r *http.Request, f Forwarded)
}

// accept checks a request of another replica, and serves it.
func (r *Replica) accept(w http.ResponseWriter, req *http.Request, h Handler) {
	if !connOf(req.Context()).begin() {
		panic(http.ErrAbortHandler) // the other replica was told so
	}
	if r.conns.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	e, err := r.open(req)
	if err == nil {
		var p *identity.Principal
		if p, err = e.User.identity(); err == nil {
			req.Header.Del(headerForwarded)
			r.notePeer(e.Via, e.State)
			r.describe(w.Header())
			r.answerAbout(w, e.About)
			h.ServeForwarded(w, req, Forwarded{Via: e.Via, Principal: p, envelope: e})
			return
		}
	}
	r.log.Warn("refused a request of another replica", "remote", req.RemoteAddr, "error", err)
	r.o.RecordRefusal(req.Context(), req, http.StatusForbidden, err.Error())
	w.WriteHeader(http.StatusForbidden)
}
