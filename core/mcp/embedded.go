package mcp

import (
	"errors"
	"math"
	"slices"
)

// ParseEmbeddedRequest is the request that stands as an object, with a method and params, inside
// another message (a member of inputRequests): under an id, and read as strictly as if it had come
// alone. The message around it has been held to the limits.
func ParseEmbeddedRequest(id ID, raw []byte) (*Message, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("it is no object")
	}
	m, err := embedded(id, raw[1:])
	if err == nil && m.Kind != Request {
		err = errors.New("it is no request")
	}
	return m, err
}

// ParseEmbeddedResponse is EmbeddedRequest for a result (a member of inputResponses).
func ParseEmbeddedResponse(id ID, raw []byte) (*Message, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("it is no object")
	}
	return embedded(id, []byte(`"result":`), raw, []byte("}"))
}

// ParseEmbeddedError is EmbeddedRequest for an error (of a task).
func ParseEmbeddedError(id ID, raw []byte) (*Message, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("it is no object")
	}
	return embedded(id, []byte(`"error":`), raw, []byte("}"))
}

// IsAnswerTo says whether m has the shape of an answer to a server's question: sampling,
// elicitation or roots.
func IsAnswerTo(m *Message, method string) bool {
	at, known := map[string]string{"elicitation/create": "/action",
		"sampling/createMessage": "/role", "roots/list": "/roots"}[method]
	if !known {
		return false
	}
	_, ok := m.Get(at)
	return ok
}

func embedded(id ID, rest ...[]byte) (*Message, error) {
	b := slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), []byte(id), []byte(","),
		slices.Concat(rest...))
	return Limits{Bytes: math.MaxInt32, Depth: math.MaxInt32, Tokens: math.MaxInt32}.Parse(b)
}
