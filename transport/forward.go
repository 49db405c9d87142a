package transport

import (
	"errors"
	"net/http"
	"time"

	"gatekit/core/downstream"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/transport/cluster"
)

// Cluster knows the replicas of Gatekit behind one address; *cluster.Replica implements it.
type Cluster interface {
	downstream.Replica
	// Owner returns the address of the replica that made an id. isOther is false if it is this one,
	// or if no replica made the id.
	Owner(id string) (address string, isOther bool)
	// Forward sends a request to the replica at owner, and copies its answer to w. If it returns an
	// error, the client has got no answer.
	Forward(w http.ResponseWriter, r *http.Request, owner string, body []byte,
		principal *identity.Principal) error
}

var _ Cluster = (*cluster.Replica)(nil)

// forward sends a request to the replica at owner, and copies its answer to w. If there is no
// answer, it refuses the request.
func (s *HTTPServer) forward(w http.ResponseWriter, r *http.Request, owner string, body []byte,
	principal *identity.Principal) {
	if err := s.tryForward(w, r, owner, body, principal); err != nil {
		s.refuseForward(w, r, principal, "", err)
	}
}

// tryForward is like forward, but returns an error if there is no answer.
func (s *HTTPServer) tryForward(w http.ResponseWriter, r *http.Request, owner string, body []byte,
	principal *identity.Principal) error {
	to := &deadlineWriter{ResponseWriter: w, timeout: s.o.Limits.Write}
	return s.o.Cluster.Forward(to, r, owner, body, principal)
}

// refuseForward refuses a request for which Cluster.Forward has returned an error. request is the
// id of the JSON-RPC request, or "".
func (s *HTTPServer) refuseForward(w http.ResponseWriter, r *http.Request,
	principal *identity.Principal, request mcp.ID, err error) {
	refusal := Refusal{Status: http.StatusBadGateway, Reason: "the connection to the replica of " +
		"this session broke; the request may have been run", Detail: err.Error(),
		Principal: principal.ID(), Request: request}
	switch {
	case errors.Is(err, cluster.ErrGone):
		refusal.Status, refusal.Reason = http.StatusNotFound, "no such session: send initialize"
	case errors.Is(err, cluster.ErrUnreachable):
		refusal.Status = http.StatusServiceUnavailable
		refusal.Reason = "the replica of this session cannot be reached; nothing was run"
		w.Header().Set("Retry-After", "1")
	}
	s.refuseWith(w, r, refusal)
}

// deadlineWriter gives each write of a forwarded answer its own deadline. The deadline of an
// earlier answer on the same connection may be over.
type deadlineWriter struct {
	http.ResponseWriter
	timeout time.Duration
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(b)
}

// FlushError flushes the answer, for a http.ResponseController.
func (w *deadlineWriter) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// begin sets the deadline of the next write.
func (w *deadlineWriter) begin() {
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.timeout))
}

// Unwrap is for a http.ResponseController.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ServeForwarded serves a request that another replica forwards. That replica has checked the
// request and authenticated the client. ServeForwarded implements cluster.Handler.
func (s *HTTPServer) ServeForwarded(w http.ResponseWriter, r *http.Request, f cluster.Forwarded) {
	if !s.beginHandler() {
		panic(http.ErrAbortHandler)
	}
	defer s.handlers.Done()
	serve, _ := s.handlerAt(r.URL.Path)
	if serve == nil {
		s.refuse(w, r, http.StatusNotFound, "the replica that forwards has another path")
		return
	}
	s.serveAs(w, r, sender{f.Principal, &f}, serve)
}

// readBodyOf reads the body of a request, as readRequestBody does. It refuses a forwarded request
// whose body is not the client's.
func (s *HTTPServer) readBodyOf(w http.ResponseWriter, r *http.Request,
	from sender) (b []byte, release func(), ok bool) {
	b, release, ok = s.readRequestBody(w, r)
	if ok && from.forwarded != nil && !from.forwarded.HasBody(b) {
		release()
		s.refuse(w, r, http.StatusForbidden, "the body is not the one that was forwarded")
		return nil, nil, false
	}
	return b, release, ok
}
