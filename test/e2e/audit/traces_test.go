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

// otelStub takes OTLP as a collector of OpenTelemetry does, over HTTP and gRPC, and keeps it.
type otelStub struct {
	tracespb.UnimplementedTraceServiceServer
	http, grpc string // URLs

	mu      sync.Mutex
	spans   []*tracepb.Span
	metrics []string // names
	all     bytes.Buffer
	headers []string // Authorization of each request
}

func newOTelStub(t *testing.T) *otelStub {
	t.Helper()
	c := &otelStub{}
	h := httptest.NewServer(c)
	t.Cleanup(h.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	tracespb.RegisterTraceServiceServer(g, c)
	metricspb.RegisterMetricsServiceServer(g, numbers{c: c})
	go g.Serve(l)
	t.Cleanup(g.Stop)
	c.http, c.grpc = h.URL, "http://"+l.Addr().String()
	return c
}

// config is the configuration of who sends to it.
func (c *otelStub) config(protocol, more string) string {
	url := c.grpc
	if protocol == "http" {
		url = c.http
	}
	return fmt.Sprintf("[telemetry]\nurl = %q\nprotocol = %q\nheaders = { Authorization = "+
		"\"Bearer of-the-collector\" }\ntraces = true\n%s\n", url, protocol, more)
}

func (c *otelStub) keep(authorization string, m proto.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, authorization)
	b, _ := proto.Marshal(m)
	c.all.Write(b)
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

func authorization(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get("authorization"), ",")
}

// Export takes spans over gRPC.
func (c *otelStub) Export(ctx context.Context,
	r *tracespb.ExportTraceServiceRequest) (*tracespb.ExportTraceServiceResponse, error) {
	c.keep(authorization(ctx), r)
	return &tracespb.ExportTraceServiceResponse{}, nil
}

// numbers takes metrics over gRPC.
type numbers struct {
	metricspb.UnimplementedMetricsServiceServer
	c *otelStub
}

func (n numbers) Export(ctx context.Context,
	r *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	n.c.keep(authorization(ctx), r)
	return &metricspb.ExportMetricsServiceResponse{}, nil
}

// ServeHTTP takes both over HTTP.
func (c *otelStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m proto.Message = &tracespb.ExportTraceServiceRequest{}
	switch r.URL.Path {
	case "/v1/traces":
	case "/v1/metrics":
		m = &metricspb.ExportMetricsServiceRequest{}
	default:
		http.NotFound(w, r)
		return
	}
	z, err := gzip.NewReader(r.Body)
	if err == nil {
		var b []byte
		if b, err = io.ReadAll(z); err == nil {
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

// named are the spans of a name, in the order of their beginning.
func (c *otelStub) named(name string) (some []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			some = append(some, s)
		}
	}
	slices.SortFunc(some, func(a, b *tracepb.Span) int {
		return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano))
	})
	return some
}

// told are a span's attributes, and of its events those of the name.
func told(attributes []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		all[a.Key] = a.Value.GetStringValue()
		if a.Value.GetStringValue() == "" {
			all[a.Key] = fmt.Sprint(a.Value.GetIntValue())
		}
	}
	return all
}

const (
	clientsTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientsSpan   = "00f067aa0ba902b7"
	clientsParent = "00-" + clientsTrace + "-" + clientsSpan + "-01"
	plantedSecret = "AKIAQYLPMN5HHHFPZAM2"
)

// seen is what an echo says that the server saw: its params.
func seen(t *testing.T, m mcptest.Message) json.RawMessage {
	t.Helper()
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 {
		t.Fatalf("no echo: %s, %v", m.Raw, err)
	}
	return json.RawMessage(result.Content[0].Text)
}

