package mcp

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Edit is one change of the body.
type Edit struct {
	// JSON pointer of the place to change; "" is the whole body; the last token "-" appends an
	// element to an array (RFC 6901, section 4)
	Pointer string
	// valid JSON, which replaces the value or adds the member; missing parent objects are added
	// too; nil removes the value
	Value []byte
}

// Set returns an Edit that replaces or adds a value.
func Set(pointer string, value []byte) Edit { return Edit{pointer, value} }

// Remove returns an Edit that removes a value. Removing an absent value is no error.
func Remove(pointer string) Edit { return Edit{Pointer: pointer} }

// Edit returns a message that differs from m only in the given places. Every other byte is kept,
// except the comma of a removed element or member. All pointers refer to m before the first edit,
// so array indices do not shift. If a parent of the place is null, an object replaces the null.
// Edit returns an error if edits overlap, if a value is not JSON, and if a place cannot exist, such
// as a member of a string or an index beyond the end.
func (m *Message) Edit(edits ...Edit) (*Message, error) {
	root := &editNode{}
	for _, e := range edits {
		if err := m.addEdit(root, e); err != nil {
			return nil, fmt.Errorf("edit %q: %w", e.Pointer, err)
		}
	}
	p := editSplicer{m: m, root: root, meta: root.find([]byte("_meta"))}
	if m.bodySpan.isEmpty() || root.isRemoval() { // params are added or removed
		root.token = "params"
		all := func(yield func(member) bool) { eachMember(m.raw, skipBlanks(m.raw, 0), yield) }
		if err := p.editObject(0, all, &editNode{children: []*editNode{root}}); err != nil {
			return nil, err
		}
		edited := m.withSplices(p.splices)
		edited.idSpan, edited.bodySpan = idAndParams(edited.raw)
		edited.index = indexBody(edited.raw, edited.bodySpan)
		return edited.withCheckedNames()
	}
	if err := p.editValue(m.bodySpan, root); err != nil {
		return nil, err
	}
	edited := m.withSplices(p.splices)
	if p.indexOutdated || len(m.bodyMembers) == maxIndexed || len(m.metaMembers) == maxIndexed {
		edited.index = indexBody(edited.raw, edited.bodySpan)
	}
	return edited.withCheckedNames()
}

// idAndParams returns the spans of id and params in a raw request or notification.
func idAndParams(raw []byte) (id, body span) {
	start := skipBlanks(raw, 0)
	id = span{int32(start + 1), int32(start + 1)}
	eachMember(raw, start, func(m member) bool {
		switch {
		case m.hasName(raw, "id"):
			id = m.value
		case m.hasName(raw, "params"):
			body = m.value
		}
		return true
	})
	return id, body
}

// editNode is a node in the tree of edits. A node is one place in the body. It has the edit of the
// value at that place, or children with edits of values below it.
type editNode struct {
	token    string
	isTarget bool   // an edit sets or removes this value; there are no children
	value    []byte // nil if the edit removes the value
	children []*editNode
	byToken  map[string]*editNode // children by token; nil if there are only a few
	found    bool                 // the place exists in the message
}

func (node *editNode) isRemoval() bool { return node.isTarget && node.value == nil }

// addsValue reports whether the edits create the place when the message lacks it.
func (node *editNode) addsValue() bool {
	for _, child := range node.children {
		if child.addsValue() {
			return true
		}
	}
	return node.isTarget && node.value != nil
}

// find returns the child with the token, or nil.
func (node *editNode) find(token []byte) *editNode {
	if node.byToken != nil {
		return node.byToken[string(token)]
	}
	for _, child := range node.children {
		if child.token == string(token) {
			return child
		}
	}
	return nil
}

