package receivers

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

// TestCollectorGetsRecordsMetricsAndTraces sends the audit log, metrics and traces to an
// OpenTelemetry collector, over both protocols of OTLP.
func TestCollectorGetsRecordsMetricsAndTraces(t *testing.T) {
	binary := peers.Collector(t)
	for protocol, logsPath := range map[string]string{"grpc": "", "http": "/v1/logs"} {
		t.Run(protocol, func(t *testing.T) {
			address := peers.FreeAddress(t)
			config := writeFile(t, filepath.Join(t.TempDir(), "collector.yaml"),
				fmt.Sprintf("receivers: { otlp: { protocols: { %s: { endpoint: %q } } } }",
					protocol, address),
				"exporters: { debug: { verbosity: detailed } }",
				"service:",
				"  telemetry: { metrics: { level: none } }",
				"  pipelines:",
				"    logs: { receivers: [otlp], exporters: [debug] }",
				"    metrics: { receivers: [otlp], exporters: [debug] }",
				"    traces: { receivers: [otlp], exporters: [debug] }")
			received := &harness.Output{}
			stop := startProgram(t, address, received, binary, "--config="+config)
			g := harness.StartHTTP(t, harness.ScriptedServer("box")+harness.AuditTable+
				fmt.Sprintf("[[audit.sink]]\nname = \"otel\"\nkind = \"otlp\"\nprotocol = %q\n"+
					"url = \"http://%s%s\"\n", protocol, address, logsPath)+
				fmt.Sprintf("[telemetry]\nurl = \"http://%s\"\nprotocol = %q\ntraces = true\n",
					address, protocol))
			callEcho(t, g, 30)
			log := func() (lines []string) {
				for _, line := range g.LogLines() {
					lines = append(lines, "Body: Str("+line+")")
				}
				return lines
			}
			g.Stop()
			want := append(log(), "Name: gatekit.decisions", "Name: mcp.server.operation.duration",
				"Name           : tools/call box__echo")
			eventually(t, func() string {
				got := received.String()
				for _, text := range want {
					if !strings.Contains(got, text) {
						return fmt.Sprintf("the collector has not got %q; it has %d bytes", text,
							len(got))
					}
				}
				return ""
			})
			stop()
		})
	}
}
