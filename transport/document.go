package transport

import (
	"net/http"
	"slices"
)

// Document is a JSON document that anybody may read.
type Document struct {
	Paths []string // at each of which it is served
	Body  []byte
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
