package telemetry_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gatekit/audit/telemetry"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// TestExportErrorsHaveNoSecrets uses a token in the URL's path, and a collector that repeats the
// request in its error.
func TestExportErrorsHaveNoSecrets(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "no access to %s with %q, %q\n%s", r.URL, r.Header.Get("Authorization"),
			strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), strings.Repeat("x",
				1<<12))
	}))
	defer refuses.Close()
	for name, address := range map[string]string{"the collector refuses": refuses.URL,
		"the collector is down": "http://127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			m, err := telemetry.Open(telemetry.Options{Logger: slog.New(slog.NewTextHandler(&b,
				nil)),
				Collector: telemetry.Collector{
					URL: address + "/tenant/S3CRET/otlp?key=S3CRET", Protocol: "http",
					Headers: map[string]string{"Authorization": "Bearer S3CRET-of-a-header"},
					Metrics: true, Interval: time.Hour, Traces: true, SampleRatio: 1}})
			if err != nil {
				t.Fatal(err)
			}
			_, ended := m.StartCall(t.Context(), message(mcp.Request, "tools/call", "", ""),
				proxy.OpenOptions{})
			ended(pipeline.Passed{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := m.Close(ctx); err != nil && strings.Contains(err.Error(), "S3CRET") {
				t.Errorf("close: error %v, want no secret in it", err)
			}
			if logged := b.String(); !strings.Contains(logged, "telemetry export failed") ||
				strings.Contains(logged, "S3CRET") || len(logged) > 1000 {
				t.Errorf("the log is %s, want a short failure without the secret", logged)
			}
		})
	}
}
