package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"gatekit/audit"
	"gatekit/audit/format"
)

// OTLPOptions configure an OTLP receiver.
type OTLPOptions struct {
	// https://HOST:4317 with gRPC, https://HOST:4318/v1/logs with HTTP; http:// for no TLS
	URL      string
	Protocol string // "grpc" or "http"
	Headers  map[string]string
	TLS      *tls.Config    // nil trusts the certificate authorities of the system
	Encoder  format.Encoder // encodes the body
	Version  string         // Gatekit's version
}

// NewOTLP returns a receiver that sends each record as an OpenTelemetry log record, over gRPC or as
// protobuf over HTTP. The body is the encoded record; see recordAttributes for the attributes. A
// checkpoint is a log record with the event name gatekit.checkpoint. If a collector accepts only a
// part of a batch, the rejected records are skipped: the collector does not name them, and OTLP
// forbids sending such a batch again.
//
// The receiver builds the protocol's messages itself. The exporters of the OpenTelemetry SDK return
// success first, and report rejected records later to a handler of the whole process.
func NewOTLP(o OTLPOptions) (Receiver, error) {
	host, _ := os.Hostname()
	c := &otlp{encoder: o.Encoder, secrets: headerSecrets(o.Headers),
		scope: &common.InstrumentationScope{Name: "gatekit/audit", Version: o.Version},
		resource: &resource.Resource{Attributes: nonEmptyAttributes(
			"service.name", "gatekit", "service.version", o.Version, "host.name", host)}}
	if o.Protocol == "http" {
		p, err := newHTTPPoster(o.URL, o.Headers, o.TLS)
		if err != nil {
			return nil, err
		}
		c.export, c.close = httpExport(p), p.Close
		return c, nil
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, err
	}
	transportCredentials := insecure.NewCredentials()
	if u.Scheme == "https" {
		transportCredentials = credentials.NewTLS(o.TLS)
	}
	target := u.Host
	if u.Port() == "" {
		target = net.JoinHostPort(u.Hostname(), "4317")
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(transportCredentials),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes)))
	if err != nil {
		return nil, err
	}
	c.export, c.close = grpcExport(collector.NewLogsServiceClient(conn), o.Headers), conn.Close
	return c, nil
}

type otlp struct {
	encoder  format.Encoder
	secrets  secrets
	resource *resource.Resource
	scope    *common.InstrumentationScope
	export   exporter
	close    func() error
}

func (c *otlp) Send(ctx context.Context, b Batch) error {
	scope := &logs.ScopeLogs{Scope: c.scope}
	if b.Checkpoint != nil {
		now := uint64(time.Now().UnixNano())
		scope.LogRecords = append(scope.LogRecords, &logs.LogRecord{TimeUnixNano: now,
			ObservedTimeUnixNano: now, EventName: "gatekit.checkpoint",
			SeverityNumber: logs.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO",
			Body: stringValue(string(b.Checkpoint))})
	}
	for i := range b.Records {
		scope.LogRecords = append(scope.LogRecords, c.record(&b.Records[i], b.Short))
	}
	response, err := c.export(ctx, &collector.ExportLogsServiceRequest{
		ResourceLogs: []*logs.ResourceLogs{{
			Resource:  c.resource,
			ScopeLogs: []*logs.ScopeLogs{scope},
		}},
	})
	if err != nil {
		return err
	}
	if n := response.GetPartialSuccess().GetRejectedLogRecords(); n > 0 {
		err := fmt.Errorf("the collector rejected %d of %d records: %s", n, len(scope.LogRecords),
			quoteBeginning(c.secrets.redact(response.GetPartialSuccess().GetErrorMessage())))
		// OTLP forbids sending a partially accepted batch again
		return &RejectedError{Err: err, Partial: n < int64(len(scope.LogRecords))}
	}
	return nil
}

