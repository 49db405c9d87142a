package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"gatekit/core/conn"
	"gatekit/core/upstream"
	"gatekit/transport/process"
)

// SSEClientPipe is a connection to a server with the HTTP+SSE transport of MCP 2024-11-05.
type SSEClientPipe struct {
	client *HTTPClient
	events upstream.EventStream
	post   *url.URL // named by the server, for messages to it

	once   sync.Once
	cancel context.CancelCauseFunc // ends the stream
	closed chan struct{}
}

var _ conn.PipeCloser = (*SSEClientPipe)(nil)

// OpenSSE opens the stream of the HTTP+SSE transport at the server's URL and waits for its endpoint
// event. ctx bounds only the opening. The connection lives until Close.
func (b *HTTPClient) OpenSSE(ctx context.Context) (*SSEClientPipe, error) {
	streamCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	p, err := b.openSSE(streamCtx)
	if !stop() || err != nil {
		if err == nil {
			p.events.Close()
			err = context.Cause(ctx)
		}
		cancel(nil)
		return nil, err
	}
	p.cancel = cancel
	return p, nil
}

func (b *HTTPClient) openSSE(ctx context.Context) (*SSEClientPipe, error) {
	a, err := b.roundTrip(ctx, http.MethodGet, b.url, http.Header{"Accept": {"text/event-stream"}},
		nil)
	if err != nil {
		return nil, err
	}
	if a.Events == nil {
		return nil, b.requestError(ctx, http.MethodGet, b.url,
			fmt.Errorf("status %d and no event stream", a.Status))
	}
	for {
		e, err := a.Events.Next()
		if err != nil {
			a.Events.Close()
			return nil, b.requestError(ctx, http.MethodGet, b.url,
				fmt.Errorf("wait for the endpoint event: %w", err))
		}
		if e.Name != "endpoint" {
			continue
		}
		post, err := b.url.Parse(strings.TrimSpace(string(e.Data)))
		if err == nil && (post.Scheme != b.url.Scheme || post.Host != b.url.Host ||
			post.User != nil) {
			// If other origins were allowed, a server could make Gatekit send credentials to any
			// host, or requests to hosts that only Gatekit can reach.
			err = fmt.Errorf("the server names %s, which is another origin",
				b.redactedURL(post))
		}
		if err != nil {
			a.Events.Close()
			return nil, b.requestError(ctx, http.MethodGet, b.url, fmt.Errorf("endpoint event: %w",
				err))
		}
		return &SSEClientPipe{client: b, events: a.Events, post: post, closed: make(chan struct{})},
			nil
	}
}

// Read implements conn.Pipe. It returns the next message event. When ctx ends, Read closes the
// stream, because it cannot resume an event that was read in part. Only one goroutine at a time may
// call Read.
func (p *SSEClientPipe) Read(ctx context.Context) ([]byte, error) {
	defer context.AfterFunc(ctx, func() { p.Close() })()
	for {
		e, err := p.events.Next()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && p.isClosed():
			return nil, io.EOF
		case err != nil:
			if _, large := errors.AsType[*conn.TooLargeError](err); !large && !errors.Is(err,
				io.EOF) {
				err = p.client.requestError(ctx, http.MethodGet, p.client.url, err)
			}
			return nil, err
		case (e.Name == "" || e.Name == "message") && len(e.Data) > 0:
			return e.Data, nil
		}
	}
}

// Write implements conn.Pipe. It posts the message.
func (p *SSEClientPipe) Write(ctx context.Context, parts ...[]byte) error {
	a, err := p.client.roundTrip(ctx, http.MethodPost, p.post, nil, slices.Concat(parts...))
	if err != nil {
		return err
	}
	if a.Events != nil {
		a.Events.Close()
	}
	if a.Status >= 300 {
		return p.client.requestError(ctx, http.MethodPost, p.post, fmt.Errorf("status %d: %s",
			a.Status, process.Printable(a.Body[:min(len(a.Body), 200)])))
	}
	return nil
}

// Close closes the stream. A Write that is in progress ends when its context ends.
func (p *SSEClientPipe) Close() error {
	p.once.Do(func() {
		close(p.closed)
		p.cancel(errClosed)
		p.events.Close()
	})
	return nil
}

func (p *SSEClientPipe) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}
