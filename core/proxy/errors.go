package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gatekit/core/display"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// fault is an error that the proxy itself answers a request with.
type fault struct {
	code    int
	message string
	data    []byte // JSON, or nil
}

func (f *fault) Error() string { return f.message }

func failure(code int, format string, args ...any) *fault {
	return &fault{code: code, message: fmt.Sprintf(format, args...)}
}

// expired is the cause of a call's context when the server took too long.
type expired struct {
	*CancelledError
	server string
	after  string // "1m0s without progress", or "10m0s" for all of it
}

func (e *expired) Error() string {
	return fmt.Sprintf("server %q did not answer within %s", e.server, e.after)
}
func (e *expired) Unwrap() error { return e.CancelledError }

// undeclared says that a server asked for what the client did not declare, by the pointer of the
// capability: "elicitation/url".
type undeclared struct{ capability string }

func (u *undeclared) Error() string {
	return "the client did not declare the capability " + u.capability
}

// toServer is how a server hears of it that asked with a request of its own.
func (u *undeclared) toServer() *fault {
	if strings.Contains(u.capability, "/") {
		// the method is there, the mode is not
		return failure(mcp.CodeInvalidParams, "%s", u.Error())
	}
	return failure(mcp.CodeMethodNotFound, "%s", u.Error())
}

// toClient is how the client hears of it when the question came inside the answer to its call.
func (u *undeclared) toClient() *fault {
	required := []byte("{}")
	for _, name := range slices.Backward(strings.Split(u.capability, "/")) {
		required = object(field(name, required))
	}
	f := failure(mcp.CodeMissingCapability, "%s", u.Error())
	f.data = object(field("requiredCapabilities", required))
	return f
}

func (u *UnavailableError) Error() string {
	return fmt.Sprintf("server %q is not available: %s", u.Server, display.Clip(u.Reason, 1000))
}
func (u *UnavailableError) Unwrap() error { return u.Err }

// refuse is the answer to a request that could not be answered otherwise.
func (x *Call) refuse(ctx context.Context, err error) pipeline.Passed {
	var (
		denied      *pipeline.DeniedError
		own         *fault
		lack        *undeclared
		unavailable *UnavailableError
	)
	switch {
	case errors.As(err, &denied):
		answer := denied.Response(x.m.ID())
		if denied.Action != "answer" {
			return answer
		}
		// a stage speaks in the server's place, so in its names
		named, err := x.s.expose(x.c, answer)
		if err == nil {
			return named
		}
		own = failure(mcp.CodeInternalError, "%s", err.Error())
	case errors.As(err, &own):
	case errors.As(err, &lack):
		own = lack.toClient()
	case errors.As(err, &unavailable):
		x.c.Log.Warn("a server gave no answer", "server", unavailable.Server, "method", x.m.Method,
			"reason", unavailable.Reason, "error", unavailable.Err)
		own = failure(mcp.CodeInternalError, "%s", unavailable.Error())
	default:
		own = failure(mcp.CodeInternalError, "%s", err.Error())
	}
	return x.c.Pipeline.PassOwn(context.WithoutCancel(ctx),
		x.answers(mcp.NewError(x.m.ID(), own.code, own.message, own.data)))
}

// errorText is what an error message says, for a line of text.
func errorText(m *mcp.Message) string {
	text, _ := m.Text("/message")
	return fmt.Sprintf("error %d, %q", m.ErrorCode(), display.Clip(text, 200))
}

// quoteName returns a name that a peer chose, quoted and clipped, for a message.
func quoteName(name string) string { return display.Quote(name, 100) }
