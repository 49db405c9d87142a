package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gatekit/audit/telemetry"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/shared"
)

// log is a pipeline.Recorder that returns err.
type log struct{ err error }

func (l *log) Record(context.Context, pipeline.Outcome) (uint64, error) { return 1, l.err }

func open(t testing.TB, o telemetry.Options) *telemetry.Telemetry {
	t.Helper()
	o.Prometheus = true
	m, err := telemetry.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	return m
}

func page(t *testing.T, m *telemetry.Telemetry) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// wantLines checks that a page of metrics has the lines.
func wantLines(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(page, l+"\n") {
			t.Errorf("the page lacks %s:\n%s", l, page)
			return
		}
	}
}

func message(kind mcp.Kind, method, server, name string) *mcp.Message {
	m := mcp.NewRequest("1", method, []byte(`{"name":"x"}`))
	m.Kind, m.Direction, m.Server, m.Name = kind, mcp.ToServer, server, name
	return m
}

func TestRecordsAreCounted(t *testing.T) {
	m := open(t, telemetry.Options{PolicyStage: "policy", ToolLabels: true})
	l := &log{}
	rec := m.Recorder(l)
	record := func(o pipeline.Outcome) {
		t.Helper()
		if seq, err := rec.Record(t.Context(), o); seq != 1 || !errors.Is(err, l.err) {
			t.Errorf("Record returned %d, error %v; want 1, and error %v", seq, err, l.err)
		}
	}
	steps := []pipeline.Step{{Stage: "pii", Action: "modify", Duration: 3 * time.Millisecond},
		{Stage: "policy", Action: "deny", Reason: "roots/traversal: ../x",
			Duration: time.Millisecond}}
	list := mcp.NewResponse("1", []byte(`{"tools":[{"name":"read"},{"name":"wri\u001bte"}]}`))
	list.Method, list.Server = "tools/list", "files"
	record(pipeline.Outcome{Before: list, After: list, Action: "pass"})
	record(pipeline.Outcome{Before: message(mcp.Request, "tools/call", "files", "read"),
		Action: "deny", Steps: steps})
	record(pipeline.Outcome{Before: message(mcp.Request, "tools/call", "files", "wri\x1bte"),
		Action: "pass"})
	record(pipeline.Outcome{Before: message(mcp.Request, "made/up", "", ""), Action: "deny",
		Steps: []pipeline.Step{{Stage: "policy", Action: "deny", Reason: "what a client said: x"}}})
	record(pipeline.Outcome{Action: "start"})
	l.err = errors.New("disk full")
	record(pipeline.Outcome{Before: message(mcp.Request, "tools/call", "files", "read"),
		Action: "pass"})
	if m.LastRecordError() != l.err {
		t.Errorf("the last record's error is %v, want %v", m.LastRecordError(), l.err)
	}
	l.err = nil
	record(pipeline.Outcome{Before: message(mcp.Request, "ping", "", ""), Action: "answer"})
	if m.LastRecordError() != nil {
		t.Errorf("the last record's error is %v, want none", m.LastRecordError())
	}
	wantLines(t, page(t, m),
		`gatekit_decisions_total{gatekit_action="deny",gatekit_direction="to_server",gatekit_kind="request",gatekit_server="files",gen_ai_tool_name="read",mcp_method_name="tools/call"} 1`,
		`gatekit_decisions_total{gatekit_action="pass",gatekit_direction="to_server",gatekit_kind="request",gatekit_server="files",gen_ai_tool_name="wri\\x1bte",mcp_method_name="tools/call"} 1`,
		`gatekit_decisions_total{gatekit_action="start"} 1`,
		`gatekit_decisions_total{gatekit_action="deny",gatekit_direction="to_server",gatekit_kind="request",mcp_method_name="_OTHER"} 1`,
		`gatekit_denials_total{gatekit_rule="roots/traversal",gatekit_stage="policy"} 1`,
		`gatekit_denials_total{gatekit_stage="policy"} 1`,
		`gatekit_audit_failures_total 1`,
		`gatekit_audit_duration_seconds_count 7`,
		`gatekit_stage_duration_seconds_count{gatekit_action="modify",gatekit_stage="pii"} 1`,
		`gatekit_stage_duration_seconds_bucket{gatekit_action="modify",gatekit_stage="pii",le="0.0025"} 0`,
		`gatekit_stage_duration_seconds_bucket{gatekit_action="modify",gatekit_stage="pii",le="0.005"} 1`)
}

// recorderFunc is a recorder that is one function.
type recorderFunc func(pipeline.Outcome) error

func (f recorderFunc) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	return 1, f(o)
}

// While a record is being written, another record fails. The record that is then written must not
// hide the error. A record that begins after the error must clear it.
func TestConcurrentRecordDoesNotHideAnError(t *testing.T) {
	m, full := open(t, telemetry.Options{}), errors.New("disk full")
	var rec pipeline.Recorder
	rec = m.Recorder(recorderFunc(func(o pipeline.Outcome) error {
		switch o.Action {
		case "outer":
			rec.Record(t.Context(), pipeline.Outcome{Action: "inner"})
		case "inner":
			return full
		}
		return nil
	}))
	for _, c := range []struct {
		action string
		want   error
	}{{"pass", nil}, {"outer", full}, {"outer", full}, {"pass", nil}} {
		rec.Record(t.Context(), pipeline.Outcome{Action: c.action})
		if got := m.LastRecordError(); got != c.want {
			t.Errorf("after the record %s: got the error %v, want %v", c.action, got, c.want)
		}
	}
}

