package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing/synctest"

	"gatekit/core/conn"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// fakeHTTP is an HTTP server without a network. It records each request and calls serve for the
// response.
type fakeHTTP struct {
	serve func(r request) *upstream.HTTPResponse // when it returns nil, the network fails

	mu   sync.Mutex
	seen []request
}

type request struct {
	ctx    context.Context
	method string
	header http.Header
	body   string
	upstreamtest.Message
}

func (f *fakeHTTP) do(ctx context.Context, method string, h http.Header,
	body []byte) (*upstream.HTTPResponse, error) {
	r := request{ctx: ctx, method: method, header: h.Clone(), body: string(body)}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &r.Message); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	f.seen = append(f.seen, r)
	f.mu.Unlock()
	a := f.serve(r)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if a == nil {
		return nil, io.ErrUnexpectedEOF
	}
	return a, nil
}

func (f *fakeHTTP) Post(ctx context.Context, h http.Header,
	b ...[]byte) (*upstream.HTTPResponse, error) {
	return f.do(ctx, "POST", h, slices.Concat(b...))
}
func (f *fakeHTTP) Get(ctx context.Context, h http.Header) (*upstream.HTTPResponse, error) {
	return f.do(ctx, "GET", h, nil)
}
func (f *fakeHTTP) Delete(ctx context.Context, h http.Header) (*upstream.HTTPResponse, error) {
	return f.do(ctx, "DELETE", h, nil)
}

// requestLog returns the requests that reached the server, each as its HTTP and its MCP method.
func (f *fakeHTTP) requestLog() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	var log []string
	for _, r := range f.seen {
		log = append(log, strings.TrimSpace(r.method+" "+r.Method))
	}
	return log
}

// requests returns the requests of one kind, such as "POST tools/list".
func (f *fakeHTTP) requests(kind string) []request {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []request
	for _, r := range f.seen {
		if strings.TrimSpace(r.method+" "+r.Method) == kind {
			found = append(found, r)
		}
	}
	return found
}

// fakeStream is an event stream that the test writes.
type fakeStream struct {
	ch   chan conn.Event
	gone chan struct{}
	once sync.Once
}

func newFakeStream(es ...conn.Event) *fakeStream {
	s := &fakeStream{ch: make(chan conn.Event, 100), gone: make(chan struct{})}
	for _, e := range es {
		s.ch <- e
	}
	return s
}

func (s *fakeStream) send(id, format string, args ...any) {
	s.ch <- conn.Event{ID: id, Data: fmt.Appendf(nil, format, args...)}
}

func (s *fakeStream) end() { close(s.ch) }

func (s *fakeStream) Next() (conn.Event, error) {
	select {
	case e, ok := <-s.ch:
		switch {
		case !ok:
			return e, io.EOF
		case e.Name == "too large":
			return e, &conn.TooLargeError{Size: 1 << 30}
		}
		return e, nil
	case <-s.gone:
		return conn.Event{}, io.ErrClosedPipe
	}
}

func (s *fakeStream) Close() error {
	s.once.Do(func() { close(s.gone) })
	return nil
}

// isClosed reports whether the reader has closed the stream.
func (s *fakeStream) isClosed() bool {
	synctest.Wait()
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

func httpResponse(code int, body string) *upstream.HTTPResponse {
	return &upstream.HTTPResponse{Status: code, Header: http.Header{}, Body: []byte(body)}
}

func streamResponse(s *fakeStream) *upstream.HTTPResponse {
	return &upstream.HTTPResponse{Status: 200, Header: http.Header{}, Events: s}
}

func resultResponse(id json.RawMessage, result string) *upstream.HTTPResponse {
	return httpResponse(200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

func contains(s, part string) bool { return strings.Contains(s, part) }

func replace(s, old, new string) string { return strings.ReplaceAll(s, old, new) }
