package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracespb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
)

// otlpCollector is an OpenTelemetry collector that receives spans and metrics over HTTP and gRPC,
// and keeps them.
type otlpCollector struct {
	tracespb.UnimplementedTraceServiceServer
	http, grpc string // URLs

	mu            sync.Mutex
	spans         []*tracepb.Span
	metrics       []string     // names of all received metrics
	bodies        bytes.Buffer // all requests, as protobuf
	authorization []string     // the Authorization header of each request
}

func newOTLPCollector(t *testing.T) *otlpCollector {
	t.Helper()
	c := &otlpCollector{}
	h := httptest.NewServer(c)
	t.Cleanup(h.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	tracespb.RegisterTraceServiceServer(g, c)
	metricspb.RegisterMetricsServiceServer(g, metricsService{c: c})
	go g.Serve(l)
	t.Cleanup(g.Stop)
	c.http, c.grpc = h.URL, "http://"+l.Addr().String()
	return c
}

// config returns a [telemetry] table that makes gatekit send telemetry to the collector. The text
// more is appended to the table.
func (c *otlpCollector) config(protocol, more string) string {
	url := c.grpc
	if protocol == "http" {
		url = c.http
	}
	return fmt.Sprintf("[telemetry]\nurl = %q\nprotocol = %q\n"+
		"headers = { Authorization = %q }\ntraces = true\n%s\n",
		url, protocol, collectorCredential, more)
}

func (c *otlpCollector) keep(authorization string, m proto.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorization = append(c.authorization, authorization)
	b, _ := proto.Marshal(m)
	c.bodies.Write(b)
	switch m := m.(type) {
	case *tracespb.ExportTraceServiceRequest:
		for _, r := range m.ResourceSpans {
			for _, s := range r.ScopeSpans {
				c.spans = append(c.spans, s.Spans...)
			}
		}
	case *metricspb.ExportMetricsServiceRequest:
		for _, r := range m.ResourceMetrics {
			for _, s := range r.ScopeMetrics {
				for _, m := range s.Metrics {
					c.metrics = append(c.metrics, m.Name)
				}
			}
		}
	}
}

// authorizationHeader returns the authorization metadata of a gRPC request.
func authorizationHeader(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get("authorization"), ",")
}

// Export receives spans over gRPC.
func (c *otlpCollector) Export(ctx context.Context,
	r *tracespb.ExportTraceServiceRequest) (*tracespb.ExportTraceServiceResponse, error) {
	c.keep(authorizationHeader(ctx), r)
	return &tracespb.ExportTraceServiceResponse{}, nil
}

// metricsService receives metrics over gRPC.
type metricsService struct {
	metricspb.UnimplementedMetricsServiceServer
	c *otlpCollector
}

func (s metricsService) Export(ctx context.Context,
	r *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	s.c.keep(authorizationHeader(ctx), r)
	return &metricspb.ExportMetricsServiceResponse{}, nil
}

// ServeHTTP receives spans and metrics over HTTP.
func (c *otlpCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m proto.Message = &tracespb.ExportTraceServiceRequest{}
	switch r.URL.Path {
	case "/v1/traces":
	case "/v1/metrics":
		m = &metricspb.ExportMetricsServiceRequest{}
	default:
		http.NotFound(w, r)
		return
	}
	body, err := gzip.NewReader(r.Body)
	if err == nil {
		var b []byte
		if b, err = io.ReadAll(body); err == nil {
			err = proto.Unmarshal(b, m)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.keep(r.Header.Get("Authorization"), m)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// spansNamed returns the spans with the given name, in the order of their start.
func (c *otlpCollector) spansNamed(name string) (spans []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			spans = append(spans, s)
		}
	}
	slices.SortFunc(spans, func(a, b *tracepb.Span) int {
		return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano))
	})
	return spans
}

// attributeMap returns the attributes of a span or an event, by name. It formats integers as text.
func attributeMap(attributes []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		all[a.Key] = a.Value.GetStringValue()
		if a.Value.GetStringValue() == "" {
			all[a.Key] = fmt.Sprint(a.Value.GetIntValue())
		}
	}
	return all
}