// record returns the log record for r. If short is set, it shortens r.
func (c *otlp) record(r *audit.Record, short bool) *logs.LogRecord {
	recordTime := uint64(r.Time.UnixNano())
	line := encoderOf(c.encoder, short).Append(nil, r)
	if short {
		s := format.ShortRecord(r)
		r = &s
	}
	l := &logs.LogRecord{TimeUnixNano: recordTime, ObservedTimeUnixNano: recordTime,
		EventName: "gatekit.audit",
		Body:      stringValue(string(line[:len(line)-1])), Attributes: recordAttributes(r)}
	switch severity(r) { // the syslog severity
	case 3: // err
		l.SeverityNumber, l.SeverityText = logs.SeverityNumber_SEVERITY_NUMBER_ERROR, "ERROR"
	case 4: // warning
		l.SeverityNumber, l.SeverityText = logs.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN"
	case 5: // notice
		l.SeverityNumber, l.SeverityText = logs.SeverityNumber_SEVERITY_NUMBER_INFO2, "INFO2"
	default:
		l.SeverityNumber, l.SeverityText = logs.SeverityNumber_SEVERITY_NUMBER_INFO, "INFO"
	}
	return l
}

// recordAttributes returns the attributes by which records are searched. Their names are those of
// the semantic conventions for MCP. If the conventions have no name, the attribute's name is
// "gatekit." plus the name of the member in the audit log.
func recordAttributes(r *audit.Record) []*common.KeyValue {
	name := "gatekit.name"
	switch kind, _, _ := strings.Cut(r.Method, "/"); kind {
	case "tools":
		name = "gen_ai.tool.name"
	case "prompts":
		name = "gen_ai.prompt.name"
	case "resources":
		name = "mcp.resource.uri"
	}
	all := nonEmptyAttributes(
		"mcp.method.name", r.Method, "mcp.session.id", r.Session, "enduser.id", r.Principal,
		"enduser.scope", r.Scope, "gatekit.client", r.Client,
		"gatekit.action", r.Action, "gatekit.reason", r.Reason, "gatekit.server", r.Server,
		name, r.Name, "gatekit.exchange", r.Exchange, "gatekit.direction", r.Direction,
		"gatekit.kind", r.Kind,
		"error.message", r.Error)
	switch {
	case r.Code != 0:
		code := strconv.FormatInt(r.Code, 10)
		all = append(all, nonEmptyAttributes("error.type", code, "rpc.response.status_code",
			code)...)
	case r.Failed:
		all = append(all, nonEmptyAttributes("error.type", "tool_error")...)
	}
	return append(all, &common.KeyValue{Key: "gatekit.seq",
		Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(r.Seq)}}})
}

// nonEmptyAttributes returns the attributes of the pairs (key, value) whose value is not empty.
func nonEmptyAttributes(pairs ...string) []*common.KeyValue {
	var all []*common.KeyValue
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, &common.KeyValue{Key: pairs[i], Value: stringValue(pairs[i+1])})
		}
	}
	return all
}

func stringValue(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}}
}

// exporter sends a batch to a collector, and returns the collector's response.
type exporter = func(context.Context,
	*collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error)

// httpExport returns an exporter over HTTP.
func httpExport(p *httpPoster) exporter {
	return func(ctx context.Context,
		request *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
		body, err := proto.Marshal(request)
		if err != nil {
			return nil, err
		}
		answer, err := p.post(ctx, body, http.Header{"Content-Type": {"application/x-protobuf"}})
		if _, ok := errors.AsType[*notFoundError](err); ok {
			return nil, fmt.Errorf("%w\nhint: with the protocol http, the url of the sink is the "+
				"whole URL of the collector, such as https://HOST:4318/v1/logs", err)
		}
		if err != nil {
			return nil, err
		}
		response := new(collector.ExportLogsServiceResponse)
		if err := proto.Unmarshal(answer, response); err != nil {
			return nil, fmt.Errorf("the response is not an OTLP export response: %w", err)
		}
		return response, nil
	}
}

// grpcExport returns an exporter over gRPC.
func grpcExport(client collector.LogsServiceClient, headers map[string]string) exporter {
	headerValues := headerSecrets(headers)
	return func(ctx context.Context,
		request *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
		response, err := client.Export(metadata.NewOutgoingContext(ctx, metadata.New(headers)),
			request)
		if err == nil {
			return response, nil
		}
		st := status.Convert(err)
		err = fmt.Errorf("%s: %s", st.Code(), quoteBeginning(headerValues.redact(st.Message())))
		for _, detail := range st.Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				return nil, &retryLaterError{err, info.GetRetryDelay().AsDuration()}
			}
		}
		// ResourceExhausted may mean a batch that is too large, or too many requests. A smaller
		// batch after a delay helps against both.
		if st.Code() == codes.ResourceExhausted || st.Code() == codes.InvalidArgument {
			return nil, &RejectedError{Err: err}
		}
		return nil, err
	}
}

func (c *otlp) Close() error { return c.close() }
