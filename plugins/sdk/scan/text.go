package scan

import "gatekit/core/mcp"

// Text is one string, number or member name in a message's body.
type Text struct {
	mcp.Leaf
	Value string // the text, decoded from JSON
}

// Span is the part of a Text's Value from byte From up to, but not including, byte To.
type Span struct{ From, To int }

// Texts calls yield for each text in the body of m, until yield returns false.
func Texts(m *mcp.Message, yield func(Text) bool) {
	m.Leaves(func(l mcp.Leaf) bool { return yield(Text{l, l.Text()}) })
}