// childFor returns the child with the token. If there is none, childFor adds it.
func (node *editNode) childFor(token string) *editNode {
	if child := node.find([]byte(token)); child != nil {
		return child
	}
	child := &editNode{token: token}
	node.children = append(node.children, child)
	switch {
	case node.byToken != nil:
		node.byToken[token] = child
	case len(node.children) > maxCompared:
		node.byToken = make(map[string]*editNode)
		for _, child := range node.children {
			node.byToken[child.token] = child
		}
	}
	return child
}

// addEdit checks an edit and adds it to the tree.
func (m *Message) addEdit(root *editNode, e Edit) error {
	limits := Limits{}.withDefaults()
	s := scanner{limits: limits, depth: 1}
	l, names := levelBody, resultNameSet
	if m.Kind == Request || m.Kind == Notification {
		l, names = levelParams, paramsNameSet
	}
	if e.Pointer != "" {
		l = levelOther
	} else if e.Value == nil && l == levelBody {
		return fmt.Errorf("%s cannot be without its body", m.Kind)
	}
	if !utf8.ValidString(e.Pointer) {
		return fmt.Errorf("the pointer is not UTF-8")
	}
	node := root
	for rest := e.Pointer; rest != ""; {
		token, after, ok := cutToken(rest)
		if !ok {
			return fmt.Errorf("not a JSON pointer")
		}
		if node.isTarget {
			return fmt.Errorf("lies within the place of another edit")
		}
		if node == root {
			if like, ok := confusableWith([]byte(token), names); ok {
				return fmt.Errorf("the name can be taken for %s", like)
			}
		}
		node = node.childFor(token)
		rest = after
		s.depth++
	}
	if node.isTarget || len(node.children) > 0 {
		return fmt.Errorf("overlaps another edit")
	}
	node.isTarget = true
	if e.Value == nil {
		return nil
	}
	if s.depth > limits.Depth {
		return fmt.Errorf("nested too deep")
	}
	node.value = bytes.Trim(e.Value, " \t\r\n")
	s.input = node.value
	f := s.scanValue(l)
	if f == nil && s.pos < len(s.input) {
		f = s.syntax(s.pos, "more after the value")
	}
	if f == nil {
		f = s.firstFault
	}
	if f == nil && e.Pointer == "" && m.Kind != Response && node.value[0] != '{' {
		f = s.syntax(0, "an object expected")
	}
	if f != nil {
		return fmt.Errorf("the new value: %s (byte %d)", f.reason, f.at)
	}
	return nil
}

// editSplicer turns a tree of edits into splices, front to back.
type editSplicer struct {
	m             *Message
	root, meta    *editNode // nodes of the body and of its _meta; the index has the members of both
	splices       []splice
	indexOutdated bool // the edits add members that the index lacks
}

func (p *editSplicer) add(from, to int, text []byte) {
	p.splices = append(p.splices, splice{span{int32(from), int32(to)}, text})
}

// editValue applies the edits of node to the value at valueSpan.
func (p *editSplicer) editValue(valueSpan span, node *editNode) error {
	start := int(valueSpan.from)
	switch first := valueSpan.firstByte(p.m.raw); {
	case node.isTarget:
		p.add(start, int(valueSpan.to), node.value)
		p.noteAddedMembers(node)
	case first == '{' && node == p.root:
		return p.editObject(start+1, p.m.eachBodyMember, node)
	case first == '{':
		members := func(yield func(member) bool) { eachMember(p.m.raw, start, yield) }
		return p.editObject(start+1, members, node)
	case first == '[':
		return p.editArray(start, node.children)
	case !node.addsValue():
	case first == 'n':
		p.add(start, int(valueSpan.to), node.appendValue(nil))
		p.noteAddedMembers(node)
	default:
		return fmt.Errorf("edit below %q: the value is neither an object nor an array", node.token)
	}
	return nil
}

// noteAddedMembers records that the value at node may have new members, which the index lacks.
func (p *editSplicer) noteAddedMembers(node *editNode) {
	p.indexOutdated = p.indexOutdated || node == p.root || node == p.meta
}

