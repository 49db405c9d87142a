package pipeline

import "gatekit/core/mcp"

// Passed is a message that may be written to its other side. Only this package makes one. The zero
// Passed holds nothing, and stays so whatever is asked of it.
type Passed struct {
	m       *mcp.Message
	refusal *DeniedError
}

// Message is what passed. It is nil for the zero Passed.
func (p Passed) Message() *mcp.Message { return p.m }

// Denial is the denial that p stands for in an answer's place; nil when it stands for none.
func (p Passed) Denial() *DeniedError { return p.refusal }

// WithID is p under another id of the hop it is written to.
func (p Passed) WithID(id mcp.ID) Passed {
	if p.m == nil {
		return p
	}
	return Passed{p.m.WithID(id), p.refusal}
}

// Edit is p with places of the rewrite catalogue (names, tokens, ids, attribution) changed for the
// hop it is written to. It is for the boundary alone: what a stage decided on is not touched.
func (p Passed) Edit(edits ...mcp.Edit) (Passed, error) {
	if p.m == nil {
		return p, nil
	}
	m, err := p.m.Edit(edits...)
	if err != nil {
		return Passed{}, err
	}
	return Passed{m, p.refusal}, nil
}

// RewriteNames is p with f applied to the names that the catalogue lists in it; see mcp.Rewrite.
func (p Passed) RewriteNames(f func(mcp.NamePlace, string) (string, error)) (Passed, error) {
	if p.m == nil {
		return p, nil
	}
	m, err := mcp.RewriteNames(p.m, f)
	if err != nil {
		return Passed{}, err
	}
	return Passed{m, p.refusal}, nil
}