// The trace context that the client sends. The ids are those of an example in the W3C
// recommendation Trace Context.
const (
	clientTraceID       = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpanID        = "00f067aa0ba902b7"
	clientSampled       = "00-" + clientTraceID + "-" + clientSpanID + "-01" // a traceparent
	clientNotSampled    = "00-" + clientTraceID + "-" + clientSpanID + "-00"
	collectorCredential = "Bearer of-the-collector"
)

// echoedParams returns the params that the server received. It takes them from m, the result of the
// server's tool "echo".
func echoedParams(t *testing.T, m mcptest.Message) json.RawMessage {
	t.Helper()
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 {
		t.Fatalf("got %s, %v, want the result of an echo", m.Raw, err)
	}
	return json.RawMessage(result.Content[0].Text)
}

// TestTraceContextIsPropagated makes traced and untraced calls. It covers every pair of eras, both
// transports and both protocols of the collector.
func TestTraceContextIsPropagated(t *testing.T) {
	harness.Long(t, "waits for a collector")
	for _, serverRevision := range []string{"2025-11-25", mcptest.Modern} {
		for _, revision := range []string{"2025-11-25", mcptest.Modern} {
			for _, protocol := range []string{"grpc", "http"} {
				name := fmt.Sprintf("%s to %s, collector over %s", revision, serverRevision,
					protocol)
				t.Run(name, func(t *testing.T) {
					collector := newOTLPCollector(t)
					config := collector.config(protocol, "") +
						harness.ScriptedServer("box", "-revisions", serverRevision) +
						harness.Builtin("secrets", `action = "redact"`) +
						harness.PolicyFile(t, `deny contains "no" if input.name == "die"`)
					harness.EachTransport(t, config, revision, func(t *testing.T,
						g *harness.Gatekit, c *mcptest.Client) {
						collector.mu.Lock()
						collector.spans, collector.metrics = nil, nil
						collector.mu.Unlock()
						harness.Handshake(t, c)
						checkPropagation(t, g, c, collector, revision)
					})
				})
			}
		}
	}
}

