package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"gatekit/audit/telemetry"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
)

// TestCloseDoesNotWaitForSilentCollector connects to a collector that accepts connections and never
// responds.
func TestCloseDoesNotWaitForSilentCollector(t *testing.T) {
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for {
					c, err := listener.Accept()
					if err != nil {
						return
					}
					defer c.Close()
				}
			}()
			m, err := telemetry.Open(telemetry.Options{Logger: slog.New(slog.DiscardHandler),
				Collector: telemetry.Collector{URL: "http://" + listener.Addr().String(),
					Protocol: protocol, Metrics: true, Interval: time.Hour, Traces: true,
					SampleRatio: 1}})
			if err != nil {
				t.Fatal(err)
			}
			_, ended := m.StartCall(t.Context(), message(mcp.Request, "tools/call", "", ""),
				proxy.OpenOptions{})
			ended(pipeline.Passed{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			if err := m.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close returned %v, want context.DeadlineExceeded", err)
			}
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("Close took %s, want about a second, the deadline of its context", took)
			}
		})
	}
}
