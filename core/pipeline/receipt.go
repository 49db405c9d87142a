package pipeline

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"gatekit/core/mcp"
)

// Receipt describes the result of a tools/call and the decision about it.
type Receipt struct {
	Server    string
	Tool      string            // the server's name of the tool, as in the record; may be ""
	Arguments [sha256.Size]byte // digest of the arguments of the client, in the form of RFC 8785
	Result    [sha256.Size]byte // digest of mcp.BodyWithoutReceipt, in the form of RFC 8785
	Policy    string            // Options.PolicyRevision
	Decision  string            // Outcome.Action of the record
	Record    uint64            // number of the record, from 1
}

// ReceiptSigner signs receipts. SignReceipt returns one JSON object. Many goroutines may call it at
// once.
type ReceiptSigner interface {
	SignReceipt(r Receipt) ([]byte, error)
}

// WithReceipt returns p with a signed receipt in _meta, if p is the result of a tools/call and the
// pipeline has a ReceiptSigner. For all other messages, and for a result that asks for input, it
// returns p. request is the call as the client sent it.
//
// WithReceipt must be the last change of the result. The outcome was recorded before. If there can
// be no receipt, the result gets the reason in its place, and the error says why.
func (p Passed) WithReceipt(request *mcp.Message) (Passed, error) {
	if p.by == nil || p.by.options.Receipts == nil || p.m.Kind != mcp.Response ||
		p.m.Method != "tools/call" || p.m.TextEquals("/resultType", "input_required") {
		return p, nil
	}
	receipt, err := p.signReceipt(request)
	key := mcp.ReceiptKey
	if err != nil {
		key, receipt = mcp.NoReceiptKey, mcp.Quote(err.Error())
	}
	m, editErr := p.m.Edit(mcp.Set("/_meta/"+mcp.EscapePointer(key), receipt))
	if editErr != nil {
		return p, errors.Join(err, editErr)
	}
	p.m = m
	return p, err
}

func (p Passed) signReceipt(request *mcp.Message) ([]byte, error) {
	if p.record == 0 {
		return nil, errors.New("the result has no record")
	}
	r := Receipt{Server: p.m.Server, Tool: p.recordedName, Policy: p.by.options.PolicyRevision,
		Decision: p.decision, Record: p.record}
	arguments, ok := request.Get("/arguments")
	if !ok {
		arguments = []byte("{}")
	}
	body, err := mcp.BodyWithoutReceipt(p.m)
	if err != nil {
		return nil, err
	}
	for _, digested := range []struct {
		name string
		raw  []byte
		sum  *[sha256.Size]byte
	}{{"arguments", arguments, &r.Arguments}, {"result", body, &r.Result}} {
		canonical, err := mcp.CanonicalJSON(digested.raw)
		if err != nil {
			reason := "it has no form in RFC 8785"
			if errors.Is(err, mcp.ErrNotDouble) {
				reason = err.Error()
			}
			return nil, fmt.Errorf("no receipt for the %s: %s", digested.name, reason)
		}
		*digested.sum = sha256.Sum256(canonical)
	}
	receipt, err := p.by.options.Receipts.SignReceipt(r)
	if err != nil {
		return nil, fmt.Errorf("the receipt could not be signed: %w", err)
	}
	return receipt, nil
}