// checkPropagation makes a sampled call, a denied call, a call that is not sampled, and a call
// without trace context. It checks what the server received. After gatekit has stopped, it checks
// what the collector received.
func checkPropagation(t *testing.T, g *harness.Gatekit, c *mcptest.Client,
	collector *otlpCollector, revision string) {
	const secret = "AKIAQYLPMN5HHHFPZAM2"
	sampled := harness.Request(t, c, "tools/call",
		`{"name":"box__echo","arguments":{"k":"`+secret+`"},"_meta":{"traceparent":"`+
			clientSampled+`","tracestate":"rojo=1","x": 1.0}}`)
	params := echoedParams(t, sampled)
	sampledParent := mcptest.Text(params, "_meta", "traceparent")
	if !strings.Contains(string(params), `"traceparent":"`+sampledParent+
		`","tracestate":"rojo=1","x": 1.0`) {
		t.Errorf("the server received %s, want the rest of _meta unchanged", sampled.Raw)
	}
	harness.Request(t, c, "tools/call",
		`{"name":"box__die","_meta":{"traceparent":"`+clientSampled+`"}}`)
	notSampled := harness.Request(t, c, "tools/call",
		`{"name":"box__echo","arguments":{},"_meta":{"traceparent":"`+clientNotSampled+
			`","tracestate":"rojo=2"}}`)
	if !strings.Contains(string(echoedParams(t, notSampled)),
		`"traceparent":"`+clientNotSampled+`","tracestate":"rojo=2"`) {
		t.Errorf("the server received %s, want the unsampled trace context unchanged",
			notSampled.Raw)
	}
	newParent := mcptest.Text(echoedParams(t, harness.CallTool(t, c, "box__echo", `{}`)),
		"_meta", "traceparent")
	g.Stop()

	serverSpans := collector.spansNamed("tools/call box__echo") // of the client's requests
	clientSpans := collector.spansNamed("tools/call echo")      // of gatekit's requests
	if len(serverSpans) != 2 || len(clientSpans) != 2 {
		t.Fatalf("got %d server spans and %d client spans, want 2 and 2: %v", len(serverSpans),
			len(clientSpans), collector.spans)
	}
	first := serverSpans[0]
	if hex.EncodeToString(first.TraceId) != clientTraceID ||
		hex.EncodeToString(first.ParentSpanId) != clientSpanID ||
		first.Kind != tracepb.Span_SPAN_KIND_SERVER || first.TraceState != "rojo=1" {
		t.Errorf("got %v, want a server span whose parent is the client's span", first)
	}
	for i, traceparent := range []string{sampledParent, newParent} {
		if !bytes.Equal(clientSpans[i].ParentSpanId, serverSpans[i].SpanId) ||
			clientSpans[i].Kind != tracepb.Span_SPAN_KIND_CLIENT {
			t.Errorf("call %d: got the span %v, want a client span whose parent is %v", i,
				clientSpans[i], serverSpans[i])
		}
		want := fmt.Sprintf("00-%x-%x-01", serverSpans[i].TraceId, clientSpans[i].SpanId)
		if traceparent != want {
			t.Errorf("call %d: the server received the traceparent %s, want %s", i, traceparent,
				want)
		}
	}
	if len(serverSpans[1].ParentSpanId) != 0 {
		t.Errorf("a call without trace context got the span %v, want a span without a parent",
			serverSpans[1])
	}
	attributes := attributeMap(first.Attributes)
	if attributes["mcp.method.name"] != "tools/call" ||
		attributes["gen_ai.tool.name"] != "box__echo" ||
		attributes["gen_ai.operation.name"] != "execute_tool" ||
		attributes["mcp.protocol.version"] != revision {
		t.Errorf("the server span has the attributes %v, want the method, the tool, the operation "+
			"and the revision %s", attributes, revision)
	}
	wantRecordsAsEvents(t, g, first)
	stageSpans := 0
	for _, s := range collector.spansNamed("stage secrets") {
		if bytes.Equal(s.ParentSpanId, first.SpanId) {
			stageSpans++
		}
	}
	if stageSpans != 2 {
		t.Errorf("the server span has %d child spans of the stage, want one for the request and "+
			"one for the result", stageSpans)
	}
	denied := collector.spansNamed("tools/call box__die")
	if len(denied) != 1 || attributeMap(denied[0].Attributes)["error.type"] != "-31000" ||
		denied[0].Status.Code != tracepb.Status_STATUS_CODE_ERROR ||
		len(collector.spansNamed("tools/call die")) != 0 {
		t.Errorf("the denied call has the spans %v, want one server span with the error", denied)
	}
	collector.mu.Lock()
	defer collector.mu.Unlock()
	if bytes.Contains(collector.bodies.Bytes(), []byte(secret)) {
		t.Error("the collector received a secret")
	}
	if !slices.Contains(collector.metrics, "mcp.server.operation.duration") ||
		!slices.Contains(collector.metrics, "gatekit.decisions") {
		t.Errorf("the collector received the metrics %q, want operation durations and decisions",
			collector.metrics)
	}
	wantCredential(t, collector)
}

// wantRecordsAsEvents fails the test unless the two records of a call are events of span, the
// call's server span.
func wantRecordsAsEvents(t *testing.T, g *harness.Gatekit, span *tracepb.Span) {
	t.Helper()
	attributes := attributeMap(span.Attributes)
	records := 0
	for _, r := range g.Records() {
		if r.Session == attributes["mcp.session.id"] &&
			r.Exchange == attributes["gatekit.exchange"] && r.Method == "tools/call" {
			records++
			if !slices.ContainsFunc(span.Events, func(e *tracepb.Span_Event) bool {
				a := attributeMap(e.Attributes)
				return e.Name == "gatekit.record" &&
					a["gatekit.record"] == fmt.Sprint(r.Seq) && a["gatekit.action"] == r.Action
			}) {
				t.Errorf("the span has no event for record %d", r.Seq)
			}
		}
	}
	if records != 2 || len(span.Events) != records {
		t.Errorf("the call has %d records and %d events in its span, want 2 and 2", records,
			len(span.Events))
	}
}

