package sink_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"gatekit/audit"
	"gatekit/audit/sink"
)

// fakeCollector accepts log records over gRPC and HTTP, or responds as configured.
type fakeCollector struct {
	collector.UnimplementedLogsServiceServer

	mu sync.Mutex
	// answer returns the response to a request; try is the number of the request, from 1. If answer
	// is nil or returns nil, nil, the collector accepts the request.
	answer func(try int) (*collector.ExportLogsServiceResponse, error)
	tries  []time.Time // when the requests came
	tokens []string    // values of the Authorization headers
	got    []*collector.ExportLogsServiceRequest
}

func (c *fakeCollector) Export(ctx context.Context,
	r *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		c.mu.Lock()
		c.tokens = append(c.tokens, md.Get("authorization")...)
		c.mu.Unlock()
	}
	return c.take(r)
}

func (c *fakeCollector) take(r *collector.ExportLogsServiceRequest) (
	*collector.ExportLogsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries = append(c.tries, time.Now())
	if c.answer != nil {
		if response, err := c.answer(len(c.tries)); response != nil || err != nil {
			return response, err
		}
	}
	c.got = append(c.got, r)
	return &collector.ExportLogsServiceResponse{}, nil
}

func (c *fakeCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	request := new(collector.ExportLogsServiceRequest)
	if r.URL.Path != "/v1/logs" || r.Header.Get("Content-Type") != "application/x-protobuf" ||
		proto.Unmarshal(body, request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.tokens = append(c.tokens, r.Header.Get("Authorization"))
	c.mu.Unlock()
	response, err := c.take(request)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	answer, _ := proto.Marshal(response)
	w.Write(answer)
}

// records returns the accepted log records.
func (c *fakeCollector) records() (all []*logs.LogRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.got {
		for _, r := range r.ResourceLogs {
			for _, s := range r.ScopeLogs {
				all = append(all, s.LogRecords...)
			}
		}
	}
	return all
}

// partialSuccess returns the response of a collector that rejects one record of a batch.
func partialSuccess(message string) *collector.ExportLogsServiceResponse {
	return &collector.ExportLogsServiceResponse{
		PartialSuccess: &collector.ExportLogsPartialSuccess{
			RejectedLogRecords: 1, ErrorMessage: message}}
}

// serveOTLP serves the collector. It returns the options of a receiver that sends to the collector.
func serveOTLP(t testing.TB, c *fakeCollector, protocol string) sink.OTLPOptions {
	t.Helper()
	o := sink.OTLPOptions{Protocol: protocol, Encoder: newEncoder(t, "jsonl", 1<<20),
		Version: "1.0", Headers: map[string]string{"Authorization": "Bearer t0ken"}}
	switch protocol {
	case "http":
		s := httptest.NewServer(c)
		t.Cleanup(s.Close)
		o.URL = s.URL + "/v1/logs"
	case "grpc":
		secure, client := certificate(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer(grpc.Creds(credentials.NewTLS(secure)))
		collector.RegisterLogsServiceServer(s, c)
		go s.Serve(l)
		t.Cleanup(s.Stop)
		o.URL, o.TLS = "https://"+l.Addr().String(), client
	}
	return o
}

func otlpTo(t testing.TB, o sink.OTLPOptions) sink.Receiver {
	t.Helper()
	r, err := sink.NewOTLP(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestCollectorGetsRecordsWithAttributes(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			c := &fakeCollector{}
			r := otlpTo(t, serveOTLP(t, c, protocol))
			b := batch(t, "a", "b")
			b.Records[1] = audit.Record{Seq: 2, Time: b.Records[1].Time, Line: b.Records[1].Line,
				Session: "s", Exchange: "e", Principal: "ann", Direction: "to_server",
				Kind:   "request",
				Method: "tools/call", Server: "files", Name: "read", Action: "deny",
				Reason: "outside", Error: "", Code: -32000}
			send(t, r, b, sink.Batch{Checkpoint: []byte("origin\n2\n")})
			got := c.records()
			if len(got) != 3 {
				t.Fatalf("the collector got %v, want 3 log records", got)
			}
			for i, want := range []string{string(b.Records[0].Line), string(b.Records[1].Line),
				"origin\n2\n"} {
				if got := got[i].Body.GetStringValue(); got != want {
					t.Errorf("body %d is %q, want %q", i, got, want)
				}
			}
			if got[1].TimeUnixNano != uint64(b.Records[1].Time.UnixNano()) ||
				got[1].SeverityText != "WARN" || got[1].EventName != "gatekit.audit" ||
				got[2].EventName != "gatekit.checkpoint" {
				t.Errorf("got %v, want the time, severity and event names of the batch", got)
			}
			attributes := map[string]string{}
			for _, a := range got[1].Attributes {
				attributes[a.Key] = a.Value.GetStringValue()
				if a.Key == "gatekit.seq" {
					attributes[a.Key] = fmt.Sprint(a.Value.GetIntValue())
				}
			}
			want := map[string]string{"mcp.method.name": "tools/call", "mcp.session.id": "s",
				"enduser.id": "ann", "gatekit.action": "deny", "gatekit.reason": "outside",
				"gatekit.server":   "files",
				"gen_ai.tool.name": "read", "gatekit.exchange": "e",
				"gatekit.direction": "to_server", "gatekit.kind": "request", "gatekit.seq": "2",
				"error.type": "-32000", "rpc.response.status_code": "-32000"}
			if !maps.Equal(attributes, want) {
				t.Errorf("the attributes are %v, want %v", attributes, want)
			}
			if resource := fmt.Sprint(
				c.got[0].ResourceLogs[0].Resource); !strings.Contains(resource, "service.name") ||
				!strings.Contains(resource, "gatekit") {
				t.Errorf("the resource is %s, want service.name gatekit", resource)
			}
			if !slices.Equal(c.tokens, []string{"Bearer t0ken", "Bearer t0ken"}) {
				t.Errorf("the collector got the tokens %q, want the configured one twice", c.tokens)
			}
		})
	}
}

func TestFailingCollectorGetsEverythingLater(t *testing.T) {
	busy, err := status.New(codes.Unavailable,
		"busy").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(2 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, protocol string
		err            error
		delay          time.Duration // shortest delay before the second try
	}{
		{"the collector is down", "grpc", status.Error(codes.Unavailable, "down"),
			500 * time.Millisecond},
		{"the collector asks for a delay", "grpc", busy.Err(), 2 * time.Second},
		{"the collector is down", "http", errors.New("down"), 500 * time.Millisecond},
	} {
		t.Run(c.protocol+": "+c.name, func(t *testing.T) {
			t.Parallel()
			in := &fakeCollector{answer: func(try int) (*collector.ExportLogsServiceResponse,
				error) {
				if try > 1 {
					return nil, nil
				}
				return nil, c.err
			}}
			j := newTestLog(t)
			j.record("a", "b", "c")
			_, stop := start(t, j.options(otlpTo(t, serveOTLP(t, in, c.protocol))))
			for end := time.Now().Add(2 * time.Minute); len(in.records()) < 3 &&
				time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			var got strings.Builder
			for _, r := range in.records() {
				got.WriteString(r.Body.GetStringValue() + "\n")
			}
			if want := read(t, j.file); got.String() != want {
				t.Errorf("the collector got %q, want %q", got.String(), want)
			}
			if got := in.tries[1].Sub(in.tries[0]); got < c.delay {
				t.Errorf("the second try came after %v, want %v at least", got, c.delay)
			}
		})
	}
}

func TestPartiallyAcceptedBatchIsNotSentAgain(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			in := &fakeCollector{answer: func(try int) (*collector.ExportLogsServiceResponse,
				error) {
				if try > 1 {
					return nil, nil
				}
				return partialSuccess("no"), nil
			}}
			j := newTestLog(t)
			j.record("a", "b", "c")
			_, stop := start(t, j.options(otlpTo(t, serveOTLP(t, in, protocol))))
			for end := time.Now().Add(2 * time.Minute); len(in.records()) < 1 &&
				time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			if got := in.records(); len(got) != 1 || !strings.Contains(got[0].Body.GetStringValue(),
				"sink gap") {
				t.Errorf("after the batch the collector got %v, want only the \"sink gap\" record",
					got)
			}
			want(t, "the sink's records", j.sinkRecords(),
				[]string{`sink gap: sink "siem": some of the records 1 to 3 were skipped, ` +
					`because the receiver rejected them: the collector rejected 1 of 3 ` +
					`records: "no"`})
		})
	}
}

