package mcp

import (
	"errors"
	"math"
	"slices"
)

// ParseEmbeddedRequest parses a request that another message carries as an object with a method and
// params (a member of inputRequests). The parsed request has the given id. It is checked as
// strictly as a whole message, but without limits, since the message that carries it is already
// within the limits.
func ParseEmbeddedRequest(id ID, raw []byte) (*Message, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("not an object")
	}
	m, err := embedded(id, raw[1:])
	if err == nil && m.Kind != Request {
		err = errors.New("not a request")
	}
	return m, err
}

// ParseEmbeddedResponse parses a result that another message carries (a member of inputResponses).
// It is as strict as [ParseEmbeddedRequest].
func ParseEmbeddedResponse(id ID, raw []byte) (*Message, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("not an object")
	}
	return embedded(id, []byte(`"result":`), raw, []byte("}"))
}

// ParseEmbeddedError parses an error that another message carries (the error of a task). It is as
// strict as [ParseEmbeddedRequest].
func ParseEmbeddedError(id ID, raw []byte) (*Message, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("not an object")
	}
	return embedded(id, []byte(`"error":`), raw, []byte("}"))
}

// IsAnswerTo reports whether m looks like the answer to a server's request with this method. It is
// false for all methods except elicitation/create, sampling/createMessage and roots/list.
func IsAnswerTo(m *Message, method string) bool {
	pointer, known := map[string]string{"elicitation/create": "/action",
		"sampling/createMessage": "/role", "roots/list": "/roots"}[method]
	if !known {
		return false
	}
	_, ok := m.Get(pointer)
	return ok
}

func embedded(id ID, rest ...[]byte) (*Message, error) {
	b := slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), []byte(id), []byte(","),
		slices.Concat(rest...))
	return unlimited.Parse(b)
}

// unlimited are the limits of parts of a message that is already within the limits.
var unlimited = Limits{Bytes: math.MaxInt32, Depth: math.MaxInt32, Tokens: math.MaxInt32}
