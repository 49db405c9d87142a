package telemetry

import (
	"context"
	"errors"
	"time"

	"gatekit/core/shared"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// SharedCall measures a call of a shared.Store. The parameter method is the name of its method in
// lower case, of which there are few.
func (t *Telemetry) SharedCall(method string, took time.Duration, err error) {
	ctx := context.Background()
	name := attribute.String("gatekit.shared.method", method)
	t.metrics.sharedDuration.Record(ctx, took.Seconds(), metric.WithAttributes(name))
	if err == nil {
		return
	}
	kind := "unavailable"
	if errors.Is(err, shared.ErrLost) {
		kind = "lost"
	}
	t.metrics.sharedErrors.Add(ctx, 1, metric.WithAttributes(name,
		attribute.String("error.type", kind)))
}
