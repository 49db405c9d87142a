package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"gatekit/core/display"
)

// exportTimeout is the time limit of one try to export. retryFor is the time limit of all tries to
// export the same spans. Spans that are not exported within retryFor are dropped.
const (
	exportTimeout = 10 * time.Second
	retryFor      = 30 * time.Second
)

// Collector configures the OTLP collector, and which data it gets.
type Collector struct {
	// "" for no collector; over HTTP the base URL, to which OTLP's paths are appended
	URL      string
	Protocol string // "grpc" or "http"
	Headers  map[string]string
	TLS      *tls.Config // nil trusts the certificate authorities of the system

	Metrics  bool
	Interval time.Duration // between exports of metrics
	Traces   bool
	// share of calls that are traced, if their client has not decided whether to trace them
	SampleRatio float64
}

// Validate returns the error of an invalid configuration, without calling the collector.
func (c Collector) Validate() error {
	if c.URL == "" {
		return nil
	}
	s, err := c.connect()
	if err != nil {
		return err
	}
	return s.close()
}

// connection exports to a collector. It sets all options of the exporters. If an option were not
// set, the exporter would read the option from the environment.
type connection struct {
	Collector
	url  *url.URL
	http *http.Client
	conn *grpc.ClientConn
}

func (c Collector) connect() (*connection, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("connect to the collector: %w", err)
	}
	t := &connection{Collector: c, url: u}
	if c.Protocol == "http" {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = c.TLS
		t.http = &http.Client{
			Transport: transport,
			Timeout:   exportTimeout,
			// do not send the headers to a host that is not configured
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		}
		return t, nil
	}
	creds := credentials.NewTLS(c.TLS)
	if u.Scheme == "http" {
		creds = insecure.NewCredentials()
	}
	host := u.Host
	if u.Port() == "" {
		host += ":4317"
	}
	if t.conn, err = grpc.NewClient(host, grpc.WithTransportCredentials(creds)); err != nil {
		return nil, fmt.Errorf("connect to the collector: %w", err)
	}
	return t, nil
}

func (t *connection) close() error {
	if t.http != nil {
		t.http.CloseIdleConnections()
		return nil
	}
	return t.conn.Close()
}

// signalURL returns the URL that gets a signal (metrics or traces) over HTTP.
func (t *connection) signalURL(path string) string {
	return strings.TrimSuffix(t.url.String(), "/") + path
}

func (t *connection) newSpanExporter(res *resource.Resource,
	errs *exportErrors) (trace.SpanExporter, error) {
	var client otlptrace.Client
	const first, longest = time.Second, 5 * time.Second
	if t.http != nil {
		client = otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(t.signalURL("/v1/traces")),
			otlptracehttp.WithHTTPClient(t.http), otlptracehttp.WithTLSClientConfig(nil),
			otlptracehttp.WithHeaders(t.Headers),
			otlptracehttp.WithTimeout(exportTimeout),
			otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
			otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: first,
				MaxInterval: longest, MaxElapsedTime: retryFor}))
	} else {
		client = otlptracegrpc.NewClient(otlptracegrpc.WithGRPCConn(t.conn),
			otlptracegrpc.WithHeaders(t.Headers), otlptracegrpc.WithTimeout(exportTimeout),
			otlptracegrpc.WithCompressor("gzip"),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: first,
				MaxInterval: longest, MaxElapsedTime: retryFor}))
	}
	e, err := otlptrace.New(context.Background(), client) // does not connect yet
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	return spanExporter{e, res, errs}, nil
}

