package mcp

import "strconv"

// NewRequest, NewNotification, NewResponse and NewError build messages that Gatekit itself sends.
// params, result and data must be valid JSON, and params must be an object. The functions do not
// check this. If params or data is nil, the message has no such member. A nil result is written as
// {}. The empty id of an error is written as null. JSON-RPC requires this in the answer to a
// request whose id could not be read.
func NewRequest(id ID, method string, params []byte) *Message {
	return build(Request, id, method, "params", params)
}

// NewNotification builds a notification; see NewRequest.
func NewNotification(method string, params []byte) *Message {
	return build(Notification, "", method, "params", params)
}

// NewResponse builds a response; see NewRequest.
func NewResponse(id ID, result []byte) *Message {
	if result == nil {
		result = []byte("{}")
	}
	return build(Response, id, "", "result", result)
}

// NewError builds an error; see NewRequest.
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
	m.idSpan = span{1, 1}
	if kind != Notification {
		b = append(b, `,"id":`...)
		m.idSpan.from = int32(len(b))
		if id == "" {
			b = append(b, "null"...)
		}
		b = append(b, id...)
		m.idSpan.to = int32(len(b))
	}
	if method != "" {
		b = append(b, `,"method":`...)
		b = append(b, Quote(method)...)
	}
	if body != nil {
		b = append(b, `,"`...)
		b = append(b, name...)
		b = append(b, `":`...)
		m.bodySpan.from = int32(len(b))
		b = append(b, body...)
		m.bodySpan.to = int32(len(b))
	}
	m.raw = append(b, '}')
	m.index = indexBody(m.raw, m.bodySpan)
	return m
}
