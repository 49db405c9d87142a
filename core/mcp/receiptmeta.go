package mcp

// Keys of _meta in the result of a tools/call, if the configuration asks for receipts.
const (
	ReceiptKey   = gatekitMetaPrefix + "receipt"   // the signed receipt
	NoReceiptKey = gatekitMetaPrefix + "noReceipt" // a text: why there is no receipt
)

// BodyWithoutReceipt returns the body of the result m without the receipt. It also leaves out a
// _meta that has no other member. So the body is the same before and after the receipt was added.
func BodyWithoutReceipt(m *Message) ([]byte, error) {
	edits := removeMeta(m, func(key string) bool { return key == ReceiptKey })
	if raw, ok := m.Get("/_meta"); ok && len(edits) == 0 && isEmptyMeta(m, raw) {
		edits = []Edit{Remove("/_meta")}
	}
	without, err := m.Edit(edits...)
	if err != nil {
		return nil, err
	}
	return without.Body(), nil
}

// isEmptyMeta reports whether raw, the _meta of m, is null or an object without members.
func isEmptyMeta(m *Message, raw []byte) bool {
	empty := raw[0] == '{'
	m.Members("/_meta", func(string, []byte) bool {
		empty = false
		return false
	})
	return empty || raw[0] == 'n'
}
