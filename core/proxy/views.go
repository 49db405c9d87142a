package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// maxViews bounds the bytes of the pages that are kept, and those of a list.
const maxViews = 8 << 20

// views keeps how clients see the lists of the servers, so that what a server answers as before
// need not be named and merged anew.
//
// It is for speed alone (ADR-015): the servers are asked each time, and their answers are read,
// judged and recorded. Only for the same bytes is the same outcome taken, whoever asks. It belongs
// to one configuration and ends with it.
type views struct {
	mu    sync.Mutex
	kept  map[viewKey]*view
	size  int              // of the bodies of kept
	lists map[string]*list // by method
}

type viewKey struct {
	server, method string
	page           int
}

// view is one page of a server's list as clients see it.
type view struct {
	body    []byte       // as it was judged
	m       *mcp.Message // with our names on it
	items   [][]byte     // of m
	learned []owned      // what a session learns from it
}

// list is the answer that was made of views.
type list struct {
	views  []*view
	answer *mcp.Message
}

// of answers how a judged page looks, and lets the session learn from it.
func (s *views) of(x *Call, meth mcp.Method, judged pipeline.Passed, page int) (*view, error) {
	m := judged.Message()
	key, body := viewKey{m.Server, meth.Name, page}, m.Body()
	s.mu.Lock()
	had := s.kept[key]
	s.mu.Unlock()
	if had != nil && bytes.Equal(had.body, body) {
		for _, o := range had.learned {
			x.s.owners.learn(m.Server, o)
		}
		return had, nil
	}
	v := &view{body: body}
	named, err := x.s.name(x.c, judged, func(o owned) { v.learned = append(v.learned, o) })
	if err != nil {
		return nil, fmt.Errorf("name what server %q listed: %w", m.Server, err)
	}
	v.m = detached(named.Message())
	v.m.Items(meth.ItemsPointer, func(_ int, raw []byte) bool {
		v.items = append(v.items, raw)
		return true
	})
	if !x.c.shows() {
		return v, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	grown := len(body)
	if had := s.kept[key]; had != nil {
		grown -= len(had.body)
	}
	if s.size+grown <= maxViews {
		s.kept[key] = v
		s.size += grown
	}
	return v, nil
}

// shows says whether a page looks the same to every session. In "transparent" it does not: how a
// URI is shown depends on what else the session has seen.
func (c *settings) shows() bool { return c.names.resources != "transparent" }

// list is the answer that was last made of exactly these views; nil when there is none.
func (s *views) list(method string, views []*view) *mcp.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lists[method]; l != nil && slices.Equal(l.views, views) {
		return l.answer
	}
	return nil
}

// keep remembers an answer that was made of views and of nothing else.
func (s *views) keep(method string, views []*view, answer *mcp.Message) {
	if answer.Size() > maxViews {
		return
	}
	answer = detached(answer.WithDigest())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[method] = &list{views, answer}
}

// detached is m without the request that it answered, to be kept for others.
func detached(m *mcp.Message) *mcp.Message {
	c := *m
	c.Request = nil
	return &c
}
