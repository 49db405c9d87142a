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

// refusal is the error that a request gets without any server being asked.
type refusal struct {
	code    int
	message string
	data    []byte // JSON, or nil
}

func refuse(code int, format string, args ...any) *refusal {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// refuseVersion says which revisions would do. The data are those of the modern error; legacy
// servers use the same.
func refuseVersion(code int, supported []string, requested string) *refusal {
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

// answer is the refusal as the answer to m, recorded.
func (f *Endpoint) answer(ctx context.Context, p peer, r *refusal, m *mcp.Message) pipeline.Passed {
	return f.own(ctx, p, mcp.NewError(m.ID(), r.code, r.message, r.data), m)
}

// unread is the answer to bytes that are no message.
func (f *Endpoint) unread(ctx context.Context, p peer, err error) pipeline.Passed {
	code, id := mcp.CodeParseError, mcp.ID("")
	if bad := (*mcp.ParseError)(nil); errors.As(err, &bad) {
		code, id = bad.Code, bad.RequestID
	}
	return f.own(ctx, p, mcp.NewError(id, code, err.Error(), nil), nil)
}

// status is the HTTP status of an answer to a modern client, where no stream was opened.
func status(answer *mcp.Message) int {
	switch answer.ErrorCode() {
	case mcp.CodeMethodNotFound:
		return http.StatusNotFound
	case mcp.CodeParseError, mcp.CodeInvalidRequest, mcp.CodeHeaderMismatch,
		mcp.CodeMissingCapability, mcp.CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// RefuseAll answers each request on p with the reason why Gatekit could not start, until the client
// is gone: so its user sees why. There is no pipeline and no record then, and nothing is passed on.
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
		no := mcp.NewError(m.ID(), mcp.CodeInternalError,
			"gatekit could not start: "+reason.Error(),
			nil)
		if err := p.Write(ctx, no.Append(nil)); err != nil {
			return err
		}
	}
}