func (t *connection) newMetricExporter(res *resource.Resource,
	errs *exportErrors) (e metric.Exporter, err error) {
	if t.http != nil {
		e, err = otlpmetrichttp.New(context.Background(),
			otlpmetrichttp.WithEndpointURL(t.signalURL("/v1/metrics")),
			otlpmetrichttp.WithHTTPClient(t.http), otlpmetrichttp.WithTLSClientConfig(nil),
			otlpmetrichttp.WithHeaders(t.Headers),
			otlpmetrichttp.WithTimeout(exportTimeout),
			otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression),
			otlpmetrichttp.WithTemporalitySelector(metric.DefaultTemporalitySelector),
			otlpmetrichttp.WithAggregationSelector(metric.DefaultAggregationSelector),
			// no retry: the sums of the next export include the sums of this export
			otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{Enabled: false}))
	} else {
		e, err = otlpmetricgrpc.New(context.Background(), otlpmetricgrpc.WithGRPCConn(t.conn),
			otlpmetricgrpc.WithHeaders(t.Headers), otlpmetricgrpc.WithTimeout(exportTimeout),
			otlpmetricgrpc.WithCompressor("gzip"),
			otlpmetricgrpc.WithTemporalitySelector(metric.DefaultTemporalitySelector),
			otlpmetricgrpc.WithAggregationSelector(metric.DefaultAggregationSelector),
			otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{Enabled: false}))
	}
	if err != nil {
		return nil, fmt.Errorf("export metrics: %w", err)
	}
	return metricExporter{e, res, errs}, nil
}

// exportErrors logs the errors of a collector, at most one in errorInterval.
type exportErrors struct {
	logger   *slog.Logger
	redactor *strings.Replacer // removes secrets

	mu         sync.Mutex
	last       time.Time // when an error was last logged
	suppressed int       // errors since the last logged error
}

// redactor returns a replacer that removes secrets from error messages. The values of the headers
// are secrets, with and without their scheme (Bearer). The password, path and query of the URL are
// secrets, too: some collectors have a token in the path.
func (t *connection) redactor() *strings.Replacer {
	var all []string
	for _, v := range t.Headers {
		_, token, _ := strings.Cut(v, " ")
		all = append(all, v, strings.TrimSpace(token))
	}
	password, _ := t.url.User.Password()
	all = append(all, password, t.url.RawQuery, strings.Trim(t.url.Path, "/"),
		strings.Trim(t.url.EscapedPath(), "/"))
	// replace the longest first: a secret may contain another secret
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, secret := range all {
		if len(secret) >= 4 {
			pairs = append(pairs, secret, "[redacted]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// maxErrorBytes bounds a logged error: a collector may respond with a whole page.
const maxErrorBytes = 300

// errorInterval is the time between two logged errors.
const errorInterval = time.Minute

func (c *exportErrors) report(signal string, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suppressed++
	if time.Since(c.last) < errorInterval {
		return
	}
	c.logger.Warn("telemetry export failed", "signal", signal, "times", c.suppressed,
		"error", display.Clip(c.redactor.Replace(err.Error()), maxErrorBytes))
	c.last, c.suppressed = time.Now(), 0
}

// spanExporter logs export errors itself, because the SDK would pass them to an error handler that
// the whole process shares. spanExporter also replaces the resource of each span, because the SDK
// adds attributes from the environment to the resource.
type spanExporter struct {
	trace.SpanExporter
	resource *resource.Resource
	errors   *exportErrors
}

// ExportSpans implements trace.SpanExporter.
func (e spanExporter) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	replaced := make([]trace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		replaced[i] = spanWithResource{s, e.resource}
	}
	e.errors.report("spans", e.SpanExporter.ExportSpans(ctx, replaced))
	return nil
}

type spanWithResource struct {
	trace.ReadOnlySpan
	resource *resource.Resource
}

// Resource implements trace.ReadOnlySpan.
func (s spanWithResource) Resource() *resource.Resource { return s.resource }

// metricExporter does for metrics what spanExporter does for spans.
type metricExporter struct {
	metric.Exporter
	resource *resource.Resource
	errors   *exportErrors
}

// Export implements metric.Exporter.
func (e metricExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	replaced := *m
	replaced.Resource = e.resource
	e.errors.report("metrics", e.Exporter.Export(ctx, &replaced))
	return nil
}
