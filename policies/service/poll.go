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

// bundlePoll polls one bundle.
type bundlePoll struct {
	source     BundleSource
	client     *Client
	log        *slog.Logger
	transport  *transport
	downloader *download.Downloader
	available  chan struct{} // closed when the first bundle is available
	// the downloaded bytes of the first bundle, until they are cached; guarded by Client.mu
	firstRaw []byte

	mu          sync.Mutex
	latestError error // error of the latest request; nil when the request succeeded
}

// newBundlePoll returns a poll for a bundle. The caller starts the poll with downloader.Start.
func newBundlePoll(c *Client, b BundleSource, version string) (*bundlePoll, error) {
	p := &bundlePoll{source: b, client: c, log: c.log.With("bundle", b.Name),
		available: make(chan struct{})}
	var err error
	p.transport, err = newTransport(b.Endpoint, version, func(raw []byte) (*policies.Bundle,
		error) {
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
	restClient, err := rest.New(settings, nil, rest.Logger(logger{p.log}),
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
	p.downloader = download.New(config, restClient,
		b.Resource).WithBundleVerificationConfig(policies.VerificationConfig(b.Keys)).
		WithBundleParserOpts(ast.ParserOptions{RegoVersion: ast.RegoV1,
			ProcessAnnotation: true}).WithCallback(p.downloaded)
	return p, nil
}

// stop cancels the requests.
func (p *bundlePoll) stop() {
	p.downloader.Stop(context.Background())
	p.transport.close()
	p.transport.inner.CloseIdleConnections()
}

// downloaded handles the result of a request. After an error the downloader retries, at growing
// intervals.
func (p *bundlePoll) downloaded(_ context.Context, u download.Update) error {
	select {
	case <-p.client.closed:
		return nil
	default:
	}
	err, active := u.Error, (*policies.Bundle)(nil)
	if u.Bundle != nil {
		active = p.transport.bundle
		if err = p.client.activateBundle(p, p.transport.bundle, p.transport.raw); err != nil {
			err = rejectedBundle{err}
			// Forget the ETag, so that the same bundle is downloaded again. After a change of
			// another bundle, the policies may compile with this bundle.
			p.downloader.SetCache("")
		}
	}
	err = p.reportResult(err)
	select {
	case <-p.client.started: // before Start, no bundle is active, and no status is sent
		p.client.reports.updateBundleStatus(p.source.Name, active, err)
	default:
	}
	if u.Error != nil {
		return nil // the downloader has this error already
	}
	return err
}

// reportResult logs the result of a request if it differs from the previous result. err is nil if
// the request succeeded. reportResult returns err without addresses.
func (p *bundlePoll) reportResult(err error) error {
	rejected, isRejected := errors.AsType[rejectedBundle](err)
	switch status, ok := errors.AsType[download.HTTPError](err); {
	case isRejected:
		err = rejected.error
	case ok:
		err = fmt.Errorf("the service responded with status %d %s", status.StatusCode,
			http.StatusText(status.StatusCode))
	case err != nil:
		_, isUnreachable := errors.AsType[*url.Error](err)
		err, isRejected = publicError(err), !isUnreachable
	}
	p.mu.Lock()
	before := p.latestError
	p.latestError = err
	p.mu.Unlock()
	switch {
	case err == nil && before != nil:
		p.log.Info("bundle download recovered")
	case err == nil || before != nil && before.Error() == err.Error():
	case isRejected:
		p.log.Error("bundle rejected; keeping the previous one", "error", err)
		if p.client.bundleRejected != nil {
			p.client.bundleRejected(p.source.Name, err)
		}
	default:
		p.log.Warn("bundle download failed", "error", err)
	}
	return err
}

// lastError returns the error of the latest request.
func (p *bundlePoll) lastError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latestError
}
