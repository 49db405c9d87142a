package mcp

import "fmt"

// RewriteNames applies f to every name that the catalogue lists in m, front to back, and answers m
// with those that f changed spliced in. The Message itself comes back when nothing changed. Item
// and content types unknown to the catalogue are left alone, and so is what is no string, or no
// text (a lone surrogate). An error from f ends it.
func RewriteNames(m *Message, f func(p NamePlace, value string) (string, error)) (*Message, error) {
	tree, ok := trees[treeKey{m.Method, m.Kind, m.Direction}]
	if !ok {
		tree = trees[treeKey{"", m.Kind, m.Direction}]
	}
	if tree == nil {
		return m, nil
	}
	r := rewriter{m: m, f: f}
	if err := r.walk(m.body, tree); err != nil {
		return nil, err
	}
	return m.spliced(r.splices), nil
}

// spot is a step of the way to places: the places of one kind of message as a tree, so that one
// walk finds them all.
type spot struct {
	token string
	place *NamePlace // set at the end of the way
	below []*spot
}

type treeKey struct {
	method string
	kind   Kind
	to     Direction
}

// trees are the catalogue by message. Where a method has none of its own, that of "" holds.
var trees = func() map[treeKey]*spot {
	t := make(map[treeKey]*spot)
	for _, p := range catalogue {
		key := treeKey{p.Method, p.Kind, p.Direction}
		if t[key] != nil {
			continue
		}
		t[key] = &spot{}
		for _, p := range NamePlaces(p.Method, p.Kind, p.Direction) {
			t[key].add(p)
		}
	}
	return t
}()

func (s *spot) add(p NamePlace) {
	for rest := p.Pattern; rest != ""; {
		var token string
		token, rest, _ = cutToken(rest)
		if token == content {
			break
		}
		s = s.to(token)
	}
	s.place = &p
}

func (s *spot) to(token string) *spot {
	for _, b := range s.below {
		if b.token == token {
			return b
		}
	}
	b := &spot{token: token}
	s.below = append(s.below, b)
	return b
}

type rewriter struct {
	m       *Message
	f       func(NamePlace, string) (string, error)
	splices []splice
}

func (r *rewriter) walk(in span, s *spot) (err error) {
	raw, from := r.m.raw, int(in.from)
	member := func(m member) bool {
		for _, b := range s.below {
			if (b.token == "*" || m.is(raw, b.token)) && r.counts(in, b.place) {
				err = r.walk(m.value, b)
			}
		}
		return err == nil
	}
	switch first := in.first(raw); {
	case s.place != nil && s.place.blocks():
		return r.content(in, s.place)
	case s.place != nil:
		return r.name(in, s.place)
	case first == '{' && in == r.m.body:
		r.m.members(member)
	case first == '{':
		members(raw, from, member)
	case first == '[' && s.below[0].token == "*":
		items(raw, from, func(item span) bool {
			err = r.walk(item, s.below[0])
			return err == nil
		})
	}
	return err
}

// counts says whether the condition of a place in the object at in holds.
func (r *rewriter) counts(in span, p *NamePlace) bool {
	if p == nil || p.ConditionMember == "" {
		return true
	}
	at, ok := child(r.m.raw, in, p.ConditionMember)
	return ok && same(at.of(r.m.raw), p.ConditionValue)
}

// content rewrites one content block or an array of them.
func (r *rewriter) content(in span, p *NamePlace) (err error) {
	switch in.first(r.m.raw) {
	case '{':
		return r.block(in, p)
	case '[':
		items(r.m.raw, int(in.from), func(item span) bool {
			if item.first(r.m.raw) == '{' {
				err = r.block(item, p)
			}
			return err == nil
		})
	}
	return err
}

func (r *rewriter) block(in span, p *NamePlace) error {
	raw := r.m.raw
	var kind, uri, resource, content span
	members(raw, int(in.from), func(m member) bool {
		switch {
		case m.is(raw, "type"):
			kind = m.value
		case m.is(raw, "uri"):
			uri = m.value
		case m.is(raw, "resource"):
			resource = m.value
		case m.is(raw, "content"):
			content = m.value
		}
		return true
	})
	switch kind := kind.of(raw); {
	case same(kind, "resource_link") && !uri.empty():
		return r.name(uri, p)
	case same(kind, "resource") && !resource.empty():
		if uri, ok := child(raw, resource, "uri"); ok {
			return r.name(uri, p)
		}
	case same(kind, "tool_result") && !content.empty():
		return r.content(content, p)
	}
	return nil
}

func (r *rewriter) name(at span, p *NamePlace) error {
	old, ok := text(at.of(r.m.raw))
	if !ok {
		return nil
	}
	value, err := r.f(*p, old)
	if err != nil {
		return fmt.Errorf("rewrite %s of %s: %w", p.Pattern, r.m.Method, err)
	}
	if value != old {
		r.splices = append(r.splices, splice{at, Quote(value)})
	}
	return nil
}

// same says whether the raw value is the string.
func same(raw []byte, want string) bool {
	if len(raw) == len(want)+2 && string(raw[1:len(raw)-1]) == want {
		return raw[0] == '"'
	}
	s, ok := text(raw)
	return ok && s == want
}
