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
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options say what is told, and of what.
type Options struct {
	Version    string // Gatekit's own
	Prometheus bool   // there is somebody who asks the Handler
	ToolLabels bool   // the names of tools are labels
	// the name of the stage whose reasons begin with the rule that gives them, and ": "
	PolicyStage string
	Logger      *slog.Logger

	Collector Collector
}

// Telemetry is safe for many goroutines.
type Telemetry struct {
	o        Options
	log      *slog.Logger
	registry *prometheus.Registry // nil unless Scraped
	sender   *sender              // nil where there is no collector
	provider *metric.MeterProvider
	metrics  *instruments
	spans    *sdk.TracerProvider // nil unless there are traces
	tracer   trace.Tracer
	sources  atomic.Pointer[Sources] // nil until Watch
	fault    atomic.Pointer[error]   // of the last record
}

// Open begins to count, and to send to a collector, which need not be there yet.
func Open(o Options) (*Telemetry, error) {
	t := &Telemetry{o: o, log: o.Logger}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if err := t.open(); err != nil {
		return nil, errors.Join(err, t.Close(context.Background()))
	}
	return t, nil
}

// open says to the SDK what it would take from the environment (OTEL_…): what Gatekit does is in
// its configuration.
func (t *Telemetry) open() error {
	us := resource.NewSchemaless(attribute.String("service.name", "gatekit"),
		attribute.String("service.version", t.o.Version))
	options := []metric.Option{metric.WithResource(us), metric.WithCardinalityLimit(maxSeries),
		metric.WithExemplarFilter(exemplar.AlwaysOffFilter)}
	if t.o.Prometheus {
		t.registry = prometheus.NewRegistry()
		told, err := exporter.New(exporter.WithRegisterer(t.registry),
			exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
			exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
		if err != nil {
			return fmt.Errorf("make the metrics: %w", err)
		}
		t.registry.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		options = append(options, metric.WithReader(told))
	}
	if c := t.o.Collector; c.URL != "" {
		var err error
		if t.sender, err = c.sender(); err != nil {
			return err
		}
		refused := &complaint{log: t.log, ours: t.sender.ours()}
		if c.Metrics {
			e, err := t.sender.numbers(us, refused)
			if err != nil {
				return err
			}
			options = append(options, metric.WithReader(metric.NewPeriodicReader(e,
				metric.WithInterval(c.Interval), metric.WithTimeout(exportTimeout))))
		}
		if c.Traces {
			e, err := t.sender.spans(us, refused)
			if err != nil {
				return err
			}
			t.spans = newTracer(e, us, c.SampleRatio)
			t.tracer = t.spans.Tracer("gatekit")
		}
	}
	t.provider = metric.NewMeterProvider(options...)
	var err error
	if t.metrics, err = t.instruments(); err != nil {
		return fmt.Errorf("make the metrics: %w", err)
	}
	return nil
}

// Handler answers with all metrics, for Prometheus, where Options.Scraped says that it will be
// asked. It answers a few at a time.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(t.log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	})
}

// SetSources says where what is there now can be looked up. It is looked up when the metrics are
// asked for, from any goroutine, and no answer may wait for anything.
func (t *Telemetry) SetSources(s Sources) { t.sources.Store(&s) }

// Close ends the counting, and waits until the collector has what is still to be sent, or for ctx.
func (t *Telemetry) Close(ctx context.Context) error {
	var errs []error
	if t.spans != nil {
		errs = append(errs, t.spans.Shutdown(ctx))
	}
	if t.provider != nil {
		errs = append(errs, t.provider.Shutdown(ctx))
	}
	if t.sender != nil {
		errs = append(errs, t.sender.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("send the last telemetry: %w", err)
	}
	return nil
}
