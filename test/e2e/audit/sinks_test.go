package audit

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leodido/go-syslog/v4"
	"github.com/leodido/go-syslog/v4/octetcounting"
	"github.com/leodido/go-syslog/v4/rfc5424"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

// receivedLines holds the lines of JSON that a receiver got: records and checkpoints. It is safe
// for concurrent use.
type receivedLines struct {
	mu    sync.Mutex
	lines []string
}

func (r *receivedLines) add(lines ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, lines...)
}

func (r *receivedLines) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// records returns the records, without checkpoints and duplicates.
func (r *receivedLines) records() (lines []string) {
	for _, l := range r.all() {
		if strings.HasPrefix(l, `{"seq":`) && !slices.Contains(lines, l) {
			lines = append(lines, l)
		}
	}
	return lines
}

// checkpoints returns the received checkpoints, which are signed notes, one after another.
func (r *receivedLines) checkpoints() (notes string) {
	for _, l := range r.all() {
		var c struct{ Checkpoint string }
		if json.Unmarshal([]byte(l), &c) == nil && c.Checkpoint != "" {
			notes += c.Checkpoint + "\n"
		}
	}
	return notes
}

// startSyslogServer starts a syslog receiver. It accepts RFC 5424 messages over TCP, with octet
// counting (RFC 6587).
func startSyslogServer(t *testing.T) (url string, received *receivedLines) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	received = &receivedLines{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				octetcounting.NewParser(syslog.WithListener(func(r *syslog.Result) {
					if m, ok := r.Message.(*rfc5424.SyslogMessage); ok && r.Error == nil {
						received.add(*m.Message)
					}
				})).Parse(c)
			}()
		}
	}()
	return "tcp://" + l.Addr().String(), received
}

// logsServer is an OTLP collector of logs over gRPC.
type logsServer struct {
	collector.UnimplementedLogsServiceServer
	receivedLines
}

func (s *logsServer) Export(_ context.Context,
	r *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
	for _, r := range r.ResourceLogs {
		for _, l := range r.ScopeLogs {
			for _, l := range l.LogRecords {
				if l.EventName == "gatekit.checkpoint" {
					note, _ := json.Marshal(
						map[string]string{"checkpoint": l.Body.GetStringValue()})
					s.add(string(note))
				} else {
					s.add(l.Body.GetStringValue())
				}
			}
		}
	}
	return &collector.ExportLogsServiceResponse{}, nil
}

func startLogsServer(t *testing.T) (url string, received *receivedLines) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, logs := grpc.NewServer(), &logsServer{}
	collector.RegisterLogsServiceServer(s, logs)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return "http://" + l.Addr().String(), &logs.receivedLines
}

