package telemetry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
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
)

// exportTimeout bounds one attempt to send something, and retryFor all of them: what was not taken
// by then is dropped.
const (
	exportTimeout = 10 * time.Second
	retryFor      = 30 * time.Second
)

// Collector is who takes OTLP, and what it is sent.
type Collector struct {
	URL      string // "" is none. Over HTTP what the paths of OTLP are put after
	Protocol string // grpc, http
	Headers  map[string]string
	CA       string // file of certificates; "" trusts whom the system trusts

	Metrics     bool
	Interval    time.Duration // between metrics
	Traces      bool
	SampleRatio float64 // share of the calls that are traced whose clients do not say
}

// Check says what is wrong with it that can be seen without calling it; nothing is wrong with none.
func (c Collector) Check() error {
	if c.URL == "" {
		return nil
	}
	s, err := c.sender()
	if err != nil {
		return err
	}
	return s.close()
}

// sender is a Collector that can be reached. Whatever the exporters would take from the environment
// is given to them here.
type sender struct {
	Collector
	to   *url.URL
	http *http.Client
	conn *grpc.ClientConn
}

func (c Collector) sender() (*sender, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("send to a collector: %w", err)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("send to a collector: read whom to trust: %w", err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("send to a collector: %s holds no certificate\nhint: it must "+
				"be PEM", c.CA)
		}
	}
	t := &sender{Collector: c, to: u}
	if c.Protocol == "http" {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = secure
		t.http = &http.Client{
			Transport: transport,
			Timeout:   exportTimeout,
			// whoever it leads to is not to have the headers
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		}
		return t, nil
	}
	creds := credentials.NewTLS(secure)
	if u.Scheme == "http" {
		creds = insecure.NewCredentials()
	}
	host := u.Host
	if u.Port() == "" {
		host += ":4317"
	}
	if t.conn, err = grpc.NewClient(host, grpc.WithTransportCredentials(creds)); err != nil {
		return nil, fmt.Errorf("send to a collector: %w", err)
	}
	return t, nil
}

func (t *sender) close() error {
	if t.http != nil {
		t.http.CloseIdleConnections()
		return nil
	}
	return t.conn.Close()
}

// under is the URL of a signal over HTTP.
func (t *sender) under(path string) string { return strings.TrimSuffix(t.to.String(), "/") + path }

func (t *sender) spans(us *resource.Resource, log *complaint) (trace.SpanExporter, error) {
	var client otlptrace.Client
	const first, longest = time.Second, 5 * time.Second
	if t.http != nil {
		client = otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(t.under("/v1/traces")),
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
	e, err := otlptrace.New(context.Background(), client) // it connects to nobody yet
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	return spanExporter{e, us, log}, nil
}

func (t *sender) numbers(us *resource.Resource, log *complaint) (e metric.Exporter, err error) {
	if t.http != nil {
		e, err = otlpmetrichttp.New(context.Background(),
			otlpmetrichttp.WithEndpointURL(t.under("/v1/metrics")),
			otlpmetrichttp.WithHTTPClient(t.http), otlpmetrichttp.WithTLSClientConfig(nil),
			otlpmetrichttp.WithHeaders(t.Headers),
			otlpmetrichttp.WithTimeout(exportTimeout),
			otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression),
			otlpmetrichttp.WithTemporalitySelector(metric.DefaultTemporalitySelector),
			// the next ones say it all, too
			otlpmetrichttp.WithAggregationSelector(metric.DefaultAggregationSelector),
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
		return nil, fmt.Errorf("send metrics: %w", err)
	}
	return metricExporter{e, us, log}, nil
}

// complaint logs what a collector does not take: the first of it, and then once in a while.
type complaint struct {
	log  *slog.Logger
	ours *strings.Replacer // puts something else in place of what only we and the collector know

	mu    sync.Mutex
	last  time.Time
	since int // that were not logged
}

// ours takes out of what a collector answers, and of what is said of it, the values of the headers,
// with their scheme (Bearer) and without, and the URL beyond its host: that is a token with some.
func (t *sender) ours() *strings.Replacer {
	var all []string
	for _, v := range t.Headers {
		_, token, _ := strings.Cut(v, " ")
		all = append(all, v, strings.TrimSpace(token))
	}
	password, _ := t.to.User.Password()
	all = append(all, password, t.to.RawQuery, strings.Trim(t.to.Path, "/"),
		strings.Trim(t.to.EscapedPath(), "/"))
	// a part after what it is a part of
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, secret := range all {
		if len(secret) >= 4 {
			pairs = append(pairs, secret, "[redacted]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// maxComplaint bounds the bytes of what is logged of an error: a collector may answer with a page.
const maxComplaint = 300

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxComplaint)], "") }

// complainEvery is how often it is logged that nothing is taken.
const complainEvery = time.Minute

func (c *complaint) about(what string, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since++
	if time.Since(c.last) < complainEvery {
		return
	}
	c.log.Warn("the collector of the telemetry did not take it", "what", what, "times", c.since,
		"error", clip(c.ours.Replace(err.Error())))
	c.last, c.since = time.Now(), 0
}

// spanExporter keeps errors from the SDK, which hands them to a handler of the whole process, and
// keeps what the SDK adds from the environment to the resource from the collector.
type spanExporter struct {
	trace.SpanExporter
	us  *resource.Resource
	log *complaint
}

// ExportSpans implements trace.SpanExporter.
func (e spanExporter) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	of := make([]trace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		of[i] = ourSpan{s, e.us}
	}
	e.log.about("spans", e.SpanExporter.ExportSpans(ctx, of))
	return nil
}

type ourSpan struct {
	trace.ReadOnlySpan
	us *resource.Resource
}

// Resource implements trace.ReadOnlySpan.
func (s ourSpan) Resource() *resource.Resource { return s.us }

// metricExporter is the same for metrics.
type metricExporter struct {
	metric.Exporter
	us  *resource.Resource
	log *complaint
}

// Export implements metric.Exporter.
func (e metricExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	of := *m
	of.Resource = e.us
	e.log.about("metrics", e.Exporter.Export(ctx, &of))
	return nil
}
