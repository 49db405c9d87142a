package transport

import (
	"errors"
	"net/http"
)

// Paths of the probes. A path of the endpoint stands over them.
const (
	livePath  = "/livez"
	readyPath = "/readyz"
)

var errDraining = errors.New("gatekit is draining")

// probeAt returns the probe at a path, or nil.
func (s *HTTPServer) probeAt(path string) func() error {
	switch path {
	case livePath:
		return func() error { return nil }
	case readyPath:
		return s.ready
	}
	return nil
}

// ready returns nil if clients should be sent here.
func (s *HTTPServer) ready() error {
	switch {
	case s.draining.Load():
		return errDraining
	case s.o.Ready != nil:
		return s.o.Ready()
	}
	return nil
}

// serveProbe serves a probe of a balancer or an orchestrator. Whoever reaches the address gets it:
// a probe has no credentials, and the address of this machine as the Host. So the answer is only
// yes or no, and the reason is not for strangers.
func (s *HTTPServer) serveProbe(w http.ResponseWriter, r *http.Request, probe func() error) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		s.refuse(w, r, http.StatusMethodNotAllowed, "a probe can only be read")
		return
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if err := probe(); err != nil {
		s.log.Debug("not ready", "error", err)
		s.write(w, http.StatusServiceUnavailable, []byte("not ready\n"))
		return
	}
	s.write(w, http.StatusOK, []byte("ok\n"))
}

// BeginDrain tells the balancer in front to send clients elsewhere: from now on /readyz says no,
// and each connection of a client is closed after the answer to its next request. Requests are
// served as before. A connection on which nothing was sent stays open, because a request may be on
// its way.
func (s *HTTPServer) BeginDrain() { s.draining.Store(true) }
