package bridge

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
)

// askForInput asks a legacy client the questions that a modern server's result contains, one after
// another. It returns the client's answers as a JSON object, or nil when the result contains no
// question. refusal is the error message that ends the call. It is set when the client cannot be
// asked, or when the server's revision has no answer that expresses the client's refusal.
func (s *modernClient) askForInput(ctx context.Context, request, result *mcp.Message,
	h proxy.Handler) (answers []byte, refusal *mcp.Message, err error) {
	raw, ok := result.Get("/inputRequests")
	if !ok {
		return nil, nil, nil
	}
	if raw[0] != '{' {
		return nil, nil, unavailable(s.name, "the server's inputRequests are not an object", nil)
	}
	collected := []byte("{")
	n := 0
	result.Members("/inputRequests", func(key string, raw []byte) bool {
		if n++; n > s.maxInputRequests {
			err = unavailable(s.name, "the server asked for too much input at once", nil)
			return false
		}
		var answer []byte
		answer, refusal, err = s.askOne(ctx, request, key, raw, h)
		if err == nil && refusal == nil {
			if n > 1 {
				collected = append(collected, ',')
			}
			collected = append(append(append(collected, mcp.Quote(key)...), ':'), answer...)
		}
		return err == nil && refusal == nil
	})
	if err != nil || refusal != nil || n == 0 {
		return nil, refusal, err
	}
	return append(collected, '}'), nil, nil
}

// askOne asks the client one question. It returns the answer, translated for the server.
func (s *modernClient) askOne(ctx context.Context, request *mcp.Message, key string, raw []byte,
	h proxy.Handler) (answer []byte, refusal *mcp.Message, err error) {
	q, err := mcp.ParseEmbeddedRequest(mcp.ID(mcp.Quote(key)), raw)
	if err != nil {
		return nil, nil, unavailable(s.name, "the server's inputRequests hold an invalid request",
			err)
	}
	switch q.Method {
	case "sampling/createMessage", "elicitation/create", "roots/list":
	default:
		return nil, nil, unavailable(s.name, "the server's inputRequests hold a "+
			"request that servers may not make", nil)
	}
	unsupportedInput := func(feature string) *mcp.Message {
		return mcp.NewError(request.ID(), mcp.CodeInternalError,
			"the server asks for input that this client cannot give: "+feature,
			[]byte(`{"unsupportedInput":`+string(mcp.Quote(key))+`}`))
	}
	question, unsupported := questionForLegacy(q, s.revision)
	if unsupported != "" {
		return nil, unsupportedInput(unsupported), nil
	}
	replies := h.HandleRequests(ctx, []*mcp.Message{toClient(question)})
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if len(replies) != 1 || replies[0].Message() == nil {
		return nil, unsupportedInput("the client could not be asked"), nil
	}
	switch m, denied := replies[0].Message(), replies[0].Denial(); {
	case m.Kind == mcp.Response:
		return m.Body(), nil, nil
	case denied != nil: // the server's revision has no answer that expresses a denial
		return nil, nil, denied
	case m.ErrorCode() == mcp.CodeMethodNotFound || m.ErrorCode() == mcp.CodeInvalidParams:
		return nil, unsupportedInput(q.Method), nil
	case q.Method == "elicitation/create":
		return []byte(`{"action":"cancel"}`), nil, nil
	default:
		code := mcp.CodeInternalError
		if m.ErrorCode() == mcp.CodeSamplingRejected {
			code = mcp.CodeSamplingRejected
		}
		return nil, mcp.NewError(request.ID(), code,
			"the client refused the server's request ("+q.Method+")",
			[]byte(`{"input":`+string(mcp.Quote(key))+`,"error":`+string(m.Body())+`}`)), nil
	}
}
