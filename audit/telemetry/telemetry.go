package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Options say what is told, and of what.
type Options struct {
	Version string // Gatekit's own
	Tools   bool   // the names of tools are labels
	Rules   string // the name of the stage whose reasons begin with the rule that gives them, and ": "
	Log     *slog.Logger
}

// Telemetry is safe for many goroutines.
type Telemetry struct {
	o        Options
	log      *slog.Logger
	registry *prometheus.Registry
	provider *metric.MeterProvider
	metrics  *instruments
	sources  atomic.Pointer[Sources] // nil until Watch
	fault    atomic.Pointer[error]   // of the last record
}

// Open begins to count. What it counts is told by Handler.
func Open(o Options) (*Telemetry, error) {
	t := &Telemetry{o: o, log: o.Log, registry: prometheus.NewRegistry()}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	// All that the environment could say (OTEL_…) is said here: what Gatekit does is in its configuration.
	told, err := exporter.New(exporter.WithRegisterer(t.registry), exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("make the metrics: %w", err)
	}
	us := resource.NewSchemaless(attribute.String("service.name", "gatekit"), attribute.String("service.version", o.Version))
	t.provider = metric.NewMeterProvider(metric.WithResource(us), metric.WithReader(told), metric.WithCardinalityLimit(maxSeries))
	if t.metrics, err = t.instruments(); err != nil {
		return nil, errors.Join(fmt.Errorf("make the metrics: %w", err), t.Close(context.Background()))
	}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return t, nil
}

// Handler answers with all metrics, for Prometheus. It answers a few at a time.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(t.log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	})
}

// Watch says where what is there now can be looked up. It is looked up when the metrics are asked for, from any goroutine, and no answer may wait for anything.
func (t *Telemetry) Watch(s Sources) { t.sources.Store(&s) }

// Close ends the counting.
func (t *Telemetry) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }
