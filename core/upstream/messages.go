package upstream

import (
	"errors"

	"gatekit/core/conn"
	"gatekit/core/mcp"
)

// maxInvalid is how many invalid messages in a row a connection over a pipe may have, and how many
// an event stream may have in all. After one more invalid message, Gatekit gives up the connection
// or stream.
const maxInvalid = 100

// messages yields the messages in b, which holds one message or a batch. A valid message has the
// direction mcp.ToClient. For an invalid message, messages yields an error with the reason.
func messages(limits mcp.Limits, b []byte) func(yield func(*mcp.Message, error) bool) {
	return func(yield func(*mcp.Message, error) bool) {
		if !mcp.IsBatch(b) {
			m, err := limits.Parse(b)
			if err == nil {
				m.Direction = mcp.ToClient
			}
			yield(m, err)
			return
		}
		ms, errs, err := limits.ParseBatch(b)
		if err != nil {
			yield(nil, err)
			return
		}
		for i, m := range ms {
			if m != nil {
				m.Direction = mcp.ToClient
				err = nil
			} else {
				err = errs[i]
			}
			if !yield(m, err) {
				return
			}
		}
	}
}

// isAnswer reports whether m is a response or an error.
func isAnswer(m *mcp.Message) bool { return m.Kind == mcp.Response || m.Kind == mcp.Error }

// isErrorWithoutID reports whether m is an error that names no request.
func isErrorWithoutID(m *mcp.Message) bool { return m.Kind == mcp.Error && m.ID() == "" }

// isModernError reports whether m, which may be nil, is an error that only modern servers send.
func isModernError(m *mcp.Message) bool {
	if m == nil {
		return false
	}
	switch m.ErrorCode() {
	case mcp.CodeHeaderMismatch, mcp.CodeMissingCapability, mcp.CodeUnsupportedVersion:
		return true
	}
	return false
}

// answeredID returns the id of the request that an invalid message would have answered, or "". err
// is the reason why the message is invalid.
func answeredID(err error) mcp.ID {
	if parse := (*mcp.ParseError)(nil); errors.As(err, &parse) {
		return parse.ResponseID
	}
	return ""
}

// endsCall reports whether an invalid message on the stream of a call is, or may be, the answer to
// that call. The call then fails. err is the reason why the message is invalid.
func endsCall(id mcp.ID, err error) bool {
	return errors.As(err, new(*conn.TooLargeError)) || answeredID(err) == id
}
