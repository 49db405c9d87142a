package proxy

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of the URIs that a session remembers. A URI beyond these bounds is routed only with its
// prefix.
const (
	maxOwnedURIs      = 10_000
	maxOwnedTemplates = 1_000
	maxURIBytes       = 2 << 10
)

// uriLists are the lists that tell which server owns a URI.
var uriLists = []string{"resources/list", "resources/templates/list", "skills/list"}

// uriOwners remembers which server listed a URI or linked to it, so that clients can use the URI
// without a prefix. The zero uriOwners is empty and ready.
type uriOwners struct {
	mu        sync.Mutex
	uris      map[string][]string        // names of the owners, by URI
	templates map[string]map[string]bool // servers, by the literal beginning of a template
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
	owners := o.uris[uri]
	if slices.Contains(owners, server) || owners == nil && len(o.uris) >= maxOwnedURIs {
		return
	}
	if o.uris == nil {
		o.uris = map[string][]string{}
	}
	o.uris[uri] = append(owners, server)
}

func (o *uriOwners) addTemplate(server, template string) {
	literal, _, _ := strings.Cut(template, "{")
	// A template whose beginning has no scheme is left out: it would match URIs of every server.
	if !strings.Contains(literal, ":") || o.templates[literal] == nil &&
		len(o.templates) >= maxOwnedTemplates {
		return
	}
	if o.templates == nil {
		o.templates = map[string]map[string]bool{}
	}
	if o.templates[literal] == nil {
		o.templates[literal] = map[string]bool{}
	}
	o.templates[literal][server] = true
}

// removeServer forgets which URIs and templates the server owns.
func (o *uriOwners) removeServer(server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for uri, owners := range o.uris {
		owners = slices.DeleteFunc(owners, func(owner string) bool { return owner == server })
		if o.uris[uri] = owners; len(owners) == 0 {
			delete(o.uris, uri)
		}
	}
	for literal, servers := range o.templates {
		if delete(servers, server); len(servers) == 0 {
			delete(o.templates, literal)
		}
	}
}

// isShared reports whether more than one server owns uri or a directory above it. Such a directory
// is the root of a skill that more than one server has.
func (o *uriOwners) isShared(uri string) bool {
	if len(uri) > maxURIBytes {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		if len(o.uris[uri]) > 1 {
			return true
		}
		at := strings.LastIndexByte(uri, '/')
		if at < 0 {
			return false
		}
		uri = uri[:at]
	}
}

// isTemplateShared reports whether URIs of the template cannot be routed without a prefix: each of
// them also matches a template of another server, or the template is not remembered.
func (o *uriOwners) isTemplateShared(server, template string) bool {
	literal, _, _ := strings.Cut(template, "{")
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.templates[literal][server] {
		return true
	}
	for other, servers := range o.templates {
		if strings.HasPrefix(literal, other) && (len(servers) > 1 || !servers[server]) {
			return true
		}
	}
	return false
}

// owner returns the only server that owns uri.
func (o *uriOwners) owner(uri string) (server string, ok bool) {
	if owners := o.owners(uri); len(owners) == 1 {
		return owners[0], true
	}
	return "", false
}

// owners returns the servers that own uri, in alphabetical order. If no list or link has named uri,
// these are the servers with a matching template.
func (o *uriOwners) owners(uri string) (servers []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if servers = slices.Clone(o.uris[uri]); servers == nil {
		for literal, owners := range o.templates {
			if strings.HasPrefix(uri, literal) {
				servers = slices.AppendSeq(servers, maps.Keys(owners))
			}
		}
	}
	slices.Sort(servers)
	return slices.Compact(servers)
}
