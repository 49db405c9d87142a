package pipeline

import "gatekit/core/mcp"

// Passed is a message that may be written to its receiver. Only this package can make a Passed with
// a message. The zero Passed has no message; its methods do nothing.
type Passed struct {
	m           *mcp.Message
	denial      *DeniedError
	restoration Restoration
	by          *Pipeline // asked again before the message is written; nil in the zero Passed
	// the number, the action and the name in the record of the decision; all zero if a stop has
	// replaced the message
	record       uint64
	decision     string
	recordedName string
}

// Message returns the message, or nil for the zero Passed.
func (p Passed) Message() *mcp.Message { return p.m }

// Restoration returns the restoration of redacted values, which the code that writes the message to
// its server must apply.
func (p Passed) Restoration() Restoration { return p.restoration }

// Denial returns the denial that p reports to a peer, or nil if p reports no denial.
func (p Passed) Denial() *DeniedError { return p.denial }

// WithID returns p with another id, for the connection to which the message is written.
func (p Passed) WithID(id mcp.ID) Passed {
	if p.m == nil {
		return p
	}
	p.m = p.m.WithID(id)
	return p
}

// Edit returns p with edited names, tokens, ids or attribution, for the connection to which the
// message is written. Only the adapters of clients and servers may call Edit. They must not change
// a part of the message on which a stage decides.
func (p Passed) Edit(edits ...mcp.Edit) (Passed, error) {
	if p.m == nil {
		return p, nil
	}
	m, err := p.m.Edit(edits...)
	if err != nil {
		return Passed{}, err
	}
	p.m = m
	return p, nil
}

// RewriteNames returns p with the names that f returns; see [mcp.RewriteNames].
func (p Passed) RewriteNames(f func(mcp.NamePlace, string) (string, error)) (Passed, error) {
	if p.m == nil {
		return p, nil
	}
	m, err := mcp.RewriteNames(p.m, f)
	if err != nil {
		return Passed{}, err
	}
	p.m = m
	return p, nil
}
