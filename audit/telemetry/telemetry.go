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

// Options select what is exported.
type Options struct {
	Version    string // Gatekit's version
	Prometheus bool   // serve metrics in Handler
	ToolLabels bool   // label metrics with names of tools
	// name of the stage whose reasons begin with the name of a rule and ": "
	PolicyStage string
	Logger      *slog.Logger

	Collector Collector
}

// Telemetry counts and traces calls, and exports the results. It is safe for concurrent use.
type Telemetry struct {
	options    Options
	logger     *slog.Logger
	registry   *prometheus.Registry // nil unless Options.Prometheus is set
	connection *connection          // nil without a collector
	provider   *metric.MeterProvider
	metrics    *instruments
	spans      *sdk.TracerProvider // nil without traces
	tracer     trace.Tracer
	sources    atomic.Pointer[Sources] // nil before SetSources
	recordErr  atomic.Pointer[error]   // error of the last record
}

// Open starts to count and to export. The collector does not have to run yet.
func Open(o Options) (*Telemetry, error) {
	t := &Telemetry{options: o, logger: o.Logger}
	if t.logger == nil {
		t.logger = slog.New(slog.DiscardHandler)
	}
	if err := t.open(); err != nil {
		return nil, errors.Join(err, t.Close(context.Background()))
	}
	return t, nil
}

// open sets all options of the SDK, so that the SDK reads nothing from the environment (OTEL_…):
// only Gatekit's configuration defines what Gatekit does.
func (t *Telemetry) open() error {
	res := resource.NewSchemaless(attribute.String("service.name", "gatekit"),
		attribute.String("service.version", t.options.Version))
	options := []metric.Option{metric.WithResource(res), metric.WithCardinalityLimit(maxSeries),
		metric.WithExemplarFilter(exemplar.AlwaysOffFilter)}
	if t.options.Prometheus {
		t.registry = prometheus.NewRegistry()
		prometheusExporter, err := exporter.New(exporter.WithRegisterer(t.registry),
			exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
			exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
		if err != nil {
			return fmt.Errorf("create the metrics: %w", err)
		}
		t.registry.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		options = append(options, metric.WithReader(prometheusExporter))
	}
	if c := t.options.Collector; c.URL != "" {
		var err error
		if t.connection, err = c.connect(); err != nil {
			return err
		}
		exportErrs := &exportErrors{logger: t.logger, redactor: t.connection.redactor()}
		if c.Metrics {
			e, err := t.connection.newMetricExporter(res, exportErrs)
			if err != nil {
				return err
			}
			options = append(options, metric.WithReader(metric.NewPeriodicReader(e,
				metric.WithInterval(c.Interval), metric.WithTimeout(exportTimeout))))
		}
		if c.Traces {
			e, err := t.connection.newSpanExporter(res, exportErrs)
			if err != nil {
				return err
			}
			t.spans = newTracer(e, res, c.SampleRatio)
			t.tracer = t.spans.Tracer("gatekit")
		}
	}
	t.provider = metric.NewMeterProvider(options...)
	var err error
	if t.metrics, err = t.newInstruments(); err != nil {
		return fmt.Errorf("create the metrics: %w", err)
	}
	return nil
}

// Handler returns the handler that serves all metrics to Prometheus. The handler answers at most
// four requests at a time. Call Handler only if Options.Prometheus is set.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(t.logger.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
	})
}

// SetSources sets the functions that return the values of gauges. Any goroutine may call these
// functions, whenever metrics are collected. The functions must not block.
func (t *Telemetry) SetSources(s Sources) { t.sources.Store(&s) }

// Close stops counting, and exports the remaining data until ctx ends.
func (t *Telemetry) Close(ctx context.Context) error {
	var errs []error
	if t.spans != nil {
		errs = append(errs, t.spans.Shutdown(ctx))
	}
	if t.provider != nil {
		errs = append(errs, t.provider.Shutdown(ctx))
	}
	if t.connection != nil {
		errs = append(errs, t.connection.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("export the last telemetry: %w", err)
	}
	return nil
}
