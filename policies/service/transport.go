package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"gatekit/core/tlsconfig"
	"gatekit/policies"

	"github.com/open-policy-agent/opa/v1/plugins/rest"
)

// Bounds of one response of a service.
const (
	headerTimeout = 10 * time.Second // until the response's header
	answerTimeout = time.Minute      // until the end of a bundle
	sendTimeout   = 10 * time.Second // until a decision log or status is accepted
	maxRedirects  = 5
)

// Endpoint is the address of a service, with its credentials.
type Endpoint struct {
	URL     string
	Headers map[string]string // sent with every request; they may contain credentials
	CA      []byte            // PEM certificates to trust; nil means the system's certificates
}

// transport sends the requests to one service. It implements rest.HTTPAuthPlugin, from which OPA's
// client takes its http.Client. If parse is set, the transport is for one bundle, and only one
// goroutine uses it.
type transport struct {
	origin    *url.URL
	headers   map[string]string
	userAgent string
	client    *http.Client
	inner     *http.Transport
	parse     func(raw []byte) (*policies.Bundle, error) // nil ignores the body of responses

	raw    []byte           // the latest response that is a bundle
	bundle *policies.Bundle // parsed from raw

	mu       sync.Mutex
	inFlight map[*http.Request]context.CancelFunc // nil after close
}

func newTransport(endpoint Endpoint, version string, parse func([]byte) (*policies.Bundle,
	error)) (*transport, error) {
	origin, err := url.Parse(endpoint.URL)
	if err != nil {
		return nil, errors.New("the service's url is invalid")
	}
	t := &transport{origin: origin, headers: endpoint.Headers, userAgent: "gatekit/" + version,
		parse:    parse,
		inner:    http.DefaultTransport.(*http.Transport).Clone(),
		inFlight: map[*http.Request]context.CancelFunc{}}
	t.inner.ResponseHeaderTimeout, t.inner.MaxResponseHeaderBytes = headerTimeout, 64<<10
	if t.inner.TLSClientConfig, err = tlsconfig.Client(endpoint.CA); err != nil {
		return nil, fmt.Errorf("the service's ca: %w", err)
	}
	t.client = &http.Client{Transport: t, CheckRedirect: t.checkRedirect, Timeout: answerTimeout}
	if parse == nil {
		t.client.Timeout = sendTimeout
	}
	return t, nil
}

// NewClient implements rest.HTTPAuthPlugin.
func (t *transport) NewClient(rest.Config) (*http.Client, error) { return t.client, nil }

// Prepare implements rest.HTTPAuthPlugin.
func (t *transport) Prepare(r *http.Request) error {
	r.Header.Set("User-Agent", t.userAgent)
	for name, value := range t.headers {
		r.Header.Set(name, value)
	}
	return nil
}

// checkRedirect allows redirects only within the service. A redirected request contains the
// service's credentials, and its response is a policy.
func (t *transport) checkRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case r.URL.Scheme != t.origin.Scheme || r.URL.Host != t.origin.Host:
		return fmt.Errorf(
			"the service redirects to %s://%s, but its credentials are only for %s://%s",
			r.URL.Scheme, r.URL.Host, t.origin.Scheme, t.origin.Host)
	case len(via) > maxRedirects:
		return fmt.Errorf("the service redirects more than %d times", maxRedirects)
	}
	return nil
}

// rejectedBundle is the error for a downloaded bundle that is invalid or cannot be activated.
type rejectedBundle struct{ error }

func (r rejectedBundle) Unwrap() error { return r.error }

// RoundTrip implements http.RoundTripper. For a bundle, it reads and parses the whole response
// before it returns. An invalid bundle is an error.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel() // RoundTrip has read the body when it returns
	if !t.begin(r, cancel) {
		return nil, context.Canceled
	}
	defer t.end(r)
	response, err := t.inner.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if t.parse == nil || response.StatusCode != http.StatusOK {
		response.Body.Close() // only the status is used
		response.Body = http.NoBody
		return response, nil
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, policies.MaxBundle+1))
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	b, err := t.parse(raw)
	if err != nil {
		return nil, rejectedBundle{err}
	}
	t.raw, t.bundle = raw, b
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return response, nil
}

// begin registers a request. It returns false when the transport is closed.
func (t *transport) begin(r *http.Request, cancel context.CancelFunc) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inFlight == nil {
		return false
	}
	t.inFlight[r] = cancel
	return true
}

// end removes a request that begin registered.
func (t *transport) end(r *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.inFlight, r)
}

// close cancels all requests. Later requests fail.
func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cancel := range t.inFlight {
		cancel()
	}
	t.inFlight = nil
}

// publicError returns the error of the download of a bundle without the address of the request,
// which may contain a secret.
func publicError(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		if u.Timeout() && errors.Is(u.Err, context.DeadlineExceeded) {
			return fmt.Errorf("no complete response within %s", answerTimeout)
		}
		return u.Err
	}
	return err
}
