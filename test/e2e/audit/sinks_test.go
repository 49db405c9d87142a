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

// outlet is what a receiver of records got: lines of JSON, checkpoints among them.
type outlet struct {
	mu    sync.Mutex
	lines []string
}

func (o *outlet) add(lines ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, lines...)
}

func (o *outlet) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.lines)
}

// records are the lines without the checkpoints, and without what came a second time.
func (o *outlet) records() (lines []string) {
	for _, l := range o.all() {
		if strings.HasPrefix(l, `{"seq":`) && !slices.Contains(lines, l) {
			lines = append(lines, l)
		}
	}
	return lines
}

// checkpoints are the signed notes, one after another.
func (o *outlet) checkpoints() (notes string) {
	for _, l := range o.all() {
		var c struct{ Checkpoint string }
		if json.Unmarshal([]byte(l), &c) == nil && c.Checkpoint != "" {
			notes += c.Checkpoint + "\n"
		}
	}
	return notes
}

// syslogServer is a receiver over TCP that takes lengths and RFC 5424.
func syslogServer(t *testing.T) (url string, got *outlet) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got = &outlet{}
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
						got.add(*m.Message)
					}
				})).Parse(c)
			}()
		}
	}()
	return "tcp://" + l.Addr().String(), got
}

// logsServer is an OTLP collector over gRPC.
type logsServer struct {
	collector.UnimplementedLogsServiceServer
	outlet
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

func otlpServer(t *testing.T) (url string, got *outlet) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, logs := grpc.NewServer(), &logsServer{}
	collector.RegisterLogsServiceServer(s, logs)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return "http://" + l.Addr().String(), &logs.outlet
}