func TestATraceGoesThrough(t *testing.T) {
	harness.Long(t, "waits for a collector")
	for _, back := range []string{"2025-11-25", mcptest.Modern} {
		for _, revision := range []string{"2025-11-25", mcptest.Modern} {
			for _, protocol := range []string{"grpc", "http"} {
				t.Run(fmt.Sprintf("%s to %s, told over %s", revision, back, protocol),
					func(t *testing.T) {
						to := newOTelStub(t)
						config := to.config(protocol, "") + harness.ScriptedServer("box",
							"-revisions", back) +
							harness.Builtin("secrets", `action = "redact"`) + harness.PolicyFile(t,
							`deny contains "no" if input.name == "die"`)
						harness.EachTransport(t, config, revision, func(t *testing.T,
							g *harness.Gatekit,
							c *mcptest.Client) {
							to.mu.Lock()
							to.spans, to.metrics = nil, nil
							to.mu.Unlock()
							harness.Handshake(t, c)
							m := harness.Request(t, c,
								"tools/call", `{"name":"box__echo","arguments":{"k":"`+
									plantedSecret+`"},"_meta":{"traceparent":"`+clientsParent+
									`","tracestate":"rojo=1","baggage":"who=ann","x": 1.0}}`)
							got := seen(t, m)
							sent := mcptest.Text(got, "_meta", "traceparent")
							if !strings.Contains(string(got),
								`"traceparent":"`+sent+`","tracestate":"rojo=1","baggage":"who=ann","x": 1.0`) {
								t.Errorf("the server saw %s", m.Raw)
							}
							harness.Request(t, c, "tools/call",
								`{"name":"box__die","_meta":{"traceparent":"`+
									clientsParent+`"}}`)
							plain := harness.Request(t, c, "tools/call",
								`{"name":"box__echo","arguments":{},"_meta":{"traceparent":"`+
									strings.TrimSuffix(clientsParent,
										"1")+`0","tracestate":"rojo=2"}}`)
							if !strings.Contains(string(seen(t, plain)),
								`"traceparent":"`+strings.TrimSuffix(clientsParent,
									"1")+`0","tracestate":"rojo=2"`) {
								t.Errorf("of a call that is not traced the server saw %s",
									plain.Raw)
							}
							fresh := mcptest.Text(seen(t, harness.CallTool(t, c,
								"box__echo", `{}`)),
								"_meta", "traceparent")
							g.Stop()

							up := to.named("tools/call box__echo")
							down := to.named("tools/call echo")
							if len(up) != 2 || len(down) != 2 {
								t.Fatalf("%d spans up and %d down, want 2 and 2: %v", len(up),
									len(down), to.spans)
							}
							if hex.EncodeToString(up[0].TraceId) != clientsTrace ||
								hex.EncodeToString(up[0].ParentSpanId) != clientsSpan ||
								up[0].Kind != tracepb.Span_SPAN_KIND_SERVER ||
								up[0].TraceState != "rojo=1" {
								t.Errorf("the client's span is not the parent of %v", up[0])
							}
							for i, s := range []string{sent, fresh} {
								if !bytes.Equal(down[i].ParentSpanId, up[i].SpanId) ||
									down[i].Kind != tracepb.Span_SPAN_KIND_CLIENT {
									t.Errorf("span %d towards the server is no child of the "+
										"other: %v, %v", i, down[i], up[i])
								}
								if want := fmt.Sprintf("00-%x-%x-01", up[i].TraceId,
									down[i].SpanId); s != want {
									t.Errorf("the server was told %s, want %s", s, want)
								}
							}
							if len(up[1].ParentSpanId) != 0 {
								t.Errorf("a call without a trace has a parent: %v", up[1])
							}
							about := told(up[0].Attributes)
							if about["mcp.method.name"] != "tools/call" ||
								about["gen_ai.tool.name"] != "box__echo" ||
								about["gen_ai.operation.name"] != "execute_tool" ||
								about["mcp.protocol.version"] != revision {
								t.Errorf("attributes are %v", about)
							}
							records := 0
							for _, r := range g.Records() {
								if r.Session == about["mcp.session.id"] &&
									r.Exchange == about["gatekit.exchange"] &&
									r.Method == "tools/call" {
									records++
									if !slices.ContainsFunc(up[0].Events,
										func(e *tracepb.Span_Event) bool {
											a := told(e.Attributes)
											return e.Name == "gatekit.record" &&
												a["gatekit.record"] == fmt.Sprint(r.Seq) &&
												a["gatekit.action"] == r.Action
										}) {
										t.Errorf("record %d is not in the span", r.Seq)
									}
								}
							}
							if records != 2 || len(up[0].Events) != records {
								t.Errorf("the audit log has %d records of the call, its span %d",
									records, len(up[0].Events))
							}
							steps := 0
							for _, s := range to.named("stage secrets") {
								if bytes.Equal(s.ParentSpanId, up[0].SpanId) {
									steps++
								}
							}
							if steps != 2 {
								t.Errorf("%d spans of a stage in the call, want 2: of the "+
									"request and of the result", steps)
							}
							refused := to.named("tools/call box__die")
							if len(refused) != 1 || told(
								refused[0].Attributes)["error.type"] != "-31000" ||
								refused[0].Status.Code != tracepb.Status_STATUS_CODE_ERROR ||
								len(to.named("tools/call die")) != 0 {
								t.Errorf("a refused call is %v", refused)
							}
							to.mu.Lock()
							defer to.mu.Unlock()
							if bytes.Contains(to.all.Bytes(), []byte(plantedSecret)) {
								t.Error("the collector was told a secret")
							}
							if !slices.Contains(to.metrics, "mcp.server.operation.duration") ||
								!slices.Contains(to.metrics, "gatekit.decisions") {
								t.Errorf("the metrics are %q", to.metrics)
							}
							for _, h := range to.headers {
								if h != "Bearer of-the-collector" {
									t.Errorf("the collector got the credentials %q", h)
								}
							}
						})
					})
			}
		}
	}
}

