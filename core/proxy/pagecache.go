package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// maxCachedBytes bounds the total size of all cached pages. It also bounds the size of each cached
// list.
const maxCachedBytes = 8 << 20

// pageCache keeps the servers' lists as clients see them, so that prefixes need not be added again
// to a list that did not change.
//
// The cache changes no answer: the servers are asked each time, and their answers are parsed,
// inspected and recorded. An entry is used only if the server's answer has the same bytes as
// before. The cache belongs to one configuration and ends with it.
type pageCache struct {
	mu    sync.Mutex
	pages map[pageKey]*clientPage
	size  int                    // bytes of the bodies of all pages
	lists map[string]*mergedList // by method
}

type pageKey struct {
	server, method string
	page           int
}

// clientPage is one page of a server's list as clients see it.
type clientPage struct {
	body  []byte       // as inspected: with the server's own names
	m     *mcp.Message // the page with prefixes
	items [][]byte     // the items of m
	uris  []ownedURI   // the URIs in the page, for the uriOwners of a session
}

// mergedList is an answer that was merged from pages.
type mergedList struct {
	pages  []*clientPage
	answer *mcp.Message
}

// page returns an inspected page as clients see it, and adds the URIs in the page to the session's
// uriOwners.
func (cache *pageCache) page(call *Call, meth mcp.Method, inspected pipeline.Passed,
	page int) (*clientPage, error) {
	m := inspected.Message()
	key, body := pageKey{m.Server, meth.Name, page}, m.Body()
	cache.mu.Lock()
	cached := cache.pages[key]
	cache.mu.Unlock()
	if cached != nil && bytes.Equal(cached.body, body) {
		for _, o := range cached.uris {
			call.session.uriOwners.add(m.Server, o)
		}
		return cached, nil
	}
	fresh := &clientPage{body: body}
	named, err := call.session.addPrefixesAndReport(call.settings, inspected,
		func(o ownedURI) { fresh.uris = append(fresh.uris, o) })
	if err != nil {
		return nil, fmt.Errorf("add prefixes to the list of server %q: %w", m.Server, err)
	}
	fresh.m = detached(named.Message())
	fresh.m.Items(meth.ItemsPointer, func(_ int, raw []byte) bool {
		fresh.items = append(fresh.items, raw)
		return true
	})
	if !call.settings.sharesPages() {
		return fresh, nil
	}
	cache.mu.Lock()
	defer cache.mu.Unlock()
	grown := len(body)
	if replaced := cache.pages[key]; replaced != nil {
		grown -= len(replaced.body)
	}
	if cache.size+grown <= maxCachedBytes {
		cache.pages[key] = fresh
		cache.size += grown
	}
	return fresh, nil
}

// sharesPages reports whether a page is the same in every session. With resources = "transparent"
// pages differ: the prefix of a URI depends on the other URIs that the session has seen.
func (set *settings) sharesPages() bool { return set.names.resources != "transparent" }

// list returns the stored answer if it was merged from exactly these pages, or nil.
func (cache *pageCache) list(method string, pages []*clientPage) *mcp.Message {
	cache.mu.Lock()
	defer cache.mu.Unlock()
	if l := cache.lists[method]; l != nil && slices.Equal(l.pages, pages) {
		return l.answer
	}
	return nil
}

// storeList keeps an answer that was merged from exactly these pages.
func (cache *pageCache) storeList(method string, pages []*clientPage, answer *mcp.Message) {
	if answer.Size() > maxCachedBytes {
		return
	}
	answer = detached(answer.WithDigest())
	cache.mu.Lock()
	defer cache.mu.Unlock()
	cache.lists[method] = &mergedList{pages, answer}
}

// detached returns a copy of m without its request, so that the cache does not keep the request.
func detached(m *mcp.Message) *mcp.Message {
	c := *m
	c.Request = nil
	return &c
}
