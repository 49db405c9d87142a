package mcp

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Edit is one change of the body.
type Edit struct {
	// where; "" is the whole body; "-" as its last index adds an element at the end of an array
	// (RFC 6901 4)
	Pointer string
	// valid JSON: replaces the value, or adds the member (its parent objects too where absent); nil
	// removes
	Value []byte
}

// Set replaces or adds; Remove takes away. Removing what is absent is no error.
func Set(pointer string, value []byte) Edit { return Edit{pointer, value} }
func Remove(pointer string) Edit            { return Edit{Pointer: pointer} }

// Edit answers a message in which only the given places differ: every other byte is kept. All
// pointers refer to the message as it is before the first edit; array indices do not shift.
// Overlapping edits, values that are not JSON and places that cannot exist (a member of a string,
// an index beyond the end) are errors, and m is unchanged. A removed element or member takes its
// comma with it. Where a parent is to be added and null stands in its place, it goes there.
func (m *Message) Edit(edits ...Edit) (*Message, error) {
	root := &change{}
	for _, e := range edits {
		if err := m.plan(root, e); err != nil {
			return nil, fmt.Errorf("edit %q: %w", e.Pointer, err)
		}
	}
	p := patcher{m: m, root: root, meta: root.find([]byte("_meta"))}
	if m.body.empty() || root.removes() { // params come or go: the envelope changes
		root.token = "params"
		all := func(yield func(member) bool) { members(m.raw, blank(m.raw, 0), yield) }
		if err := p.object(0, all, &change{below: []*change{root}}); err != nil {
			return nil, err
		}
		c := m.spliced(p.splices)
		c.idAt, c.body = idAndParams(c.raw)
		c.index = indexed(c.raw, c.body)
		return c, nil
	}
	if err := p.value(m.body, root); err != nil {
		return nil, err
	}
	c := m.spliced(p.splices)
	if p.stale || len(m.top) == maxKept || len(m.meta) == maxKept {
		c.index = indexed(c.raw, c.body)
	}
	return c, nil
}

// idAndParams are those of a request or notification.
func idAndParams(raw []byte) (id, body span) {
	start := blank(raw, 0)
	id = span{int32(start + 1), int32(start + 1)}
	members(raw, start, func(m member) bool {
		switch {
		case m.is(raw, "id"):
			id = m.value
		case m.is(raw, "params"):
			body = m.value
		}
		return true
	})
	return id, body
}

// change is a tree of edits: what is to happen to a value, or to values below it.
type change struct {
	token string
	here  bool   // set or removed; there is nothing below then
	value []byte // nil removes
	below []*change
	names map[string]*change // below by token, when they are many
	hit   bool               // the place exists
}

func (c *change) removes() bool { return c.here && c.value == nil }

// sets says whether c has anything to put in a place that does not exist.
func (c *change) sets() bool {
	for _, b := range c.below {
		if b.sets() {
			return true
		}
	}
	return c.here && c.value != nil
}

// find is the change of the place below c that token names, or nil.
func (c *change) find(token []byte) *change {
	if c.names != nil {
		return c.names[string(token)]
	}
	for _, b := range c.below {
		if b.token == string(token) {
			return b
		}
	}
	return nil
}

// to is find, or a new change.
func (c *change) to(token string) *change {
	if b := c.find([]byte(token)); b != nil {
		return b
	}
	b := &change{token: token}
	c.below = append(c.below, b)
	switch {
	case c.names != nil:
		c.names[token] = b
	case len(c.below) > few:
		c.names = make(map[string]*change)
		for _, b := range c.below {
			c.names[b.token] = b
		}
	}
	return b
}

// plan puts an edit into the tree.
func (m *Message) plan(root *change, e Edit) error {
	limits := Limits{}.orDefault()
	s := scanner{limits: limits, depth: 1}
	l, names := body, answerNames
	if m.Kind == Request || m.Kind == Notification {
		l, names = params, paramsNames
	}
	if e.Pointer != "" {
		l = deep
	} else if e.Value == nil && l == body {
		return fmt.Errorf("%s cannot be without its body", m.Kind)
	}
	if !utf8.ValidString(e.Pointer) {
		return fmt.Errorf("the pointer is not UTF-8")
	}
	c := root
	for rest := e.Pointer; rest != ""; {
		token, after, ok := cutToken(rest)
		if !ok {
			return fmt.Errorf("not a JSON pointer")
		}
		if c.here {
			return fmt.Errorf("lies within the place of another edit")
		}
		if c == root {
			if like, ok := alike([]byte(token), names); ok {
				return fmt.Errorf("the name can be taken for %s", like)
			}
		}
		c = c.to(token)
		rest = after
		s.depth++
	}
	if c.here || len(c.below) > 0 {
		return fmt.Errorf("overlaps another edit")
	}
	c.here = true
	if e.Value == nil {
		return nil
	}
	if s.depth > limits.Depth {
		return fmt.Errorf("nested too deep")
	}
	c.value = bytes.Trim(e.Value, " \t\r\n")
	s.b = c.value
	f := s.value(l)
	if f == nil && s.i < len(s.b) {
		f = s.syntax(s.i, "more after the value")
	}
	if f == nil {
		f = s.first
	}
	if f == nil && e.Pointer == "" && m.Kind != Response && c.value[0] != '{' {
		f = s.syntax(0, "an object expected")
	}
	if f != nil {
		return fmt.Errorf("the new value: %s (byte %d)", f.reason, f.at)
	}
	return nil
}