// wantCredential fails the test unless every request to the collector had the collector's
// credential. The caller holds collector.mu, or gatekit has ended.
func wantCredential(t *testing.T, collector *otlpCollector) {
	t.Helper()
	for _, got := range collector.authorization {
		if got != collectorCredential {
			t.Errorf("the collector received the credential %q, want %q", got,
				collectorCredential)
		}
	}
}

// TestTraceContextOfHTTPRequestAppliesToCallsWithoutTheirOwn sends a traceparent header. If a call
// has no trace context in its params, the header's span is the parent of the call's span. Otherwise
// the call's span has a link to the header's span.
func TestTraceContextOfHTTPRequestAppliesToCallsWithoutTheirOwn(t *testing.T) {
	collector := newOTLPCollector(t)
	g := harness.StartHTTP(t,
		collector.config("http", "metrics = false")+harness.ScriptedServer("box"))
	const header = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		h := mcptest.NewHTTP(g.URL)
		h.Header.Set("traceparent", header)
		c := mcptest.NewClient(h, revision)
		t.Cleanup(func() { c.Close() })
		harness.Handshake(t, c)
		harness.CallTool(t, c, "box__echo", `{}`)
		harness.Request(t, c, "tools/call",
			`{"name":"box__self","arguments":{},"_meta":{"traceparent":"`+clientSampled+`"}}`)
	}
	g.Stop()
	withoutContext := collector.spansNamed("tools/call box__echo")
	for _, s := range withoutContext {
		if hex.EncodeToString(s.TraceId) != strings.Repeat("a", 32) ||
			hex.EncodeToString(s.ParentSpanId) != strings.Repeat("b", 16) {
			t.Errorf("a call without trace context got the span %v, want the header's span as its "+
				"parent", s)
		}
	}
	withContext := collector.spansNamed("tools/call box__self")
	for _, s := range withContext {
		if hex.EncodeToString(s.TraceId) != clientTraceID || len(s.Links) != 1 ||
			hex.EncodeToString(s.Links[0].SpanId) != strings.Repeat("b", 16) {
			t.Errorf("a call with trace context got the span %v, want a link to the header's span",
				s)
		}
	}
	if len(withoutContext) != 2 || len(withContext) != 2 {
		t.Errorf("got %d spans of calls without trace context and %d spans of calls with trace "+
			"context, want 2 and 2", len(withoutContext), len(withContext))
	}
}

// TestSpansAndEventsOfACallAreBounded makes a call with 500 notifications. The audit log records
// all of them, but only some become events and spans.
func TestSpansAndEventsOfACallAreBounded(t *testing.T) {
	collector := newOTLPCollector(t)
	config := collector.config("http", "metrics = false") + harness.ScriptedServer("box") +
		harness.Builtin("secrets", `action = "redact"`)
	g, c := harness.StartStdio(t, config, "2025-11-25")
	harness.Request(t, c, "tools/call",
		`{"name":"box__progress","arguments":{"n":500},"_meta":{"progressToken":"p"}}`)
	g.Stop()
	spans := collector.spansNamed("tools/call box__progress")
	if len(spans) != 1 || len(spans[0].Events) != 64 {
		t.Errorf("got %v, want one span with 64 events", spans)
	}
	if n := len(collector.spansNamed("stage secrets")); n > 70 {
		t.Errorf("got %d spans of the stage, want at most 70", n)
	}
	notifications := 0
	for _, r := range g.Records() {
		if r.Method == "notifications/progress" {
			notifications++
		}
	}
	if notifications != 500 {
		t.Errorf("the audit log has %d progress notifications, want 500", notifications)
	}
}

