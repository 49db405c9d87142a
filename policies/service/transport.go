package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"gatekit/policies"

	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/rest"
)

// Bounds of one exchange with a service.
const (
	headerTimeout = 10 * time.Second // for the answer to begin; longer when it is a long poll
	answerTimeout = time.Minute      // for the whole answer, from when it was asked for, beside what a long poll waits
	sendTimeout   = 10 * time.Second // for a decision log or status to be taken
	maxAnswer     = 64 << 10         // bytes of an answer that is no bundle
	maxRedirects  = 5
	atLeastApart  = 100 * time.Millisecond // requests for a bundle, whatever the server says
)

// Remote is one service.
type Remote struct {
	URL     string
	Headers map[string]string // sent with every request, credentials among them; never logged
	CA      []byte            // PEM: whom to trust instead of those the system does; nil is the system's
}

// transport is the way to one service. It implements rest.HTTPAuthPlugin, which is where OPA's client takes an http.Client from, and plugins.Plugin, where it looks for such.
type transport struct {
	name    string
	remote  Remote
	version string
	origin  *url.URL
	roots   *x509.CertPool
	manager func() *plugins.Manager
	life    context.Context // ends what is under way when the client is closed
	waits   time.Duration   // the longest that a long poll waits
	pace    chan struct{}
}

func newTransport(life context.Context, name, version string, r Remote) (*transport, error) {
	origin, err := url.Parse(r.URL)
	if err != nil {
		return nil, fmt.Errorf("service %q: its url cannot be read: %w", name, errors.Unwrap(err))
	}
	t := &transport{name: name, remote: r, version: version, origin: origin, life: life, pace: make(chan struct{}, 1)}
	if r.CA != nil {
		t.roots = x509.NewCertPool()
		if !t.roots.AppendCertsFromPEM(r.CA) {
			return nil, fmt.Errorf("service %q: there is no certificate in its ca", name)
		}
	}
	return t, nil
}

// Start implements plugins.Plugin.
func (t *transport) Start(context.Context) error {
	t.manager().UpdatePluginStatus(pluginName(t.name), &plugins.Status{State: plugins.StateOK})
	return nil
}

// Stop implements plugins.Plugin.
func (t *transport) Stop(context.Context) {}

// Reconfigure implements plugins.Plugin.
func (t *transport) Reconfigure(context.Context, any) {}

// NewClient implements rest.HTTPAuthPlugin.
func (t *transport) NewClient(c rest.Config) (*http.Client, error) {
	inner := http.DefaultTransport.(*http.Transport).Clone()
	inner.TLSClientConfig = &tls.Config{RootCAs: t.roots, MinVersion: tls.VersionTLS12}
	inner.ResponseHeaderTimeout = time.Duration(*c.ResponseHeaderTimeoutSeconds) * time.Second
	inner.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{Transport: whole{inner, t}, CheckRedirect: t.redirected}, nil
}

// Prepare implements rest.HTTPAuthPlugin.
func (t *transport) Prepare(r *http.Request) error {
	r.Header.Set("User-Agent", "gatekit/"+t.version)
	for name, value := range t.remote.Headers {
		r.Header.Set(name, value)
	}
	return nil
}

// redirected follows within the service alone: the headers go with it, and what it answers are policies.
func (t *transport) redirected(r *http.Request, via []*http.Request) error {
	switch {
	case r.URL.Scheme != t.origin.Scheme || r.URL.Host != t.origin.Host:
		return fmt.Errorf("it redirects to %s://%s, and credentials and trust are for %s://%s alone", r.URL.Scheme, r.URL.Host, t.origin.Scheme, t.origin.Host)
	case len(via) > maxRedirects:
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	}
	return nil
}

// whole is a round tripper that answers when the whole answer is here, or says why it cannot be.
type whole struct {
	next *http.Transport
	of   *transport
}

// RoundTrip implements http.RoundTripper.
func (w whole) RoundTrip(r *http.Request) (*http.Response, error) {
	limit, most := sendTimeout, maxAnswer
	if r.Method == http.MethodGet { // a bundle
		limit, most = answerTimeout+w.of.waits, policies.MaxBundle
		if err := w.of.paced(r.Context()); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), limit, fmt.Errorf("no whole answer within %s", limit))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(w.of.life, func() { stop(errClosed) })()
	answer, err := w.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, because(ctx, err)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, int64(most)+1))
	answer.Body.Close()
	switch {
	case err != nil:
		return nil, because(ctx, err)
	case len(body) > most:
		return nil, fmt.Errorf("its answer is larger than %d bytes", most)
	}
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return answer, nil
}

// because is err, or why the context ended where that is the reason.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// paced holds back a request for a bundle that comes right after another: a server that answers long polls at once would be asked without end.
func (t *transport) paced(ctx context.Context) error {
	select {
	case t.pace <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	time.AfterFunc(atLeastApart, func() { <-t.pace })
	return nil
}
