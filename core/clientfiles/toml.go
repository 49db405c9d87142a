package clientfiles

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// parseTOML parses TOML. Values in the tables of one name, which may stand in several places of the
// file, become members of one object.
func parseTOML(doc string) (*value, error) {
	var all map[string]any // the parser of expressions accepts duplicate keys; this one does not
	if err := toml.Unmarshal([]byte(doc), &all); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, column := at.Position()
			return nil, fmt.Errorf("line %d, column %d: %w", row, column, err)
		}
		return nil, err
	}
	var p unstable.Parser
	p.Reset([]byte(doc))
	t := &tomlTree{doc: doc, parser: &p}
	root := &value{kind: object}
	table := root
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table:
			table = t.table(root, e.Key())
		case unstable.ArrayTable:
			keys := e.Key()
			all := t.table(root, keys)
			all.kind = list
			table = &value{kind: object}
			all.items = append(all.items, table)
		case unstable.KeyValue:
			t.pair(table, e, true)
		}
	}
	return root, p.Error()
}

type tomlTree struct {
	doc    string
	parser *unstable.Parser
}

// last returns the last table of an array of tables, or v itself.
func last(v *value) *value {
	if v.kind == list && len(v.items) > 0 {
		return v.items[len(v.items)-1]
	}
	return v
}

// child returns the object that a key of v has. It adds the object if needed.
func (t *tomlTree) child(v *value, key *unstable.Node) *value {
	v = last(v)
	name := string(key.Data)
	if m := v.member(name); m != nil {
		return m
	}
	next := &value{kind: object}
	v.add(member{name: name, start: int(key.Raw.Offset), value: next, block: true})
	return next
}

// table returns the table of a header. The last part of the header of an array of tables is the
// array.
func (t *tomlTree) table(root *value, keys unstable.Iterator) *value {
	v := root
	for keys.Next() {
		v = t.child(v, keys.Node())
	}
	return v
}

// pair adds a key with its value to a table.
func (t *tomlTree) pair(table *value, e *unstable.Node, block bool) {
	keys := e.Key()
	first, key := -1, (*unstable.Node)(nil)
	v := last(table)
	for keys.Next() {
		if key != nil {
			v = t.child(v, key)
		}
		key = keys.Node()
		if first < 0 {
			first = int(key.Raw.Offset)
		}
	}
	start := int(key.Raw.Offset)
	// the value begins after the equals sign
	at := start + int(key.Raw.Length)
	at += strings.IndexByte(t.doc[at:], '=') + 1
	at += len(t.doc[at:]) - len(strings.TrimLeft(t.doc[at:], " \t"))
	end := int(e.Raw.Offset + e.Raw.Length)
	v.add(member{name: string(key.Data), start: first, dotted: t.doc[first:start], block: block,
		value: t.value(e.Value(), at, end)})
}

// value returns the value at doc[start:end]. If end is negative, it is not known, because the value
// is an item of a list.
func (t *tomlTree) value(n *unstable.Node, start, end int) *value {
	if n.Raw.Length > 0 && n.Kind != unstable.InlineTable {
		start, end = int(n.Raw.Offset), int(n.Raw.Offset+n.Raw.Length)
	}
	v := &value{start: start, end: end}
	switch n.Kind {
	case unstable.String:
		v.kind, v.text = text, string(n.Data)
	case unstable.Array:
		v.kind = list
		for c := n.Children(); c.Next(); {
			if c.Node().Kind != unstable.Comment {
				v.items = append(v.items, t.value(c.Node(), -1, -1))
			}
		}
	case unstable.InlineTable:
		v.kind = object
		for c := n.Children(); c.Next(); {
			if c.Node().Kind == unstable.KeyValue {
				t.pair(v, c.Node(), false)
			}
		}
	}
	if v.start >= 0 && v.end >= 0 {
		v.raw = t.doc[v.start:v.end]
	} else if v.kind == other {
		v.raw = string(n.Data)
	}
	return v
}
