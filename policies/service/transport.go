package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"gatekit/core/tlsconfig"
	"gatekit/policies"

	"github.com/open-policy-agent/opa/v1/plugins/rest"
)

// Bounds of one answer of a service.
const (
	headerTimeout = 10 * time.Second // for it to begin
	answerTimeout = time.Minute      // for all of a bundle
	sendTimeout   = 10 * time.Second // for a decision log or status to be taken
	maxRedirects  = 5
)

// Endpoint is a service.
type Endpoint struct {
	URL     string
	Headers map[string]string // sent with every request, credentials among them
	// PEM: whom to trust instead of those the system does; nil is the system's
	CA []byte
}

// transport is the way to a service. It implements rest.HTTPAuthPlugin, which is where OPA's client
// takes an http.Client from. With read it is for one bundle, and used by one goroutine.
type transport struct {
	origin  *url.URL
	headers map[string]string
	agent   string
	client  *http.Client
	inner   *http.Transport
	life    context.Context // of all requests; end ends it
	end     func()
	read    func(raw []byte) (*policies.Bundle, error) // nil: what is answered does not matter

	raw    []byte // of the latest answer that is a bundle
	bundle *policies.Bundle
}

func newTransport(r Endpoint, version string, read func([]byte) (*policies.Bundle,
	error)) (*transport, error) {
	origin, err := url.Parse(r.URL)
	if err != nil {
		return nil, errors.New("its service's url cannot be read")
	}
	t := &transport{origin: origin, headers: r.Headers, agent: "gatekit/" + version, read: read,
		inner: http.DefaultTransport.(*http.Transport).Clone()}
	t.life, t.end = context.WithCancel(context.Background())
	t.inner.ResponseHeaderTimeout, t.inner.MaxResponseHeaderBytes = headerTimeout, 64<<10
	if t.inner.TLSClientConfig, err = tlsconfig.Client(r.CA); err != nil {
		return nil, fmt.Errorf("the ca of its service: %w", err)
	}
	t.client = &http.Client{Transport: t, CheckRedirect: t.redirected, Timeout: answerTimeout}
	if read == nil {
		t.client.Timeout = sendTimeout
	}
	return t, nil
}

// NewClient implements rest.HTTPAuthPlugin.
func (t *transport) NewClient(rest.Config) (*http.Client, error) { return t.client, nil }

// Prepare implements rest.HTTPAuthPlugin.
func (t *transport) Prepare(r *http.Request) error {
	r.Header.Set("User-Agent", t.agent)
	for name, value := range t.headers {
		r.Header.Set(name, value)
	}
	return nil
}

// redirected follows within the service alone: the headers go with it, and what it answers are
// policies.
func (t *transport) redirected(r *http.Request, via []*http.Request) error {
	switch {
	case r.URL.Scheme != t.origin.Scheme || r.URL.Host != t.origin.Host:
		return fmt.Errorf(
			"it redirects to %s://%s, and credentials and trust are for %s://%s alone",
			r.URL.Scheme, r.URL.Host, t.origin.Scheme, t.origin.Host)
	case len(via) > maxRedirects:
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	}
	return nil
}

// refused is a bundle that came, and is not what it has to be.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// RoundTrip implements http.RoundTripper: where a bundle was asked for, it answers when the whole
// answer is here and is one, or says why not.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel() // nothing of the answer is read later
	defer context.AfterFunc(t.life, cancel)()
	answer, err := t.inner.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if t.read == nil || answer.StatusCode != http.StatusOK {
		answer.Body.Close() // what else it says nobody reads
		answer.Body = http.NoBody
		return answer, nil
	}
	raw, err := io.ReadAll(io.LimitReader(answer.Body, policies.MaxBundle+1))
	answer.Body.Close()
	if err != nil {
		return nil, err
	}
	b, err := t.read(raw)
	if err != nil {
		return nil, refused{err}
	}
	t.raw, t.bundle = raw, b
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return answer, nil
}

// reason is what is to be said of a failed request: not its address, which may hold what is secret.
func reason(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		if u.Timeout() && errors.Is(u.Err, context.DeadlineExceeded) {
			return fmt.Errorf("no whole answer within %s", answerTimeout)
		}
		return u.Err
	}
	return err
}
