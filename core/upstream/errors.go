package upstream

import (
	"errors"
	"fmt"

	"gatekit/core/conn"
	"gatekit/core/proxy"
	"gatekit/core/taskgroup"
)

// errSessionExpired is the cause of a lost connection when the server has ended the session. A
// request that was in flight may have run.
var errSessionExpired = errors.New("the server has ended the session")

// errRequestNotRun is the cause of an error for a request that the server has not run. Either the
// server responded that it does not know the session, or the request was not sent because the
// session has ended.
var errRequestNotRun = fmt.Errorf("%w and has not run the request", errSessionExpired)

// errTooManyProcesses reports that a principal has reached its limit of processes, and that none of
// them can be ended.
var errTooManyProcesses = errors.New("too many processes")

// unavailable returns the error for a request that the server did not answer.
func unavailable(server, reason string, err error) error {
	return &proxy.UnavailableError{Server: server, Reason: reason, Err: err}
}

// closingError returns the error for a request to a server whose connection is being closed.
func closingError(server string) error {
	return unavailable(server, "the connection is being closed", taskgroup.ErrClosed)
}

// invalidAnswer returns the error for a request whose answer is not a valid message.
func invalidAnswer(server string, err error) error {
	if large := (*conn.TooLargeError)(nil); errors.As(err, &large) {
		return unavailable(server, fmt.Sprintf("the answer of %d bytes is too large", large.Size),
			err)
	}
	return unavailable(server, "the answer is not a valid message", err)
}

// notStarted returns the error for a request that callTable.begin refused. The request was not
// sent.
func notStarted(server string, err error) error {
	if errors.As(err, new(*proxy.UnavailableError)) {
		return err
	}
	return unavailable(server, err.Error(), nil)
}
