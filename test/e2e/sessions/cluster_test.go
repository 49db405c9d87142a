package sessions

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// replicas are gatekits behind a balancer that sends each request to another one than the last.
type replicas struct {
	all []*harness.Gatekit
	URL string // of the balancer
}

// startReplicas starts n replicas with the same configuration.
func startReplicas(t *testing.T, n int, config string) *replicas {
	t.Helper()
	r := &replicas{}
	dir := certificates(t)
	var urls []string
	for i := range n {
		g := harness.StartHTTP(t, clustertest.Config(i, peers.FreeAddress(t), dir)+config)
		r.all, urls = append(r.all, g), append(urls, g.URL)
	}
	handler, err := clustertest.RoundRobin(urls...)
	if err != nil {
		t.Fatal(err)
	}
	balancer := httptest.NewServer(handler)
	t.Cleanup(balancer.Close)
	r.URL = balancer.URL + "/mcp"
	return r
}

// certificates returns a new folder with the certificates of replicas.
func certificates(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := clustertest.WriteCertificates(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// connect connects a client to the balancer.
func (r *replicas) connect(t *testing.T, revision string) *mcptest.Client {
	c := mcptest.NewClient(mcptest.NewHTTP(r.URL), revision)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestReplicasServeAClientTogether sends each request of a client to another replica than the last.
// The client uses every feature of a server, and answers the questions of the server. The
// session's messages are in the log of one replica, with the names of those that forwarded them.
func TestReplicasServeAClientTogether(t *testing.T) {
	harness.Long(t, "starts three replicas for each pair of revisions")
	for _, pair := range []struct{ client, server string }{
		{"2025-11-25", "2025-11-25"}, {"2025-03-26", "2025-11-25"}, {mcptest.Modern, "2025-11-25"},
		{"2025-11-25", mcptest.Modern}, {mcptest.Modern, mcptest.Modern},
	} {
		t.Run(pair.client+" before "+pair.server, func(t *testing.T) {
			r := startReplicas(t, 3, harness.ScriptedServer("box", "-revisions", pair.server))
			c := r.connect(t, pair.client)
			harness.Handshake(t, c)
			areModern := pair.client == mcptest.Modern && pair.server == mcptest.Modern
			if !areModern { // a replica that was not asked for the lists knows no resources
				listAndUseAll(t, c)
			}
			answerAllServerRequests(t, c)
			sessions, via := map[string]int{}, map[string]bool{}
			for _, g := range r.all {
				for _, line := range g.Records() {
					if line.Method == "tools/call" && line.Kind == "request" {
						sessions[line.Session]++
						via[line.Via] = true
					}
				}
			}
			if len(sessions) != 1 {
				t.Errorf("the calls have the sessions %v, want one session", sessions)
			}
			// A modern server asks in results, so no call waits on one replica.
			if delete(via, ""); (len(via) == 0) != areModern {
				t.Errorf("the calls were forwarded by %v", via)
			}
		})
	}
}

// TestSessionOfADeadReplica kills the replica that has a session. The client learns that the
// session has ended, and a call that was running there is not made again.
func TestSessionOfADeadReplica(t *testing.T) {
	r := startReplicas(t, 2, harness.ScriptedServer("box"))
	h := mcptest.NewHTTP(r.URL)
	c := mcptest.NewClient(h, "2025-11-25")
	t.Cleanup(func() { c.Close() })
	harness.Handshake(t, c)
	harness.CallTool(t, c, "box__echo", `{"tag":1}`)
	owner := 0
	if len(r.all[1].Records()) > len(r.all[0].Records()) {
		owner = 1
	}
	r.all[owner].Killed = true
	r.all[owner].Cmd.Process.Kill()
	<-r.all[owner].Exited
	r.all[owner].KillChildren()
	other := r.all[1-owner]
	request, err := http.NewRequest(http.MethodPost, other.URL, strings.NewReader(
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"box__echo"}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Mcp-Session-Id", h.Session())
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusNotFound || !strings.Contains(string(body), "initialize") ||
		!strings.Contains(string(body), `"id":9,`) {
		t.Errorf("got %s %s, want status 404 that asks for initialize", answer.Status, body)
	}
	other.WantReasons("the replica that made the id is gone")
	c = other.Client("2025-11-25")
	harness.CallTool(t, c, "box__echo", `{"tag":2}`)
}

// TestStreamOfOneReplicaTakesPostsOfAnother uses the HTTP+SSE transport of 2024-11-05. The stream
// is open at one replica, and the messages are posted to the other one.
func TestStreamOfOneReplicaTakesPostsOfAnother(t *testing.T) {
	r := startReplicas(t, 2, harness.ScriptedServer("box"))
	base := func(g *harness.Gatekit) string { return strings.TrimSuffix(g.URL, "/mcp") }
	stream, err := http.Get(base(r.all[0]) + "/sse")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		t.Fatal("the stream has ended")
		return ""
	}
	path := next()
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"ping"}`,
	} {
		answer, err := http.Post(base(r.all[1])+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusAccepted {
			t.Fatalf("got %s, want status 202", answer.Status)
		}
		if got := next(); !strings.Contains(got, `"result":`) {
			t.Errorf("got %s on the stream, want a result", got)
		}
	}
	r.all[0].WantRecords("to_client response initialize - - answer")
	for _, record := range r.all[1].Records() {
		if record.Action != "roster" && record.Action != "start" {
			t.Errorf("the replica that forwarded has the record %s", record)
		}
	}
}

// TestLogsOfReplicasNameEachOther verifies the logs of three replicas together, and then without
// the log of one of them. The first replica has met the second one, which has served its request;
// and it knows the third one from the configuration.
func TestLogsOfReplicasNameEachOther(t *testing.T) {
	r := startReplicas(t, 3, "replicas = [\"replica-0\", \"replica-1\", \"replica-2\"]\n"+
		harness.ScriptedServer("box"))
	h := mcptest.NewHTTP(r.all[1].URL)
	c := mcptest.NewClient(h, "2025-11-25")
	t.Cleanup(func() { c.Close() })
	harness.Handshake(t, c)
	request, err := http.NewRequest(http.MethodPost, r.all[0].URL, strings.NewReader(
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"box__echo"}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Mcp-Session-Id", h.Session())
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Gatekit-About") != "" {
		t.Fatalf("got %s with the headers %v", answer.Status, answer.Header)
	}
	c.Close()
	fleet := t.TempDir()
	for i, g := range r.all {
		g.Stop()
		all := g.Records()
		if all[0].Action != "roster" || all[1].Action != "start" {
			t.Errorf("the log of replica %d begins with %s and %s", i, all[0], all[1])
		}
		met := 0
		for _, record := range all[2:] {
			if record.Action == "roster" {
				met++
			}
		}
		if want := []int{1, 1, 0}[i]; met != want {
			t.Errorf("replica %d has met %d replicas, want %d", i, met, want)
		}
		to := filepath.Join(fleet, fmt.Sprint("machine-", i))
		if err := os.MkdirAll(to, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"audit.jsonl", "audit.jsonl.pub"} {
			b, err := os.ReadFile(filepath.Join(g.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.CopyFS(filepath.Join(to, "audit.jsonl.tree"),
			os.DirFS(filepath.Join(g.Dir, "audit.jsonl.tree"))); err != nil {
			t.Fatal(err)
		}
	}
	r.all[1].WantRecords("to_server request tools/call box echo pass")
	verify := func(want ...string) {
		t.Helper()
		out, err := exec.CommandContext(harness.Context(t), peers.Gatekit(t), "audit", "verify",
			"--fleet", fleet).CombinedOutput()
		text := strings.Join(strings.Fields(string(out)), " ")
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("verify printed (%v)\n%s\nwant %s", err, out, w)
			}
		}
		if strings.Contains(text, "failed") != (err != nil) {
			t.Errorf("verify ended with %v\n%s", err, out)
		}
	}
	verify("ok replica-0 records 1 to", "ok replica-1 records 1 to", "ok replica-2 records 1 to")
	for _, i := range []int{1, 2} {
		if err := os.RemoveAll(filepath.Join(fleet, fmt.Sprint("machine-", i))); err != nil {
			t.Fatal(err)
		}
	}
	verify("ok replica-0", "missing replica-1 its log", "missing replica-2 the configuration of",
		"2 of 3 audit logs failed")
}
