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

// requestError is an error with which the proxy itself answers a request.
type requestError struct {
	code    int
	message string
	data    []byte // JSON, or nil
}

func (e *requestError) Error() string { return e.message }

func requestErrorf(code int, format string, args ...any) *requestError {
	return &requestError{code: code, message: fmt.Sprintf(format, args...)}
}

// timeoutError is the cause with which a call's context is cancelled when the server took too long.
type timeoutError struct {
	*CancelledError
	server string
	after  string // "1m0s without progress", or "10m0s" for the whole call
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("server %q did not answer within %s", e.server, e.after)
}
func (e *timeoutError) Unwrap() error { return e.CancelledError }

// capabilityError reports that a server's request needs a capability that the client did not
// declare. capability is its path, such as "elicitation/url".
type capabilityError struct{ capability string }

func (e *capabilityError) Error() string {
	return "the client did not declare the capability " + e.capability
}

// toServer returns e as an error for the server that sent the request.
func (e *capabilityError) toServer() *requestError {
	if strings.Contains(e.capability, "/") {
		// the client supports the method, but not this mode of it
		return requestErrorf(mcp.CodeInvalidParams, "%s", e.Error())
	}
	return requestErrorf(mcp.CodeMethodNotFound, "%s", e.Error())
}

// toClient returns e as an error for the client. It is used if the server sent its request inside
// the answer to the client's call.
func (e *capabilityError) toClient() *requestError {
	required := []byte("{}")
	for _, name := range slices.Backward(strings.Split(e.capability, "/")) {
		required = object(field(name, required))
	}
	f := requestErrorf(mcp.CodeMissingCapability, "%s", e.Error())
	f.data = object(field("requiredCapabilities", required))
	return f
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("server %q is not available: %s", e.Server, display.Clip(e.Reason, 1000))
}
func (e *UnavailableError) Unwrap() error { return e.Err }

// errorAnswer returns the answer to a request that failed with err.
func (call *Call) errorAnswer(ctx context.Context, err error) pipeline.Passed {
	var (
		denied      *pipeline.DeniedError
		own         *requestError
		lack        *capabilityError
		unavailable *UnavailableError
	)
	switch {
	case errors.As(err, &denied):
		answer := denied.Response(call.request.ID())
		if denied.Action != "answer" {
			return answer
		}
		// the stage's answer has the server's names
		named, err := call.session.addPrefixes(call.settings, answer)
		if err == nil {
			return named
		}
		own = requestErrorf(mcp.CodeInternalError, "%s", err.Error())
	case errors.As(err, &own):
	case errors.As(err, &lack):
		own = lack.toClient()
	case errors.As(err, &unavailable):
		if own = call.loginRequired(ctx, err); own != nil {
			break
		}
		call.settings.Log.Warn("no answer from the server", "server", unavailable.Server,
			"method", call.request.Method, "reason", unavailable.Reason, "error", unavailable.Err)
		own = requestErrorf(mcp.CodeInternalError, "%s",
			call.settings.unavailableText(unavailable))
	default:
		own = requestErrorf(mcp.CodeInternalError, "%s", err.Error())
	}
	return call.settings.Pipeline.PassOwn(context.WithoutCancel(ctx),
		call.stampAnswer(mcp.NewError(call.request.ID(), own.code, own.message, own.data)))
}

// unavailableText returns the message of the error for the client.
func (set *settings) unavailableText(e *UnavailableError) string {
	text := e.Error()
	if e.Err == nil || set.DescribeCause == nil {
		return text
	}
	if cause := set.DescribeCause(e.Err); cause != "" {
		text += "; " + display.Clip(cause, 3000)
	}
	return text
}

// errorText returns the code and text of a peer's error, on one line.
func errorText(m *mcp.Message) string {
	text, _ := m.Text("/message")
	return fmt.Sprintf("error %d, %q", m.ErrorCode(), display.Clip(text, 200))
}

// quoteName returns a name that a peer chose, quoted and clipped, for a message.
func quoteName(name string) string { return display.Quote(name, 100) }
