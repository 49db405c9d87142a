package downstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// refusal is an error with which Gatekit answers a request. No server gets the request.
type refusal struct {
	code    int
	message string
	data    []byte // JSON, or nil
}

func refuse(code int, format string, args ...any) *refusal {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// refuseRevision returns the refusal of a request with an unsupported revision. The error's data
// contains the supported revisions, as MCP 2026-07-28 demands.
func refuseRevision(code int, supported []string, requested string) *refusal {
	data := []byte(`{"supported":[`)
	for i, s := range supported {
		if i > 0 {
			data = append(data, ',')
		}
		data = append(data, mcp.Quote(s)...)
	}
	data = append(data, `],"requested":`...)
	data = append(append(data, mcp.Quote(requested)...), '}')
	return &refusal{code: code, message: "Unsupported protocol version", data: data}
}

// passRefusal inspects the request m, records the refusal r, and returns r as the answer to m. If a
// stage denies m or answers it, passRefusal returns the answer of the stage instead.
func (e *Endpoint) passRefusal(ctx context.Context, p peer, r *refusal,
	m *mcp.Message) pipeline.Passed {
	if denial, ok := e.inspectOwn(ctx, p, m); !ok {
		return denial
	}
	return e.passOwn(ctx, p, mcp.NewError(m.ID(), r.code, r.message, r.data), m)
}

// passParseError makes the answer to bytes that are not a valid message. It records the answer and
// returns it.
func (e *Endpoint) passParseError(ctx context.Context, p peer, err error) pipeline.Passed {
	code, id := mcp.CodeParseError, mcp.ID("")
	if bad := (*mcp.ParseError)(nil); errors.As(err, &bad) {
		code, id = bad.Code, bad.RequestID
	}
	return e.passOwn(ctx, p, mcp.NewError(id, code, err.Error(), nil), nil)
}

// httpStatus returns the HTTP status of the refusal of a modern request.
func (r *refusal) httpStatus() int {
	if r.code == mcp.CodeMethodNotFound {
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}

// httpStatus returns the HTTP status with which an answer to a modern client is sent, unless the
// answer is sent on a stream.
func httpStatus(answer *mcp.Message) int {
	switch answer.ErrorCode() {
	case mcp.CodeMethodNotFound:
		return http.StatusNotFound
	case mcp.CodeParseError, mcp.CodeInvalidRequest, mcp.CodeHeaderMismatch,
		mcp.CodeMissingCapability, mcp.CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// RefuseAll refuses each request on p until the client is gone. Each error contains the reason why
// Gatekit could not start, so that the user of the client sees the reason. RefuseAll needs no
// pipeline and no audit log, because it forwards nothing.
func RefuseAll(ctx context.Context, p conn.Pipe, reason error) error {
	for {
		b, err := p.Read(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, new(*conn.TooLargeError)):
			continue
		case err != nil:
			return err
		}
		m, err := mcp.Parse(b)
		if err != nil || m.Kind != mcp.Request {
			continue
		}
		answer := mcp.NewError(m.ID(), mcp.CodeInternalError,
			"gatekit could not start: "+reason.Error(), nil)
		if err := p.Write(ctx, answer.Append(nil)); err != nil {
			return err
		}
	}
}
