package bridge

import (
	"context"

	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
)

// unavailable returns the error for a request that the server did not answer.
func unavailable(server, reason string, err error) error {
	return &proxy.UnavailableError{Server: server, Reason: reason, Err: err}
}

// untranslatable returns the error for an answer that cannot be translated for the client.
func untranslatable(server string, err error) error {
	return unavailable(server, "the answer could not be translated to the client's revision", err)
}

// closingError returns the error for a request to a server whose session is being closed.
func closingError(server string) error {
	return unavailable(server, "the connection is being closed", taskgroup.ErrClosed)
}

// Reasons in the records of messages that do not reach the client.
const (
	answeredByGatekit = "answered by Gatekit"
	answersOwnRequest = "answers a request of Gatekit's own"
	cannotTranslate   = "cannot be translated to the client's revision"
	notInRevision     = "the client's revision has no such notification"
)

// drop inspects and records m, a message of the server that does not reach the client, whatever the
// stages decide.
func drop(ctx context.Context, h proxy.Handler, m *mcp.Message, reason string) {
	_ = h.Consume(ctx, m, "drop", reason) // a denial is recorded too
}

// methodNotFound returns the answer to a request whose method the server's era does not have.
func methodNotFound(request *mcp.Message) *mcp.Message {
	return toClient(mcp.NewError(request.ID(), mcp.CodeMethodNotFound, "method not found: "+
		"the server speaks a revision of the protocol that has no "+request.Method, nil))
}

// toClient marks m as a message for the client, and returns it.
func toClient(m *mcp.Message) *mcp.Message {
	m.Direction = mcp.ToClient
	return m
}
