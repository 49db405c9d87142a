package mcp

import "fmt"

// RewriteNames calls replace for each name in m that is at a place of the catalogue, front to back,
// and puts the result in place of the name. It returns m itself when no name changed. It does not
// rewrite values that are not strings, or that have a lone surrogate. If replace returns an error,
// RewriteNames stops and returns the error.
func RewriteNames(m *Message, replace func(p NamePlace, value string) (string,
	error)) (*Message, error) {
	tree, ok := placeTrees[treeKey{m.Method, m.Kind, m.Direction}]
	if !ok {
		tree = placeTrees[treeKey{"", m.Kind, m.Direction}]
	}
	if tree == nil {
		return m, nil
	}
	r := nameRewriter{m: m, replace: replace}
	if err := r.walk(m.bodySpan, tree); err != nil {
		return nil, err
	}
	return m.withSplices(r.splices), nil
}

// placeNode is a node in the tree of all places of one kind of message. With the tree, one
// traversal of the message finds all places.
type placeNode struct {
	token    string
	place    *NamePlace // set in a leaf of the tree
	children []*placeNode
}

type treeKey struct {
	method    string
	kind      Kind
	direction Direction
}

// placeTrees holds the catalogue as one tree for each kind of message. A method without a tree of
// its own uses the tree of the method "".
var placeTrees = func() map[treeKey]*placeNode {
	t := make(map[treeKey]*placeNode)
	for _, p := range namePlaces {
		key := treeKey{p.Method, p.Kind, p.Direction}
		if t[key] != nil {
			continue
		}
		t[key] = &placeNode{}
		for _, p := range NamePlaces(p.Method, p.Kind, p.Direction) {
			t[key].add(p)
		}
	}
	return t
}()

func (node *placeNode) add(p NamePlace) {
	for rest := p.Pattern; rest != ""; {
		var token string
		token, rest, _ = cutToken(rest)
		if token == contentBlocks {
			break
		}
		node = node.childFor(token)
	}
	node.place = &p
}

func (node *placeNode) childFor(token string) *placeNode {
	for _, child := range node.children {
		if child.token == token {
			return child
		}
	}
	child := &placeNode{token: token}
	node.children = append(node.children, child)
	return child
}

type nameRewriter struct {
	m       *Message
	replace func(NamePlace, string) (string, error)
	splices []splice
}

// walk rewrites the names in one value. The parameter at is the span of the value, and node is the
// node of the tree for the value.
func (r *nameRewriter) walk(at span, node *placeNode) (err error) {
	raw, start := r.m.raw, int(at.from)
	switch first := at.firstByte(raw); {
	case node.place != nil && node.place.holdsContentBlocks():
		return r.rewriteContent(at, node.place)
	case node.place != nil:
		return r.rewriteName(at, node.place)
	case first == '{' && at == r.m.bodySpan:
		r.m.eachBodyMember(func(m member) bool {
			err = r.walkMember(start, m, node)
			return err == nil
		})
	case first == '{':
		_, err = r.walkObject(start, node)
	case first == '[' && node.children[0].token == "*":
		item := node.children[0]
		eachItemAt(raw, start, func(i int) (end int, ok bool) {
			if raw[i] == '{' && item.place == nil {
				end, err = r.walkObject(i, item) // reads the element only once
			} else {
				end = skipValue(raw, i)
				err = r.walk(span{int32(i), int32(end)}, item)
			}
			return end, err == nil
		})
	}
	return err
}

// walkObject rewrites the names in the object that begins at i, and returns the offset after it.
func (r *nameRewriter) walkObject(i int, node *placeNode) (end int, err error) {
	end = eachMember(r.m.raw, i, func(m member) bool {
		err = r.walkMember(i, m, node)
		return err == nil
	})
	return end, err
}

// walkMember rewrites the names in a member of the object that begins at i.
func (r *nameRewriter) walkMember(i int, m member, node *placeNode) error {
	for _, child := range node.children {
		if (child.token == "*" || m.hasName(r.m.raw, child.token)) &&
			r.conditionHolds(i, child.place) {
			if err := r.walk(m.value, child); err != nil {
				return err
			}
		}
	}
	return nil
}

// conditionHolds reports whether the object that begins at i fulfils the condition of a place.
func (r *nameRewriter) conditionHolds(i int, p *NamePlace) bool {
	if p == nil || p.ConditionMember == "" {
		return true
	}
	at, ok := childSpan(r.m.raw, span{int32(i), int32(len(r.m.raw))}, p.ConditionMember)
	return ok && isString(at.bytes(r.m.raw), p.ConditionValue)
}

// rewriteContent rewrites one content block, or an array of content blocks.
func (r *nameRewriter) rewriteContent(at span, p *NamePlace) (err error) {
	switch at.firstByte(r.m.raw) {
	case '{':
		_, err = r.rewriteBlock(int(at.from), p)
	case '[':
		eachItemAt(r.m.raw, int(at.from), func(i int) (end int, ok bool) {
			if r.m.raw[i] == '{' {
				end, err = r.rewriteBlock(i, p)
			} else {
				end = skipValue(r.m.raw, i)
			}
			return end, err == nil
		})
	}
	return err
}

// rewriteBlock rewrites the content block that begins at i, and returns the offset after it.
func (r *nameRewriter) rewriteBlock(i int, p *NamePlace) (end int, err error) {
	raw := r.m.raw
	var kind, uri, resource, content span
	end = eachMember(raw, i, func(m member) bool {
		switch {
		case m.hasName(raw, "type"):
			kind = m.value
		case m.hasName(raw, "uri"):
			uri = m.value
		case m.hasName(raw, "resource"):
			resource = m.value
		case m.hasName(raw, "content"):
			content = m.value
		}
		return true
	})
	switch kind := kind.bytes(raw); {
	case isString(kind, "resource_link") && !uri.isEmpty():
		err = r.rewriteName(uri, p)
	case isString(kind, "resource") && !resource.isEmpty():
		if uri, ok := childSpan(raw, resource, "uri"); ok {
			err = r.rewriteName(uri, p)
		}
	case isString(kind, "tool_result") && !content.isEmpty():
		err = r.rewriteContent(content, p)
	}
	return end, err
}

func (r *nameRewriter) rewriteName(at span, p *NamePlace) error {
	old, ok := decodeString(at.bytes(r.m.raw))
	if !ok {
		return nil
	}
	value, err := r.replace(*p, old)
	if err != nil {
		return fmt.Errorf("rewrite %s of %s: %w", p.Pattern, r.m.Method, err)
	}
	if value != old {
		r.splices = append(r.splices, splice{at, Quote(value)})
	}
	return nil
}

// isString reports whether the raw value is the string want.
func isString(raw []byte, want string) bool {
	if len(raw) == len(want)+2 && string(raw[1:len(raw)-1]) == want {
		return raw[0] == '"'
	}
	s, ok := decodeString(raw)
	return ok && s == want
}