// patcher turns changes into splices, front to back.
type patcher struct {
	m          *Message
	root, meta *change // of the body and its _meta, whose members are in the index
	splices    []splice
	stale      bool // the index lacks something that was added
}

func (p *patcher) splice(from, to int, text []byte) {
	p.splices = append(p.splices, splice{span{int32(from), int32(to)}, text})
}

// value applies c to the value at in.
func (p *patcher) value(in span, c *change) error {
	from := int(in.from)
	switch first := in.first(p.m.raw); {
	case c.here:
		p.splice(from, int(in.to), c.value)
		p.added(c)
	case first == '{' && c == p.root:
		return p.object(from+1, p.m.members, c)
	case first == '{':
		return p.object(from+1, func(yield func(member) bool) { members(p.m.raw, from, yield) }, c)
	case first == '[':
		return p.array(from, c.below)
	case !c.sets():
	case first == 'n':
		p.splice(from, int(in.to), c.create(nil))
		p.added(c)
	default:
		return fmt.Errorf("edit below %q: it is neither an object nor an array", c.token)
	}
	return nil
}

// added notes that c's place has members that it did not have.
func (p *patcher) added(c *change) { p.stale = p.stale || c == p.root || c == p.meta }

// object applies c to an object, whose inside begins at from. Members that it does not have come
// last, in the order of the edits.
func (p *patcher) object(from int, each func(func(member) bool), c *change) (err error) {
	r := row{p: p, end: from}
	each(func(m member) bool {
		name := m.name.of(p.m.raw)
		if m.escaped {
			plain, _ := unquote(name)
			name = []byte(plain)
		}
		err = r.next(int(m.name.from)-1, m.value, c.find(name))
		return err == nil
	})
	if err != nil {
		return err
	}
	var text []byte
	for _, c := range c.below {
		if c.hit || !c.sets() {
			continue
		}
		if r.kept > 0 {
			text = append(text, ',')
		}
		text = append(append(text, Quote(c.token)...), ':')
		text = c.create(text)
		r.kept++
	}
	if text != nil {
		p.splice(r.end, r.end, text)
		p.added(c)
	}
	return nil
}

// array applies changes to the array at from.
func (p *patcher) array(from int, changes []*change) (err error) {
	at := make(map[int]*change, len(changes))
	var added *change
	for _, c := range changes {
		if n, ok := element(c.token); ok {
			at[n] = c
		} else if c.token == "-" && c.here && !c.removes() {
			added = c
		}
	}
	r := row{p: p, end: from + 1}
	n := 0
	items(p.m.raw, from, func(value span) bool {
		err = r.next(int(value.from), value, at[n])
		n++
		return err == nil
	})
	if err == nil && added != nil {
		added.hit = true
		text := added.value
		if r.kept > 0 {
			text = append([]byte{','}, text...)
		}
		p.splice(r.end, r.end, text)
	}
	for _, c := range changes {
		if err == nil && !c.hit && c.sets() {
			err = fmt.Errorf("edit at %q: the array has %d elements", c.token, n)
		}
	}
	return err
}

// create appends the value of a place that does not exist.
func (c *change) create(dst []byte) []byte {
	if c.here {
		return append(dst, c.value...)
	}
	sep := byte('{')
	for _, b := range c.below {
		if b.sets() {
			dst = append(dst, sep)
			dst = append(append(dst, Quote(b.token)...), ':')
			dst = b.create(dst)
			sep = ','
		}
	}
	return append(dst, '}')
}

// row goes along the members of an object or the elements of an array.
type row struct {
	p       *patcher
	kept    int
	removed bool // the one before
	end     int  // of the one before; at first, where the row begins
}

// next takes the one that begins at from and has the value. One that is removed takes the comma
// before it along; where none is kept before it, the one after it.
func (r *row) next(from int, value span, c *change) error {
	if r.removed && r.kept == 0 {
		r.p.splices[len(r.p.splices)-1].to = int32(from)
	}
	before := r.end
	r.end = int(value.to)
	r.removed = c != nil && c.removes()
	if !r.removed {
		r.kept++
	}
	if c == nil {
		return nil
	}
	c.hit = true
	if !r.removed {
		return r.p.value(value, c)
	}
	if r.kept == 0 {
		before = from
	}
	r.p.splice(before, r.end, nil)
	return nil
}
