package clientfiles

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parseYAML parses a file with one YAML document. Aliases are not followed.
func parseYAML(doc string) (*value, error) {
	d := yaml.NewDecoder(bytes.NewReader([]byte(doc)))
	var n yaml.Node
	switch err := d.Decode(&n); {
	case errors.Is(err, io.EOF):
		return &value{kind: other}, nil // an empty file
	case err != nil:
		return nil, err
	}
	var more yaml.Node
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, err
		}
		return nil, errors.New("it has several YAML documents")
	}
	t := &yamlTree{doc: doc}
	t.findLines()
	if len(n.Content) != 1 {
		return &value{kind: other}, nil
	}
	return t.value(n.Content[0], false), nil
}

type yamlTree struct {
	doc   string
	lines []int // offset of each line
	// where the last node was found. Nodes come in order, so a line is read only once.
	lastLine, lastColumn, lastOffset int
}

// findLines finds the lines as the parser counts them. YAML 1.1 has five line breaks.
func (t *yamlTree) findLines() {
	t.lines = []int{0}
	for i := 0; i < len(t.doc); {
		r, n := utf8.DecodeRuneInString(t.doc[i:])
		i += n
		if r == '\r' && strings.HasPrefix(t.doc[i:], "\n") {
			i++
		}
		switch r {
		case '\r', '\n', '\u0085', '\u2028', '\u2029':
			t.lines = append(t.lines, i)
		}
	}
}

// offset returns the offset of a node.
func (t *yamlTree) offset(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(t.lines) {
		return -1
	}
	at, column := t.lines[n.Line-1], 1
	if n.Line == t.lastLine && n.Column >= t.lastColumn {
		at, column = t.lastOffset, t.lastColumn
	}
	for ; column < n.Column; column++ {
		if at >= len(t.doc) {
			return -1
		}
		_, size := utf8.DecodeRuneInString(t.doc[at:])
		at += size
	}
	t.lastLine, t.lastColumn, t.lastOffset = n.Line, n.Column, at
	return at
}

// value returns the value of a node. inFlow is true within brackets and braces.
func (t *yamlTree) value(n *yaml.Node, inFlow bool) *value {
	v := &value{start: t.offset(n), end: -1, raw: n.Value}
	if n.Anchor != "" {
		v.fixed = "it has a YAML anchor"
	}
	flow := inFlow || n.Style&yaml.FlowStyle != 0
	switch n.Kind {
	case yaml.AliasNode:
		v.fixed, v.raw = "it is a YAML alias", "*"+n.Value
	case yaml.ScalarNode:
		if n.ShortTag() == "!!str" {
			v.kind, v.text = text, n.Value
		}
		t.findEnd(v, n)
	case yaml.SequenceNode:
		v.kind = list
		for _, c := range n.Content {
			v.items = append(v.items, t.value(c, flow))
		}
		if flow {
			t.findBracket(v)
		} else {
			t.findDashes(v)
		}
	case yaml.MappingNode:
		v.kind = object
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			m := member{name: key.Value, start: t.offset(key), block: !flow,
				value: t.value(n.Content[i+1], flow)}
			if key.Tag == "!!merge" {
				v.fixed = "it takes values from a YAML merge key"
			}
			v.add(m)
		}
	}
	if n.Style&yaml.TaggedStyle != 0 {
		v.fixed = "it has a YAML tag"
	}
	return v
}

// findEnd sets the end of a scalar. A scalar whose end is not certain is fixed.
func (t *yamlTree) findEnd(v *value, n *yaml.Node) {
	if v.start < 0 || v.fixed != "" {
		return
	}
	rest := t.doc[v.start:]
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
	case n.Style&yaml.DoubleQuotedStyle != 0 && strings.HasPrefix(rest, `"`):
		for i := 1; i < len(rest); i++ {
			if rest[i] == '\\' {
				i++
			} else if rest[i] == '"' {
				v.end = v.start + i + 1
				return
			}
		}
	case n.Style&yaml.SingleQuotedStyle != 0 && strings.HasPrefix(rest, "'"):
		for i := 1; i < len(rest); i++ {
			if !strings.HasPrefix(rest[i:], "'") {
				continue
			}
			if strings.HasPrefix(rest[i:], "''") {
				i++
				continue
			}
			v.end = v.start + i + 1
			return
		}
	case n.Style == 0 && strings.HasPrefix(rest, n.Value):
		v.end = v.start + len(n.Value)
		return
	}
	v.fixed = "it is written over several lines"
}

// findBracket sets the end of a flow sequence, after its closing bracket.
func (t *yamlTree) findBracket(v *value) {
	at := v.start + 1
	if len(v.items) > 0 {
		at = v.items[len(v.items)-1].end
	}
	for v.start >= 0 && at > 0 && at < len(t.doc) {
		switch c := t.doc[at]; {
		case c == ']':
			v.end = at + 1
			return
		case c == '#':
			n := strings.IndexAny(t.doc[at:], "\r\n")
			if n < 0 {
				n = len(t.doc) - at
			}
			at += n
		case strings.ContainsRune(" \t\r\n,", rune(c)):
			at++
		default:
			at = len(t.doc)
		}
	}
	v.fixed = "its closing bracket is not found"
}

// findDashes finds the dash of each item of a block sequence. A sequence in which a dash is not
// directly before the item is fixed.
func (t *yamlTree) findDashes(v *value) {
	for _, i := range v.items {
		if i.start < 0 {
			v.fixed = "an item of it has no position"
			return
		}
		before := strings.TrimRight(t.doc[:i.start], " \t\r\n")
		if !strings.HasSuffix(before, "-") {
			v.fixed = "an item of it does not begin with a dash"
			return
		}
		v.dashes = append(v.dashes, len(before)-1)
	}
}
