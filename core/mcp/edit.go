package mcp

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Edit is one change of the body.
type Edit struct {
	Pointer string // where; "" is the whole body
	Value   []byte // valid JSON: replaces the value, or adds the member (its parent objects too where absent); nil removes
}

// Set replaces or adds; Remove takes away. Removing what is absent is no error.
func Set(pointer string, value []byte) Edit { return Edit{pointer, value} }
func Remove(pointer string) Edit            { return Edit{Pointer: pointer} }

// Edit answers a message in which only the given places differ: every other byte is kept. All pointers refer to the
// message as it is before the first edit; array indices do not shift. Overlapping edits, values that are not JSON and
// places that cannot exist (a member of a string, an index beyond the end) are errors, and m is unchanged.
// A removed element or member takes its comma with it. Where a parent is to be added and null stands in its place, it goes there.
func (m *Message) Edit(edits ...Edit) (*Message, error) {
	if len(edits) == 0 {
		return m, nil
	}
	root := &change{}
	for _, e := range edits {
		if err := m.plan(root, e); err != nil {
			return nil, fmt.Errorf("edit %q: %w", e.Pointer, err)
		}
	}
	w := splicer{src: m.raw, dst: make([]byte, 0, len(m.raw)+root.size())}
	whole := m.body.empty() || root.removes()
	var err error
	if whole { // params come or go: the envelope changes
		root.token = "params"
		err = w.object(blank(m.raw, 0), []*change{root})
	} else {
		err = w.value(m.body, root)
	}
	if err != nil {
		return nil, err
	}
	w.upTo(len(w.src))

	c := *m
	c.raw = w.dst
	if whole {
		c.idAt, c.body = envelope(c.raw)
	} else {
		grown := int32(len(c.raw) - len(m.raw))
		c.body.to += grown
		if c.idAt.from > m.body.from {
			c.idAt = span{c.idAt.from + grown, c.idAt.to + grown}
		}
	}
	c.index = indexed(c.raw, c.body)
	return &c, nil
}

// envelope finds id and params of a request or notification.
func envelope(raw []byte) (id, body span) {
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
	hit   bool // the place exists
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

// size is about what c adds.
func (c *change) size() int {
	n := len(c.token) + len(c.value) + 8
	for _, b := range c.below {
		n += b.size()
	}
	return n
}

// to is the change of the place below c that token names.
func (c *change) to(token string) *change {
	for _, b := range c.below {
		if b.token == token {
			return b
		}
	}
	b := &change{token: token}
	c.below = append(c.below, b)
	return b
}

// plan puts an edit into the tree.
func (m *Message) plan(root *change, e Edit) error {
	limits := Limits{}.orDefault()
	s := scanner{limits: limits, depth: 1}
	l := deep
	if e.Pointer == "" {
		switch l = body; {
		case m.Kind == Request || m.Kind == Notification:
			l = params
		case e.Value == nil:
			return fmt.Errorf("%s cannot be without its body", m.Kind)
		}
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
		if c == root && (m.Kind == Request || m.Kind == Notification) {
			if like, ok := alike([]byte(token), paramsNames); ok {
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

// splicer copies src to dst with changes.
type splicer struct {
	src, dst []byte
	done     int // how much of src is copied or left out
}

func (w *splicer) upTo(i int) {
	w.dst = append(w.dst, w.src[w.done:i]...)
	w.done = i
}

// value applies c to the value at in.
func (w *splicer) value(in span, c *change) error {
	from := int(in.from)
	switch first := w.src[from]; {
	case c.here:
		w.upTo(from)
		w.dst = append(w.dst, c.value...)
		w.done = int(in.to)
	case first == '{':
		return w.object(from, c.below)
	case first == '[':
		return w.array(from, c.below)
	case !c.sets():
	case first == 'n':
		w.upTo(from)
		w.create(c)
		w.done = int(in.to)
	default:
		return fmt.Errorf("edit below %q: it is neither an object nor an array", c.token)
	}
	return nil
}

// object applies changes to the object at from. Those of members that it does not have come last, in the order of the edits.
func (w *splicer) object(from int, changes []*change) (err error) {
	r := row{w: w, end: from + 1}
	members(w.src, from, func(m member) bool {
		var c *change
		for _, x := range changes {
			if m.is(w.src, x.token) {
				c = x
			}
		}
		err = r.next(int(m.name.from)-1, m.value, c)
		return err == nil
	})
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.hit || !c.sets() {
			continue
		}
		w.upTo(r.end)
		if r.kept > 0 {
			w.dst = append(w.dst, ',')
		}
		w.dst = append(append(w.dst, Quote(c.token)...), ':')
		w.create(c)
		r.kept++
	}
	return nil
}

// array applies changes to the array at from.
func (w *splicer) array(from int, changes []*change) (err error) {
	at := make(map[int]*change, len(changes))
	for _, c := range changes {
		if n, ok := element(c.token); ok {
			at[n] = c
		}
	}
	r := row{w: w, end: from + 1}
	n := 0
	items(w.src, from, func(value span) bool {
		err = r.next(int(value.from), value, at[n])
		n++
		return err == nil
	})
	for _, c := range changes {
		if err == nil && !c.hit && c.sets() {
			err = fmt.Errorf("edit at %q: the array has %d elements", c.token, n)
		}
	}
	return err
}

// create writes the value of a place that does not exist.
func (w *splicer) create(c *change) {
	if c.here {
		w.dst = append(w.dst, c.value...)
		return
	}
	sep := byte('{')
	for _, b := range c.below {
		if b.sets() {
			w.dst = append(w.dst, sep)
			w.dst = append(append(w.dst, Quote(b.token)...), ':')
			w.create(b)
			sep = ','
		}
	}
	w.dst = append(w.dst, '}')
}

// row goes along the members of an object or the elements of an array.
type row struct {
	w    *splicer
	kept int
	end  int // of the one before
}

// next takes the one that begins at from and has the value. One that is removed takes the comma before it along; where none is kept before
// it, the one after it.
func (r *row) next(from int, value span, c *change) error {
	if r.kept == 0 && r.w.done == r.end {
		r.w.done = from
	}
	before := r.end
	r.end = int(value.to)
	if c == nil {
		r.kept++
		return nil
	}
	c.hit = true
	if !c.removes() {
		r.kept++
		return r.w.value(value, c)
	}
	if r.kept == 0 {
		before = from
	}
	r.w.upTo(before)
	r.w.done = r.end
	return nil
}