// hook is a webhook; answer says whether it takes a request, nil all.
func hook(t *testing.T, answer func(n int) bool) (url string, got *outlet) {
	t.Helper()
	got = &outlet{}
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		got.mu.Lock()
		n++
		try := n
		got.mu.Unlock()
		if answer != nil && !answer(try) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		for line := range strings.Lines(string(body)) {
			got.add(strings.TrimSuffix(line, "\n"))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

// sinkTable is the configuration of a sink.
func sinkTable(name, kind string, lines ...string) string {
	return fmt.Sprintf("[[audit.sink]]\nname = %q\nkind = %q\n%s\n", name, kind, strings.Join(lines,
		"\n"))
}

// log are the lines of the audit log.
func log(g *harness.Gatekit) (lines []string) {
	g.T.Helper()
	b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
	if err != nil {
		g.T.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// All sinks at once, and a server that plants a key everywhere: each sink gets every record to the
// last, the checkpoints that are sent away tell the log from an older copy of all its files, and
// the key is in nothing that Gatekit writes or sends.
func TestEverySinkGetsEveryRecordAndNoSecret(t *testing.T) {
	h, _ := planter("2025-11-25")
	site := httptest.NewServer(h)
	t.Cleanup(site.Close)
	logs, syslogGot := syslogServer(t)
	otel, otelGot := otlpServer(t)
	web, webGot := hook(t, nil)
	config := harness.HTTPServer("box", site.URL) + harness.Builtin("secrets",
		`action = "redact"`) + harness.AuditTable +
		"bodies = \"redacted\"\n" +
		sinkTable("table", "file", `path = "sent/records.csv"`, `format = "csv"`,
			`segment_bytes = 2000`) +
		sinkTable("copy", "file", `path = "sent/copy.jsonl"`) +
		sinkTable("siem", "syslog", fmt.Sprintf("url = %q", logs),
			`send = ["records", "checkpoints"]`) +
		sinkTable("otel", "otlp", fmt.Sprintf("url = %q", otel),
			`send = ["records", "checkpoints"]`) +
		sinkTable("hook", "webhook", fmt.Sprintf("url = %q", web),
			`send = ["records", "checkpoints"]`, `headers = { Authorization = "Bearer `+
				harness.PlantedKey+
				`" }`, `signing_key = "whsec_`+strings.Repeat("c2VjcmV0", 4)+`"`) +
		sinkTable("ocsf", "webhook", fmt.Sprintf("url = %q", web+"/ocsf"), `format = "ocsf"`) +
		sinkTable("people", "stderr")
	g := harness.StartHTTP(t, config)
	c := g.Client("2025-11-25")
	harness.Request(t, c, "tools/list", `{}`)
	for _, where := range []string{"text", "structured", "error", "data"} {
		harness.Request(t, c, "tools/call", `{"name":"box__plant","arguments":{"where":"`+where+
			`"}}`)
	}
	harness.Request(t, c, "tools/call", `{"name":"box__plant","arguments":{"key":"`+
		harness.PlantedKey+`"}}`)
	harness.Request(t, c, "tools/call", `{"name":"box__none","arguments":{"\u001b[31m\u202e":1}}`)
	c.Close()
	g.Stop()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(g.Dir)); err != nil {
		t.Fatal(err)
	}
	// goes on with everything, and begins the next file of the table
	harness.StartHTTPIn(t, g.Dir, config).Stop()

	log := log(g)
	if !strings.Contains(log[0], `"action":"start"`) || !strings.Contains(log[len(log)-1],
		`"action":"stop"`) {
		t.Fatalf("the log goes from %s to %s", log[0], log[len(log)-1])
	}
	copied, err := os.ReadFile(filepath.Join(g.Dir, "sent/copy.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string][]string{
		"the copy": strings.Split(strings.TrimSuffix(string(copied), "\n"), "\n"),
		"syslog":   syslogGot.records(), "OTLP": otelGot.records(), "the webhook": webGot.records(),
	} {
		if !slices.Equal(got, log) {
			t.Errorf("%s has %d records, the log %d: %.300q", what, len(got), len(log), got)
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
			t.Errorf("%s: %v, %q", file, err, all)
		}
		rows += len(all) - 1
	}
	if rows != len(log) || len(tables) < 2 {
		t.Errorf("%d files of tables have %d rows, want %d", len(tables), rows, len(log))
	}
	ocsf := 0
	for _, l := range webGot.all() {
		if strings.Contains(l, `"class_uid":600`) {
			ocsf++
		}
	}
	if ocsf != len(log) {
		t.Errorf("%d OCSF events, want %d", ocsf, len(log))
	}
	if text := g.Stderr.String(); strings.Count(text, "tools/call plant") < 5 ||
		!strings.Contains(text, "stop") {
		t.Errorf("stderr has no text for people:\n%s", text)
	}

	sent := strings.Join(slices.Concat(syslogGot.all(), otelGot.all(), webGot.all()), "\n")
	if strings.Contains(sent, harness.PlantedKey) || !strings.Contains(sent,
		"[secret:aws-access-token") {
		t.Error("the key was sent, or nothing in its place")
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
			t.Errorf("%s is %v", path, i.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(g.Stderr.String(), harness.PlantedKey) {
		t.Error("the key is in the log of the process")
	}

	for what, got := range map[string]*outlet{"syslog": syslogGot, "OTLP": otelGot,
		"the webhook": webGot} {
		anchors := filepath.Join(t.TempDir(), "anchors")
		if err := os.WriteFile(anchors, []byte(got.checkpoints()), 0o600); err != nil {
			t.Fatal(err)
		}
		verify := func(dir string, args ...string) (string, error) {
			out, err := exec.Command(peers.Gatekit(t),
				append([]string{"audit", "verify", filepath.Join(dir, "audit.jsonl")},
					args...)...).CombinedOutput()
			return string(out), err
		}
		if said, err := verify(g.Dir, "--since", anchors); err != nil || got.checkpoints() == "" {
			t.Errorf("held against what %s has, %q: %v: %s", what, got.checkpoints(), err, said)
		}
		if said, err := verify(older); err != nil {
			t.Errorf("an older copy of all: %v: %s", err, said)
		}
		if said, err := verify(older, "--since", anchors); err == nil {
			t.Errorf("an older copy of all, held against what %s has, is taken for the log: %s",
				what, said)
		}
	}
}

// A Gatekit that is killed while a webhook has records and has not said so sends them again;
// nothing is lost.
func TestAKilledGatekitSendsAgainWhatMayNotHaveArrived(t *testing.T) {
	dir := t.TempDir()
	running := make(chan *harness.Gatekit, 1) // the one that is to be killed
	url, got := hook(t, func(n int) bool {
		if n == 3 { // it has the records, and Gatekit will not hear of it
			g := <-running
			g.Killed = true
			g.Cmd.Process.Signal(syscall.SIGKILL)
			<-g.Exited
		}
		return true
	})
	t.Cleanup(sync.OnceFunc(func() { close(running) }))
	config := harness.ScriptedServer("box") + harness.AuditTable + sinkTable("hook",
		"webhook", fmt.Sprintf("url = %q", url))
	g := harness.StartHTTPIn(t, dir, config)
	running <- g
	c := g.Connect("2025-11-25")
	if _, err := c.Open(harness.Context(t)); err == nil { // else it is gone already
		for end := time.Now().Add(harness.Patience); time.Now().Before(end) && !gone(g); {
			c.Tool(harness.Context(t), "box__echo", `{}`)
		}
	}
	select {
	case <-g.Exited:
	case <-time.After(harness.Patience):
		t.Fatal("it was not killed")
	}
	g.KillChildren()
	before := len(got.records())

	next := harness.StartHTTPIn(t, dir, config)
	harness.CallTool(t, next.Client("2025-11-25"), "box__echo", `{}`)
	next.Stop()
	log := log(next)
	if records := got.records(); !slices.Equal(records, log) {
		t.Errorf("it has %d records, before the kill %d, and the log %d", len(records), before,
			len(log))
	}
	if before == 0 || before >= len(log) {
		t.Errorf("%d of %d records came before the kill", before, len(log))
	}
}

// gone says whether the process has ended.
func gone(g *harness.Gatekit) bool {
	select {
	case <-g.Exited:
		return true
	default:
		return false
	}
}

// A webhook that is down while one Gatekit runs gets all of it from the next. That it was lost is
// one record, and messages do not wait for it.
func TestASinkThatIsDownHoldsUpNobodyAndGetsEverythingLater(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	down := true
	url, got := hook(t, func(int) bool {
		mu.Lock()
		defer mu.Unlock()
		return !down
	})
	admin, metrics := operators(t, "")
	config := harness.ScriptedServer("box") + harness.AuditTable + sinkTable("hook",
		"webhook", fmt.Sprintf("url = %q", url)) +
		admin
	g := harness.StartHTTPIn(t, dir, config)
	c := g.Client("2025-11-25")
	for range 100 {
		harness.CallTool(t, c, "box__echo", `{}`)
	}
	harness.WaitUntilAtMost(t, "records that it is lost are missing", 0, func() int {
		return 1 - len(slices.DeleteFunc(g.Records(), func(r harness.Record) bool {
			return r.Action != "sink lost"
		}))
	})
	if n, log := values(scrape(t, metrics)["gatekit_audit_sink_behind"],
		"gatekit_sink")["hook"], len(log(g)); n < 200 || n > log {
		t.Errorf("it is said to be %d records behind, and the log has %d", n, log)
	}
	began := time.Now()
	g.Stop()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if len(got.all()) > 0 {
		t.Errorf("it took %q", got.all())
	}
	if text := g.Stderr.String(); !strings.Contains(text,
		"records were not sent; they will be sent after the next start") {
		t.Errorf("stderr does not say that records are missing:\n%s", text)
	}
	mu.Lock()
	down = false
	mu.Unlock()
	next := harness.StartHTTPIn(t, dir, config)
	next.Stop()
	log := log(next)
	if got := got.all(); !slices.Equal(got, log) {
		t.Errorf("it got %d lines, want the %d of the log, each once", len(got), len(log))
	}
	lost := slices.DeleteFunc(next.Records(), func(r harness.Record) bool {
		return !strings.HasPrefix(r.Action, "sink ")
	})
	if len(lost) != 1 || lost[0].Action != "sink lost" || lost[0].Reason != `sink "hook"` ||
		!strings.Contains(lost[0].Error, "503") {
		t.Errorf("the log has %+v", lost)
	}
}
