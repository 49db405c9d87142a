package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// poster sends requests to one URL.
type poster struct {
	url    string
	header http.Header
	client *http.Client
	ours   secrets
}

// secrets are texts that a receiver knows, and may put into what it answers: its words end in logs.
type secrets []string

// secretsOf are the values of headers, with the scheme (Bearer) and without.
func secretsOf(headers map[string]string) (all secrets) {
	for _, v := range headers {
		_, token, ok := strings.Cut(v, " ")
		if all = append(all, v); ok {
			all = append(all, strings.TrimSpace(token))
		}
	}
	// a part after what it is a part of
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.DeleteFunc(all, func(s string) bool { return len(s) < 4 })
}

func (s secrets) hidden(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return text
}

func newPoster(at string, headers map[string]string, t TLS) (*poster, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	if _, err := url.Parse(at); err != nil {
		return nil, err
	}
	p := &poster{url: at, header: http.Header{}, ours: secretsOf(headers), client: &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        config,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    10 * time.Second,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
		// what is configured is where records go, and tokens
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
	for k, v := range headers {
		p.header.Set(k, v)
	}
	return p, nil
}

const maxAnswer = 64 << 10

// post sends a body and answers the response's. An error says what the receiver wants: later, less,
// or neither.
func (p *poster) post(ctx context.Context, body []byte, header http.Header) ([]byte, error) {
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
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode/100 == 2 {
		if err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		return answer, nil
	}
	err = fmt.Errorf("it answered %d %s: %s", response.StatusCode,
		http.StatusText(response.StatusCode), shown(p.ours.hidden(string(answer))))
	switch response.StatusCode {
	case http.StatusRequestEntityTooLarge, http.StatusBadRequest, http.StatusUnprocessableEntity:
		return nil, &RejectedError{Err: err}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return nil, &later{err, retryAfter(response.Header)}
	}
	return nil, err
}

// shown is the beginning of what somebody else said, for a log.
func shown(text string) string { return strconv.QuoteToGraphic(text[:min(len(text), 200)]) }

// withoutURL leaves out the URL, whose path is a token with some receivers.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func (p *poster) Close() error {
	p.client.CloseIdleConnections()
	return nil
}