// editObject applies the edits of node to an object. The members of the object begin at the offset
// start, and the function members visits them. New members come last, in the order of the edits.
func (p *editSplicer) editObject(start int, members func(func(member) bool),
	node *editNode) (err error) {
	r := siblings{splicer: p, previousEnd: start}
	members(func(m member) bool {
		name := m.name.bytes(p.m.raw)
		if m.escaped {
			name = []byte(decodeLeniently(name))
		}
		err = r.next(int(m.name.from)-1, m.value, node.find(name))
		return err == nil
	})
	if err != nil {
		return err
	}
	var text []byte
	for _, node := range node.children {
		if node.found || !node.addsValue() {
			continue
		}
		if r.remaining > 0 {
			text = append(text, ',')
		}
		text = append(append(text, Quote(node.token)...), ':')
		text = node.appendValue(text)
		r.remaining++
	}
	if text != nil {
		p.add(r.previousEnd, r.previousEnd, text)
		p.noteAddedMembers(node)
	}
	return nil
}

// editArray applies the edits of the nodes to the array that begins at the offset start.
func (p *editSplicer) editArray(start int, nodes []*editNode) (err error) {
	byIndex := make(map[int]*editNode, len(nodes))
	var added *editNode
	for _, node := range nodes {
		if n, ok := arrayIndex(node.token); ok {
			byIndex[n] = node
		} else if node.token == "-" && node.isTarget && !node.isRemoval() {
			added = node
		}
	}
	r := siblings{splicer: p, previousEnd: start + 1}
	n := 0
	eachItem(p.m.raw, start, func(value span) bool {
		err = r.next(int(value.from), value, byIndex[n])
		n++
		return err == nil
	})
	if err == nil && added != nil {
		added.found = true
		text := added.value
		if r.remaining > 0 {
			text = append([]byte{','}, text...)
		}
		p.add(r.previousEnd, r.previousEnd, text)
	}
	for _, node := range nodes {
		if err == nil && !node.found && node.addsValue() {
			err = fmt.Errorf("edit at %q: the array has %d elements", node.token, n)
		}
	}
	return err
}

// appendValue appends the value of node, whose place does not exist in the message yet.
func (node *editNode) appendValue(dst []byte) []byte {
	if node.isTarget {
		return append(dst, node.value...)
	}
	sep := byte('{')
	for _, child := range node.children {
		if child.addsValue() {
			dst = append(dst, sep)
			dst = append(append(dst, Quote(child.token)...), ':')
			dst = child.appendValue(dst)
			sep = ','
		}
	}
	return append(dst, '}')
}

// siblings edits the members of an object, or the elements of an array, one after the other. It
// also removes the commas of removed members or elements.
type siblings struct {
	splicer         *editSplicer
	remaining       int  // number of members or elements so far that are not removed
	previousRemoved bool // the previous member or element was removed
	previousEnd     int  // end of the previous member or element; at first, of the opening bracket
}

// next edits the next member or element. The member or element begins at the offset start, and its
// value is at valueSpan. If node is nil, next edits nothing. The comma before a removed member or
// element is removed too. If no earlier member or element remains, the comma after the removed
// member or element is removed instead.
func (r *siblings) next(start int, valueSpan span, node *editNode) error {
	if r.previousRemoved && r.remaining == 0 {
		r.splicer.splices[len(r.splicer.splices)-1].to = int32(start)
	}
	before := r.previousEnd
	r.previousEnd = int(valueSpan.to)
	r.previousRemoved = node != nil && node.isRemoval()
	if !r.previousRemoved {
		r.remaining++
	}
	if node == nil {
		return nil
	}
	node.found = true
	if !r.previousRemoved {
		return r.splicer.editValue(valueSpan, node)
	}
	if r.remaining == 0 {
		before = start
	}
	r.splicer.add(before, r.previousEnd, nil)
	return nil
}
