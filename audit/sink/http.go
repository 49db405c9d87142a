package sink

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"gatekit/core/display"
)

// httpPoster posts bodies to one URL.
type httpPoster struct {
	url     string
	header  http.Header
	client  *http.Client
	secrets secrets
}

// secrets are strings to remove from error messages. The messages quote the response of a receiver,
// which may contain parts of the request.
type secrets []string

// headerSecrets returns the values of headers, both with the scheme (Bearer) and without it.
func headerSecrets(headers map[string]string) (all secrets) {
	for _, v := range headers {
		_, token, ok := strings.Cut(v, " ")
		if all = append(all, v); ok {
			all = append(all, strings.TrimSpace(token))
		}
	}
	// replace the longest first: a secret may contain another secret
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.DeleteFunc(all, func(s string) bool { return len(s) < 4 })
}

func (s secrets) redact(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return text
}

func newHTTPPoster(address string, headers map[string]string, secure *tls.Config) (*httpPoster,
	error) {
	if _, err := url.Parse(address); err != nil {
		return nil, err
	}
	p := &httpPoster{url: address, header: http.Header{}, secrets: headerSecrets(headers),
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				TLSClientConfig:        secure,
				ForceAttemptHTTP2:      true,
				TLSHandshakeTimeout:    10 * time.Second,
				IdleConnTimeout:        90 * time.Second,
				MaxResponseHeaderBytes: 64 << 10,
			},
			// do not send records and tokens to a host that is not configured
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		}}
	for k, v := range headers {
		p.header.Set(k, v)
	}
	return p, nil
}

const maxResponseBytes = 64 << 10

// post sends a body and returns the body of the response. If the status means that the receiver
// rejects the content, the error is a *RejectedError. If the status asks for a delay, the error is
// a *retryLaterError.
func (p *httpPoster) post(ctx context.Context, body []byte, header http.Header) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = p.header.Clone()
	for k := range header {
		r.Header.Set(k, header.Get(k))
	}
	response, err := p.client.Do(r)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes))
	if response.StatusCode/100 == 2 {
		if err != nil {
			return nil, fmt.Errorf("read the response: %w", err)
		}
		return answer, nil
	}
	err = fmt.Errorf("the receiver responded %d %s: %s", response.StatusCode,
		http.StatusText(response.StatusCode), quoteBeginning(p.secrets.redact(string(answer))))
	switch response.StatusCode {
	case http.StatusNotFound:
		return nil, &notFoundError{err}
	case http.StatusRequestEntityTooLarge, http.StatusBadRequest, http.StatusUnprocessableEntity:
		return nil, &RejectedError{Err: err}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return nil, &retryLaterError{err, retryAfter(response.Header)}
	}
	return nil, err
}

// notFoundError is the error for the status 404.
type notFoundError struct{ err error }

func (e *notFoundError) Error() string { return e.err.Error() }
func (e *notFoundError) Unwrap() error { return e.err }

// quoteBeginning quotes the first 200 bytes of a peer's message, for a log.
func quoteBeginning(text string) string {
	return display.Quote(text, 200)
}

// withoutURL removes the URL from an error, because the path of some receivers is a token.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func (p *httpPoster) Close() error {
	p.client.CloseIdleConnections()
	return nil
}
