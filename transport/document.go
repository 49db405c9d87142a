package transport

import (
	"net/http"
	"slices"
	"time"
)

// Document is a JSON document that anybody may read.
type Document struct {
	Paths []string // at each of which it is served
	Body  []byte
}

// Pages are web pages for people. They are served without authentication: people open them in a
// browser, which has no access token. The pages must find out who opens them.
type Pages interface {
	// Serves reports whether a path is one of a page.
	Serves(path string) bool
	// ServeHTTP serves a page. It is called after the check of Host.
	http.Handler
}

// pageTimeout bounds the time in which a page is served, with the requests that it makes to others.
const pageTimeout = 2 * time.Minute

// pagesAt returns the pages that serve a path, or nil.
func (s *HTTPServer) pagesAt(path string) Pages {
	for _, p := range s.o.Pages {
		if p.Serves(path) {
			return p
		}
	}
	return nil
}

// servePage serves a page.
func servePage(w http.ResponseWriter, r *http.Request, p Pages) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageTimeout))
	p.ServeHTTP(w, r)
}

// documentAt returns the document at a path, or nil.
func (s *HTTPServer) documentAt(path string) *Document {
	for i := range s.o.Documents {
		if d := &s.o.Documents[i]; slices.Contains(d.Paths, path) {
			return d
		}
	}
	return nil
}

// serveDocument serves a document. Its content changes only with a restart.
func (s *HTTPServer) serveDocument(w http.ResponseWriter, r *http.Request, d *Document) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		s.refuse(w, r, http.StatusMethodNotAllowed, "a document can only be read")
		return
	}
	h.Set("Cache-Control", "public, max-age=600")
	s.write(w, http.StatusOK, d.Body)
}
