package proxy

import (
	"strings"
	"sync"
)

// maxOwned bounds what a session remembers of its servers' URIs; what comes after is reached by its prefixed form only.
const maxOwned = 10_000

// owners remembers which servers listed, or linked to, which URIs, for clients that name them bare. The zero owners is empty and ready.
type owners struct {
	mu        sync.Mutex
	uris      map[string]string              // clean URI -> server; "" when several own it
	templates map[string]map[string]struct{} // literal beginning of a template -> servers
}

// learn notes that server owns uri.
func (o *owners) learn(server, uri string, template bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if template {
		uri, _, _ = strings.Cut(uri, "{")
		if uri == "" || len(o.templates) >= maxOwned {
			return
		}
		if o.templates == nil {
			o.templates = map[string]map[string]struct{}{}
		}
		if o.templates[uri] == nil {
			o.templates[uri] = map[string]struct{}{}
		}
		o.templates[uri][server] = struct{}{}
		return
	}
	if had, ok := o.uris[uri]; ok {
		if had != server {
			o.uris[uri] = ""
		}
		return
	}
	if len(o.uris) >= maxOwned {
		return
	}
	if o.uris == nil {
		o.uris = map[string]string{}
	}
	o.uris[uri] = server
}

// shared says whether several servers own uri.
func (o *owners) shared(uri string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	server, ok := o.uris[uri]
	return ok && server == ""
}

// owner is the one server that owns uri, by its lists and links or else by its templates.
func (o *owners) owner(uri string) (server string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if server, ok = o.uris[uri]; ok {
		return server, server != ""
	}
	for literal, servers := range o.templates {
		if !strings.HasPrefix(uri, literal) {
			continue
		}
		for s := range servers {
			if server != "" && server != s {
				return "", false
			}
			server = s
		}
	}
	return server, server != ""
}
