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

// SSEPipe is the client's side of the 2024-11-05 transport.
type SSEPipe struct {
	back   *HTTPClient
	events upstream.EventStream
	post   *url.URL

	once   sync.Once
	cancel context.CancelCauseFunc // of the stream
	closed chan struct{}
}

var _ conn.PipeCloser = (*SSEPipe)(nil)

// OpenSSE opens the stream of the 2024-11-05 transport at the server's URL and waits for its
// endpoint event. ctx bounds that, not the connection, which lives until Close.
func (b *HTTPClient) OpenSSE(ctx context.Context) (*SSEPipe, error) {
	alive, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	p, err := b.openSSE(alive)
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

func (b *HTTPClient) openSSE(ctx context.Context) (*SSEPipe, error) {
	a, err := b.do(ctx, http.MethodGet, b.url, http.Header{"Accept": {"text/event-stream"}}, nil)
	if err != nil {
		return nil, err
	}
	if a.Events == nil {
		return nil, b.failed(ctx, http.MethodGet, b.url, fmt.Errorf("status %d and no event stream",
			a.Status))
	}
	for {
		e, err := a.Events.Next()
		if err != nil {
			a.Events.Close()
			return nil, b.failed(ctx, http.MethodGet, b.url,
				fmt.Errorf("wait for the endpoint event: %w", err))
		}
		if e.Name != "endpoint" {
			continue
		}
		post, err := b.url.Parse(strings.TrimSpace(string(e.Data)))
		if err == nil && (post.Scheme != b.url.Scheme || post.Host != b.url.Host ||
			post.User != nil) {
			// Else a server could have our credentials sent anywhere, and reach what only we can.
			err = fmt.Errorf("it names %s, which is another origin", place(post))
		}
		if err != nil {
			a.Events.Close()
			return nil, b.failed(ctx, http.MethodGet, b.url, fmt.Errorf("endpoint event: %w", err))
		}
		return &SSEPipe{back: b, events: a.Events, post: post, closed: make(chan struct{})}, nil
	}
}

// Read answers the next message event. When ctx ends the stream is dropped, since an event half
// read could not be gone on with. It is for one goroutine at a time.
func (p *SSEPipe) Read(ctx context.Context) ([]byte, error) {
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
				err = p.back.failed(ctx, http.MethodGet, p.back.url, err)
			}
			return nil, err
		case (e.Name == "" || e.Name == "message") && len(e.Data) > 0:
			return e.Data, nil
		}
	}
}

// Write posts one message. It is safe for many goroutines.
func (p *SSEPipe) Write(ctx context.Context, parts ...[]byte) error {
	a, err := p.back.do(ctx, http.MethodPost, p.post, nil, slices.Concat(parts...))
	if err != nil {
		return err
	}
	if a.Events != nil {
		a.Events.Close()
	}
	if a.Status >= 300 {
		return p.back.failed(ctx, http.MethodPost, p.post, fmt.Errorf("status %d: %s", a.Status,
			process.Printable(a.Body[:min(len(a.Body), 200)])))
	}
	return nil
}

// Close drops the stream. What is being posted ends with its context.
func (p *SSEPipe) Close() error {
	p.once.Do(func() {
		close(p.closed)
		p.cancel(errClosed)
		p.events.Close()
	})
	return nil
}

func (p *SSEPipe) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}
