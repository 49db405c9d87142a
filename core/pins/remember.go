package pins

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// sighting is an item as a server just sent it.
type sighting struct {
	item  heldItem
	class Class // "" if it is as approved
	raw   []byte
}

// remember keeps the definitions that wait for an approval in the store, so that they can be
// approved without a start of the server. A failure is reported: the items are held back in any
// case.
func (g *Guard) remember(ctx context.Context, s *guardedServer, found []sighting) {
	if g.store == nil || s.Name == "" || s.Unread {
		return
	}
	added, removed := s.news(found)
	s.mu.Lock()
	moved := s.moved != "" || s.packageChanged()
	saved := s.movedSaved || !moved
	s.movedSaved = true
	s.mu.Unlock()
	if len(added)+len(removed) == 0 && saved {
		return
	}
	done := make(chan error, 1)
	go func() { done <- g.keep(s, added, removed, moved) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		return // the goroutine goes on
	}
	var names []string
	for _, seen := range added {
		names = append(names, strings.TrimSpace(string(seen.Kind)+" "+seen.Name))
	}
	if !saved {
		names = append(names, "launch or package")
	}
	if len(names) > 0 || err != nil {
		g.report(s.Name, names, err)
	}
}

// keep writes the items into the store.
func (g *Guard) keep(s *guardedServer, added []Seen, removed []heldItem, moved bool) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return g.store.Update(func(w *Waiting) {
		s.mu.Lock()
		defer s.mu.Unlock()
		server := w.Servers[s.Name]
		if server == nil {
			server = &WaitingServer{}
			w.Servers[s.Name] = server
		}
		server.Start, server.Package, server.Moved = s.Start, s.Package, moved
		for _, item := range removed {
			if _, again := s.seen[item]; !again {
				server.Remove(item.kind, item.name)
			}
		}
		for _, item := range added {
			if s.seen[heldItem{item.Kind, item.Name}].digest == item.Digest {
				server.put(item)
			}
		}
	})
}

// news returns the definitions that are not in the store, and the items that no longer wait.
func (s *guardedServer) news(found []sighting) (added []Seen, removed []heldItem) {
	here := Surroundings{Now: time.Now(), Folders: s.Folders}
	for _, f := range found {
		raw := contents{f.item.kind, sha256.Sum256(f.raw)}
		s.mu.Lock()
		state, known := s.seen[f.item]
		approved := s.item(f.item)
		full := len(s.seen) >= maxSeen
		if f.class == "" {
			delete(s.seen, f.item)
		}
		s.mu.Unlock()
		switch {
		case f.class == "" && known:
			removed = append(removed, f.item)
			continue
		case f.class == "" || known && state.raw == raw || !known && full:
			continue
		}
		live, err := NewItem(f.item.kind, f.raw)
		if err != nil {
			continue // what cannot be read cannot be approved
		}
		live = approved.adopt(live, here)
		seen, ok := seenItem(live)
		// The definition of an item that is held back for the launch may be the approved one.
		ok = ok && (approved == nil || approved.digest != live.digest)
		next := seenState{raw: raw, digest: live.digest,
			rejected: state.rejected && state.digest == live.digest}
		s.mu.Lock()
		s.seen[f.item] = next
		s.mu.Unlock()
		if ok && state.digest != live.digest {
			added = append(added, seen)
		} else if !ok && known {
			removed = append(removed, f.item)
		}
	}
	return added, removed
}

// adopt returns live with the holes of i whose texts fit, and with holes for what Learn knows. The
// item i may be nil.
func (i *Item) adopt(live *Item, here Surroundings) *Item {
	v, varies := live.definition.clone(), []string(nil)
	if i != nil {
		for _, at := range i.varies {
			approved, text := i.definition.at(at), v.at(at)
			if text != nil && text.kind == '"' && fits(approved.text, text.text) {
				text.text = approved.text
				varies = append(varies, at)
			}
		}
	}
	l := learner{here: here, ok: true, kind: live.kind, varies: varies}
	l.learn(v, nil, "")
	slices.Sort(l.varies)
	if adopted, err := newItem(live.kind, v, l.varies); err == nil {
		return adopted
	}
	return live
}

// loadWaiting reads the store: what waited when Gatekit ended is held back before a client lists
// it. It removes what has an approval now.
func (g *Guard) loadWaiting() {
	if g.store == nil {
		return
	}
	w, err := g.store.Read()
	if err != nil {
		g.report("", nil, err)
		return
	}
	stale := map[string][]heldItem{}
	for _, name := range slices.Sorted(maps.Keys(g.servers)) {
		s, kept := g.servers[name], w.Servers[name]
		if kept == nil {
			continue
		}
		// Items of another launch say nothing about this one.
		sameStart := kept.Start.String() == s.Start.String()
		for _, seen := range kept.Items {
			if item := (heldItem{seen.Kind, seen.Name}); !sameStart || !s.load(seen, item) {
				stale[name] = append(stale[name], item)
			}
		}
		if kept.Moved && (!sameStart || s.moved == "" && !s.packageChanged()) {
			stale[name] = append(stale[name], heldItem{})
		}
	}
	if len(stale) == 0 {
		return
	}
	if err := g.store.Update(func(w *Waiting) {
		for name, items := range stale {
			for _, item := range items {
				if server := w.Servers[name]; server != nil && item == (heldItem{}) {
					server.Moved = false
				} else if server != nil {
					server.Remove(item.kind, item.name)
				}
			}
		}
	}); err != nil {
		g.report("", nil, err)
	}
}

// load holds back an item of the store. It returns false if the item does not wait.
func (s *guardedServer) load(seen Seen, item heldItem) bool {
	i, err := seen.Item()
	if err != nil {
		return false
	}
	if approved := s.item(item); approved != nil {
		class := Class("")
		for _, c := range approved.Compare(i) {
			if class == "" && c.Class.IsHeldBack() {
				class = c.Class
			}
		}
		if class == "" {
			return false
		}
		_, keeps := approved.restore(i)
		s.held[item] = comparing{class: class, keeps: keeps && s.Changed == Keep}
	} else {
		s.waiting[nameOf(item)] = true
	}
	s.seen[item] = seenState{digest: seen.Digest, rejected: seen.Rejected}
	return true
}

// WaitingItems returns the items in the store that wait for an approval, by server, such as
// "tool read".
func (g *Guard) WaitingItems() map[string][]string {
	all := map[string][]string{}
	for name, s := range g.servers {
		s.mu.Lock()
		for item, state := range s.seen {
			approved := s.item(item)
			if !state.rejected && (approved == nil || approved.digest != state.digest) {
				all[name] = append(all[name], strings.TrimSpace(fmt.Sprint(item.kind, " ",
					item.name)))
			}
		}
		s.mu.Unlock()
		slices.Sort(all[name])
	}
	return all
}