// startWebhook starts a webhook. The webhook accepts request number n if accept(n) returns true,
// and all requests if accept is nil.
func startWebhook(t *testing.T, accept func(n int) bool) (url string, received *receivedLines) {
	t.Helper()
	received = &receivedLines{}
	requests := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		received.mu.Lock()
		requests++
		n := requests
		received.mu.Unlock()
		if accept != nil && !accept(n) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		for line := range strings.Lines(string(body)) {
			received.add(strings.TrimSuffix(line, "\n"))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, received
}

// sinkTable returns the configuration of a sink.
func sinkTable(name, kind string, lines ...string) string {
	return fmt.Sprintf("[[audit.sink]]\nname = %q\nkind = %q\n%s\n", name, kind,
		strings.Join(lines, "\n"))
}

// TestEverySinkGetsEveryRecordAndNoSecret configures all kinds of sinks, and a server that puts a
// key into every field. Each sink gets every record. The checkpoints that a sink got let `gatekit
// audit verify` detect an older copy of the log. Gatekit does not write the key to any file, and
// does not send the key to any sink.
func TestEverySinkGetsEveryRecordAndNoSecret(t *testing.T) {
	h, _ := newLeakyServer("2025-11-25")
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	syslogURL, syslogLines := startSyslogServer(t)
	otlpURL, otlpLines := startLogsServer(t)
	webhookURL, webhookLines := startWebhook(t, nil)
	config := harness.HTTPServer("box", server.URL) +
		harness.Builtin("secrets", `action = "redact"`) +
		harness.AuditTable + "bodies = \"redacted\"\n" +
		sinkTable("table", "file", `path = "sent/records.csv"`, `format = "csv"`,
			`segment_bytes = 2000`) +
		sinkTable("copy", "file", `path = "sent/copy.jsonl"`) +
		sinkTable("siem", "syslog", fmt.Sprintf("url = %q", syslogURL),
			`send = ["records", "checkpoints"]`) +
		sinkTable("otel", "otlp", fmt.Sprintf("url = %q", otlpURL),
			`send = ["records", "checkpoints"]`) +
		sinkTable("hook", "webhook", fmt.Sprintf("url = %q", webhookURL),
			`send = ["records", "checkpoints"]`,
			`headers = { Authorization = "Bearer `+harness.PlantedKey+`" }`,
			`signing_key = "whsec_`+strings.Repeat("c2VjcmV0", 4)+`"`) +
		sinkTable("ocsf", "webhook", fmt.Sprintf("url = %q", webhookURL+"/ocsf"),
			`format = "ocsf"`) +
		sinkTable("people", "stderr")
	g := harness.StartHTTP(t, config)
	c := g.Client("2025-11-25")
	harness.Request(t, c, "tools/list", `{}`)
	for _, where := range []string{"text", "structured", "error", "data"} {
		harness.Request(t, c, "tools/call",
			`{"name":"box__leak","arguments":{"where":"`+where+`"}}`)
	}
	harness.Request(t, c, "tools/call",
		`{"name":"box__leak","arguments":{"key":"`+harness.PlantedKey+`"}}`)
	harness.Request(t, c, "tools/call", `{"name":"box__none","arguments":{"\u001b[31m\u202e":1}}`)
	c.Close()
	g.Stop()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(g.Dir)); err != nil {
		t.Fatal(err)
	}
	// A second run continues the log and every sink, and begins the next segment of the CSV file.
	harness.StartHTTPIn(t, g.Dir, config).Stop()

	log := g.LogLines()
	if !strings.Contains(log[0], `"action":"start"`) ||
		!strings.Contains(log[len(log)-1], `"action":"stop"`) {
		t.Fatalf("the log begins with %s and ends with %s, want start and stop", log[0],
			log[len(log)-1])
	}
	copied, err := os.ReadFile(filepath.Join(g.Dir, "sent/copy.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string][]string{
		"the file":    strings.Split(strings.TrimSuffix(string(copied), "\n"), "\n"),
		"syslog":      syslogLines.records(),
		"OTLP":        otlpLines.records(),
		"the webhook": webhookLines.records(),
	} {
		if !slices.Equal(got, log) {
			t.Errorf("%s got %d records, want the %d records of the log: %.300q", what, len(got),
				len(log), got)
		}
	}
	tables, _ := filepath.Glob(filepath.Join(g.Dir, "sent/records*.csv"))
	slices.Sort(tables)
	rows := 0
	for _, file := range tables {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		if err != nil || len(all) < 2 || all[0][0] != "timestamp" {
			t.Errorf("%s: %v, %q, want a header and rows", file, err, all)
		}
		rows += len(all) - 1
	}
	if rows != len(log) || len(tables) < 2 {
		t.Errorf("%d CSV files have %d rows, want at least 2 files and %d rows", len(tables), rows,
			len(log))
	}
	ocsf := 0
	for _, l := range webhookLines.all() {
		if strings.Contains(l, `"class_uid":600`) {
			ocsf++
		}
	}
	if ocsf != len(log) {
		t.Errorf("the webhook got %d OCSF events, want %d", ocsf, len(log))
	}
	if text := g.Stderr.String(); strings.Count(text, "tools/call leak") < 5 ||
		!strings.Contains(text, "stop") {
		t.Errorf("stderr contains\n%s\nwant the records as text", text)
	}

	sent := strings.Join(slices.Concat(syslogLines.all(), otlpLines.all(), webhookLines.all()),
		"\n")
	if strings.Contains(sent, harness.PlantedKey) ||
		!strings.Contains(sent, "[secret:aws-access-token") {
		t.Error("the sinks got the key, or got no redaction in place of the key")
	}
	err = filepath.WalkDir(g.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "gatekit.toml" {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(harness.PlantedKey)) {
			t.Errorf("the key is in %s", path)
		}
		if i, _ := d.Info(); i.Mode().Perm()&0o077 != 0 && !strings.HasSuffix(path, ".pub") {
			t.Errorf("%s has the mode %v, want no permission for group and others", path, i.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(g.Stderr.String(), harness.PlantedKey) {
		t.Error("the key is in the process log")
	}

	for what, received := range map[string]*receivedLines{"syslog": syslogLines,
		"OTLP": otlpLines, "the webhook": webhookLines} {
		anchors := filepath.Join(t.TempDir(), "anchors")
		if err := os.WriteFile(anchors, []byte(received.checkpoints()), 0o600); err != nil {
			t.Fatal(err)
		}
		verify := func(dir string, args ...string) (string, error) {
			out, err := exec.Command(peers.Gatekit(t),
				append([]string{"audit", "verify", filepath.Join(dir, "audit.jsonl")},
					args...)...).CombinedOutput()
			return string(out), err
		}
		if out, err := verify(g.Dir, "--since", anchors); err != nil ||
			received.checkpoints() == "" {
			t.Errorf("verify the log against the checkpoints of %s, %q: %v: %s", what,
				received.checkpoints(), err, out)
		}
		if out, err := verify(older); err != nil {
			t.Errorf("verify an older copy: %v: %s", err, out)
		}
		if out, err := verify(older, "--since", anchors); err == nil {
			t.Errorf("verify an older copy against the checkpoints of %s: got no error, want an "+
				"error: %s", what, out)
		}
	}
}

// TestRestartAfterKillResendsUnacknowledgedRecords kills gatekit after the webhook has received
// records, and before it acknowledges them. The next gatekit process sends these records again, so
// that no record is lost.
func TestRestartAfterKillResendsUnacknowledgedRecords(t *testing.T) {
	dir := t.TempDir()
	toKill := make(chan *harness.Gatekit, 1)
	url, received := startWebhook(t, func(n int) bool {
		if n == 3 { // the webhook has the records, but gatekit gets no acknowledgement
			g := <-toKill
			g.Killed = true
			g.Cmd.Process.Signal(syscall.SIGKILL)
			<-g.Exited
		}
		return true
	})
	t.Cleanup(sync.OnceFunc(func() { close(toKill) }))
	config := harness.ScriptedServer("box") + harness.AuditTable +
		sinkTable("hook", "webhook", fmt.Sprintf("url = %q", url))
	g := harness.StartHTTPIn(t, dir, config)
	toKill <- g
	c := g.Connect("2025-11-25")
	if _, err := c.Open(harness.Context(t)); err == nil { // an error means that gatekit was killed
		for end := time.Now().Add(harness.Patience); time.Now().Before(end) && !hasExited(g); {
			c.Tool(harness.Context(t), "box__echo", `{}`)
		}
	}
	select {
	case <-g.Exited:
	case <-time.After(harness.Patience):
		t.Fatal("gatekit was not killed: the webhook got no third request")
	}
	g.KillChildren()
	before := len(received.records())

	next := harness.StartHTTPIn(t, dir, config)
	harness.CallTool(t, next.Client("2025-11-25"), "box__echo", `{}`)
	next.Stop()
	log := next.LogLines()
	if records := received.records(); !slices.Equal(records, log) {
		t.Errorf("the webhook got %d records, %d of them before the kill; want the %d records of "+
			"the log", len(records), before, len(log))
	}
	if before == 0 || before >= len(log) {
		t.Errorf("the webhook got %d of %d records before the kill, want more than none and fewer "+
			"than all", before, len(log))
	}
}

// hasExited reports whether the process has ended.
func hasExited(g *harness.Gatekit) bool {
	select {
	case <-g.Exited:
		return true
	default:
		return false
	}
}

// TestUnavailableSinkDelaysNoCallAndGetsRecordsLater uses a webhook that rejects all records during
// the first run of gatekit. Calls do not wait for the webhook. One record reports that the sink was
// lost. The second run of gatekit sends all records.
func TestUnavailableSinkDelaysNoCallAndGetsRecordsLater(t *testing.T) {
	dir := t.TempDir()
	var available atomic.Bool
	url, received := startWebhook(t, func(int) bool { return available.Load() })
	admin, adminURL := adminEndpoint(t, "")
	config := harness.ScriptedServer("box") + harness.AuditTable +
		sinkTable("hook", "webhook", fmt.Sprintf("url = %q", url)) + admin
	g := harness.StartHTTPIn(t, dir, config)
	c := g.Client("2025-11-25")
	for range 100 {
		harness.CallTool(t, c, "box__echo", `{}`)
	}
	harness.WaitUntilAtMost(t, "missing \"sink lost\" records", 0, func() int {
		return 1 - len(slices.DeleteFunc(g.Records(), func(r harness.Record) bool {
			return r.Action != "sink lost"
		}))
	})
	behind := seriesValues(scrape(t, adminURL)["gatekit_audit_sink_behind"],
		"gatekit_sink")["hook"]
	if log := len(g.LogLines()); behind < 200 || behind > log {
		t.Errorf("gatekit_audit_sink_behind is %d, want from 200 to %d, the records of the log",
			behind, log)
	}
	began := time.Now()
	g.Stop()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the stop took %v, want at most 30s", took)
	}
	if len(received.all()) > 0 {
		t.Errorf("the unavailable webhook got %q, want nothing", received.all())
	}
	const warning = "records were not sent; they will be sent after the next start"
	if text := g.Stderr.String(); !strings.Contains(text, warning) {
		t.Errorf("stderr does not contain %q:\n%s", warning, text)
	}
	available.Store(true)
	next := harness.StartHTTPIn(t, dir, config)
	next.Stop()
	log := next.LogLines()
	if got := received.all(); !slices.Equal(got, log) {
		t.Errorf("the webhook got %d lines, want each of the %d lines of the log once", len(got),
			len(log))
	}
	lost := slices.DeleteFunc(next.Records(), func(r harness.Record) bool {
		return !strings.HasPrefix(r.Action, "sink ")
	})
	if len(lost) != 1 || lost[0].Action != "sink lost" || lost[0].Reason != `sink "hook"` ||
		!strings.Contains(lost[0].Error, "503") {
		t.Errorf("the log has the sink records %+v, want one \"sink lost\" record with status 503",
			lost)
	}
}
