package proxy

import (
	"strings"
	"sync"
)

// What a session remembers of its servers' URIs. What is more, or longer, is reached by its
// prefixed form only.
const (
	maxOwned    = 10_000
	maxOwnedURI = 2 << 10
)

// owners remembers which servers listed, or linked to, which URIs, for clients that name them bare.
// The zero owners is empty and ready.
type owners struct {
	mu        sync.Mutex
	uris      map[string]string          // clean URI -> server; "" when several own it
	templates map[string]map[string]bool // literal beginning of a template -> servers
}

// owned is a URI that a server says is its own, or a template of such.
type owned struct {
	uri      string
	template bool
}

// learn notes what server owns.
func (o *owners) learn(server string, what owned) {
	uri := what.uri
	if len(uri) > maxOwnedURI {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if what.template {
		o.learnTemplate(server, uri)
		return
	}
	switch had, ok := o.uris[uri]; {
	case ok && had != server:
		o.uris[uri] = ""
	case !ok && len(o.uris) < maxOwned:
		if o.uris == nil {
			o.uris = map[string]string{}
		}
		o.uris[uri] = server
	}
}

func (o *owners) learnTemplate(server, template string) {
	literal, _, _ := strings.Cut(template, "{")
	if !strings.Contains(literal, ":") || o.templates[literal] == nil &&
		len(o.templates) >= maxOwned {
		return // without a scheme of its own it would claim what is anybody's
	}
	if o.templates == nil {
		o.templates = map[string]map[string]bool{}
	}
	if o.templates[literal] == nil {
		o.templates[literal] = map[string]bool{}
	}
	o.templates[literal][server] = true
}

// forget takes out what a server owned alone.
func (o *owners) forget(server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for uri, owner := range o.uris {
		if owner == server {
			delete(o.uris, uri)
		}
	}
	for literal, servers := range o.templates {
		if delete(servers, server); len(servers) == 0 {
			delete(o.templates, literal)
		}
	}
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
