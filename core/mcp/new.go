package mcp

import "strconv"

// NewRequest, NewNotification, NewResponse and NewError make messages of Gatekit's own. params,
// result and data are valid JSON or nil (absent; a nil result is {}). They are trusted to be that,
// and not parsed again: they are bytes of a Message, or of an encoder. params must be an object.
// The empty id of an error is written as null, as JSON-RPC wants for a request whose id could not
// be read.
func NewRequest(id ID, method string, params []byte) *Message {
	return build(Request, id, method, "params", params)
}

// NewNotification is described at NewRequest.
func NewNotification(method string, params []byte) *Message {
	return build(Notification, "", method, "params", params)
}

// NewResponse is described at NewRequest.
func NewResponse(id ID, result []byte) *Message {
	if result == nil {
		result = []byte("{}")
	}
	return build(Response, id, "", "result", result)
}

// NewError is described at NewRequest.
func NewError(id ID, code int, message string, data []byte) *Message {
	b := append([]byte(`{"code":`), strconv.Itoa(code)...)
	b = append(b, `,"message":`...)
	b = append(b, Quote(message)...)
	if data != nil {
		b = append(b, `,"data":`...)
		b = append(b, data...)
	}
	return build(Error, id, "", "error", append(b, '}'))
}

func build(kind Kind, id ID, method, name string, body []byte) *Message {
	m := &Message{Kind: kind, Method: method, id: id}
	b := make([]byte, 0, len(body)+len(id)+len(method)+64)
	b = append(b, `{"jsonrpc":"2.0"`...)
	m.idAt = span{1, 1}
	if kind != Notification {
		b = append(b, `,"id":`...)
		m.idAt.from = int32(len(b))
		if id == "" {
			b = append(b, "null"...)
		}
		b = append(b, id...)
		m.idAt.to = int32(len(b))
	}
	if method != "" {
		b = append(b, `,"method":`...)
		b = append(b, Quote(method)...)
	}
	if body != nil {
		b = append(b, `,"`...)
		b = append(b, name...)
		b = append(b, `":`...)
		m.body.from = int32(len(b))
		b = append(b, body...)
		m.body.to = int32(len(b))
	}
	m.raw = append(b, '}')
	m.index = indexed(m.raw, m.body)
	return m
}
