package proxy

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of the URIs that a session remembers. A URI beyond them is routed only with its prefix.
const (
	maxOwnedURIs = 10_000
	maxURIBytes  = 2 << 10
)

// uriLists are the lists that tell which server owns a URI.
var uriLists = []string{"resources/list", "resources/templates/list", "skills/list"}

// uriOwners remembers which servers listed, or linked to, which URIs, for clients that use them
// without a prefix. The zero uriOwners is empty and ready.
type uriOwners struct {
	mu sync.Mutex
	// name of the owner by URI; "" when several servers own the URI
	uris      map[string]string
	templates map[string]map[string]bool // servers by the literal beginning of their template
	listedAt  map[string]time.Time       // when the servers were last asked for a list, by method
}

// noteListed notes that the servers have been asked for a list.
func (o *uriOwners) noteListed(method string) {
	if !slices.Contains(uriLists, method) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listedAt == nil {
		o.listedAt = map[string]time.Time{}
	}
	o.listedAt[method] = time.Now()
}

// isListed reports whether the servers have been asked for a list within ownerListInterval.
func (o *uriOwners) isListed(method string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, ok := o.listedAt[method]
	return ok && time.Since(at) < ownerListInterval
}

// ownedURI is a URI, or a URI template, that a server owns.
type ownedURI struct {
	uri      string
	template bool
}

// add notes that the server owns a URI.
func (o *uriOwners) add(server string, owned ownedURI) {
	uri := owned.uri
	if len(uri) > maxURIBytes {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if owned.template {
		o.addTemplate(server, uri)
		return
	}
	switch owner, ok := o.uris[uri]; {
	case ok && owner != server:
		o.uris[uri] = ""
	case !ok && len(o.uris) < maxOwnedURIs:
		if o.uris == nil {
			o.uris = map[string]string{}
		}
		o.uris[uri] = server
	}
}

func (o *uriOwners) addTemplate(server, template string) {
	literal, _, _ := strings.Cut(template, "{")
	if !strings.Contains(literal, ":") || o.templates[literal] == nil &&
		len(o.templates) >= maxOwnedURIs {
		return // without a scheme of its own the template would match URIs of every server
	}
	if o.templates == nil {
		o.templates = map[string]map[string]bool{}
	}
	if o.templates[literal] == nil {
		o.templates[literal] = map[string]bool{}
	}
	o.templates[literal][server] = true
}

// removeServer forgets the URIs that the server alone owned, and its templates.
func (o *uriOwners) removeServer(server string) {
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

// isShared reports whether several servers own uri, or a directory that it is in: the root of a
// skill that several servers have.
func (o *uriOwners) isShared(uri string) bool {
	if len(uri) > maxURIBytes {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		if server, ok := o.uris[uri]; ok && server == "" {
			return true
		}
		at := strings.LastIndexByte(uri, '/')
		if at < 0 {
			return false
		}
		uri = uri[:at]
	}
}

// owner returns the one server that owns uri, by its lists and links or else by its templates.
func (o *uriOwners) owner(uri string) (server string, ok bool) {
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