// TestOTelEnvironmentVariablesAreIgnored sets the variables of OpenTelemetry SDKs to another
// collector. Only the collector of the configuration gets telemetry.
func TestOTelEnvironmentVariablesAreIgnored(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			fromEnvironment, configured := newOTLPCollector(t), newOTLPCollector(t)
			for _, signal := range []string{"", "TRACES_", "METRICS_"} {
				for name, value := range map[string]string{"ENDPOINT": fromEnvironment.http,
					"HEADERS": "authorization=of-the-environment", "PROTOCOL": "http/json",
					"COMPRESSION": "none", "CERTIFICATE": "/nowhere", "INSECURE": "false",
					"TIMEOUT": "1"} {
					t.Setenv("OTEL_EXPORTER_OTLP_"+signal+name, value)
				}
			}
			t.Setenv("OTEL_SDK_DISABLED", "true")
			t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
			t.Setenv("OTEL_SERVICE_NAME", "of-the-environment")
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "where=of-the-environment")
			t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
			g, c := harness.StartStdio(t,
				configured.config(protocol, "")+harness.ScriptedServer("box"), "2025-11-25")
			harness.CallTool(t, c, "box__echo", `{}`)
			g.Stop()
			if len(configured.spansNamed("tools/call box__echo")) != 1 ||
				len(configured.metrics) == 0 {
				t.Errorf("the configured collector received %v, %q, want a span and metrics",
					configured.spans, configured.metrics)
			}
			if bytes.Contains(configured.bodies.Bytes(), []byte("of-the-environment")) {
				t.Error("the telemetry contains a value from the environment")
			}
			if n := len(fromEnvironment.authorization); n > 0 {
				t.Errorf("the environment's collector received %d requests, want none", n)
			}
			wantCredential(t, configured)
		})
	}
}

// TestHangingCollectorDelaysNoCall configures a collector that never answers. Calls do not wait for
// the collector, and the shutdown waits at most 30 seconds.
func TestHangingCollectorDelaysNoCall(t *testing.T) {
	harness.Long(t, "waits for a collector")
	l, err := net.Listen("tcp", "127.0.0.1:0") // nothing accepts its connections
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			url := "http://" + l.Addr().String()
			collector := &otlpCollector{http: url, grpc: url}
			config := collector.config(protocol, `interval = "1s"`) + harness.ScriptedServer("box")
			g, c := harness.StartStdio(t, config, mcptest.Modern)
			began := time.Now()
			for range 300 {
				harness.CallTool(t, c, "box__echo", `{}`)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("300 calls took %s, want at most a minute", took)
			}
			began = time.Now()
			g.Stop()
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("the shutdown took %s, want at most 30s", took)
			}
			g.Killed = true // gatekit exits with an error, as the last telemetry could not be sent
			if log := g.Stderr.String(); !strings.Contains(log, "telemetry") {
				t.Errorf("the log contains no error about telemetry:\n%s", log)
			}
		})
	}
}

// TestTraceContextIsForwardedUnchangedWithoutTracing makes one call without telemetry, and one call
// with telemetry that sends only metrics.
func TestTraceContextIsForwardedUnchangedWithoutTracing(t *testing.T) {
	metricsOnly := strings.Replace(newOTLPCollector(t).config("http", ""), "traces = true", "", 1)
	for _, telemetry := range []string{"", metricsOnly} {
		_, c := harness.StartStdio(t, telemetry+harness.ScriptedServer("box"), "2025-11-25")
		m := harness.Request(t, c, "tools/call",
			`{"name":"box__echo","arguments":{},"_meta":{"tracestate":"rojo=1","traceparent":"`+
				clientSampled+`"}}`)
		want := `{"name":"echo","arguments":{},"_meta":{"tracestate":"rojo=1","traceparent":"` +
			clientSampled + `"}}`
		if got := string(echoedParams(t, m)); got != want {
			t.Errorf("the server received %s, want %s", got, want)
		}
	}
}
