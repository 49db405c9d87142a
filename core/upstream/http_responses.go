package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	"gatekit/core/conn"
	"gatekit/core/mcp"
)

// isSuccess reports whether an HTTP status is 2xx.
func isSuccess(status int) bool { return status >= 200 && status < 300 }

// isStream reports whether a response is successful and holds an event stream.
func isStream(a *HTTPResponse) bool { return a.Events != nil && isSuccess(a.Status) }

// noResponse returns the error for an HTTP request that failed without a response.
func noResponse(server string, err error) error {
	if errors.As(err, new(*conn.TooLargeError)) {
		return invalidAnswer(server, err)
	}
	if refused, ok := errors.AsType[*CredentialsError](err); ok {
		return unavailable(server, refused.Reason, err)
	}
	return unavailable(server, "no response from the URL", err)
}

// maxQuotedBody is how many characters of a body an error quotes.
const maxQuotedBody = 200

// statusError returns the error for a response that holds no message. When the server has refused
// the request, the error quotes the beginning of the body, escaped: only the body can say why. The
// server may have refused the Host header, for example. For other statuses, no body is quoted.
func statusError(server string, a *HTTPResponse) error {
	switch {
	case a.Status == http.StatusUnauthorized:
		return unavailable(server, fmt.Sprintf(
			"the server rejected Gatekit's credentials (HTTP %d)", a.Status), nil)
	case a.Status == http.StatusForbidden || a.Status == http.StatusMisdirectedRequest:
		reason := fmt.Sprintf("the server refused the request (HTTP %d)", a.Status)
		if body := bytes.TrimSpace(a.Body); len(body) > 0 {
			reason = fmt.Sprintf("%s: %.*q", reason, maxQuotedBody, body)
		}
		return unavailable(server, reason, nil)
	case a.Status >= 300 && a.Status < 400:
		return unavailable(server, fmt.Sprintf(
			"the server's URL redirects (HTTP %d), and redirects are not followed; "+
				"configure the URL that it redirects to", a.Status), nil)
	case isSuccess(a.Status):
		return unavailable(server, fmt.Sprintf("the server sent no answer (HTTP %d)", a.Status),
			nil)
	}
	return unavailable(server, fmt.Sprintf("the server responded with HTTP %d", a.Status), nil)
}

// bodyError returns the JSON-RPC error in a response with an error status, or nil. The error must
// have the given id or no id. addressed reports whether the error has the given id.
func bodyError(limits mcp.Limits, a *HTTPResponse, id mcp.ID) (m *mcp.Message, addressed bool) {
	if len(a.Body) == 0 || mcp.IsBatch(a.Body) {
		return nil, false
	}
	m, err := limits.Parse(a.Body)
	if err != nil || m.Kind != mcp.Error || m.ID() != id && !isErrorWithoutID(m) {
		return nil, false
	}
	m.Direction = mcp.ToClient
	return m, m.ID() == id
}