func TestCollectorWithSmallLimitGetsSmallBatches(t *testing.T) {
	in := &fakeCollector{answer: func(try int) (*collector.ExportLogsServiceResponse, error) {
		if try < 4 {
			return nil, status.Error(codes.ResourceExhausted, "received message larger than max")
		}
		return nil, nil
	}}
	j := newTestLog(t)
	j.recordMany(80)
	_, stop := start(t, j.options(otlpTo(t, serveOTLP(t, in, "grpc"))))
	for end := time.Now().Add(2 * time.Minute); len(in.records()) < 80 &&
		time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := len(in.got[0].ResourceLogs[0].ScopeLogs[0].LogRecords); n != 10 ||
		len(in.records()) != 80 {
		t.Errorf("the first accepted batch had %d of %d records, want 10 of 80", n,
			len(in.records()))
	}
}

func TestCollectorErrorsHaveNoSecrets(t *testing.T) {
	for _, c := range []struct {
		protocol string
		response *collector.ExportLogsServiceResponse
		err      error
	}{
		{"grpc", nil, status.Error(codes.Unauthenticated,
			"no such token \x1b[31m: Bearer t0ken, t0ken")},
		{"grpc", partialSuccess("not with t0ken"), nil},
		{"http", partialSuccess("not with t0ken"), nil},
	} {
		in := &fakeCollector{answer: func(int) (*collector.ExportLogsServiceResponse, error) {
			return c.response, c.err
		}}
		err := otlpTo(t, serveOTLP(t, in, c.protocol)).Send(t.Context(), batch(t, "a"))
		if err == nil || strings.Contains(err.Error(), "t0ken") || !strings.Contains(err.Error(),
			"[redacted]") || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: error %v, want it printable and redacted", c.protocol, err)
		}
	}
}

// It is a common mistake to configure a URL without the path /v1/logs. The collector then responds
// with 404.
func TestErrorForURLWithoutPathHasHint(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	err := otlpTo(t, sink.OTLPOptions{Protocol: "http", URL: s.URL, Version: "1.0",
		Encoder: newEncoder(t, "jsonl", 1<<20)}).Send(t.Context(), batch(t, "a"))
	if err == nil || !strings.Contains(err.Error(), "404 Not Found") ||
		!strings.Contains(err.Error(), "such as https://HOST:4318/v1/logs") {
		t.Errorf("error %v, want 404 with a hint", err)
	}
}

func TestCollectorWithUntrustedCertificateGetsNothing(t *testing.T) {
	in := &fakeCollector{}
	o := serveOTLP(t, in, "grpc")
	o.TLS = nil
	if err := otlpTo(t, o).Send(t.Context(), batch(t, "a")); err == nil ||
		!strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "t0ken") {
		t.Errorf("error %v, want one about the certificate, without the token", err)
	}
	if len(in.tokens) > 0 {
		t.Errorf("the collector got the tokens %q, want none", in.tokens)
	}
}
