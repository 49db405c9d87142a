package scan

import "gatekit/core/mcp"

// Text is one string, number or name in a message's body.
type Text struct {
	mcp.Leaf
	Value string // decoded from JSON
}

// Span is the part of a Text from byte From up to byte To of its S.
type Span struct{ From, To int }

// Texts calls yield for each text of m's body until it answers false.
func Texts(m *mcp.Message, yield func(Text) bool) {
	m.Leaves(func(l mcp.Leaf) bool { return yield(Text{l, l.Text()}) })
}