// TestInventedNamesAreNotLabels calls 600 tools that do not exist. Only 256 names can become
// labels, and a real tool must still get its label.
func TestInventedNamesAreNotLabels(t *testing.T) {
	m := open(t, telemetry.Options{ToolLabels: true})
	rec := m.Recorder(&log{})
	server := m.ServerObserver("files")
	call := func(name string, answer *mcp.Message) {
		t.Helper()
		q := mcp.NewRequest("1", "tools/call", []byte(`{"name":`+string(mcp.Quote(name))+`}`))
		q.Direction, q.Server, q.Name = mcp.ToServer, "files", name
		ctx, _ := m.StartCall(t.Context(), q, proxy.OpenOptions{})
		if _, err := rec.Record(ctx, pipeline.Outcome{Before: q, After: q,
			Action: "pass"}); err != nil {
			t.Error(err)
		}
		_, ended := server.Send(ctx, q)
		ended(answer, nil)
	}
	for n := range 300 {
		call(fmt.Sprint("made-up-", n), mcp.NewError("1", mcp.CodeInvalidParams, "no such tool",
			nil))
		call(fmt.Sprint("made-up-too-", n), mcp.NewResponse("1",
			[]byte(`{"content":[],"isError":true}`)))
	}
	call("read", mcp.NewResponse("1", []byte(`{"content":[]}`)))
	text := page(t, m)
	wantLines(t, text, `mcp_client_operation_duration_seconds_count{gatekit_server="files",gen_ai_tool_name="read",mcp_method_name="tools/call"} 1`)
	if strings.Contains(text, "made-up") {
		t.Error("a tool without a successful call has a label, want none")
	}
}

func TestSharedCallsAreCounted(t *testing.T) {
	m := open(t, telemetry.Options{})
	m.SharedCall("get", time.Millisecond, nil)
	m.SharedCall("get", time.Millisecond, fmt.Errorf("%w: x", shared.ErrUnavailable))
	m.SharedCall("swap", time.Millisecond, fmt.Errorf("%w: x", shared.ErrLost))
	wantLines(t, page(t, m), `gatekit_shared_duration_seconds_count{gatekit_shared_method="get"} 2`,
		`gatekit_shared_duration_seconds_sum{gatekit_shared_method="swap"} 0.001`,
		`gatekit_shared_errors_total{error_type="unavailable",gatekit_shared_method="get"} 1`,
		`gatekit_shared_errors_total{error_type="lost",gatekit_shared_method="swap"} 1`)
}

func TestFailedResponsesHaveErrorTypes(t *testing.T) {
	m := open(t, telemetry.Options{})
	server := m.ServerObserver("files")
	for range 2 {
		for _, c := range []struct {
			answer *mcp.Message
			err    error
		}{
			{mcp.NewResponse("1", []byte(`{"content":[]}`)), nil},
			{mcp.NewResponse("1", []byte(`{"content":[],"isError":true}`)), nil},
			{mcp.NewError("1", -32602, "no", nil), nil},
			{nil, errors.New("gone")},
		} {
			edits, ended := server.Send(t.Context(), message(mcp.Request, "tools/call", "", ""))
			if len(edits) > 0 {
				t.Errorf("traces are off, and Send returned the edits %v, want no edits", edits)
			}
			ended(c.answer, c.err)
		}
	}
	_, ended := m.StartCall(t.Context(), message(mcp.Request, "tools/call", "", ""),
		proxy.OpenOptions{Revision: "1999-01-01"})
	wantLines(t, page(t, m), `gatekit_requests_active 1`)
	ended(pipeline.Passed{})
	wantLines(t, page(t, m), `gatekit_requests_active 0`,
		`mcp_client_operation_duration_seconds_count{gatekit_server="files",mcp_method_name="tools/call"} 2`,
		`mcp_client_operation_duration_seconds_count{error_type="tool_error",gatekit_server="files",mcp_method_name="tools/call"} 2`,
		`mcp_client_operation_duration_seconds_count{error_type="-32602",gatekit_server="files",mcp_method_name="tools/call",rpc_response_status_code="-32602"} 2`,
		`mcp_client_operation_duration_seconds_count{error_type="unavailable",gatekit_server="files",mcp_method_name="tools/call"} 2`,
		`mcp_server_operation_duration_seconds_count{error_type="cancelled",mcp_method_name="tools/call",mcp_protocol_version="_OTHER"} 1`)
}

func BenchmarkRecord(b *testing.B) {
	rec := open(b, telemetry.Options{PolicyStage: "policy"}).Recorder(&log{})
	o := pipeline.Outcome{Before: message(mcp.Request, "tools/call", "files", "read"),
		Action: "pass", Steps: []pipeline.Step{{Stage: "policy", Action: "pass",
			Duration: time.Millisecond}}}
	b.ReportAllocs()
	for b.Loop() {
		rec.Record(b.Context(), o)
	}
}

func BenchmarkCall(b *testing.B) {
	t := open(b, telemetry.Options{})
	server, m, answer := t.ServerObserver("files"), message(mcp.Request, "tools/call", "files",
		"read"),
		mcp.NewResponse("1", []byte(`{"content":[]}`))
	b.ReportAllocs()
	for b.Loop() {
		_, ended := t.StartCall(b.Context(), m, proxy.OpenOptions{Revision: mcp.Rev20251125})
		_, answered := server.Send(b.Context(), m)
		answered(answer, nil)
		ended(pipeline.Passed{})
	}
}
