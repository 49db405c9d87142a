package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// maxCachedBytes bounds the bytes of the pages that are kept, and those of a list.
const maxCachedBytes = 8 << 20

// pageCache keeps how clients see the lists of the servers, so that what a server answers as before
// need not be named and merged anew.
//
// It is for speed alone (ADR-015): the servers are asked each time, and their answers are read,
// judged and recorded. Only for the same bytes is the same outcome taken, whoever asks. It belongs
// to one configuration and ends with it.
type pageCache struct {
	mu    sync.Mutex
	pages map[pageKey]*clientPage
	size  int                    // of the bodies of kept
	lists map[string]*mergedList // by method
}

type pageKey struct {
	server, method string
	page           int
}

// clientPage is one page of a server's list as clients see it.
type clientPage struct {
	body  []byte       // as it was judged
	m     *mcp.Message // with our names on it
	items [][]byte     // of m
	uris  []ownedURI   // what a session learns from it
}

// mergedList is the answer that was made of views.
type mergedList struct {
	pages  []*clientPage
	answer *mcp.Message
}

// page answers how a judged page looks, and lets the session learn from it.
func (cache *pageCache) page(call *Call, meth mcp.Method, judged pipeline.Passed, page int) (*clientPage, error) {
	m := judged.Message()
	key, body := pageKey{m.Server, meth.Name, page}, m.Body()
	cache.mu.Lock()
	had := cache.pages[key]
	cache.mu.Unlock()
	if had != nil && bytes.Equal(had.body, body) {
		for _, o := range had.uris {
			call.session.uriOwners.add(m.Server, o)
		}
		return had, nil
	}
	v := &clientPage{body: body}
	named, err := call.session.addPrefixesAndReport(call.settings, judged, func(o ownedURI) { v.uris = append(v.uris, o) })
	if err != nil {
		return nil, fmt.Errorf("name what server %q listed: %w", m.Server, err)
	}
	v.m = detached(named.Message())
	v.m.Items(meth.ItemsPointer, func(_ int, raw []byte) bool {
		v.items = append(v.items, raw)
		return true
	})
	if !call.settings.sharesPages() {
		return v, nil
	}
	cache.mu.Lock()
	defer cache.mu.Unlock()
	grown := len(body)
	if had := cache.pages[key]; had != nil {
		grown -= len(had.body)
	}
	if cache.size+grown <= maxCachedBytes {
		cache.pages[key] = v
		cache.size += grown
	}
	return v, nil
}

// sharesPages says whether a page looks the same to every session. In "transparent" it does not: how a
// URI is shown depends on what else the session has seen.
func (set *settings) sharesPages() bool { return set.names.resources != "transparent" }

// list is the answer that was last made of exactly these views; nil when there is none.
func (cache *pageCache) list(method string, views []*clientPage) *mcp.Message {
	cache.mu.Lock()
	defer cache.mu.Unlock()
	if l := cache.lists[method]; l != nil && slices.Equal(l.pages, views) {
		return l.answer
	}
	return nil
}

// storeList remembers an answer that was made of views and of nothing else.
func (cache *pageCache) storeList(method string, views []*clientPage, answer *mcp.Message) {
	if answer.Size() > maxCachedBytes {
		return
	}
	answer = detached(answer.WithDigest())
	cache.mu.Lock()
	defer cache.mu.Unlock()
	cache.lists[method] = &mergedList{views, answer}
}

// detached is m without the request that it answered, to be kept for others.
func detached(m *mcp.Message) *mcp.Message {
	c := *m
	c.Request = nil
	return &c
}
