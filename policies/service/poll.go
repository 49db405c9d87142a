package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"gatekit/policies"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/download"
	"github.com/open-policy-agent/opa/v1/plugins/rest"
)

// poll asks for one bundle.
type poll struct {
	of         BundleSource
	client     *Client
	log        *slog.Logger
	transport  *transport
	downloader *download.Downloader
	first      chan struct{} // closed when there is a bundle
	latest     []byte        // the first, as it came; nil when that was kept. Client.mu is held

	mu  sync.Mutex
	err error // of the latest request; nil is none
}

func newPoll(c *Client, b BundleSource, version string) (*poll, error) {
	p := &poll{of: b, client: c, log: c.log.With("bundle", b.Name), first: make(chan struct{})}
	var err error
	p.transport, err = newTransport(b.Endpoint, version, func(raw []byte) (*policies.Bundle, error) {
		return policies.ReadBundle(b.Name, raw, b.Keys)
	})
	if err != nil {
		return nil, err
	}
	settings, err := json.Marshal(map[string]any{"name": b.Name, "url": b.Endpoint.URL,
		"credentials": map[string]string{"plugin": "gatekit"}})
	if err != nil {
		return nil, err
	}
	asks, err := rest.New(settings, nil, rest.Logger(logger{p.log}),
		rest.AuthPluginLookup(func(string) rest.HTTPAuthPlugin { return p.transport }))
	if err != nil {
		return nil, err
	}
	var config download.Config
	low, high := int64(b.MinDelay/time.Second), int64(b.MaxDelay/time.Second)
	config.Polling.MinDelaySeconds, config.Polling.MaxDelaySeconds = &low, &high
	if err := config.ValidateAndInjectDefaults(); err != nil {
		return nil, err
	}
	p.downloader = download.New(config, asks,
		b.Resource).WithBundleVerificationConfig(policies.VerificationConfig(b.Keys)).
		WithBundleParserOpts(ast.ParserOptions{RegoVersion: ast.RegoV1,
			ProcessAnnotation: true}).WithCallback(p.came)
	return p, nil
}

// stop ends the requests.
func (p *poll) stop() {
	p.downloader.Stop(context.Background())
	p.transport.end()
	p.transport.inner.CloseIdleConnections()
}

// came takes what became of a request. After an error the downloader asks again, at longer and
// longer intervals.
func (p *poll) came(_ context.Context, u download.Update) error {
	select {
	case <-p.client.closed:
		return nil
	default:
	}
	err, active := u.Error, (*policies.Bundle)(nil)
	if u.Bundle != nil {
		active = p.transport.bundle
		if err = p.client.offer(p, p.transport.bundle, p.transport.raw); err != nil {
			err = refused{err}
			p.downloader.SetCache("") // so that it comes again: what it does not fit may change
		}
	}
	err = p.settle(err)
	select {
	case <-p.client.started: // before, nothing is in force
		p.client.reports.settled(p.of.Name, active, err)
	default:
	}
	if u.Error != nil {
		return nil // it knows
	}
	return err
}

// settle says what became of a request, where it is not what became of the one before, and answers
// what is to be said of it.
func (p *poll) settle(err error) error {
	wrong, isRefused := errors.AsType[refused](err)
	switch status, ok := errors.AsType[download.HTTPError](err); {
	case isRefused:
		err = wrong.error
	case ok:
		err = fmt.Errorf("it answers with status %d %s", status.StatusCode,
			http.StatusText(status.StatusCode))
	case err != nil:
		_, unreached := errors.AsType[*url.Error](err)
		err, isRefused = reason(err), !unreached
	}
	p.mu.Lock()
	before := p.err
	p.err = err
	p.mu.Unlock()
	switch {
	case err == nil && before != nil:
		p.log.Info("the service of a bundle answers as it should again")
	case err == nil || before != nil && before.Error() == err.Error():
	case isRefused:
		p.log.Error("a bundle came that cannot be used", "error", err)
		if p.client.refused != nil {
			p.client.refused(p.of.Name, err)
		}
	default:
		p.log.Warn("the service of a bundle does not give it", "error", err)
	}
	return err
}

// why is what became of the latest request.
func (p *poll) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
