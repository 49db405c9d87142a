package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/policies"
	"gatekit/transport/console"
)

func newTestFleet(dir string) *consoleFleet {
	return newConsoleFleet(dir, func(context.Context) (*policies.Stage, error) {
		return nil, errors.New("there is no configuration")
	})
}

// replicaLog opens the log of a replica in a fleet. The test closes it.
func replicaLog(t *testing.T, dir, name string) *audit.Log {
	t.Helper()
	l, err := audit.Open(audit.Options{File: filepath.Join(dir, name, "gatekit.jsonl"),
		Replica: name, Durability: audit.DurabilityAsync, QueueBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// refuse records refused requests for a tool, each of which is a call.
func refuse(t *testing.T, l *audit.Log, tool string, times ...time.Time) {
	t.Helper()
	for _, at := range times {
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: at, Action: "deny",
			Before: &mcp.Message{Direction: mcp.ToServer, Kind: mcp.Request,
				Method: "tools/call", Name: tool, Server: "box"}}); err != nil {
			t.Fatal(err)
		}
	}
}

func closeLog(t *testing.T, logs ...*audit.Log) {
	t.Helper()
	for _, l := range logs {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// every returns n times with a distance between them.
func every(start time.Time, distance time.Duration, n int) (times []time.Time) {
	for i := range n {
		times = append(times, start.Add(time.Duration(i)*distance))
	}
	return times
}

// namesOf returns the calls of a list: "gatekit-1:2 read".
func namesOf(list *console.FleetCallList) (calls []string) {
	for _, c := range list.Calls {
		calls = append(calls, fmt.Sprintf("%s:%d %s", c.Replica, c.FirstSeq, c.Name))
	}
	return calls
}

// pagesOf returns all pages of the calls that q selects, and checks that no call comes twice or
// after an older one.
func pagesOf(t *testing.T, traffic *consoleFleetTraffic, q console.FleetQuery) (calls []string,
	pages int) {
	t.Helper()
	seen, last := map[string]bool{}, time.Now().Add(time.Hour)
	for before := ""; ; pages++ {
		list, err := traffic.Calls(t.Context(), q, before)
		if err != nil || len(list.Failures) > 0 {
			t.Fatalf("page %d: %v, failures %q", pages+1, err, list.Failures)
		}
		for i, name := range namesOf(list) {
			start := list.Calls[i].Start
			if seen[name] || start.After(last) {
				t.Fatalf("page %d: the call %s comes twice, or after an older one", pages+1, name)
			}
			seen[name], last = true, start
			calls = append(calls, name)
		}
		if len(list.Calls) > consoleCalls || pages > 100 {
			t.Fatalf("page %d has %d calls", pages+1, len(list.Calls))
		}
		if before = list.Before; before == "" {
			return calls, pages + 1
		}
	}
}

func TestFleetStatsCountAllLogs(t *testing.T) {
	dir := t.TempDir()
	if err := writeFleet(dir); err != nil {
		t.Fatal(err)
	}
	stats := &consoleStats{source: newTestFleet(dir).stats}
	report, err := stats.Stats(t.Context(), "--since 2020-01-01")
	if err != nil || report.Calls.All != 3 || len(report.Replicas()) != 3 ||
		len(report.Failures) != 0 {
		t.Fatalf("got %+v, error %v, want a call of each of 3 replicas", report, err)
	}
	again, err := stats.Stats(t.Context(), "--since 2020-01-01")
	if err != nil || again != report {
		t.Errorf("the logs were read again, although they have not changed (error %v)", err)
	}
	l := replicaLog(t, dir, "gatekit-1")
	refuse(t, l, "echo", time.Now())
	closeLog(t, l)
	if report, err = stats.Stats(t.Context(), "--since 2020-01-01"); err != nil ||
		report.Calls.All != 4 {
		t.Errorf("after another call: %+v, error %v", report, err)
	}
}

func TestFleetRecords(t *testing.T) {
	dir := t.TempDir()
	if err := writeFleet(dir); err != nil {
		t.Fatal(err)
	}
	f := newTestFleet(dir)
	records, err := f.Records("gatekit-1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := records.Call(t.Context(), 3)
	if err != nil || c.Name != "read" || len(c.Records) != 2 || c.Records[0].Via != "gatekit-0" {
		t.Fatalf("Call: %+v, error %v", c, err)
	}
	if _, err := records.Explain(t.Context(), c); err == nil ||
		err.Error() != "there is no configuration" {
		t.Errorf("Explain: error %v", err)
	}
	proof, covered, err := records.Prove(t.Context(), 3)
	if err != nil || covered != 3 || !strings.Contains(proof, "\n") {
		t.Errorf("Prove: %q, covers %d, error %v", proof, covered, err)
	}
	if _, err := records.Call(t.Context(), 4); err == nil ||
		!strings.Contains(err.Error(), "the last one is 3") {
		t.Errorf("Call of a record that is not there: error %v", err)
	}
	if _, err := f.Records("gatekit-9"); err == nil {
		t.Error("there are records of a replica that is not there")
	}
}

func TestFleetConsoleBoundsTheNumberOfLogs(t *testing.T) {
	dir := t.TempDir()
	full := positions{}
	for i := range maxConsoleLogs + 1 {
		name := fmt.Sprintf("replica-%03d", i)
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if i < maxConsoleLogs {
			full[fmt.Sprintf("%08x", i)] = 1_000_000_000_000
		}
	}
	if _, err := newTestFleet(dir).list(); err == nil ||
		!strings.Contains(err.Error(), "at most 100") {
		t.Errorf("with 101 folders: error %v", err)
	}
	text := full.String()
	if p, err := parsePositions(text); err != nil || len(p) != maxConsoleLogs ||
		len(text) > 3<<10 {
		t.Errorf("%d positions have %d bytes, error %v; a URL may have 4 KiB", len(p), len(text),
			err)
	}
	if _, err := parsePositions(text + ".ffffffff-1"); err == nil {
		t.Error("101 positions were parsed")
	}
}

// The command serves pages to whoever has its code, once, and only by a name of this machine.
func TestFleetConsoleCommand(t *testing.T) {
	dir := t.TempDir()
	if err := writeFleet(dir); err != nil {
		t.Fatal(err)
	}
	p := &program{log: slog.New(slog.DiscardHandler)}
	c := p.console()
	c.SetArgs([]string{"--fleet", dir, "--json"})
	out, in := io.Pipe()
	c.SetOut(in)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx) }()
	var printed struct{ URL, Scope string }
	if err := json.NewDecoder(out).Decode(&printed); err != nil {
		t.Fatal(err)
	}
	base, code, _ := strings.Cut(printed.URL, "#")
	if !strings.HasPrefix(base, "http://127.0.0.1:") || printed.Scope != "read" {
		t.Fatalf("the command printed %+v", printed)
	}
	ask := func(method, path, host, token, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		b, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(b)
	}
	const page = "api/page/traffic"
	if status, _ := ask("GET", page, "", "", ""); status != 401 {
		t.Errorf("without a token: status %d", status)
	}
	if status, _ := ask("POST", "api/session", "evil.example", "", "code="+code); status != 403 {
		t.Errorf("with another name of the host: status %d", status)
	}
	status, body := ask("POST", "api/session", "", "", "code="+code)
	var session struct{ Token, Scope string }
	if err := json.Unmarshal([]byte(body), &session); err != nil || status != 200 ||
		session.Scope != "read" {
		t.Fatalf("with the code: status %d, scope %q, %v", status, session.Scope, err)
	}
	if status, _ := ask("POST", "api/session", "", "", "code="+code); status != 403 {
		t.Errorf("with the code for the second time: status %d", status)
	}
	if status, body := ask("GET", page, "", session.Token, ""); status != 200 ||
		!strings.Contains(body, "#record?seq=gatekit-1%3a2") {
		t.Errorf("with the token: status %d\n%s", status, body)
	}
	for _, other := range []string{"waiting", "servers", "tools", "pins", "policies", "audit"} {
		if status, _ := ask("GET", "api/page/"+other, "", session.Token, ""); status != 404 {
			t.Errorf("the page %s, which needs a running gatekit: status %d", other, status)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the command ended with %v", err)
	}
}