func TestATraceOfTheConnectionIsTheCallsWithoutItsOwn(t *testing.T) {
	to := newOTelStub(t)
	g := harness.StartHTTP(t, to.config("http", "metrics = false")+harness.ScriptedServer("box"))
	const other = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		h := mcptest.NewHTTP(g.URL)
		h.Header.Set("traceparent", other)
		c := mcptest.NewClient(h, revision)
		t.Cleanup(func() { c.Close() })
		harness.Handshake(t, c)
		harness.CallTool(t, c, "box__echo", `{}`)
		harness.Request(t, c, "tools/call",
			`{"name":"box__self","arguments":{},"_meta":{"traceparent":"`+
				clientsParent+`"}}`)
	}
	g.Stop()
	for _, s := range to.named("tools/call box__echo") {
		if hex.EncodeToString(s.TraceId) != strings.Repeat("a", 32) ||
			hex.EncodeToString(s.ParentSpanId) != strings.Repeat("b", 16) {
			t.Errorf("a call without a trace of its own is %v", s)
		}
	}
	both := to.named("tools/call box__self")
	for _, s := range both {
		if hex.EncodeToString(s.TraceId) != clientsTrace || len(s.Links) != 1 ||
			hex.EncodeToString(s.Links[0].SpanId) != strings.Repeat("b", 16) {
			t.Errorf("a call with a trace of its own is %v", s)
		}
	}
	if len(both) != 2 {
		t.Errorf("%d spans, want 2", len(both))
	}
}

func TestACallIsTracedWithinBounds(t *testing.T) {
	to := newOTelStub(t)
	g, c := harness.StartStdio(t, to.config("http", "metrics = false")+
		harness.ScriptedServer("box")+harness.Builtin("secrets",
		`action = "redact"`), "2025-11-25")
	harness.Request(t, c, "tools/call",
		`{"name":"box__progress","arguments":{"n":500},"_meta":{"progressToken":"p"}}`)
	g.Stop()
	spans := to.named("tools/call box__progress")
	if len(spans) != 1 || len(spans[0].Events) != 64 {
		t.Errorf("got %v", spans)
	}
	if n := len(to.named("stage secrets")); n > 70 {
		t.Errorf("%d spans of a stage", n)
	}
	notices := 0
	for _, r := range g.Records() {
		if r.Method == "notifications/progress" {
			notices++
		}
	}
	if notices != 500 {
		t.Errorf("the audit log has %d of them", notices)
	}
}

func TestWhatTheEnvironmentSaysOfTelemetryIsNotHeard(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			decoy, to := newOTelStub(t), newOTelStub(t)
			for _, signal := range []string{"", "TRACES_", "METRICS_"} {
				for name, value := range map[string]string{"ENDPOINT": decoy.http,
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
			g, c := harness.StartStdio(t, to.config(protocol, "")+harness.ScriptedServer("box"),
				"2025-11-25")
			harness.CallTool(t, c, "box__echo", `{}`)
			g.Stop()
			if len(to.named("tools/call box__echo")) != 1 || len(to.metrics) == 0 {
				t.Errorf("the collector of the configuration got %v, %q", to.spans, to.metrics)
			}
			if bytes.Contains(to.all.Bytes(), []byte("of-the-environment")) {
				t.Error("the environment was heard")
			}
			if len(decoy.headers) > 0 {
				t.Errorf("the collector of the environment got %d requests", len(decoy.headers))
			}
			for _, h := range to.headers {
				if h != "Bearer of-the-collector" {
					t.Errorf("the collector got the credentials %q", h)
				}
			}
		})
	}
}

// A collector that takes nothing costs no call anything, and the end a few seconds.
func TestACollectorThatHangsIsNotWaitedFor(t *testing.T) {
	harness.Long(t, "waits for a collector")
	l, err := net.Listen("tcp", "127.0.0.1:0") // who connects is never spoken to
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			to := &otelStub{http: "http://" + l.Addr().String(),
				grpc: "http://" + l.Addr().String()}
			g, c := harness.StartStdio(t, to.config(protocol, `interval = "1s"`)+
				harness.ScriptedServer("box"), mcptest.Modern)
			began := time.Now()
			for range 300 {
				harness.CallTool(t, c, "box__echo", `{}`)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("300 calls took %s", took)
			}
			began = time.Now()
			g.Stop()
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("the end took %s", took)
			}
			g.Killed = true // it says that the last telemetry could not be sent
			if log := g.Stderr.String(); !strings.Contains(log, "telemetry") {
				t.Errorf("it does not say that the telemetry was lost:\n%s", log)
			}
		})
	}
}

func TestWithoutTracesWhatAClientSaysOfItsTraceIsLeftAlone(t *testing.T) {
	to := newOTelStub(t)
	for _, more := range []string{"", strings.Replace(to.config("http", ""), "traces = true",
		"", 1)} {
		_, c := harness.StartStdio(t, more+harness.ScriptedServer("box"), "2025-11-25")
		m := harness.Request(t, c, "tools/call",
			`{"name":"box__echo","arguments":{},"_meta":{"tracestate":"rojo=1","traceparent":"`+
				clientsParent+`"}}`)
		if want := `{"name":"echo","arguments":{},"_meta":{"tracestate":"rojo=1","traceparent":"` +
			clientsParent + `"}}`; string(seen(t, m)) != want {
			t.Errorf("the server saw %s, want %s", seen(t, m), want)
		}
	}
}
